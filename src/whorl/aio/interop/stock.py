"""The assumptions of Whorl about CPython's asyncio and around it: one question for each."""

from __future__ import annotations

import socket
from asyncio import futures, streams
from concurrent.futures import _base
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from whorl.aio.interop import at_import
from whorl.aio.interop.class_snapshot import ClassSnapshot
from whorl.aio.interop.first_use import MethodAtFirstUse, found_in

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    bound_method = MethodType

    def is_method_of(method: Any, function: Any) -> bool:
        """Return whether it is this function, bound to some object."""
        return type(method) is MethodType and method.__func__ is function


# All of these are as they were when this module was imported.
_Reader: Any = at_import.StreamReader
_Protocol: Any = at_import.StreamReaderProtocol
_Writer: Any = at_import.StreamWriter
_Future: Any = at_import.FutureOfThread
_set_result: Any = _Future.set_result
_Socket: Any = socket.socket
_chain: Any = at_import.chain_future


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
        "exception feed_data at_eof set_transport feed_eof _maybe_resume_transport _wait_for_data "
        "read readline readuntil readexactly _wakeup_waiter",
    ),
    (_Protocol, "connection_made data_received eof_received _stream_reader"),
    (_Writer, "drain __init__ __del__"),
)


def _connection_made_with(writer: Any) -> Any:
    """Return asyncio's `connection_made` of stream protocols, making other writers; None if it is unknown.

    It is the same code, with another class under the name `StreamWriter`.
    """
    function = _CONNECTION_MADE
    if type(function) is not FunctionType or function.__globals__ is not vars(streams):
        return None
    code = function.__code__
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    used = {name for each in (code, *inner) for name in each.co_names} & vars(streams).keys()
    if used != {"StreamWriter", "coroutines"} or function.__closure__ or function.__defaults__:
        return None
    names = {"StreamWriter": writer, "coroutines": _COROUTINES, "__name__": streams.__name__}
    own = FunctionType(code, names | {"__builtins__": vars(streams)["__builtins__"]})
    own.__module__ = function.__module__
    return own


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
_FACTORIES_OF_CLIENTS = tuple(
    code
    for function in (streams.open_connection, streams.open_unix_connection)
    for code in function.__code__.co_consts
    if isinstance(code, CodeType) and code.co_name == "<lambda>" and code.co_freevars == ("protocol",)
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


class _NoLoop:
    """A stand-in for the loop of a reader and a writer, which are made only to look at them."""

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def is_closed(self) -> bool:
        """Return False."""
        return False

    def create_future(self) -> Any:
        """Return an object that takes the calls of a future."""
        return self

    def set_result(self, result: None) -> None:
        """Do nothing."""

    def is_closing(self) -> bool:
        """Return True: a writer closes its transport when it is forgotten."""
        return True


def _makes(attributes: set[str], kind: Any, *args: Any) -> bool:
    """Return whether a class gives its objects just these attributes."""
    try:
        answer = bool(vars(kind(*args)).keys() == attributes)
    except TypeError:  # Another class has replaced asyncio's before Whorl was imported.
        answer = False
    return answer


def _method_using(name: str, uses: set[str]) -> Any:
    """Return a method of stream protocols if it uses these names only; if not, None, which no method is."""
    method = vars(_Protocol).get(name)
    return method if type(method) is FunctionType and set(method.__code__.co_names) == uses else None


_NAMES_OF_STREAMS = vars(streams)
_COROUTINES: Any = vars(streams).get("coroutines")
_CONNECTION_MADE: Any = vars(_Protocol).get("connection_made")
_EOF_RECEIVED: Any = _method_using("eof_received", {"_stream_reader", "feed_eof", "_over_ssl"})
#: The same function, but its writers are of the class that was given to `make_writers_of`.
_OWN_CONNECTION_MADE: Any = None
_KNOWS_READERS = _makes(_OF_READERS, _Reader, 1, _NoLoop())
_KNOWS_WRITERS = _makes(_OF_WRITERS, _Writer, _NoLoop(), None, None, _NoLoop())


def has_stock_stream_methods() -> bool:
    """Return whether asyncio's streams have the methods that ours replace; if not, asyncio's are used."""
    return _METHODS_OF_STREAMS.is_current()


def has_stock_stream_constructors() -> bool:
    """Return whether asyncio's classes and constructors of streams are in place; if not, they are called."""
    return (
        _NAMES_OF_STREAMS.get("StreamReader") is _Reader
        and _NAMES_OF_STREAMS.get("StreamReaderProtocol") is _Protocol
        and _CONSTRUCTORS_OF_STREAMS.is_current()
    )


def has_stock_writer_attributes() -> bool:
    """Return whether a new `StreamWriter` has the attributes of Whorl's; if not, it is not replaced."""
    return _KNOWS_WRITERS and _METHODS_OF_STREAMS.is_current()


def has_stock_reader_attributes() -> bool:
    """Return whether a new `StreamReader` has the attributes that ours replaces; if not, we look at each."""
    return _KNOWS_READERS and has_stock_stream_constructors()


def make_writers_of(writer: Any) -> None:
    """Let `connection_made_of` make writers of this class."""
    global _OWN_CONNECTION_MADE
    _OWN_CONNECTION_MADE = _connection_made_with(writer)


def connection_made_of(protocol: Any) -> Any:
    """Return the `connection_made` of a stream protocol of asyncio's: for a server, one with our writer.

    If a program has replaced a method of streams or a class, it is the protocol's own.
    """
    own = protocol.connection_made
    if (
        is_method_of(own, _CONNECTION_MADE)
        and protocol._client_connected_cb is not None
        and _OWN_CONNECTION_MADE is not None
        and _METHODS_OF_STREAMS.is_current()
        and _NAMES_OF_STREAMS.get("StreamWriter") is _Writer
        and _NAMES_OF_STREAMS.get("coroutines") is _COROUTINES
    ):
        return bound_method(_OWN_CONNECTION_MADE, protocol)
    return own


def has_stock_end_of_data(protocol: Any) -> bool:
    """Return whether a stream protocol has asyncio's `eof_received`; if not, that is called."""
    return _METHODS_OF_STREAMS.is_current() and is_method_of(protocol.eof_received, _EOF_RECEIVED)


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


def is_stock_client_factory(factory: Any) -> bool:
    """Return whether asyncio's functions that open streams made it: its reader is new."""
    if type(factory) is not FunctionType or factory.__globals__ is not _NAMES_OF_STREAMS:
        return False
    code = factory.__code__
    for known in _FACTORIES_OF_CLIENTS:
        if code is known:
            return True
    return False


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
    """Return whether it is an executor's `submit` that uses only known names; if not, it is called."""
    from concurrent.futures import thread

    return _is_of(thread, submit) and _NEEDED_BY_SUBMIT <= set(submit.__code__.co_names) <= _KNOWN_OF_SUBMIT


_Executor: Any = None
_METHODS_OF_EXECUTOR: ClassSnapshot | None = None


def _look_at_executors() -> None:
    """Note the methods of executors of threads, at their first use: asyncio does not import them at once.

    A method that a program has replaced before is none of the module's own functions. Then nothing is noted,
    as it may come back.
    """
    from concurrent.futures import thread

    global _Executor, _METHODS_OF_EXECUTOR
    executor: Any = thread.ThreadPoolExecutor
    work_item: Any = thread._WorkItem
    is_known = is_stock_submit(executor.submit) and _is_of(thread, work_item.run)
    if is_known and _is_of(_base, _set_result) and _Future.set_result is _set_result:
        _Executor = executor
        _METHODS_OF_EXECUTOR = _snapshot((executor, "submit"), (work_item, "run"), (_Future, "set_result"))


def has_stock_executor_methods() -> bool:
    """Return whether executors of threads submit and run calls as known; if not, `submit` is called."""
    if _METHODS_OF_EXECUTOR is None:
        _look_at_executors()
    return _METHODS_OF_EXECUTOR is not None and _METHODS_OF_EXECUTOR.is_current()


def has_stock_future_chain() -> bool:
    """Return whether asyncio's own function chains futures; if not, `asyncio.wrap_future` is called."""
    return futures._chain_future is _chain  # type: ignore[attr-defined]


def is_stock_executor(executor: Any) -> bool:
    """Return whether no program watches this `ThreadPoolExecutor`'s calls; if not, `submit` is called."""
    return (
        has_stock_executor_methods()
        and type(executor) is _Executor
        and "submit" not in executor.__dict__
        and has_stock_future_chain()
    )


# Sockets.

_NAMES_OF_SOCKETS = vars(socket)
_METHODS_OF_SOCKETS = _snapshot(
    (
        _Socket,
        "__init__ accept bind close connect fileno getpeername getsockname getsockopt recv recv_into "
        "send sendmsg setblocking setsockopt",
    )
)


def has_stock_sockets() -> bool:
    """Return whether `socket.socket` and its methods are CPython's; if not, each connection has one."""
    return _NAMES_OF_SOCKETS.get("socket") is _Socket and _METHODS_OF_SOCKETS.is_current()


def is_stock_socket(sock: Any) -> bool:
    """Return whether a socket is of CPython's class itself; if not, its own `accept` is called."""
    return type(sock) is _Socket


# Loops of our own.

_run_in_executor: Any = None


def snapshot_methods(kind: type) -> None:
    """Note methods of our own class of loops, as they stand there, to notice when somebody replaces one."""
    _NOTED_OF_LOOPS[kind] = {name: found_in(kind, name) for name in CONNECTION_METHODS}
    global _run_in_executor
    _run_in_executor = found_in(kind, "run_in_executor")


def has_stock_run_in_executor(loop: Any) -> bool:
    """Return whether a loop gives jobs to executors by our method; if not, names are looked up by it, too."""
    if type(_run_in_executor) is MethodAtFirstUse:
        is_ours = _run_in_executor.stands_in(type(loop))
    else:
        is_ours = type(loop).run_in_executor is _run_in_executor
    return is_ours and "run_in_executor" not in loop.__dict__


#: The methods that connecting and accepting call on a loop.
CONNECTION_METHODS = (
    "_create_connection_transport",
    "_ensure_resolved",
    "_make_socket_transport",
    "_make_ssl_transport",
    "call_soon",
    "create_future",
    "getaddrinfo",
    "sock_connect",
)
_NOTED_OF_LOOPS: dict[type, dict[str, Any]] = {}
_CONNECTION_METHODS_OF_LOOPS: dict[type, ClassSnapshot] = {}


def has_stock_connection_methods(kind: type) -> bool:
    """Return whether a class of loops connects and accepts as ours does; if not, its methods are called."""
    methods = _CONNECTION_METHODS_OF_LOOPS.get(kind)
    if methods is None and kind in _NOTED_OF_LOOPS:
        methods = ClassSnapshot([(kind, name, method) for name, method in _NOTED_OF_LOOPS[kind].items()])
        _CONNECTION_METHODS_OF_LOOPS[kind] = methods
    if methods is None:
        methods = _methods_of_subclass(kind)
    return methods.is_current()


# Of the subclass that was asked for last: a program may make any number of classes, and drop them.
_LAST_SUBCLASS: dict[type, ClassSnapshot] = {}


def _methods_of_subclass(kind: type) -> ClassSnapshot:
    """Note for a subclass of our class of loops that it should have the methods of that class."""
    methods = _LAST_SUBCLASS.get(kind)
    if methods is None:
        ours = next(base for base in kind.__mro__ if base in _NOTED_OF_LOOPS)
        methods = ClassSnapshot([(kind, name, found_in(ours, name)) for name in CONNECTION_METHODS])
        _LAST_SUBCLASS.clear()
        _LAST_SUBCLASS[kind] = methods
    return methods
