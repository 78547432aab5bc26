"""The received bytes of a stream's reader that are not read yet, and the function that feeds it."""

from __future__ import annotations

from typing import Any

from whorl.core import limits
from whorl.core.copying import refuse_copy

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    from whorl.core.lists import last_taken

    def cut(flat: bytearray, size: int) -> bytes:
        """Return a copy of the first bytes."""
        return bytes(memoryview(flat)[:size])


class StreamBuffer:
    """Bytes in order: received chunks are added, and taken by number or up to a separator.

    They are kept as the chunks in which they came, so that a chunk that is taken whole is never copied. When
    a search has to look across the end of a chunk, all become one bytearray, until that has been read.
    """

    __reduce__ = refuse_copy

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self._set_up_buffer()
        if content:
            self.replace(content)

    def _set_up_buffer(self) -> None:
        self._chunks: list[bytes] = []
        self._offset = 0  # the number of bytes of the first chunk that were taken
        self._size = 0  # the number of bytes in the chunks that were not taken
        self._flat: bytearray | None = None  # the bytearray that holds the bytes in place of the chunks
        self._lent = False  # whether other code refers to the bytearray

    def __len__(self) -> int:
        return self._count()

    def _count(self) -> int:
        """Return the number of bytes."""
        return self._size if self._flat is None else len(self._flat)

    def replace(self, content: bytes | bytearray) -> None:
        """Hold these bytes and nothing else."""
        self._chunks.clear()
        self._offset = self._size = 0
        self._flat = None
        self._lent = False
        if content:
            self._flat = content if isinstance(content, bytearray) else bytearray(content)

    def lend(self) -> bytearray:
        """Return the one bytearray that holds the bytes from now on: to change it changes this buffer."""
        if self._flat is None:
            self._flatten()
        self._lent = True
        assert self._flat is not None
        return self._flat

    def add(self, data: Any) -> None:
        """Add bytes at the end; raise the errors of `bytearray.extend`."""
        if self._flat is not None:
            self._flat.extend(data)
            return
        if type(data) is not bytes:
            copy = bytearray()
            copy.extend(data)
            data = bytes(copy)
        size = len(data)
        if not size:
            return
        if size < limits.SHORT_CHUNK and len(self._chunks) > 1:
            last = self._chunks[len(self._chunks) - 1]
            if len(last) < limits.SHORT_CHUNK:
                self._chunks[len(self._chunks) - 1] = last + data
                self._size = self._size + size
                return
        self._chunks.append(data)
        self._size = self._size + size

    def take(self, limit: int) -> bytes:
        """Return and remove the first `limit` bytes, or as many as there are."""
        if self._flat is not None:
            return self._take_flat(limit)
        if not self._size or limit <= 0:
            return b""
        chunk = self._chunks[0]
        rest = len(chunk) - self._offset
        if limit < rest:
            end = self._offset + limit
            data = chunk[self._offset : end]
            self._offset = end
            self._size = self._size - limit
            return data
        data = chunk[self._offset :] if self._offset else chunk
        self._offset = 0
        if self._size == rest:
            last_taken(self._chunks)
            self._size = 0
            return data
        del self._chunks[0]
        self._size = self._size - rest
        return data if limit == rest else self._take_more(data, limit - rest)

    def _take_more(self, data: bytes, limit: int) -> bytes:
        """Return `data` and `limit` bytes more, or as many as there are."""
        pieces = [data]
        count = 0  # chunks that are taken whole
        for chunk in self._chunks:
            size = len(chunk)
            if size > limit:
                if limit:
                    pieces.append(chunk[:limit])
                    self._offset = limit
                    self._size = self._size - limit
                break
            pieces.append(chunk)
            limit -= size
            self._size = self._size - size
            count += 1
        del self._chunks[:count]
        return b"".join(pieces)

    def _take_flat(self, limit: int) -> bytes:
        flat = self._flat
        assert flat is not None
        size = len(flat)
        if limit < size:
            data = cut(flat, max(limit, 0))
            del flat[: max(limit, 0)]
            return data
        data = bytes(flat)
        if self._lent:
            flat.clear()
        else:
            self._flat = None
        return data

    def find(self, separator: bytes, start: int) -> int:
        """Return the index of the first separator after `start` bytes; -1 if there is none."""
        if self._flat is None:
            if not self._size:
                return -1
            chunk = self._chunks[0]
            found = chunk.find(separator, self._offset + start)
            if found >= 0:
                return found - self._offset
            if len(self._chunks) == 1:
                return -1
            self._flatten()
        assert self._flat is not None
        return self._flat.find(separator, start)

    def take_until(self, separator: bytes, limit: int) -> bytes | None:
        """Return and remove the bytes to the end of the first separator.

        Returns None if there is none or it begins after `limit` bytes.
        """
        found = self.find(separator, 0)
        if found < 0 or found > limit:
            return None
        return self.take(found + len(separator))

    def _flatten(self) -> None:
        """Move the chunks into one bytearray."""
        flat = bytearray().join(self._chunks)
        if self._offset:
            del flat[: self._offset]
        self._chunks.clear()
        self._offset = 0
        self._size = 0
        self._flat = flat


@cython.binding(True)  # type: ignore[untyped-decorator]
def feed_data(reader: Any, data: Any) -> None:
    """Add received data: `StreamReader.feed_data`."""
    reader._received.put(data)
