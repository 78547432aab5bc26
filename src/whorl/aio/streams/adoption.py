"""Adopting the readers of asyncio's stream protocols when these get a transport of ours."""

from __future__ import annotations

from asyncio import streams
from typing import Any

from whorl.aio.interop.stock import (
    connection_made_of,
    has_stock_reader_attributes,
    has_stock_stream_methods,
)
from whorl.aio.streams.feed import StreamFeed
from whorl.aio.streams.reader_writer import StreamReader
from whorl.core.loop.loop import Loop

_Reader: Any = streams.StreamReader
_Protocol: Any = streams.StreamReaderProtocol


def attach_feed(protocol: Any) -> StreamFeed | None:
    """Adopt the reader of a protocol of asyncio's, if no program can notice.

    Return the feed for the protocol's data, or None if only `data_received` will do.
    """
    if type(protocol) is not _Protocol or not has_stock_stream_methods():
        return None
    reader = protocol._stream_reader
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
    reader = protocol._stream_reader
    if type(reader) is not _Reader or not isinstance(reader._loop, Loop) or reader._loop._debug:
        return
    if not has_stock_reader_attributes():
        return
    loop: Loop = reader._loop
    received = StreamFeed(loop)
    received.set_limit(reader._limit)
    received.source = protocol._stream_reader_wr
    received.is_direct = True
    reader.__class__ = StreamReader
    reader.__dict__ = {"_loop": loop, "_received": received}


def adopted_connection_made(protocol: Any) -> Any:
    """Return the `connection_made` of a protocol; a server's makes a writer of ours for a reader of ours."""
    if type(protocol) is _Protocol and type(protocol._stream_reader) is StreamReader:
        return connection_made_of(protocol)
    return protocol.connection_made
