"""The protocols of `asyncio.start_server`, made with readers of ours from the beginning.

asyncio's factory makes a reader and a protocol, which `aio/streams/reader_writer` adopts when their transport
is made. Here they are made as they are after that: objects with the same attributes, for two thirds of the
instructions.
"""

from __future__ import annotations

import functools
import weakref
from asyncio import streams
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.class_snapshot import ClassSnapshot
from whorl.aio.streams.feed import StreamFeed
from whorl.aio.streams.reader_writer import StreamReader, call_with_own_writer

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

_Protocol: Any = streams.StreamReaderProtocol
_Reader: Any = streams.StreamReader
_Mixin: Any = streams.FlowControlMixin

#: What asyncio's factories run, and what that relies on.
_FACTORIES = frozenset(
    code
    for function in (streams.start_server, streams.start_unix_server)
    for code in function.__code__.co_consts
    if isinstance(code, CodeType) and code.co_name == "factory"
)
_AS_EXPECTED = ClassSnapshot(
    [
        (owner, name, getattr(owner, name))
        for owner, names in (
            (_Reader, ("__init__", "__setattr__")),
            (_Protocol, ("__init__", "__setattr__", "_stream_reader")),
            (_Mixin, ("__init__",)),
        )
        for name in names
    ]
)

#: The attributes of a new protocol that are the same in each; those of older Pythons may be missing.
_PLAIN = {
    "_paused": False,
    "_connection_lost": False,
    "_source_traceback": None,
    "_reject_connection": False,
    "_task": None,
    "_transport": None,
    "_over_ssl": False,
    "_stream_writer": None,
}
_OWN = {
    "_client_connected_cb",
    "_closed",
    "_drain_waiters",
    "_loop",
    "_stream_reader_wr",
    "_strong_reader",
}
_OF_READERS = {"_buffer", "_eof", "_exception", "_limit", "_loop", "_paused", "_transport", "_waiter"}


def fast_server_protocol_factory(loop: AnyLoop, factory: Callable[[], Any]) -> Callable[[], Any]:
    """A factory that makes what this one makes: another one only for those of asyncio's stream servers."""
    code = getattr(factory, "__code__", None)
    if code not in _FACTORIES or getattr(factory, "__globals__", None) is not vars(streams):
        return factory
    cells = getattr(factory, "__closure__", None) or ()
    known = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}
    if known.keys() != {"client_connected_cb", "limit", "loop"} or known["loop"] is not loop:
        return factory
    if loop._debug or not _is_asyncios():
        return factory
    try:
        model = factory()
    except Exception:  # A limit that no reader can have: each connection is to fail by it.
        return factory
    if not _is_as_expected(model, known["client_connected_cb"]):
        return factory
    return StreamProtocols(loop, factory, model, known["limit"])


def _is_as_expected(model: Any, callback: Any) -> bool:
    """Return whether a protocol and its reader have the attributes that are known here, and no others."""
    reader, state = model._stream_reader, vars(model)
    return (
        state.keys() - {"_stream_writer"} == (_OWN | _PLAIN.keys()) - {"_stream_writer"}
        and all(state[name] is _PLAIN[name] for name in state.keys() & _PLAIN.keys())
        and vars(reader).keys() == _OF_READERS
        and state["_strong_reader"] is reader
        and state["_client_connected_cb"] is callback
        and not state["_drain_waiters"]
    )


def _is_asyncios() -> bool:
    """Return whether asyncio's factory would make what it always made."""
    is_stock = streams.StreamReader is _Reader and streams.StreamReaderProtocol is _Protocol
    return is_stock and _AS_EXPECTED.is_current()


class StreamProtocols:
    """Makes the protocols of one server, and their readers; `model` is a protocol of asyncio's factory."""

    def __init__(self, loop: AnyLoop, factory: Callable[[], Any], model: Any, limit: Any) -> None:
        self._loop = loop
        self._factory = factory
        self._limit = limit
        self._callback = functools.partial(call_with_own_writer, model._client_connected_cb)
        self._new_waiters = type(model._drain_waiters)
        self._keeps_writer = "_stream_writer" in vars(model)  # until Python 3.12

    def __call__(self) -> Any:
        loop = self._loop
        if loop._debug or not _is_asyncios():
            return self._factory()
        received = StreamFeed(loop)
        received.set_limit(self._limit)
        reader: Any = StreamReader.__new__(StreamReader)
        reader._loop = loop
        reader._received = received
        received.source = weakref.ref(reader)
        received.is_direct = True
        return self._protocol_for(reader, received.source)

    def _protocol_for(self, reader: Any, source: Any) -> Any:
        protocol = _Protocol.__new__(_Protocol)
        loop = self._loop
        protocol._loop = loop
        protocol._paused = False
        protocol._drain_waiters = self._new_waiters()
        protocol._connection_lost = False
        protocol._stream_reader_wr = source
        protocol._source_traceback = None
        protocol._strong_reader = reader
        protocol._reject_connection = False
        if self._keeps_writer:
            protocol._stream_writer = None
        protocol._task = None
        protocol._transport = None
        protocol._client_connected_cb = self._callback
        protocol._over_ssl = False
        protocol._closed = loop.create_future()
        return protocol
