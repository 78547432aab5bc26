"""The loop of the asyncio face: a table of contents."""

from __future__ import annotations

import asyncio
import weakref
from asyncio import coroutines
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from whorl.aio import (
    clock,
    connect,
    datagrams,
    descriptors,
    dns,
    errors,
    executor,
    pipes,
    readers,
    running,
    servers,
    signals,
    sockets,
    starttls,
    subprocesses,
    tasks,
)
from whorl.aio import sendfile as files
from whorl.aio.transport_table import TransportTable
from whorl.core.callback import Callback
from whorl.core.loop import Loop
from whorl.handles.exit_watch import ExitWatch

if TYPE_CHECKING:
    import selectors

    from whorl.core.host import Host
    from whorl.core.kernel import Kernel
    from whorl.core.poller import Poller


class EventLoop(Loop, clock.Watched, asyncio.AbstractEventLoop):  # type: ignore[misc]
    """An event loop for asyncio, which is a loop of the machine's at the same time.

    `selector` is an object of the `selectors` module, as `asyncio.SelectorEventLoop` takes it; the
    keywords are those of `whorl.Loop`.
    """

    # The class has an instance dictionary all the same; filled, it makes finding each method slower.
    __slots__ = (
        "_asyncgens",
        "_asyncgens_shutdown_called",
        "_children",
        "_clock_function",
        "_clock_resolution",
        "_default_executor",
        "_exception_handler",
        "_executor_shutdown_called",
        "_old_agen_hooks",
        "_saved_origin_depth",
        "_signal_handlers",
        "_task_factory",
        "_tls_scratch",
        "_transports",
        "slow_callback_duration",
    )

    def __init__(
        self,
        selector: selectors.BaseSelector | None = None,
        *,
        poller: Poller | selectors.BaseSelector | str | None = None,
        kernel: Kernel | None = None,
        host: Host | None = None,
    ) -> None:
        if selector is not None and poller is not None:
            raise TypeError("selector and poller mean the same thing; give one of them")
        super().__init__(poller=selector if poller is None else poller, kernel=kernel, host=host)
        self._clock_function: Callable[[], float]
        clock.use_own(self)
        self.slow_callback_duration = 0.1  # seconds; debug mode logs callbacks that take longer
        self._clock_resolution = 1e-9
        self._exception_handler: errors.Handler | None = None
        self._task_factory: Callable[..., Any] | None = None
        self._default_executor: Executor | None = None
        self._executor_shutdown_called = False
        self._asyncgens: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        self._asyncgens_shutdown_called = False
        self._old_agen_hooks: Any = None
        self._saved_origin_depth: int | None = None
        self._transports = TransportTable()  # those of sockets
        self._tls_scratch: memoryview | None = None  # the buffer that all TLS connections share
        self._signal_handlers: dict[int, Callback] = {}
        self._children: set[ExitWatch] = set()  # those that run
        self._guards_posts = errors.GUARDS_POSTS
        self.set_debug(coroutines._is_debug_mode())  # type: ignore[attr-defined]

    # Running and closing. Scheduling is the machine's: call_soon, call_later, call_at, stop ...
    run_forever = running.run_forever
    run_until_complete = running.run_until_complete
    close = running.close
    set_debug = running.set_debug
    time = clock.TIME
    _look_again = clock.look_again
    _scheduled = property(clock.scheduled)
    shutdown_asyncgens = running.shutdown_asyncgens
    _asyncgen_firstiter_hook = running.asyncgen_began
    _asyncgen_finalizer_hook = running.asyncgen_dropped
    _begin_run = _run_forever_setup = running.begin_run
    _end_run = _run_forever_cleanup = running.end_run
    _run_once = running.run_once
    __repr__ = running.describe
    __del__ = running.finalize

    # Futures and tasks.
    create_future = tasks.create_future
    create_task = tasks.create_task
    set_task_factory = tasks.set_task_factory
    get_task_factory = tasks.get_task_factory

    # Threads, names and addresses.
    run_in_executor = executor.run_in_executor
    set_default_executor = executor.set_default_executor
    shutdown_default_executor = executor.shutdown_default_executor
    getaddrinfo = dns.getaddrinfo
    getnameinfo = dns.getnameinfo

    # Connections and servers.
    create_connection = connect.create_connection
    create_unix_connection = connect.create_unix_connection
    connect_accepted_socket = connect.connect_accepted_socket
    create_server = servers.create_server  # type: ignore[assignment]
    create_unix_server = servers.create_unix_server  # type: ignore[assignment]
    create_datagram_endpoint = datagrams.create_datagram_endpoint  # type: ignore[assignment]
    start_tls = starttls.start_tls
    _create_connection_transport = connect.create_connection_transport
    _make_socket_transport = connect.make_socket_transport
    _make_ssl_transport = starttls.make_ssl_transport
    _make_datagram_transport = datagrams.make_datagram_transport

    # Pipes.
    connect_read_pipe = pipes.connect_read_pipe
    connect_write_pipe = pipes.connect_write_pipe
    _make_read_pipe_transport = pipes.make_read_pipe_transport
    _make_write_pipe_transport = pipes.make_write_pipe_transport

    # Subprocesses.
    subprocess_exec = subprocesses.subprocess_exec
    subprocess_shell = subprocesses.subprocess_shell
    _make_subprocess_transport = subprocesses.make_subprocess_transport
    _close_children = subprocesses.close_children

    # Descriptors and sockets of the user's.
    add_reader = readers.add_reader
    remove_reader = readers.remove_reader
    add_writer = readers.add_writer
    remove_writer = readers.remove_writer
    _add_reader = readers.watch_reader
    _remove_reader = readers.unwatch_reader
    _add_writer = readers.watch_writer
    _remove_writer = readers.unwatch_writer
    _ensure_fd_no_transport = descriptors.ensure_no_transport
    sock_recv = sockets.sock_recv  # type: ignore[assignment]
    sock_recv_into = sockets.sock_recv_into
    sock_recvfrom = sockets.sock_recvfrom
    sock_recvfrom_into = sockets.sock_recvfrom_into
    sock_sendall = sockets.sock_sendall
    sock_sendto = sockets.sock_sendto
    sock_connect = sockets.sock_connect
    sock_accept = sockets.sock_accept

    # Files.
    sendfile = files.sendfile
    sock_sendfile = files.sock_sendfile  # type: ignore[assignment]
    _check_sendfile_params = files.check_sendfile_params
    _sendfile_native = files.sendfile_native
    _sendfile_fallback = files.sendfile_fallback
    _sock_sendfile_native = files.sock_sendfile_native
    _sock_sendfile_fallback = files.sock_sendfile_fallback

    # Signals.
    add_signal_handler = signals.add_signal_handler
    remove_signal_handler = signals.remove_signal_handler
    _remove_all_signal_handlers = signals.remove_all_signal_handlers
    _signal_arrived = signals.signal_arrived
    _wants_signals = signals.wants_signals

    # Errors.
    get_exception_handler = errors.get_exception_handler
    set_exception_handler = errors.set_exception_handler
    call_exception_handler = errors.call_exception_handler
    default_exception_handler = errors.default_exception_handler
    _callback_failed = errors.callback_failed
    _callback_ran = errors.callback_ran
    _check_callback = errors.check_callback
    _note_origin = errors.note_origin
    _shown_class = errors.shown_class
    _describe = errors.describe


tasks.name_coroutines(EventLoop)
