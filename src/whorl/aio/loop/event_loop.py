"""The loop of the asyncio face: a table of contents."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.first_use import ModuleAtFirstUse, import_all
from whorl.aio.loop import (
    async_generators,
    clock,
    exception_handler,
    lifecycle,
    private_attributes,
    private_ready,
    private_selector,
    shared_by_loops,
    signal_handlers,
    subclass_hooks,
    tasks,
)
from whorl.aio.loop.lifecycle import Running
from whorl.aio.loop_type import AnyLoop
from whorl.aio.threads import executor_end

if TYPE_CHECKING:
    import selectors

    from whorl.core.kernel.kernel import Kernel
    from whorl.core.pollers.contract import Poller
    from whorl.core.process.host import Host


def _at_first_use(module: str) -> ModuleAtFirstUse:
    return ModuleAtFirstUse(f"whorl.aio.{module}", asyncio.SelectorEventLoop)


# What a program may never do: the first use of a method imports its module. Tools that look for imports, as
# type checkers and packagers do, find them here.
if TYPE_CHECKING:
    from whorl.aio.connections import connect, datagram_endpoint, pipes, resolver, server, subprocesses
    from whorl.aio.connections import sendfile as files
    from whorl.aio.connections import start_tls as starttls
    from whorl.aio.loop import nested_runs
    from whorl.aio.sockets import add_reader as readers
    from whorl.aio.sockets import sock_methods, watch
    from whorl.aio.threads import executor
else:
    connect = _at_first_use("connections.connect")
    datagram_endpoint = _at_first_use("connections.datagram_endpoint")
    executor = _at_first_use("threads.executor")
    files = _at_first_use("connections.sendfile")
    nested_runs = _at_first_use("loop.nested_runs")
    pipes = _at_first_use("connections.pipes")
    readers = _at_first_use("sockets.add_reader")
    resolver = _at_first_use("connections.resolver")
    server = _at_first_use("connections.server")
    sock_methods = _at_first_use("sockets.sock_methods")
    starttls = _at_first_use("connections.start_tls")
    subprocesses = _at_first_use("connections.subprocesses")
    watch = _at_first_use("sockets.watch")


class EventLoop(Running, clock.Watched, AnyLoop):  # type: ignore[misc]
    """An event loop for asyncio, which is a loop of the machine's at the same time.

    `selector` is an object of the `selectors` module, as `asyncio.SelectorEventLoop` takes it; the
    keywords are those of `whorl.Loop`.
    """

    __slots__ = ()

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
        self._set_up_running(selector if poller is None else poller, kernel, host)
        if type(self) is not EventLoop:
            private_selector.call_process_events(self)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        subclass_hooks.install(cls, EventLoop)

    if not TYPE_CHECKING:  # Type checkers take these methods from asyncio's stubs.
        # Running and closing. Scheduling is the machine's: call_soon, call_later, call_at, stop ...
        # Running itself is `Running`'s: run_forever, run_until_complete, set_debug ...
        time = clock.TIME
        _overrides_changed = clock.refresh_overrides
        shutdown_asyncgens = async_generators.shutdown_asyncgens
        _asyncgen_firstiter_hook = async_generators.asyncgen_firstiter
        _asyncgen_finalizer_hook = async_generators.asyncgen_finalizer
        _run_once = lifecycle.run_once
        _allows_nested_runs = nested_runs.allows_nested_runs
        _may_run_inside = nested_runs.may_run_inside
        _run_until_complete_inside = nested_runs.run_until_complete
        _run_forever_inside = nested_runs.run_forever
        _nest_patched = property(private_attributes.nest_patched)
        __repr__ = async_generators.loop_repr

        # Futures and tasks.
        create_future = tasks.create_future
        create_task = tasks.create_task
        set_task_factory = tasks.set_task_factory
        get_task_factory = tasks.get_task_factory

        # Threads, names and addresses.
        run_in_executor = executor.run_in_executor
        set_default_executor = executor.set_default_executor
        shutdown_default_executor = executor_end.shutdown_default_executor
        _check_default_executor = executor.check_default_executor
        getaddrinfo = resolver.getaddrinfo
        getnameinfo = resolver.getnameinfo
        _ensure_resolved = resolver.ensure_resolved

        # Connections and servers.
        create_connection = connect.create_connection
        create_unix_connection = connect.create_unix_connection
        connect_accepted_socket = connect.connect_accepted_socket
        create_server = server.create_server
        create_unix_server = server.create_unix_server
        create_datagram_endpoint = datagram_endpoint.create_datagram_endpoint
        start_tls = starttls.start_tls
        _create_connection_transport = connect.create_connection_transport
        _make_socket_transport = connect.make_socket_transport
        _make_ssl_transport = starttls.make_ssl_transport
        _make_datagram_transport = datagram_endpoint.make_datagram_transport

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
        _ensure_fd_no_transport = watch.ensure_no_transport
        sock_recv = sock_methods.sock_recv
        sock_recv_into = sock_methods.sock_recv_into
        sock_recvfrom = sock_methods.sock_recvfrom
        sock_recvfrom_into = sock_methods.sock_recvfrom_into
        sock_sendall = sock_methods.sock_sendall
        sock_sendto = sock_methods.sock_sendto
        sock_connect = sock_methods.sock_connect
        sock_accept = sock_methods.sock_accept

        # Files.
        sendfile = files.sendfile
        sock_sendfile = files.sock_sendfile
        _check_sendfile_params = files.check_sendfile_params
        _sendfile_native = files.sendfile_native
        _sendfile_fallback = files.sendfile_fallback
        _sock_sendfile_native = files.sock_sendfile_native
        _sock_sendfile_fallback = files.sock_sendfile_fallback

        # Signals.
        add_signal_handler = signal_handlers.add_signal_handler
        remove_signal_handler = signal_handlers.remove_signal_handler
        _remove_all_signal_handlers = signal_handlers.remove_all_signal_handlers
        _signal_arrived = _handle_signal = signal_handlers.signal_arrived
        _wants_signals = signal_handlers.wants_signals

        # The attributes that asyncio's loop has by private names, for programs that use them.
        _ready = property(private_ready.ready, private_ready.replace)
        _scheduled = property(private_attributes.scheduled)
        _selector = property(private_selector.selector, private_selector.replace)
        _process_events = private_selector.process_events
        _current_handle = property(private_attributes.current_handle, private_attributes.set_current_handle)
        _ssock = private_attributes.self_pipe(0)
        _csock = private_attributes.self_pipe(1)
        _internal_fds = property(private_attributes.internal_descriptors)
        _call_soon = private_ready.call_soon
        _add_callback = private_ready.add_callback
        _add_callback_signalsafe = private_ready.add_callback_signalsafe
        _write_to_self = private_ready.write_to_self

        # Errors.
        get_exception_handler = exception_handler.get_exception_handler
        set_exception_handler = exception_handler.set_exception_handler
        call_exception_handler = exception_handler.call_exception_handler
        default_exception_handler = exception_handler.default_exception_handler
        _clock_was_patched = clock.follow_patched_monotonic
        _callback_failed = exception_handler.callback_failed
        _callback_ran = exception_handler.callback_ran
        _check_callback = exception_handler.check_callback
        _note_origin = exception_handler.note_origin
        _shown_class = exception_handler.shown_class
        _describe = exception_handler.describe


tasks.name_coroutines(EventLoop)
shared_by_loops.share(EventLoop)
lifecycle.snapshot_methods(EventLoop)


def import_methods() -> None:
    """Import all that comes at the first use of a method, for programs that replace modules meanwhile."""
    import_all(EventLoop)
