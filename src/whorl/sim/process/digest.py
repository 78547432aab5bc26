"""The digest of a run: one number for all that its loops asked of their kernels."""

from __future__ import annotations

import asyncio
import marshal
from hashlib import blake2b
from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

#: How many calls are written before they go into the digest.
_BATCH = 512

#: The last format of `marshal` that is the same for equal values: later ones tell which objects are shared.
_FORMAT = 2

if not cython.compiled:

    def write_call(target: bytearray, time: int, host: int, call: int, details: tuple[Any, ...]) -> bool:
        """Append a call as `marshal` writes it; return False if a part is none of Python's own types."""
        try:
            target += marshal.dumps((time, host, call, *details), _FORMAT)
        except ValueError:
            return False
        return True


class Digest:
    """One number for all calls of a run, with their bytes and times; and the calls, if they are kept."""

    def __init__(self, keeps: bool = False) -> None:
        self._hash = blake2b(digest_size=12)
        self._bytes = bytearray()  # of the calls of a batch
        self._written = 0  # how many these are
        self._is_plain = True  # they consist of Python's own types
        self._numbers: dict[str, int] = {}  # of the names of hosts and calls, in the order of their first use
        self._names: list[str] = []
        self.kept: list[tuple[Any, ...]] | None = [] if keeps else None
        self.tasks: list[str] = []  # which task made each call, if they are kept
        self.takes_lengths: bool = False  # of bytes, in place of the bytes: those of TLS are not the seed's

    def number(self, name: str) -> int:
        """Return the number that stands for a name: it is quicker to write."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._names)
            self._names.append(name)
        return found

    def add(self, time: int, host: int, call: str, details: tuple[Any, ...]) -> None:
        """Note a call: when, the number of its host, its name, and its details."""
        number = self.number(call)
        if self.takes_lengths:
            details = tuple([len(each) if isinstance(each, bytes) else each for each in details])
        if self.kept is not None:
            self.kept.append((time, self._names[host], call, *details))
            self.tasks.append(task_name())
        if not write_call(self._bytes, time, host, number, details):
            self._is_plain = False
            self._bytes += repr((time, host, number, *details)).encode()
        self._written += 1
        if self._written == _BATCH:
            self._flush()

    def _flush(self) -> None:
        """Take the calls of a batch into the digest: as `marshal` writes a list of them, if it can."""
        if self._is_plain and self._written:
            self._hash.update(b"[" + self._written.to_bytes(4, "little"))
        self._hash.update(self._bytes)
        self._bytes.clear()
        self._written = 0
        self._is_plain = True

    def value(self) -> str:
        """Return the number as text."""
        self._flush()
        made = self._hash.copy()
        if self._names:
            made.update(marshal.dumps(self._names, _FORMAT))
        return str(made.hexdigest())


def task_name() -> str:
    """Return the name of the task that runs; empty for a callback, or the loop itself."""
    loop = asyncio._get_running_loop()
    task = asyncio.current_task(loop) if loop is not None else None
    return task.get_name() if task is not None else ""
