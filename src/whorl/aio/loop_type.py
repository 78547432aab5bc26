"""The type of the asyncio face's loop, for the modules that it is made of.

They stand below `EventLoop`, so they cannot name it. `AnyLoop` declares the attributes and private methods
that they use, besides those of asyncio and of the machine's loop. A new one is a new line here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor
    from contextvars import Context
    from typing import Any, Protocol, TypeVar

    from whorl.core.callback import Callback
    from whorl.core.loop.loop import Loop

    ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

    class FdTable(Protocol):
        """The table of transports by descriptor."""

        def add(self, fd: int, transport: Any) -> None: ...
        def discard(self, fd: int, transport: Any) -> None: ...
        def get(self, fd: int) -> Any: ...
        def values(self) -> list[Any]: ...

    class Closeable(Protocol):
        """A transport of a pipe, or the watch of a child's exit."""

        def close(self) -> None: ...

    class Generators(Protocol):
        """The asynchronous generators that are iterated and not finished."""

        def add(self, generator: Any) -> None: ...
        def discard(self, generator: Any) -> None: ...
        def clear(self) -> None: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Any]: ...

    class AnyLoop(Loop, asyncio.BaseEventLoop):  # type: ignore[misc]
        """An `EventLoop`, as the modules below it see it, and as type checkers see its public methods.

        It is no `BaseEventLoop` when it runs. The stub of that class has every method, with each form of its
        arguments; that of `AbstractEventLoop` only has abstract ones.
        """

        slow_callback_duration: float
        _asyncgens_shutdown_called: bool
        _children: set[Closeable]
        _clock_resolution: float
        _default_executor: Executor | None
        _exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
        _executor_shutdown_called: bool
        _known_asyncgens: Generators | None
        _old_agen_hooks: Any
        _own_executor: Executor | None
        _saved_origin_depth: int | None
        _signal_handlers: dict[int, Callback]
        _task_factory: Callable[..., Any] | None
        _failed_handshakes: int
        _tls_scratch: memoryview | None
        _transports: FdTable

        @property
        def _asyncgens(self) -> Generators: ...
        def _asyncgen_firstiter_hook(self, generator: Any) -> None: ...
        def _asyncgen_finalizer_hook(self, generator: Any) -> None: ...

        def _allows_nested_runs(self) -> bool: ...
        def _run_once(self) -> None: ...

        # Scheduling.
        def _call_soon(self, callback: Any, args: Any, context: Any) -> Callback: ...
        def _write_to_self(self) -> None: ...
        def _process_events(self, event_list: list[Any]) -> None: ...

        # Descriptors of the user's.
        def _ensure_fd_no_transport(self, fd: Any) -> None: ...
        def _add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> Callback: ...
        def _remove_reader(self, fd: Any) -> bool: ...
        def _add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> Callback: ...
        def _remove_writer(self, fd: Any) -> bool: ...

        # Connections.
        async def _ensure_resolved(
            self,
            address: Any,
            *,
            family: int = 0,
            type: int = ...,  # noqa: A002 - asyncio's name
            proto: int = 0,
            flags: int = 0,
            loop: Any,
        ) -> list[tuple[Any, Any, int, str, Any]]: ...
        async def _create_connection_transport(
            self,
            sock: Any,
            protocol_factory: Callable[[], ProtocolT],
            ssl: Any,
            server_hostname: str | None,
            server_side: bool = False,
            ssl_handshake_timeout: float | None = None,
            ssl_shutdown_timeout: float | None = None,
            context: Context | None = None,
        ) -> tuple[asyncio.Transport, ProtocolT]: ...
        def _make_socket_transport(
            self,
            sock: Any,
            protocol: asyncio.BaseProtocol,
            waiter: asyncio.Future[None] | None = None,
            *,
            extra: dict[str, Any] | None = None,
            server: Any = None,
            context: Context | None = None,
        ) -> asyncio.Transport: ...
        def _make_ssl_transport(
            self,
            rawsock: Any,
            protocol: asyncio.BaseProtocol,
            sslcontext: Any,
            waiter: asyncio.Future[None] | None = None,
            *,
            server_side: bool = False,
            server_hostname: str | None = None,
            extra: dict[str, Any] | None = None,
            server: Any = None,
            ssl_handshake_timeout: float | None = None,
            ssl_shutdown_timeout: float | None = None,
            context: Context | None = None,
        ) -> asyncio.Transport: ...
        def _make_datagram_transport(
            self,
            sock: Any,
            protocol: asyncio.BaseProtocol,
            address: Any = None,
            waiter: asyncio.Future[None] | None = None,
            extra: dict[str, Any] | None = None,
        ) -> asyncio.DatagramTransport: ...

        async def create_unix_server(
            self,
            protocol_factory: Callable[[], asyncio.BaseProtocol],
            path: Any = None,
            *,
            sock: Any = None,
            backlog: int = 100,
            ssl: Any = None,
            ssl_handshake_timeout: float | None = None,
            ssl_shutdown_timeout: float | None = None,
            start_serving: bool = True,
            cleanup_socket: bool = ...,
            mode: int | None = None,  # asyncio's has none
        ) -> asyncio.Server: ...

        # Pipes and programs.
        def _make_read_pipe_transport(
            self,
            pipe: Any,
            protocol: asyncio.BaseProtocol,
            waiter: asyncio.Future[None] | None = None,
            extra: dict[str, Any] | None = None,
        ) -> Closeable: ...
        def _make_write_pipe_transport(
            self,
            pipe: Any,
            protocol: asyncio.BaseProtocol,
            waiter: asyncio.Future[None] | None = None,
            extra: dict[str, Any] | None = None,
        ) -> Closeable: ...
        async def _make_subprocess_transport(
            self,
            protocol: asyncio.BaseProtocol,
            args: Any,
            shell: bool,
            stdin: Any,
            stdout: Any,
            stderr: Any,
            bufsize: int,
            extra: dict[str, Any] | None = None,
            **options: Any,
        ) -> asyncio.SubprocessTransport: ...

        # Files.
        def _check_sendfile_params(self, sock: Any, file: Any, offset: Any, count: Any) -> None: ...
        async def _sendfile_native(
            self, transport: Any, file: Any, offset: int, count: int | None
        ) -> int: ...
        async def _sendfile_fallback(
            self, transport: Any, file: Any, offset: int, count: int | None
        ) -> int: ...
        async def _sock_sendfile_native(
            self, sock: Any, file: Any, offset: int, count: int | None, transport: Any = None
        ) -> int: ...
        async def _sock_sendfile_fallback(
            self, sock: Any, file: Any, offset: int, count: int | None
        ) -> int: ...

else:
    AnyLoop = asyncio.AbstractEventLoop
