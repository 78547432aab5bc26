"""Records of TLS: their ends, which their headers give (RFC 8446, 5.1), and their content."""

from __future__ import annotations

from typing import Any

from whorl.aio.tls import states

try:
    import ssl
except ImportError:  # A Python may be built without the `ssl` module.
    ssl = None  # type: ignore[assignment]

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

#: The errors of an `ssl.SSLObject` that needs more to go on.
AGAIN: Any = () if ssl is None else (ssl.SSLWantReadError, ssl.SSLSyscallError)

HEADER_SIZE = 5  # a type, a version of two bytes, and the length of the body in two
VERSION_MAJOR = 3
LEAST_TYPE, GREATEST_TYPE = 20, 24  # change_cipher_spec, alert, handshake, application_data, heartbeat
LONGEST_BODY = (1 << 14) + 2048  # TLS 1.2 allows encryption and compression to add this much

if not cython.compiled:

    def new_buffer(size: int) -> Any:
        """Return a buffer for so many bytes."""
        return bytearray(size)

    def buffer_tail(buffer: Any, start: int) -> memoryview:
        """Return a view of the buffer from `start` on."""
        return memoryview(buffer)[start:]

    def take_bytes(reader: RecordReader) -> bytes:
        """Return the bytes that were put into the reader's buffer."""
        return bytes(memoryview(reader._buffer)[: reader._filled])


class RecordScanner:
    """A walk along one connection's records, over pieces of any size.

    `is_known` turns False, for good, at the first bytes that are no header of a record.
    """

    def __init__(self) -> None:
        self.is_known: bool = True
        self._missing = 0  # bytes of the record in progress
        self._seen = 0  # bytes of its header
        self._length = 0

    def is_between(self) -> bool:
        """Return whether no record is in progress."""
        return self._missing == 0 and self._seen == 0

    def stop(self) -> None:
        """Stop the walk: the scanner did not see some received data."""
        self.is_known = False

    def scan(self, data: bytearray, size: int) -> None:
        """Walk along the first bytes of `data`."""
        at: int = 0
        while at < size and self.is_known:
            at = self._record_end(data, at, size)

    def whole(self, data: bytearray, at: int, size: int, enough: int) -> int:
        """Return the end of the whole records in data[at:size]; stop once they are `enough` bytes.

        An incomplete record is walked along as well, but not counted.
        """
        end: int = at
        place: int = at
        while place < size and place - at < enough and self.is_known:
            place = self._record_end(data, place, size)
            if self.is_between():
                end = place
        return end

    def _record_end(self, data: bytearray, at: int, size: int) -> int:
        byte: int = 0
        if self._missing == 0:
            while at < size and self._seen < HEADER_SIZE:
                byte = data[at]
                if self._seen == 0 and not LEAST_TYPE <= byte <= GREATEST_TYPE:
                    self.is_known = False
                elif self._seen == 1 and byte != VERSION_MAJOR:
                    self.is_known = False
                elif self._seen >= 3:
                    self._length = self._length * 256 + byte
                self._seen += 1
                at += 1
            if self._seen < HEADER_SIZE:
                return at
            if self._length > LONGEST_BODY:
                self.is_known = False
            self._missing = self._length
            self._seen = self._length = 0
        rest: int = min(self._missing, size - at)
        self._missing -= rest
        return at + rest


class RecordReader(RecordScanner):
    """Decrypts received data in `scratch`, in whole records, into bytes that are delivered without a copy.

    An SSL object that is given whole records, few at a time, needs little memory, which stays in the
    processor's cache. It raises no exception if it is never asked for a missing record. `incoming` is the
    `ssl.MemoryBIO` it reads from.
    """

    def __init__(self, incoming: Any, scratch: memoryview) -> None:
        super().__init__()
        self._incoming = incoming
        self._scratch: Any = scratch.obj
        self._scratch_view = scratch
        self._buffer: Any = None  # the buffer that is being filled, before other code gets it
        self._filled = 0  # bytes in it
        self.part: Any = 0  # bytes in `incoming` that are less than a record
        self.is_all: bool = True  # whether the last call took all received data
        self.is_end: bool = False  # whether it found the peer's close_notify
        self.error: Exception | None = None  # the error that stopped it, after the returned data

    def decrypt(self, records: Any, size: int) -> bytes:
        """Return the data in `incoming` and in the first bytes of the shared buffer, decrypted by `records`.

        An incomplete record is left in `incoming`. The walk has to be `is_known` before. Raises RuntimeError
        from within itself: a callback of the SSL context must not have its connection read.
        """
        if self._buffer is not None:
            raise RuntimeError("this connection is being read already")
        # Decrypted data is never longer, and the buffer has space for a record of the greatest size at each
        # read.
        self._buffer = new_buffer(self._incoming.pending + size + states.RECORD_SIZE)
        try:
            self._filled = self.part = 0
            self.is_all, self.is_end = True, False
            try:
                self._decrypt_whole(records, size)
            except Exception as error:
                self.error = error
            if not self.is_known:
                self.is_all = False
            elif self.is_all:
                self.part = self._incoming.pending
            return take_bytes(self)
        finally:
            self._buffer = None

    def _decrypt_whole(self, records: Any, size: int) -> None:
        at: int = 0
        end: int = 0
        try:
            while at < size and self.is_all and not self.is_end:
                end = self.whole(self._scratch, at, size, states.RECORD_SIZE)
                if end == at:
                    break
                self._incoming.write(self._scratch_view[at:end])
                at = end
                self._decrypt_pending(records)
        finally:
            if at < size:
                self._incoming.write(self._scratch_view[at:size])

    def _decrypt_pending(self, records: Any) -> None:
        count: int = 0
        try:
            while self._filled + states.RECORD_SIZE <= len(self._buffer):
                view = buffer_tail(self._buffer, self._filled)
                try:
                    count = records.read(states.RECORD_SIZE, view)
                finally:
                    view.release()
                if count == 0:
                    self.is_end = True
                    return
                if not 0 < count <= states.RECORD_SIZE:
                    raise ValueError("the SSL object has read more than it was asked for")
                self._filled += count
                if not self._incoming.pending:
                    return
            self.is_all = False
        except AGAIN:
            pass
