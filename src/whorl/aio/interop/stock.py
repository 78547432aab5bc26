"""The assumptions of Whorl about CPython's asyncio and around it: one question for each."""

from __future__ import annotations

import socket
from asyncio import futures, streams
from concurrent.futures import _base, thread
from types import CodeType, FunctionType, ModuleType
from typing import Any

from whorl.aio.interop.class_snapshot import ClassSnapshot

# All of these are as they were when this module was imported.
_Reader: Any = streams.StreamReader
_Protocol: Any = streams.StreamReaderProtocol
_Writer: Any = streams.StreamWriter
_Executor: Any = thread.ThreadPoolExecutor
_WorkItem: Any = thread._WorkItem
_Future: Any = _base.Future
_Socket: Any = socket.socket
_chain: Any = futures._chain_future  # type: ignore[attr-defined]


def _snapshot(*methods: tuple[Any, str]) -> ClassSnapshot:
    """Note methods of classes, each given by the class and by the names that it may have."""
    return ClassSnapshot(
        [
            (owner, name, getattr(owner, name))
            for owner, names in methods
            for name in names.split()
            if hasattr(owner, name)
        ]
    )


# Streams.

_METHODS_OF_STREAMS = _snapshot(
    (
        _Reader,
        "feed_data at_eof set_transport feed_eof _maybe_resume_transport _wait_for_data "
        "read readline readuntil readexactly",
    ),
    (_Protocol, "connection_made data_received"),
    (_Writer, "drain __init__ __del__"),
)
_CONSTRUCTORS_OF_STREAMS = _snapshot(
    (_Reader, "__init__ __setattr__"),
    (_Protocol, "__init__ __setattr__ _stream_reader"),
    (streams.FlowControlMixin, "__init__"),
)
_FACTORIES = frozenset(
    code
    for function in (streams.start_server, streams.start_unix_server)
    for code in function.__code__.co_consts
    if isinstance(code, CodeType)
    and code.co_name == "factory"
    and set(code.co_freevars) == {"client_connected_cb", "limit", "loop"}
)

# The attributes of a new protocol that are the same in each; those of older Pythons may be missing.
_SAME_IN_EACH = {
    "_paused": False,
    "_connection_lost": False,
    "_source_traceback": None,
    "_reject_connection": False,
    "_task": None,
    "_transport": None,
    "_over_ssl": False,
    "_stream_writer": None,
}
_OWN_OF_EACH = {
    "_client_connected_cb",
    "_closed",
    "_drain_waiters",
    "_loop",
    "_stream_reader_wr",
    "_strong_reader",
}
_OF_READERS = {"_buffer", "_eof", "_exception", "_limit", "_loop", "_paused", "_transport", "_waiter"}
_OF_WRITERS = {"_transport", "_protocol", "_reader", "_loop", "_complete_fut"}


def has_stock_stream_methods() -> bool:
    """Return whether asyncio's streams have the methods that ours replace; if not, asyncio's are used."""
    return _METHODS_OF_STREAMS.is_current()


def has_stock_stream_constructors() -> bool:
    """Return whether asyncio's classes and constructors of streams are in place; if not, they are called."""
    return (
        streams.StreamReader is _Reader
        and streams.StreamReaderProtocol is _Protocol
        and _CONSTRUCTORS_OF_STREAMS.is_current()
    )


def has_stock_writer_attributes(writer: Any) -> bool:
    """Return whether a new `StreamWriter` has the attributes that ours has; if not, it is not replaced."""
    return writer.__dict__.keys() == _OF_WRITERS  # type: ignore[no-any-return]


def has_stock_protocol_attributes(protocol: Any, callback: Any) -> bool:
    """Return whether a new protocol and its reader have the known attributes; if not, asyncio makes each."""
    reader, state = protocol._stream_reader, vars(protocol)
    return (
        state.keys() - {"_stream_writer"} == (_OWN_OF_EACH | _SAME_IN_EACH.keys()) - {"_stream_writer"}
        and all(state[name] is _SAME_IN_EACH[name] for name in state.keys() & _SAME_IN_EACH.keys())
        and vars(reader).keys() == _OF_READERS
        and state["_strong_reader"] is reader
        and state["_client_connected_cb"] is callback
        and not state["_drain_waiters"]
    )


def is_stock_server_factory(factory: Any) -> bool:
    """Return whether asyncio's functions that start servers made it; if not, it is called as it is."""
    is_known = getattr(factory, "__code__", None) in _FACTORIES
    return is_known and getattr(factory, "__globals__", None) is vars(streams)


# Threads.

# Whorl does the work of `submit` in its place. Programs that trace calls replace it, or functions that it
# calls, and a later Python may have another one.
_NEEDED_BY_SUBMIT = {"_adjust_thread_count", "_broken", "_shutdown", "_shutdown_lock", "_work_queue", "put"}
_KNOWN_OF_SUBMIT = _NEEDED_BY_SUBMIT | {
    "BROKEN",
    "BrokenThreadPool",
    "Future",
    "RuntimeError",
    "_WorkItem",
    "_base",
    "_global_shutdown_lock",
    "_resolve_work_item_task",
}


def _is_of(module: ModuleType, function: Any) -> bool:
    """Return whether a function stands in this module."""
    return type(function) is FunctionType and function.__globals__ is vars(module)


def is_stock_submit(submit: Any) -> bool:
    """Return whether it is an executor's `submit` that uses only what is known; if not, it is called."""
    return _is_of(thread, submit) and _NEEDED_BY_SUBMIT <= set(submit.__code__.co_names) <= _KNOWN_OF_SUBMIT


_KNOWS_EXECUTOR = (
    is_stock_submit(_Executor.submit) and _is_of(thread, _WorkItem.run) and _is_of(_base, _Future.set_result)
)
_METHODS_OF_EXECUTOR = _snapshot((_Executor, "submit"), (_WorkItem, "run"), (_Future, "set_result"))


def has_stock_executor_methods() -> bool:
    """Return whether executors of threads submit and run calls as is known; if not, `submit` is called."""
    return _KNOWS_EXECUTOR and _METHODS_OF_EXECUTOR.is_current()


def has_stock_future_chain() -> bool:
    """Return whether asyncio's own function chains futures; if not, `asyncio.wrap_future` is called."""
    return futures._chain_future is _chain  # type: ignore[attr-defined]


def is_stock_executor(executor: Any) -> bool:
    """Return whether nobody sees what this `ThreadPoolExecutor` is given; if not, its `submit` is called."""
    return (
        type(executor) is _Executor
        and has_stock_executor_methods()
        and "submit" not in executor.__dict__
        and has_stock_future_chain()
    )


# Sockets.

_METHODS_OF_SOCKETS = _snapshot(
    (
        _Socket,
        "__init__ accept bind close connect fileno getpeername getsockname getsockopt recv recv_into "
        "send sendmsg setblocking setsockopt",
    )
)


def has_stock_sockets() -> bool:
    """Return whether `socket.socket` and its methods are CPython's; if not, each connection has one."""
    return socket.socket is _Socket and _METHODS_OF_SOCKETS.is_current()


def is_stock_socket(sock: Any) -> bool:
    """Return whether a socket is of CPython's class itself; if not, its own `accept` is called."""
    return type(sock) is _Socket


# Loops of our own.

_METHODS_OF_LOOPS: dict[type, ClassSnapshot] = {}


def snapshot_methods(kind: type) -> None:
    """Note the methods of a class of loops that runs and connects call, to notice when one is replaced."""
    _METHODS_OF_LOOPS[kind] = _snapshot(
        (
            kind,
            "_create_connection_transport _ensure_resolved _make_socket_transport _run_once call_at call_soon "
            "create_future create_task get_debug getaddrinfo run_forever sock_connect stop time",
        )
    )


def has_stock_loop_methods(kind: type) -> bool:
    """Return whether a class of loops is ours with all that runs and connects call.

    If not, shutting down takes turns, and connections are made by the methods.
    """
    methods = _METHODS_OF_LOOPS.get(kind)
    return methods is not None and methods.is_current()
