"""Streams: asyncio's own, whose readers keep what arrives in a compiled buffer.

A reader that asyncio has made becomes ours when a transport of ours is given its protocol, if both are
exactly of asyncio's classes and nobody has replaced a method. The classes here derive from asyncio's and
have the same attributes, but for `_buffer`: whoever asks for it gets a bytearray that is the buffer.
"""

from __future__ import annotations

import asyncio
import functools
from asyncio import streams
from collections.abc import Callable
from typing import Any

from whorl.aio import stream_buffer
from whorl.aio.stream_buffer import StreamBuffer

_Reader: Any = streams.StreamReader
_Protocol: Any = streams.StreamReaderProtocol
_Writer: Any = streams.StreamWriter
DEFAULT_LIMIT = 64 * 1024


class StreamReader(_Reader):  # type: ignore[misc]
    """An `asyncio.StreamReader` with a compiled buffer."""

    _received: StreamBuffer
    _paused: bool
    _waiter: asyncio.Future[None] | None

    @property
    def _buffer(self) -> bytearray:
        return self._received.lend()

    @_buffer.setter
    def _buffer(self, content: bytes | bytearray) -> None:
        self._received = StreamBuffer(content)

    feed_data = stream_buffer.feed_data

    def at_eof(self) -> bool:
        """Whether all was read."""
        return self._eof and not len(self._received)

    def _maybe_resume_transport(self) -> None:
        if self._paused and len(self._received) <= self._limit:
            self._paused = False
            self._transport.resume_reading()

    async def read(self, n: int = -1) -> bytes:
        """Read at most `n` bytes, or up to the end; no bytes at the end (``asyncio.StreamReader.read``)."""
        if self._exception is not None:
            raise self._exception
        if n <= 0:
            blocks = []
            while n and (block := await self.read(self._limit)):
                blocks.append(block)
            return b"".join(blocks)
        data = self._received.take(n)
        if not data and not self._eof:
            if self._waiter is not None or self._paused:
                await self._wait_for_data("read")
            else:
                self._waiter = waiter = self._loop.create_future()
                try:
                    await waiter
                finally:
                    self._waiter = None
            data = self._received.take(n)
        if self._paused:
            self._maybe_resume_transport()
        return data

    async def readline(self) -> bytes:
        """Read a line with its end, or what there is before the end (``asyncio.StreamReader.readline``)."""
        if self._exception is None:
            line = self._received.take_until(b"\n", self._limit)
            if line is not None:
                if self._paused:
                    self._maybe_resume_transport()
                return line
        return await _Reader.readline(self)  # type: ignore[no-any-return]

    async def readuntil(self, separator: Any = b"\n") -> bytes:
        """Read up to a separator, and that (``asyncio.StreamReader.readuntil``)."""
        if type(separator) is not bytes or not separator:
            return await _Reader.readuntil(self, separator)  # type: ignore[no-any-return]
        if self._exception is not None:
            raise self._exception
        received = self._received
        searched = 0  # No separator begins before this.
        while True:
            size = len(received)
            if size - searched >= len(separator):
                found = received.find(separator, searched)
                if found >= 0:
                    break
                searched = size + 1 - len(separator)
                if searched > self._limit:
                    raise asyncio.LimitOverrunError(
                        "Separator is not found, and chunk exceed the limit", searched
                    )
            if self._eof:
                raise asyncio.IncompleteReadError(received.take(size), None)
            await self._wait_for_data("readuntil")
        if found > self._limit:
            raise asyncio.LimitOverrunError("Separator is found, but chunk is longer than limit", found)
        chunk = received.take(found + len(separator))
        if self._paused:
            self._maybe_resume_transport()
        return chunk

    async def readexactly(self, n: int) -> bytes:
        """Read `n` bytes (``asyncio.StreamReader.readexactly``)."""
        if n < 0:
            raise ValueError("readexactly size can not be less than zero")
        if self._exception is not None:
            raise self._exception
        received = self._received
        while len(received) < n:
            if self._eof:
                raise asyncio.IncompleteReadError(received.take(n), n)
            await self._wait_for_data("readexactly")
        data = received.take(n)
        if self._paused:
            self._maybe_resume_transport()
        return data


class StreamWriter(_Writer):  # type: ignore[misc]
    """An `asyncio.StreamWriter` whose `drain` takes the shortest way when there is nothing to wait for."""

    async def drain(self) -> None:
        """Wait until the transport takes more (``asyncio.StreamWriter.drain``)."""
        protocol = self._protocol
        reader = self._reader
        if (
            protocol._paused
            or protocol._connection_lost
            or self._transport.is_closing()
            or (reader is not None and reader.exception() is not None)
        ):
            await _Writer.drain(self)


# Opening streams: on another loop than ours these give what asyncio's functions give.


async def open_connection(
    host: Any = None, port: Any = None, *, limit: int = DEFAULT_LIMIT, **options: Any
) -> tuple[streams.StreamReader, streams.StreamWriter]:
    """Connect to a host: a reader and a writer (``asyncio.open_connection``)."""
    reader, writer = await streams.open_connection(host, port, limit=limit, **options)
    return reader, _adopt_writer(writer)


async def open_unix_connection(
    path: Any = None, *, limit: int = DEFAULT_LIMIT, **options: Any
) -> tuple[streams.StreamReader, streams.StreamWriter]:
    """Connect to a UNIX socket: a reader and a writer (``asyncio.open_unix_connection``)."""
    reader, writer = await streams.open_unix_connection(path, limit=limit, **options)
    return reader, _adopt_writer(writer)


async def start_server(
    client_connected_cb: Callable[[Any, Any], Any],
    host: Any = None,
    port: Any = None,
    *,
    limit: int = DEFAULT_LIMIT,
    **options: Any,
) -> asyncio.Server:
    """Serve hosts: `client_connected_cb(reader, writer)` for each connection (``asyncio.start_server``)."""
    return await streams.start_server(client_connected_cb, host, port, limit=limit, **options)


async def start_unix_server(
    client_connected_cb: Callable[[Any, Any], Any],
    path: Any = None,
    *,
    limit: int = DEFAULT_LIMIT,
    **options: Any,
) -> asyncio.Server:
    """Serve a UNIX socket in the same way (``asyncio.start_unix_server``)."""
    return await streams.start_unix_server(client_connected_cb, path, limit=limit, **options)


# What asyncio's classes have that ours replace or rely on, as it was when this module was imported.
_EXPECTED = [
    (owner, name, getattr(owner, name))
    for owner, names in (
        (
            _Reader,
            [name for name in vars(StreamReader) if name in vars(_Reader) and not name.startswith("__")],
        ),
        (_Protocol, ["connection_made", "data_received"]),
        (_Writer, ["drain", "__init__"]),
    )
    for name in names
]


def adopt(protocol: Any) -> None:
    """Make the reader of a protocol of asyncio's one of ours, if nobody can tell."""
    if type(protocol) is not _Protocol or not stream_buffer.are_the_same(_EXPECTED):
        return
    reader = protocol._stream_reader
    if type(reader) is not _Reader:
        return
    _change_class(reader, StreamReader)
    reader._buffer = reader.__dict__.pop("_buffer")
    if protocol._client_connected_cb is not None:
        protocol._client_connected_cb = functools.partial(_connected, protocol._client_connected_cb)


def _connected(callback: Callable[[Any, Any], Any], reader: Any, writer: Any) -> Any:
    """Call what a server calls for each connection, with a writer of ours."""
    return callback(reader, _adopt_writer(writer))


def _adopt_writer(writer: Any) -> streams.StreamWriter:
    """Make a writer ours if its reader is."""
    if type(writer) is _Writer and type(writer._reader) is StreamReader:
        _change_class(writer, StreamWriter)
    return writer  # type: ignore[no-any-return]


def _change_class(thing: Any, new: type) -> None:
    """Let an object be of another class from now on."""
    thing.__class__ = new
    # The interpreter finds attributes five times as fast in a dictionary that shares no keys.
    thing.__dict__ = {**thing.__dict__}
