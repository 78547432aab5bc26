"""Adopting the readers of asyncio's stream protocols when these get a transport of ours."""

from __future__ import annotations

from typing import Any

from whorl.aio.interop import at_import
from whorl.aio.interop.stock import (
    connection_made_of,
    has_stock_end_of_data,
    has_stock_reader_attributes,
    has_stock_stream_methods,
)
from whorl.aio.streams.feed import StreamFeed
from whorl.aio.streams.reader_writer import StreamReader
from whorl.core.loop.loop import Loop

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    import weakref

    from whorl.aio.streams.feed import attributes_of, new_feed

    weak_reference = weakref.ref

    def new_object(cls: Any) -> Any:
        """Return an object of a class, without calling `__init__`."""
        return cls.__new__(cls)


NO_ARGUMENTS: tuple[()] = ()
_Reader: Any = at_import.StreamReader
_Protocol: Any = at_import.StreamReaderProtocol


def _reader_of(protocol: Any) -> Any:
    """Return the reader of a protocol as asyncio's property `_stream_reader` does."""
    source = protocol._stream_reader_wr
    return None if source is None else source()


def attach_feed(protocol: Any) -> StreamFeed | None:
    """Adopt the reader of a protocol of asyncio's, if no program can notice.

    Return the feed for the protocol's data, or None if only `data_received` will do.
    """
    if type(protocol) is not _Protocol or not has_stock_stream_methods():
        return None
    reader = _reader_of(protocol)
    if type(reader) is StreamReader:
        adopted: StreamFeed = reader._received
        return adopted
    if type(reader) is not _Reader or not isinstance(reader._loop, Loop):
        return None
    state = {**reader.__dict__}  # A dictionary that shares no keys, as the interpreter finds its keys faster.
    received = state["_received"] = StreamFeed(reader._loop)
    received.take_over(state)
    received.source = protocol._stream_reader_wr
    received.is_direct = "feed_data" not in state
    reader.__class__ = StreamReader
    reader.__dict__ = state
    return received


def attach_new_feed(protocol: Any) -> None:
    """Make the reader of a protocol one of ours, if `asyncio.open_connection` has just made both.

    It has no data and no attributes but asyncio's, so `attach_feed` finds less to take over.
    """
    if type(protocol) is not _Protocol or not has_stock_stream_methods():
        return
    source = protocol._stream_reader_wr
    reader: Any = None if source is None else source()
    if type(reader) is not _Reader or not has_stock_reader_attributes():
        return
    owner = reader._loop
    if not isinstance(owner, Loop):
        return
    loop: Loop = owner
    if loop._debug:
        return
    received = new_feed(loop)
    received.set_limit(reader._limit)
    received.source = source
    received.is_direct = True
    reader.__class__ = StreamReader
    reader.__dict__ = {"_loop": loop, "_received": received}


def new_reader(loop: Loop, limit: Any) -> Any:
    """Return a reader as one of asyncio's is after it was adopted."""
    received = new_feed(loop)
    received.set_limit(limit)
    reader = new_object(StreamReader)
    reader.__dict__ = {"_loop": loop, "_received": received}
    received.source = weak_reference(reader)
    received.is_direct = True
    return reader


def adopted_connection_made(protocol: Any) -> Any:
    """Return the `connection_made` of a protocol; a server's makes a writer of ours for a reader of ours."""
    if type(protocol) is _Protocol and type(protocol._stream_reader) is StreamReader:
        return connection_made_of(protocol)
    return protocol.connection_made


def end_arrived(protocol: Any, feed: StreamFeed) -> bool:
    """Do what the protocol's `eof_received` does for the reader of a feed; False if it is to be called."""
    if type(protocol) is not _Protocol or not has_stock_end_of_data(protocol):
        return False
    reader = _reader_of(protocol)
    if type(reader) is not StreamReader or protocol._over_ssl:
        return False
    known = attributes_of(reader)
    if known.get("_received") is not feed or "feed_eof" in known or "_wakeup_waiter" in known:
        return False
    feed.end()
    return True
