"""The data path of TLS: between the transport underneath, an `ssl.SSLObject`, and a protocol.

    CONNECTING -> HANDSHAKE -> OPEN -> FLUSHING -> SHUTDOWN -> CLOSED
         \\____________\\__________\\________\\____________^   abort(), an error, the connection is lost

Each state leads to the next one and every state to CLOSED; `_set_state` is the only way. FLUSHING begins
with `close()`, with the peer's close_notify and with the end of the connection. Data that was written
before is still sent. Data that was received before is still delivered, unless the user closed.
`connection_lost` of the transport underneath ends every state.

    ciphertext -> _incoming -> SSLObject.read -> data_received      (into a buffer that all connections share,
                                                    or, of much at once, into the bytes that are delivered)
    write -> _backlog -> SSLObject.write -> _outgoing -> the write of the transport underneath

The transport underneath reports every unsent byte, if it is one of Whorl's. So data that cannot be sent
waits here, in the clear, and the watermarks count all bytes that were not given to the kernel.
"""

from __future__ import annotations

from typing import Any

from whorl.aio.tls import states
from whorl.core import limits

try:
    import ssl
except ImportError:  # A Python may be built without the `ssl` module.
    ssl = None  # type: ignore[assignment]

from whorl.aio.streams.feed import StreamFeed
from whorl.aio.tls.records import AGAIN, RecordReader
from whorl.aio.tls.write_path import TLSWritePath

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

#: The type of the object that reads records for an `ssl.SSLObject` of Python's class.
NATIVE: Any = None if ssl is None else ssl._ssl._SSLSocket  # type: ignore[attr-defined]

#: For more bytes than this, and one record, the C library takes memory from the kernel for each message, and
#: frees it again.
MOST_READ_BY_RECORDS = 111 * 1024

if not cython.compiled:

    def taken(scratch: bytearray, size: int) -> bytes:
        """Return a copy of the first bytes."""
        return bytes(memoryview(scratch)[:size])


def flat_view(buffer: Any) -> memoryview:
    """Return a view of single bytes, whichever buffer a protocol gave."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    return view if view.itemsize == 1 and view.ndim == 1 else view.cast("B")


class TLSEngine(TLSWritePath):
    """The part of `tls.TLSProtocol` that every packet goes through.

    `scratch` is a buffer of READ_SIZE bytes that all connections of the loop share: nothing stays in it
    while the user's code runs.
    """

    def __init__(self, loop: Any, sslobj: Any, incoming: Any, outgoing: Any, scratch: memoryview) -> None:
        super().__init__(loop, sslobj, outgoing)
        self._incoming = incoming  # received ciphertext that is not decrypted yet
        self._scratch: Any = scratch.obj
        self._scratch_view = scratch
        self._record_reader = RecordReader(incoming, scratch)
        self._buffer: Any = scratch  # the buffer that the transport underneath reads into
        self._app_is_buffered = False
        self._app_feed: StreamFeed | None = None  # gets data in place of a stream reader's protocol
        self._closing = False  # whether the user closed, or the peer's close_notify came
        self._has_eof = False  # whether the peer of the transport underneath has finished writing
        self._app_reading_paused = False
        self._transport_reading_paused = False
        self._read_high = 0
        self._read_low = 0
        self._read_error: Any = None
        self._read_all = False  # whether the last read took all received data
        self._read_end = False  # whether it found the peer's close_notify

    # The methods that `transports.tls_lifecycle` defines.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact that TLS knows, or else one of the transport underneath."""
        raise NotImplementedError

    def _is_transport_closing(self) -> bool:
        """Return whether the transport underneath is closed or being closed."""
        raise NotImplementedError

    def _peer_finished(self) -> None:
        """Handle the peer's close_notify, which was read while OPEN."""
        raise NotImplementedError

    def _start_shutdown(self) -> None:
        """Send the unsent data and close_notify, and wait for the peer's close_notify."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop the context and the known facts about the connection."""
        raise NotImplementedError

    def _abort(self, error: BaseException | None) -> None:
        """Close the connection at once."""
        raise NotImplementedError

    # The methods that the transport underneath calls.

    def get_buffer(self, sizehint: int) -> Any:
        """Return the buffer that the transport underneath may read into."""
        if self._in_openssl:
            self._refuse_entry()
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle so many bytes that the transport wrote into that buffer."""
        if self._in_openssl:
            self._refuse_entry()
        self._record_reader.stop()
        self._arrived(self._buffer[:nbytes])

    def _scratch_filled(self, size: int) -> None:
        """Handle so many bytes that Whorl's transport wrote into the shared buffer, without `get_buffer`."""
        if self._in_openssl:
            self._refuse_entry()
        if size > states.RECORD_SIZE and self._can_read_records(size):
            self._read(size)
            return
        if self._record_reader.is_known:
            self._record_reader.scan(self._scratch, size)
        self._arrived(taken(self._scratch, size) if size < states.RECORD_SIZE else self._scratch_view[:size])

    def data_received(self, data: Any) -> None:
        """Do the same for transports that provide their buffers."""
        if self._in_openssl:
            self._refuse_entry()
        self._record_reader.stop()
        self._arrived(data)

    def _arrived(self, data: Any) -> None:
        if self._state == states.CLOSED:
            return
        self._incoming.write(data)
        if self._state == states.OPEN:
            self._read(0)
        else:
            self._continue_state()

    # Reading.

    def _read(self, fresh: int) -> bool:
        """Give the protocol the received data; return whether that was all.

        `fresh` is the number of its bytes in the shared buffer, if `_can_read_records` returned true, or 0.
        """
        if self._state != states.OPEN and self._state != states.FLUSHING:
            return True
        done = True
        try:
            if not self._app_reading_paused:
                if fresh:
                    done = self._read_records(fresh)
                else:
                    done = self._read_into_buffer() if self._app_is_buffered else self._read_and_copy()
                if self._waiting or self._outgoing.pending:
                    self._send_backlog()
            if not done or self._app_reading_paused or self._transport_reading_paused:
                self._control_reading()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")
        return done

    def _can_read_records(self, size: int) -> bool:
        """Return whether received data may be decrypted record by record, with its rest in the shared buffer.

        This requires that no code of the program's reads it, and that little waits from before.
        """
        return (
            self._state == states.OPEN
            and type(self._records) is NATIVE
            and self._record_reader.is_known
            and not (self._app_is_buffered or self._app_reading_paused)
            and self._incoming.pending + size <= MOST_READ_BY_RECORDS
        )

    def _read_records(self, size: int) -> bool:
        """Decrypt the data in the shared buffer and give it to the protocol; return whether that was all."""
        reader = self._record_reader
        self._in_openssl = True
        try:
            data = reader.decrypt(self._records, size)
        finally:
            self._in_openssl = False
        is_all, is_end = reader.is_all, reader.is_end  # The protocol may cause another read.
        self._read_error, reader.error = reader.error, None
        if data and self._state == states.OPEN:
            self._deliver_bytes(data)
        return self._after_delivery(states.OPEN, is_all, is_end)

    def _read_and_copy(self) -> bool:
        """Decrypt into the shared buffer, and give the protocol a copy; return whether that was all."""
        state = self._state
        size = self._decrypt(self._scratch_view, limits.READ_SIZE)
        is_all, is_end = self._read_all, self._read_end  # The protocol may cause another read.
        if size and self._state == state:
            self._deliver_bytes(taken(self._scratch, size))
        return self._after_delivery(state, is_all, is_end)

    def _deliver_bytes(self, data: bytes) -> None:
        feed = self._app_feed
        if feed is not None and feed.is_open_to(self._app_protocol):
            feed._arrived(data)
        else:
            self._app_protocol.data_received(data)

    def _read_into_buffer(self) -> bool:
        """Decrypt into the buffer that the protocol provides; return whether that was all."""
        pending = self._incoming.pending or self._records.pending()
        if not pending:
            return True
        state = self._state
        protocol = self._app_protocol  # It may replace itself meanwhile, but the buffer belongs to it.
        buffer = protocol.get_buffer(pending)
        if type(buffer) is not bytearray:
            buffer = flat_view(buffer)
        capacity = len(buffer)
        if not capacity:
            raise RuntimeError("get_buffer() returned an empty buffer")
        then = self._state
        size = self._decrypt(buffer, capacity)
        del buffer  # It belongs to the protocol again.
        is_all, is_end = self._read_all, self._read_end
        if size and self._state == then:
            protocol.buffer_updated(size)
        return self._after_delivery(state, is_all, is_end)

    def _after_delivery(self, state: int, is_all: bool, is_end: bool) -> bool:
        """Handle the end, errors and the rest; return whether all received data was delivered."""
        error = self._read_error
        if error is not None:
            self._read_error = None
            raise error
        if self._state != state:
            return True  # The protocol has closed, and the code that did that took care of the rest.
        if is_end:
            if state == states.OPEN:
                self._peer_finished()
            return True
        if not is_all:
            self._loop.call_soon(self._continue_reading)
        return is_all

    def _continue_reading(self) -> None:
        if self._state == states.OPEN:
            self._read(0)
        else:
            self._continue_state()

    def _decrypt(self, target: Any, capacity: int) -> int:
        """Fill the buffer with decrypted data; return the number of bytes.

        `_read_all` and `_read_end` hold the other results. An error after some bytes waits in `_read_error`
        until these are delivered.
        """
        size: int = 0
        count: int = 0
        self._read_all = True
        self._read_end = False
        self._record_reader.part = 0
        if self._in_openssl:
            self._refuse_entry()
        self._in_openssl = True
        try:
            while size < capacity:
                if size:
                    rest = memoryview(target)[size:]
                    try:
                        count = self._records.read(capacity - size, rest)
                    finally:
                        rest.release()
                else:
                    count = self._records.read(capacity, target)
                if count == 0:
                    self._read_end = True
                    return size
                # A read into a buffer for a whole record leaves nothing of it.
                is_whole = capacity - size >= states.RECORD_SIZE
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
        finally:
            self._in_openssl = False
        return size

    def _discard(self) -> bool:
        """Decrypt the received data and drop it; return whether the peer's close_notify was there."""
        if self._in_openssl:
            self._refuse_entry()
        self._in_openssl = True
        ended = False
        try:
            while self._incoming.pending or self._records.pending():
                if not self._records.read(states.RECORD_SIZE):  # The shared buffer may be in use.
                    return True
        except AGAIN:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        finally:
            self._in_openssl = False
        return ended

    def _control_reading(self) -> None:
        """Let the transport underneath read, unless too much waits for a protocol that is paused."""
        size = self._incoming.pending - self._record_reader.part
        if self._transport is None:
            return
        if not self._transport_reading_paused:
            if size > 0 and size >= self._read_high:
                self._transport_reading_paused = True
                self._transport.pause_reading()
        elif size <= self._read_low:
            self._transport_reading_paused = False
            self._transport.resume_reading()

    def _resume_app_reading(self) -> None:
        """Deliver data again, as the user wants it."""
        if self._app_reading_paused:
            self._app_reading_paused = False
            self._loop.call_soon(self._continue_reading)
