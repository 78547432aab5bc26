"""Functions of the C library that Python's own modules do not have.

Its callers import it at the first call: ctypes takes longer to import than any module of Whorl.
"""

from __future__ import annotations

import ctypes
from typing import Any

_LIBRARY = ctypes.CDLL(None, use_errno=True)


class FileSystem(ctypes.Structure):
    """struct statfs of 64-bit systems."""

    _fields_ = [
        ("type", ctypes.c_long),
        ("bsize", ctypes.c_long),
        ("blocks", ctypes.c_ulong),
        ("bfree", ctypes.c_ulong),
        ("bavail", ctypes.c_ulong),
        ("files", ctypes.c_ulong),
        ("ffree", ctypes.c_ulong),
        ("fsid", ctypes.c_int * 2),
        ("namelen", ctypes.c_long),
        ("frsize", ctypes.c_long),
        ("flags", ctypes.c_long),
        ("spare", ctypes.c_long * 4),
    ]


class Timespec(ctypes.Structure):
    """struct timespec."""

    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def call(name: str, *args: Any) -> int:
    """Call a function; return its result or the negative error number."""
    result: int = getattr(_LIBRARY, name)(*args)
    return result if result >= 0 else -ctypes.get_errno()


def file_system(function: str, file: int | bytes) -> FileSystem | int:
    """Return the figures of a file system by statfs or fstatfs, or the negative error number."""
    figures = FileSystem()
    code = call(function, file, ctypes.byref(figures))
    return code if code < 0 else figures


def two_times(first: tuple[int, int], second: tuple[int, int]) -> Any:
    """Return an array of two times, each given as seconds and nanoseconds."""
    return (Timespec * 2)(Timespec(*first), Timespec(*second))
