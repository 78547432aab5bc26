"""The private attributes of asyncio's transports that programs read.

Each gives the value that asyncio's object would have under that name at this moment. To change such a value
changes nothing, but for the few attributes that can be set.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

from whorl.aio.transports import states
from whorl.core.loop.loop import COMPILED
from whorl.handles.streams.engine import Stream

# Since 3.12 the buffer of a socket's transport is a queue of pieces.
_KEEPS_PIECES = sys.version_info >= (3, 12)


class _SocketInDictionary:
    """The attribute `_sock` of every stream, where it is no field of C. It is None until it is set."""

    def __get__(self, stream: Any, owner: Any = None) -> Any:
        return vars(stream).get("_sock")

    def __set__(self, stream: Any, sock: Any) -> None:
        vars(stream)["_sock"] = sock


_SOCKET: Any = vars(Stream)["_sock"] if COMPILED else _SocketInDictionary()


def _unsent(transport: Any) -> Iterator[memoryview]:
    """Return the pieces that wait to be sent."""
    skipped = transport._offset
    for chunk in (transport._chunks or [])[transport._first :]:
        yield memoryview(chunk)[skipped:]
        skipped = 0


class PrivateAttributes:
    """The private attributes of all transports but those of TLS."""

    __slots__ = ()

    @property
    def _closing(self: Any) -> bool:
        return bool(self._state != states.OPEN)


class WriterPrivateAttributes(PrivateAttributes):
    """The private attributes of transports that are written to."""

    __slots__ = ()

    @property
    def _high_water(self: Any) -> int:
        return int(self.get_write_buffer_limits()[1])

    @property
    def _low_water(self: Any) -> int:
        return int(self.get_write_buffer_limits()[0])


class SocketPrivateAttributes(WriterPrivateAttributes):
    """The private attributes of a stream socket's transport."""

    __slots__ = ()

    @property
    def _sock_fd(self: Any) -> int:
        return int(self._attached_fd)

    @property
    def _conn_lost(self: Any) -> int:
        return int(self._state >= states.LOST) + int(self._lost_writes)

    @property
    def _eof(self: Any) -> bool:
        return bool(self._eof_written)

    @property
    def _buffer(self: Any) -> deque[memoryview] | bytearray:
        pieces = _unsent(self)
        return deque(pieces) if _KEEPS_PIECES else bytearray().join(pieces)


class PipePrivateAttributes(PrivateAttributes):
    """The private attributes of a pipe's transport."""

    __slots__ = ()

    @property
    def _fileno(self: Any) -> int:
        return int(self._attached_fd)

    @property
    def _pipe(self: Any) -> Any:
        return self._sock

    @_pipe.setter
    def _pipe(self: Any, pipe: Any) -> None:
        # Programs that write to the standard streams take the file away, so that the transport does not close
        # it.
        self._sock = pipe


class WritePipePrivateAttributes(PipePrivateAttributes, WriterPrivateAttributes):
    """The private attributes of a pipe's transport that is written to."""

    __slots__ = ()

    @property
    def _conn_lost(self: Any) -> int:
        return int(self._lost_writes)

    @property
    def _buffer(self: Any) -> bytearray:
        return bytearray().join(_unsent(self))


class DatagramPrivateAttributes(WriterPrivateAttributes):
    """The private attributes of a datagram endpoint's transport."""

    __slots__ = ()

    @property
    def _sock_fd(self: Any) -> int:
        return int(self._attached_fd)

    @property
    def _conn_lost(self: Any) -> int:
        return int(self._lost_sends)

    @property
    def _buffer(self: Any) -> deque[tuple[bytes, Any]]:
        return deque((data, address or None) for data, address, _ in self._queue[self._first :])


def _socket_of(transport: Any) -> Any:
    if transport._fd >= 0:
        return transport.get_extra_info("socket")._sock
    return _SOCKET.__get__(transport)


class _Loop:
    """The loop of a transport, for those who know handles. A program may put its own in its place.

    asyncio's transports have no such attribute, and programs use its name.
    """

    def __get__(self, transport: Any, owner: Any = None) -> Any:
        return self if transport is None else transport._loop


LOOP: Any = _Loop()

#: The socket object of a stream socket's transport; None once it is closed.
SOCKET = property(_socket_of, _SOCKET.__set__)
