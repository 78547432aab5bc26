"""The protocols of `asyncio.start_server`, made with Whorl's readers from the beginning.

asyncio's factory makes a reader and a protocol, which `aio/streams/adoption` adopts when their transport
is made. Here they are made as they are after that: objects with the same attributes, for two thirds of the
instructions.
"""

from __future__ import annotations

from asyncio import streams
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from whorl.aio.interop.stock import (
    has_stock_protocol_attributes,
    has_stock_stream_constructors,
    is_stock_server_factory,
)
from whorl.aio.streams.adoption import new_reader

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

_Protocol: Any = streams.StreamReaderProtocol


def fast_server_protocol_factory(loop: AnyLoop, factory: Callable[[], Any]) -> Callable[[], Any]:
    """Return an equal factory; for asyncio's stream servers it is a faster one."""
    if not is_stock_server_factory(factory):
        return factory
    code, cells = factory.__code__, factory.__closure__ or ()
    known = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}
    if known["loop"] is not loop or loop._debug or not has_stock_stream_constructors():
        return factory
    try:
        model = factory()
    except Exception:  # A limit that no reader can have: each connection is to fail by it.
        return factory
    if not has_stock_protocol_attributes(model, known["client_connected_cb"]):
        return factory
    return StreamProtocols(loop, factory, model, known["limit"])


class StreamProtocols:
    """Makes the protocols of one server, and their readers; `model` is a protocol of asyncio's factory."""

    def __init__(self, loop: AnyLoop, factory: Callable[[], Any], model: Any, limit: Any) -> None:
        self._loop = loop
        self._factory = factory
        self._limit = limit
        self._callback = model._client_connected_cb
        self._new_waiters = type(model._drain_waiters)
        self._keeps_writer = "_stream_writer" in vars(model)  # until Python 3.12

    def __call__(self) -> Any:
        loop = self._loop
        if loop._debug or not has_stock_stream_constructors():
            return self._factory()
        reader = new_reader(loop, self._limit)
        protocol = _Protocol.__new__(_Protocol)
        protocol._loop = loop
        protocol._paused = False
        protocol._drain_waiters = self._new_waiters()
        protocol._connection_lost = False
        protocol._stream_reader_wr = ref(reader)
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
