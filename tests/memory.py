"""The memory of the test process."""

from __future__ import annotations

import ctypes
import resource

from whorl import system

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it


def in_use() -> int:
    """Return the present memory of the process, in bytes."""
    give_back()
    return system.resident_memory()


def give_back() -> None:
    """Let the system have what the C library keeps of memory that was freed."""
    if _trim is not None:
        _trim(0)


def peak() -> int:
    """Return the most memory that the process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
