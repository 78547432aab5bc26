"""The digest of a run: one number for all that its loops asked of their kernels."""

from __future__ import annotations

import asyncio
import marshal
from hashlib import blake2b
from typing import Any

#: How many calls are noted before they go into the digest.
_BATCH = 512

#: The last format of `marshal` that is the same for equal values: later ones tell which objects are shared.
_FORMAT = 2


class Digest:
    """One number for all calls of a run, with their bytes and times; and the calls, if they are kept."""

    __slots__ = ("_calls", "_hash", "_names", "_numbers", "count", "kept", "takes_lengths", "tasks")

    def __init__(self, keeps: bool = False) -> None:
        self._hash = blake2b(digest_size=12)
        self._calls: list[tuple[Any, ...]] = []
        self._numbers: dict[str, int] = {}  # of the names of hosts and calls, in the order of their first use
        self._names: list[str] = []
        self.kept: list[tuple[Any, ...]] | None = [] if keeps else None
        self.tasks: list[str] = []  # which task made each call, if they are kept
        self.count: int = 0
        self.takes_lengths: bool = False  # of bytes, in place of the bytes: those of TLS are not the seed's

    def number(self, name: str) -> int:
        """Return the number that stands for a name: it is quicker to write."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._names)
            self._names.append(name)
        return found

    def add(self, call: tuple[Any, ...]) -> None:
        """Note a call: when, by which host, its name, and its details. Numbers stand for both names."""
        calls = self._calls
        if self.takes_lengths:
            call = tuple([len(each) if isinstance(each, bytes) else each for each in call])
        calls.append(call)
        if self.kept is not None:
            self.tasks.append(task_name())
        if len(calls) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._calls:
            return
        self.count += len(self._calls)
        self._hash.update(_as_bytes(self._calls))
        if self.kept is not None:
            self.kept += [self._named(call) for call in self._calls]
        self._calls.clear()

    def _named(self, call: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a call with names in the place of their numbers."""
        time, host, name, *details = call
        return time, self._names[host], self._names[name], *details

    def value(self) -> str:
        """Return the number as text."""
        self._flush()
        made = self._hash.copy()
        if self._names:
            made.update(marshal.dumps(self._names, _FORMAT))
        return str(made.hexdigest())


def _as_bytes(calls: list[tuple[Any, ...]]) -> bytes:
    """Return the same bytes for equal calls. `marshal` is quick, and knows only Python's own types."""
    made = b""
    try:
        made = marshal.dumps(calls, _FORMAT)
    except ValueError:
        made = b"".join([_one_as_bytes(call) for call in calls])
    return made


def _one_as_bytes(call: tuple[Any, ...]) -> bytes:
    """Return the bytes of one call, of which a part may be no object of Python's own types."""
    made = b""
    try:
        made = marshal.dumps(call, _FORMAT)
    except ValueError:
        made = repr(call).encode()
    return made


def task_name() -> str:
    """Return the name of the task that runs; empty for a callback, or the loop itself."""
    loop = asyncio._get_running_loop()
    task = asyncio.current_task(loop) if loop is not None else None
    return task.get_name() if task is not None else ""
