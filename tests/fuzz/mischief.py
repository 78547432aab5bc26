"""Unexpected values and objects, for the calls of the fuzzer."""

from __future__ import annotations

import array
import asyncio
import contextvars
import ctypes
import math
import random
import sys
from collections.abc import Callable
from typing import Any

#: Numbers at the edges of what C types hold, and beyond. None of them is a descriptor of the test's own.
NUMBERS: tuple[Any, ...] = (
    -1,
    -2,
    -(2**31),
    -(2**31) - 1,
    -(2**63),
    -(2**63) - 1,
    -65536,
    999_999,
    2**31 - 1,
    2**31,
    2**32,
    2**32 + 7,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    0.0,
    -0.0,
    1e-9,
    0.5,
    1e300,
    math.inf,
    -math.inf,
    math.nan,
    sys.float_info.max,
)


class Text(str):
    """A subclass of str."""


class Octets(bytes):
    """A subclass of bytes."""


class Whole(int):
    """A subclass of int."""


def strange_buffers() -> list[Any]:
    """Return buffers of every shape, some of them empty, read-only or not contiguous."""
    return [
        b"",
        b"x",
        b"\0" * 70_000,
        Octets(b"octets"),
        bytearray(),
        bytearray(b"mutable"),
        bytearray(300_000),
        memoryview(b"read-only"),
        memoryview(bytearray(64)),
        memoryview(b"every other")[::2],
        memoryview(bytearray(24)).cast("i"),
        memoryview(bytearray(24)).cast("B", (2, 3, 4)),
        memoryview(b"")[:0],
        array.array("d", [1.0, 2.0]),
        (ctypes.c_int * 8)(),
        (ctypes.c_char * 0)(),
        ctypes.c_int(7),
        "text",
    ]


def released_buffer() -> memoryview:
    """Return a released buffer. CPython itself overlooks the error of iterating over it."""
    released = memoryview(b"released")
    released.release()
    return released


class Mischief:
    """An object that calls `act` before it answers any of Python's protocols."""

    def __init__(self, act: Callable[[], Any], rng: random.Random) -> None:
        self._act = act
        self._rng = rng

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._act()

    def _answer(self, value: Any) -> Any:
        if self._rng.random() < 0.3:
            self._act()
        return value

    def __index__(self) -> int:
        return int(self._answer(self._rng.choice((-1, 999_999, 2**31, 2**70))))

    def __float__(self) -> float:
        return float(self._answer(self._rng.choice((0.0, 1e-3, math.nan, math.inf))))

    def __bool__(self) -> bool:
        return bool(self._answer(self._rng.random() < 0.5))

    def __len__(self) -> int:
        return int(self._answer(self._rng.choice((0, 1, 1000, 2**62))))

    def __eq__(self, other: object) -> bool:
        return bool(self._answer(self._rng.random() < 0.5))

    def __hash__(self) -> int:
        return int(self._answer(1))

    def __iter__(self) -> Any:
        return iter([self._answer(b"a"), self._answer(b"")])

    def __getitem__(self, key: Any) -> Any:
        raise IndexError(key)

    def __radd__(self, other: Any) -> Any:
        return self._answer(other)

    def __lt__(self, other: Any) -> Any:
        return self._answer(self._rng.random() < 0.5)

    __gt__ = __le__ = __ge__ = __lt__

    def fileno(self) -> Any:
        return self._answer(self._rng.choice((-1, 999_999, "no", None)))

    def __buffer__(self, flags: int) -> memoryview:
        self._answer(None)
        return memoryview(bytearray(self._rng.choice((0, 8, 5000))))

    def __release_buffer__(self, view: memoryview) -> None:
        self._answer(None)

    def __await__(self) -> Any:
        self._answer(None)
        yield

    def __repr__(self) -> str:
        return "mischief"


class MischiefProtocol(asyncio.Protocol):
    """A protocol that does something else in each of its methods."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def connection_made(self, transport: Any) -> None:
        self._act()

    def data_received(self, data: bytes) -> None:
        self._act()

    def eof_received(self) -> Any:
        return self._act()

    def pause_writing(self) -> None:
        self._act()

    def resume_writing(self) -> None:
        self._act()

    def connection_lost(self, error: Exception | None) -> None:
        self._act()


class DatagramMischief(MischiefProtocol):
    """The same for datagrams."""

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._act()

    def error_received(self, error: Exception) -> None:
        self._act()


class MischiefBufferedProtocol(MischiefProtocol, asyncio.BufferedProtocol):
    """The same with buffers that change their mind."""

    def __init__(self, act: Callable[[], Any], rng: random.Random) -> None:
        super().__init__(act)
        self._rng = rng

    def get_buffer(self, sizehint: int) -> Any:
        self._act()
        return self._rng.choice((*strange_buffers(), released_buffer()))

    def buffer_updated(self, nbytes: int) -> None:
        self._act()


class SubclassedProtocol(MischiefProtocol):
    """A protocol whose end calls `act`."""

    def __del__(self) -> None:
        self._act()


ERRORS: tuple[type[BaseException], ...] = (
    ValueError,
    OSError,
    BlockingIOError,
    AttributeError,
    RecursionError,
    MemoryError,
    BufferError,
    StopIteration,
    GeneratorExit,
    KeyboardInterrupt,
    SystemExit,
    asyncio.CancelledError,
    asyncio.InvalidStateError,
)

CONTEXTS = (None, contextvars.copy_context())
