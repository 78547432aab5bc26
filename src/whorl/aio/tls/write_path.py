"""The half of a TLS connection's data path that writes: a backlog, encrypted and sent in batches.

Data that the transport underneath does not take waits here, in the clear. `tls.engine` draws the states.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from whorl.aio.interop import at_import
from whorl.aio.interop.at_import import logger
from whorl.aio.interop.class_snapshot import ClassSnapshot
from whorl.aio.tls import states
from whorl.aio.tls.records import AGAIN
from whorl.aio.tls.states import STATE_NAMES
from whorl.core.copying import refuse_copy

#: The number of bytes that are encrypted before the transport underneath gets them.
WRITE_BATCH = 128 * 1024

#: The number of such batches that one turn sends before other callbacks run.
BATCHES_PER_TURN = 16

#: After this many writes to a lost connection each further one logs a warning, as in asyncio.
QUIET_WRITES = 5

SSLObject: Any = at_import.SSLObject
METHODS = ClassSnapshot(at_import.METHODS_OF_SSL_OBJECTS)


def records_of(sslobj: Any) -> Any:
    """Return the object that reads and writes records for an `ssl.SSLObject`.

    It is the object that the `SSLObject` calls, which saves the frames of the latter. An instance of a
    program's subclass, or of a class with replaced methods, is used itself.
    """
    if type(sslobj) is not SSLObject or not METHODS.is_current():
        return sslobj
    return getattr(sslobj, "_sslobj", None) or sslobj


class TLSWritePath:
    """The state of a TLS connection, and the part of it that writes."""

    __reduce__ = refuse_copy

    def __init__(self, loop: Any, sslobj: Any, outgoing: Any) -> None:
        self._loop = loop
        self._sslobj = sslobj
        self._records = records_of(sslobj)
        self._in_openssl = False  # whether one of both is running, and may call the program's callbacks
        self._outgoing = outgoing  # ciphertext to be sent
        self._transport: Any = None  # the transport underneath
        self._transport_is_ours = False  # whether that is one of Whorl's
        self._app_protocol: Any = None
        self._state = states.CONNECTING
        self._backlog: list[bytes] = []  # the chunks that wait to be encrypted
        self._first = 0  # the index of the first chunk that was not taken wholly
        self._offset = 0  # the number of its bytes that were taken
        self._waiting = 0  # bytes in the backlog
        self._write_blocked = False  # whether nothing can be encrypted until data is received
        self._lost_writes = 0
        self._transport_paused = False  # whether the transport underneath takes no more
        self._app_writing_paused = False
        self._high = 0
        self._low = 0
        self._app_is_connected = False  # whether the protocol knows its transport

    def _set_state(self, state: int) -> None:
        """Change the state, in the only way; raise RuntimeError for a change that does not exist."""
        if state != self._state + 1 and state != states.CLOSED:
            raise RuntimeError(f"no way from {STATE_NAMES[self._state]} to {STATE_NAMES[state]}")
        self._state = state

    def _refuse_entry(self) -> None:
        """Raise RuntimeError: the SSL object is running, and its callbacks must not enter it again."""
        raise RuntimeError("a callback of OpenSSL's must not have its own connection go on")

    # The methods that `transports.tls_lifecycle` defines.

    def _continue_state(self) -> None:
        """Continue in a state other than OPEN: data was received, or can be sent."""
        raise NotImplementedError

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        """Report an error and end the connection."""
        raise NotImplementedError

    def _report(self, error: BaseException, message: str, transport: Any = None) -> None:
        """Report an exception of the protocol."""
        raise NotImplementedError

    # The methods that the transport underneath calls.

    def pause_writing(self) -> None:
        """Stop writing: the transport underneath takes no more."""
        self._transport_paused = True

    def resume_writing(self) -> None:
        """Continue to write: the transport underneath takes more."""
        self._transport_paused = False
        self._continue_writing()

    def _continue_writing(self) -> None:
        if self._state == states.FLUSHING:
            self._continue_state()
        else:
            self._send_backlog()

    # Writing.

    def _write(self, data: Any) -> None:
        """Send bytes-like `data`: encrypted at once, as far as the transport underneath takes it."""
        if self._count_lost_write():
            return
        size = len(data)
        try:
            is_queued = self._waiting or self._transport_paused or size > WRITE_BATCH or self._in_openssl
            if self._state == states.OPEN and not is_queued:
                count = 0
                self._in_openssl = True
                try:
                    count = self._records.write(data)
                except AGAIN:
                    self._write_blocked = True
                finally:
                    self._in_openssl = False
                if count < size or self._waiting:
                    self._append_first(memoryview(data)[count:], size - count)
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
        if self._count_lost_write():
            return
        for chunk in chunks:
            self._append(chunk, len(chunk))
        try:
            self._send_backlog()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")

    def _count_lost_write(self) -> bool:
        """Return whether a write is lost, as nothing can be sent any more; count it, and warn of many."""
        if self._state < states.FLUSHING:
            return False
        if self._lost_writes >= QUIET_WRITES:
            logger.warning("SSL connection is closed")
        else:
            self._lost_writes += 1
        return True

    def _append(self, data: Any, size: int) -> None:
        """Queue data; mutable data is copied."""
        if size:
            chunk = data if type(data) is bytes else bytes(data)
            self._backlog.append(chunk)
            self._waiting += len(chunk)  # Another thread may have changed a mutable buffer.

    def _append_first(self, rest: Any, size: int) -> None:
        """Queue the rest of a write before the data that callbacks of OpenSSL's have written meanwhile."""
        later = self._backlog
        self._backlog = []
        self._append(rest, size)
        self._backlog += later
        if later:
            self._loop.call_soon(self._continue_writing)

    def _send_backlog(self) -> None:
        """Encrypt the waiting data and send it, as far as the transport underneath takes it.

        Within a callback of OpenSSL's this does nothing: the call that it interrupts sends the data when it
        comes back.
        """
        if self._in_openssl:
            return
        for _ in range(BATCHES_PER_TURN):
            if self._transport_paused or self._transport is None:
                break
            if self._waiting and (self._state == states.OPEN or self._state == states.FLUSHING):
                self._encrypt()
            if not self._send_outgoing():
                break
            if not self._waiting or self._transport.is_closing():
                break
        else:
            self._loop.call_soon(self._continue_writing)
        if self._app_is_connected:
            self._control_writing()

    def _send_outgoing(self) -> bool:
        """Hand the ciphertext to the transport underneath; return whether there was any."""
        data = self._outgoing.read()
        if not data:
            return False
        self._transport.write(data)
        return True

    def _encrypt(self) -> None:
        """Encrypt a batch of the backlog."""
        self._write_blocked = False
        limit = WRITE_BATCH
        if self._in_openssl:
            self._refuse_entry()
        self._in_openssl = True
        try:
            while self._waiting and limit > 0:
                piece = self._next_piece(limit)
                count = self._records.write(piece)
                self._advance(count)
                limit -= count
        except AGAIN:
            self._write_blocked = True
        finally:
            self._in_openssl = False

    def _next_piece(self, limit: int) -> Any:
        """Return the first data of the backlog: a part of a large chunk, or small chunks for one record."""
        chunk = self._backlog[self._first]
        size = len(chunk) - self._offset
        if size >= states.RECORD_SIZE or size == self._waiting:
            if not self._offset and size <= limit:
                return chunk
            return memoryview(chunk)[self._offset : self._offset + min(size, limit)]
        pieces = [chunk[self._offset :] if self._offset else chunk]
        for index in range(self._first + 1, len(self._backlog)):
            chunk = self._backlog[index]
            size += len(chunk)
            if size > states.RECORD_SIZE:
                break
            pieces.append(chunk)
        return b"".join(pieces)

    def _advance(self, count: int) -> None:
        """Remove the encrypted bytes from the backlog."""
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
        """Return the number of bytes that wait to be given to the kernel, in the clear or encrypted."""
        size: int = self._waiting + self._outgoing.pending
        if self._transport_is_ours and self._transport is not None:
            size += self._transport.get_write_buffer_size()
        return size

    def _control_writing(self) -> None:
        """Call the protocol's `pause_writing` or `resume_writing` when the watermarks are passed."""
        if not self._app_writing_paused and not self._waiting and not self._transport_paused:
            if not self._outgoing.pending:
                return  # Nothing waits anywhere.
        size = self._unsent()
        if not self._app_writing_paused:
            if size and size >= self._high:
                self._app_writing_paused = True
                self._call_protocol("pause_writing")
        elif size <= self._low:
            self._app_writing_paused = False
            self._call_protocol("resume_writing")

    def _call_protocol(self, call: str) -> None:
        try:
            getattr(self._app_protocol, call)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, f"protocol.{call}() failed")
