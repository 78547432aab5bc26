"""The data path of TLS: between the transport underneath, an `ssl.SSLObject`, and a protocol.

    CONNECTING -> HANDSHAKE -> OPEN -> FLUSHING -> SHUTDOWN -> CLOSED
         \\____________\\__________\\________\\____________^   abort(), an error, the connection is lost

Each state leads to the next one and every state to CLOSED; `_enter` is the only way. FLUSHING begins
with `close()`, with the peer's close_notify and with the end of the connection: what was written before
is still sent. What had arrived before is still delivered, unless the user closed. `connection_lost` of
the transport underneath ends every state.

    ciphertext -> _incoming -> SSLObject.read -> data_received      (in one buffer, shared by the loop)
    write -> _backlog -> SSLObject.write -> _outgoing -> the write of the transport underneath

The transport underneath is asked to report every unsent byte, if it is ours. So what cannot be sent
waits here, in the clear, and the watermarks speak of all that has not been given to the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

try:
    import ssl
except ImportError:  # A Python may be built without it.
    ssl = None  # type: ignore[assignment]

from asyncio.log import logger

from whorl.aio.stream_feed import StreamFeed
from whorl.aio.tls_states import TLSState
from whorl.core.limits import READ_SIZE

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython

CONNECTING = int(TLSState.CONNECTING)
HANDSHAKE = int(TLSState.HANDSHAKE)
OPEN = int(TLSState.OPEN)
FLUSHING = int(TLSState.FLUSHING)
SHUTDOWN = int(TLSState.SHUTDOWN)
CLOSED = int(TLSState.CLOSED)

#: The most plaintext one record holds: with this much room, a read takes the whole record.
RECORD_SIZE = 16 * 1024

#: How much is encrypted before the transport underneath is asked to send it, in bytes.
WRITE_BATCH = 128 * 1024

#: How many such batches one turn sends before others get theirs.
BATCHES_PER_TURN = 16

#: After this many writes to a lost connection each further one logs a warning, as in asyncio.
QUIET_WRITES = 5

AGAIN: Any = () if ssl is None else (ssl.SSLWantReadError, ssl.SSLSyscallError)

SSLObject: Any = None if ssl is None else ssl.SSLObject
READ, WRITE, PENDING = (None,) * 3 if ssl is None else (SSLObject.read, SSLObject.write, SSLObject.pending)

if not cython.compiled:

    def taken(scratch: bytearray, size: int) -> bytes:
        """A copy of the first bytes."""
        return bytes(memoryview(scratch)[:size])


def records_of(sslobj: Any) -> Any:
    """What reads and writes records for an `ssl.SSLObject`: what that asks, which saves its own frames.

    A class of the program's own, or one with methods of the program's, is asked.
    """
    if type(sslobj) is not SSLObject:
        return sslobj
    if SSLObject.read is not READ or SSLObject.write is not WRITE or SSLObject.pending is not PENDING:
        return sslobj
    return getattr(sslobj, "_sslobj", None) or sslobj


def flat_view(buffer: Any) -> memoryview:
    """A view of single bytes, whatever a protocol gave as its buffer."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    return view if view.itemsize == 1 and view.ndim == 1 else view.cast("B")


class TLSLayer:
    """The part of `tls.TLSProtocol` that every packet goes through.

    `scratch` is a buffer of READ_SIZE bytes that all connections of the loop share: nothing stays in it
    while the user's code runs.
    """

    def __init__(self, loop: Any, sslobj: Any, incoming: Any, outgoing: Any, scratch: memoryview) -> None:
        self._loop = loop
        self._sslobj = sslobj
        self._records = records_of(sslobj)
        self._incoming = incoming  # ciphertext that has arrived and was not decrypted
        self._outgoing = outgoing  # ciphertext to be sent
        self._scratch: Any = scratch.obj
        self._scratch_view = scratch
        self._buffer: Any = scratch  # where the transport underneath puts what it reads
        self._transport: Any = None  # the one underneath
        self._is_own = False  # whether it is one of ours
        self._app_protocol: Any = None
        self._app_is_buffered = False
        self._app_feed: StreamFeed | None = None  # where data goes in place of a stream reader's protocol
        self._state = CONNECTING
        self._closing = False  # whether the user closed, or the peer's close_notify came
        self._has_eof = False  # whether the peer of the transport underneath has finished writing
        self._backlog: list[bytes] = []  # what waits to be encrypted
        self._first = 0  # the first chunk of it that was not taken wholly
        self._offset = 0  # how much of that was taken
        self._waiting = 0  # bytes in the backlog
        self._write_blocked = False  # whether nothing can be encrypted until something arrives
        self._lost_writes = 0
        self._transport_paused = False  # whether the transport underneath takes no more
        self._app_writing_paused = False
        self._app_reading_paused = False
        self._transport_reading_paused = False
        self._high = 0
        self._low = 0
        self._read_high = 0
        self._read_low = 0
        self._read_error: Any = None
        self._read_all = False  # whether the last read took all that had arrived
        self._read_end = False  # whether it found the peer's close_notify
        self._is_told = False  # whether the protocol knows its transport

    def _enter(self, state: int) -> None:
        """The one way from state to state; RuntimeError for one that does not exist."""
        if state != self._state + 1 and state != CLOSED:
            raise RuntimeError(f"no way from {TLSState(self._state)!r} to {TLSState(state)!r}")
        self._state = state

    # What the rest of the protocol does, in plain Python.

    def _go_on(self) -> None:
        """Something arrived or can be sent, and the connection is not OPEN."""
        raise NotImplementedError

    def _peer_finished(self) -> None:
        """The peer's close_notify was read, while OPEN."""
        raise NotImplementedError

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        """Report an error and let the connection go."""
        raise NotImplementedError

    def _report(self, error: BaseException, message: str) -> None:
        """Report an error of the protocol's."""
        raise NotImplementedError

    # What it may call: the methods that every packet goes through are C functions in the compiled build.

    def deliver(self) -> bool:
        """Give the protocol what has arrived; whether that was all."""
        return self._read()

    def send_waiting(self) -> None:
        """Encrypt what waits and send it, as far as the transport underneath takes it."""
        self._send_backlog()

    def control_reading(self) -> None:
        """Let the transport underneath read, unless too much waits for a protocol that is paused."""
        self._control_reading()

    # What the transport underneath calls.

    def get_buffer(self, sizehint: int) -> Any:
        """Where the transport underneath may write what it reads."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """It has written so many bytes there."""
        self._arrived(self._buffer[:nbytes])

    def _scratch_filled(self, size: int) -> None:
        """A transport of ours has written so many bytes into the shared buffer, without asking for one."""
        self._arrived(taken(self._scratch, size) if size < RECORD_SIZE else self._scratch_view[:size])

    def data_received(self, data: Any) -> None:
        """The same, for transports that bring their own buffers."""
        self._arrived(data)

    def _arrived(self, data: Any) -> None:
        if self._state == CLOSED:
            return
        self._incoming.write(data)
        if self._state == OPEN:
            self._read()
        else:
            self._go_on()

    def pause_writing(self) -> None:
        """The transport underneath takes no more."""
        self._transport_paused = True

    def resume_writing(self) -> None:
        """The transport underneath takes more."""
        self._transport_paused = False
        self._continue_writing()

    def _continue_writing(self) -> None:
        if self._state == FLUSHING:
            self._go_on()
        else:
            self._send_backlog()

    # Reading.

    def _read(self) -> bool:
        """Give the protocol what has arrived; whether that was all."""
        if self._state != OPEN and self._state != FLUSHING:
            return True
        done = True
        try:
            if not self._app_reading_paused:
                done = self._read_into_buffer() if self._app_is_buffered else self._read_and_copy()
                if self._waiting or self._outgoing.pending:
                    self._send_backlog()
            if not done or self._app_reading_paused or self._transport_reading_paused:
                self._control_reading()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")
        return done

    def _read_and_copy(self) -> bool:
        """Decrypt into the shared buffer, and give the protocol a copy; whether that was all."""
        state = self._state
        size = self._decrypt(self._scratch_view, READ_SIZE)
        is_all, is_end = self._read_all, self._read_end  # The protocol may cause another read.
        if size:
            feed = self._app_feed
            if feed is not None and feed.is_open_to(self._app_protocol):
                feed._arrived(taken(self._scratch, size))
            else:
                self._app_protocol.data_received(taken(self._scratch, size))
        return self._after_delivery(state, is_all, is_end)

    def _read_into_buffer(self) -> bool:
        """Decrypt into the protocol's own buffer; whether that was all."""
        pending = self._incoming.pending or self._records.pending()
        if not pending:
            return True
        state = self._state
        protocol = self._app_protocol  # It may replace itself meanwhile, but the buffer is its own.
        buffer = protocol.get_buffer(pending)
        if type(buffer) is not bytearray:
            buffer = flat_view(buffer)
        room = len(buffer)
        if not room:
            raise RuntimeError("get_buffer() returned an empty buffer")
        size = self._decrypt(buffer, room)
        del buffer  # It is the protocol's again.
        is_all, is_end = self._read_all, self._read_end
        if size:
            protocol.buffer_updated(size)
        return self._after_delivery(state, is_all, is_end)

    def _after_delivery(self, state: int, is_all: bool, is_end: bool) -> bool:
        """See to the end, to errors and to the rest; whether all that had arrived was delivered."""
        error = self._read_error
        if error is not None:
            self._read_error = None
            raise error
        if self._state != state:
            return True  # The protocol has closed, and whoever did that took care of the rest.
        if is_end:
            if state == OPEN:
                self._peer_finished()
            return True
        if not is_all:
            self._loop.call_soon(self._continue_reading)
        return is_all

    def _continue_reading(self) -> None:
        if self._state == OPEN:
            self._read()
        else:
            self._go_on()

    def _decrypt(self, target: Any, room: int) -> int:
        """Fill the buffer with what has arrived; how many bytes.

        `_read_all` and `_read_end` say the rest. An error after some bytes waits in `_read_error` until
        these are delivered.
        """
        size: int = 0
        count: int = 0
        self._read_all = True
        self._read_end = False
        try:
            while size < room:
                if size:
                    with memoryview(target) as view, view[size:] as rest:
                        count = self._records.read(room - size, rest)
                else:
                    count = self._records.read(room, target)
                if count == 0:
                    self._read_end = True
                    return size
                # A read with room for a whole record leaves nothing of it.
                is_whole = room - size >= RECORD_SIZE
                size += count
                if not self._incoming.pending and (is_whole or not self._records.pending()):
                    return size
            self._read_all = False
        except AGAIN:
            pass
        except Exception as error:
            if not size:
                raise
            self._read_error = error
        return size

    def _discard(self) -> bool:
        """Decrypt what has arrived for nobody; whether the peer's close_notify was there."""
        try:
            while self._incoming.pending or self._records.pending():
                if not self._records.read(READ_SIZE, self._scratch_view):
                    return True
        except AGAIN:
            pass
        except ssl.SSLZeroReturnError:
            return True
        return False

    def _control_reading(self) -> None:
        """Let the transport underneath read, unless too much waits for a protocol that is paused."""
        size = self._incoming.pending
        if self._transport is None:
            return
        if not self._transport_reading_paused:
            if size and size >= self._read_high:
                self._transport_reading_paused = True
                self._transport.pause_reading()
        elif size <= self._read_low:
            self._transport_reading_paused = False
            self._transport.resume_reading()

    def _resume_app_reading(self) -> None:
        """The user wants data again."""
        if self._app_reading_paused:
            self._app_reading_paused = False
            self._loop.call_soon(self._continue_reading)

    # Writing.

    def _write(self, data: Any) -> None:
        """Send bytes-like `data`: encrypted at once, as far as the transport underneath takes it."""
        if self._is_lost():
            return
        size = len(data)
        try:
            is_queued = self._waiting or self._transport_paused or size > WRITE_BATCH
            if self._state == OPEN and not is_queued:
                count = 0
                try:
                    count = self._records.write(data)
                except AGAIN:
                    self._write_blocked = True
                if count < size:
                    self._append(memoryview(data)[count:], size - count)
                self._send_outgoing()
                if self._waiting or self._transport_paused or self._app_writing_paused:
                    self._control_writing()
            else:
                self._append(data, size)
                self._send_backlog()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")

    def _write_all(self, chunks: Iterable[bytes]) -> None:
        """Send all chunks in order, in as few records as possible."""
        if self._is_lost():
            return
        for chunk in chunks:
            self._append(chunk, len(chunk))
        try:
            self._send_backlog()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")

    def _is_lost(self) -> bool:
        """Whether nothing is taken any more; warns those who keep trying."""
        if self._state < FLUSHING:
            return False
        if self._lost_writes >= QUIET_WRITES:
            logger.warning("SSL connection is closed")
        else:
            self._lost_writes += 1
        return True

    def _append(self, data: Any, size: int) -> None:
        """Queue data; what is mutable is copied."""
        if size:
            chunk = data if type(data) is bytes else bytes(data)
            self._backlog.append(chunk)
            self._waiting += len(chunk)  # Another thread may have changed what is mutable.

    def _send_backlog(self) -> None:
        """Encrypt what waits and send it, as far as the transport underneath takes it."""
        for _ in range(BATCHES_PER_TURN):
            if self._transport_paused or self._transport is None:
                break
            if self._waiting and (self._state == OPEN or self._state == FLUSHING):
                self._encrypt()
            if not self._send_outgoing():
                break
            if not self._waiting or self._transport.is_closing():
                break
        else:
            self._loop.call_soon(self._continue_writing)
        if self._is_told:
            self._control_writing()

    def _send_outgoing(self) -> bool:
        """Hand what is encrypted to the transport underneath; whether there was anything."""
        data = self._outgoing.read()
        if not data:
            return False
        self._transport.write(data)
        return True

    def _encrypt(self) -> None:
        """Encrypt a batch of the backlog."""
        self._write_blocked = False
        room = WRITE_BATCH
        try:
            while self._waiting and room > 0:
                piece = self._next_piece(room)
                count = self._records.write(piece)
                self._advance(count)
                room -= count
        except AGAIN:
            self._write_blocked = True

    def _next_piece(self, room: int) -> Any:
        """What is first in the backlog: a part of a large chunk, or small ones for one record."""
        chunk = self._backlog[self._first]
        size = len(chunk) - self._offset
        if size >= RECORD_SIZE or size == self._waiting:
            if not self._offset and size <= room:
                return chunk
            return memoryview(chunk)[self._offset : self._offset + min(size, room)]
        pieces = [chunk[self._offset :] if self._offset else chunk]
        for index in range(self._first + 1, len(self._backlog)):
            chunk = self._backlog[index]
            size += len(chunk)
            if size > RECORD_SIZE:
                break
            pieces.append(chunk)
        return b"".join(pieces)

    def _advance(self, count: int) -> None:
        """Forget what was encrypted."""
        self._waiting -= count
        while count > 0:
            rest = len(self._backlog[self._first]) - self._offset
            if count < rest:
                self._offset += count
                break
            count -= rest
            self._first += 1
            self._offset = 0
        if self._first > 64 or not self._waiting:
            del self._backlog[: self._first]
            self._first = 0

    def _drop_backlog(self) -> None:
        self._backlog.clear()
        self._first = 0
        self._offset = 0
        self._waiting = 0

    def _unsent(self) -> int:
        """How many bytes wait to be given to the kernel, in the clear or encrypted."""
        size: int = self._waiting + self._outgoing.pending
        if self._is_own and self._transport is not None:
            size += self._transport.get_write_buffer_size()
        return size

    def _control_writing(self) -> None:
        """Tell the protocol when the watermarks are passed."""
        if not self._app_writing_paused and not self._waiting and not self._transport_paused:
            if not self._outgoing.pending:
                return  # Nothing waits anywhere.
        size = self._unsent()
        if not self._app_writing_paused:
            if size and size >= self._high:
                self._app_writing_paused = True
                self._tell("pause_writing")
        elif size <= self._low:
            self._app_writing_paused = False
            self._tell("resume_writing")

    def _tell(self, call: str) -> None:
        try:
            getattr(self._app_protocol, call)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, f"protocol.{call}() failed")
