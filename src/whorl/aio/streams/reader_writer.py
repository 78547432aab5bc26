"""Streams: asyncio's own, whose readers keep what arrives in a compiled buffer.

A transport of Whorl adopts asyncio's reader when it gets the reader's protocol. Both must be exactly of
asyncio's classes, without replaced methods. The classes here derive from asyncio's and have the same
attributes. A reader's state is in its `StreamFeed`, to which transports write. Its `_buffer` returns a
bytearray that is the buffer.
"""

from __future__ import annotations

import asyncio
import operator
from asyncio import streams
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.interop import at_import
from whorl.aio.interop.stock import has_stock_writer_attributes, make_writers_of
from whorl.aio.streams import buffer
from whorl.aio.streams.feed import StreamFeed
from whorl.core.copying import refuse_copy

_Reader: Any = at_import.StreamReader
_Writer: Any = at_import.StreamWriter
DEFAULT_LIMIT = 64 * 1024


class Replaceable:
    """A method by which data arrives. Replacing it on a reader makes transports call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        if thing is None:
            return self._function
        replaced = thing.__dict__.get(self._name)
        return self._function.__get__(thing) if replaced is None else replaced

    def __set__(self, thing: Any, replacement: Any) -> None:
        thing._received.is_direct = False
        thing.__dict__[self._name] = replacement

    def __delete__(self, thing: Any) -> None:
        if thing.__dict__.pop(self._name, None) is None:
            raise AttributeError(self._name)


def _feed_property(name: str) -> Any:
    """Return a property for an attribute of a reader that its feed keeps."""
    return property(
        operator.attrgetter(f"_received.{name}"), lambda reader, value: setattr(reader._received, name, value)
    )


class StreamReader(at_import.StreamReader):
    """An `asyncio.StreamReader` whose state and bytes are in a compiled object."""

    __reduce__ = refuse_copy

    _received: StreamFeed
    _wakeup_waiter: Callable[[], None]
    _eof = _feed_property("eof")
    _exception = _feed_property("exception")
    _paused = _feed_property("paused")
    _transport = _feed_property("transport")
    _waiter = _feed_property("waiter")

    def __init__(self, limit: int = DEFAULT_LIMIT, loop: Any = None) -> None:
        loop = asyncio.get_event_loop() if loop is None else loop  # as asyncio has it
        self._received = StreamFeed(loop)
        super().__init__(limit, loop)

    @property
    def _buffer(self) -> bytearray:
        return self._received.lend()

    @_buffer.setter
    def _buffer(self, content: bytes | bytearray) -> None:
        self._received.replace(content)

    @property
    def _limit(self) -> Any:
        return self._received.limit

    @_limit.setter
    def _limit(self, limit: Any) -> None:
        self._received.set_limit(limit)

    if not TYPE_CHECKING:
        feed_data = Replaceable(buffer.feed_data)

    def exception(self) -> BaseException | None:  # type: ignore[override]
        """Return the exception that the reader got; asyncio's `drain` asks for it (``exception``)."""
        return self._received.exception

    def at_eof(self) -> bool:
        """Return whether all was read."""
        return self._eof and not len(self._received)

    def set_transport(self, transport: Any) -> None:
        """Note the transport, once (``asyncio.StreamReader.set_transport``)."""
        received = self._received
        assert received.transport is None, "Transport already set"
        received.transport = transport

    def feed_eof(self) -> None:
        """Note that no more data will arrive (``asyncio.StreamReader.feed_eof``)."""
        received = self._received
        received.eof = True
        if received.waiter is not None:
            self._wakeup_waiter()

    def _maybe_resume_transport(self) -> None:
        self._received.resume()

    async def _wait_for_data(self, func_name: str) -> None:
        received = self._received
        wait = received.wait(func_name)
        try:
            await wait
        except BaseException:
            received.leave(wait)
            raise

    async def read(self, n: int = -1) -> bytes:
        """Read at most `n` bytes, or up to the end; no bytes at the end (``asyncio.StreamReader.read``)."""
        received = self._received
        data = received.read(n)
        if data is None:
            if n <= 0:
                blocks = []
                while n and (block := await self.read(self._limit)):
                    blocks.append(block)
                return b"".join(blocks)
            wait = received.wait("read")
            try:
                await wait
            except BaseException:
                received.leave(wait)
                raise
            data = received.take_and_resume(n)
        return data

    async def readline(self) -> bytes:
        """Read a line with its end, or what there is before the end (``asyncio.StreamReader.readline``)."""
        line = self._received.line()
        if line is None:
            return await _Reader.readline(self)  # type: ignore[no-any-return]
        return line

    async def readuntil(self, separator: Any = b"\n") -> bytes:
        """Read up to a separator, and that (``asyncio.StreamReader.readuntil``)."""
        if type(separator) is not bytes or not separator:
            return await _Reader.readuntil(self, separator)  # type: ignore[no-any-return]
        received = self._received
        if received.exception is not None:
            raise received.exception
        searched = 0  # No separator begins before this.
        while True:
            size = len(received)
            if size - searched >= len(separator):
                found = received.find(separator, searched)
                if found >= 0:
                    break
                searched = size + 1 - len(separator)
                if searched > received.limit:
                    raise asyncio.LimitOverrunError(
                        "Separator is not found, and chunk exceed the limit", searched
                    )
            if received.eof:
                raise asyncio.IncompleteReadError(received.take(size), None)
            await self._wait_for_data("readuntil")
        if found > received.limit:
            raise asyncio.LimitOverrunError("Separator is found, but chunk is longer than limit", found)
        return received.take_and_resume(found + len(separator))

    async def readexactly(self, n: int) -> bytes:
        """Read `n` bytes (``asyncio.StreamReader.readexactly``)."""
        if n < 0:
            raise ValueError("readexactly size can not be less than zero")
        received = self._received
        if received.exception is not None:
            raise received.exception
        while len(received) < n:
            if received.eof:
                raise asyncio.IncompleteReadError(received.take(len(received)), n)
            await self._wait_for_data("readexactly")
        return received.take_and_resume(n)


class StreamWriter(at_import.StreamWriter):
    """An `asyncio.StreamWriter` whose `drain` takes the shortest way when there is nothing to wait for."""

    __reduce__ = refuse_copy

    _protocol: Any
    _reader: Any
    _transport: Any

    async def drain(self) -> None:
        """Wait until the transport takes more (``asyncio.StreamWriter.drain``)."""
        protocol = self._protocol
        if (
            protocol._paused
            or protocol._connection_lost
            or self._transport.is_closing()
            or self._reader._received.has_failed()
        ):
            await _Writer.drain(self)


make_writers_of(StreamWriter)


# Opening streams: on other loops these return what asyncio's functions return.


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


class _ReleasedTransport:
    """A stand-in for the transport of a writer that has lost its own; so the writer closes nothing."""

    def is_closing(self) -> bool:
        """Return True."""
        return True


_RELEASED_TRANSPORT = _ReleasedTransport()


def _adopt_writer(writer: Any) -> streams.StreamWriter:
    """Return a writer of Whorl's for one of asyncio's without other references, if the reader is Whorl's.

    The interpreter finds the attributes of a new object faster than those of one whose class was changed.
    """
    if type(writer) is not _Writer or type(writer._reader) is not StreamReader:
        return writer  # type: ignore[no-any-return]
    if not has_stock_writer_attributes():
        return writer  # type: ignore[no-any-return]
    own: Any = StreamWriter.__new__(StreamWriter)
    own._transport = writer._transport
    protocol = own._protocol = writer._protocol
    own._reader = writer._reader
    own._loop = writer._loop
    own._complete_fut = writer._complete_fut
    if getattr(protocol, "_stream_writer", None) is writer:  # until Python 3.12
        protocol._stream_writer = own
    writer._transport = _RELEASED_TRANSPORT
    return own  # type: ignore[no-any-return]
