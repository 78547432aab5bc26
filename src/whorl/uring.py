"""A check whether io_uring works here: it sets up a ring and submits one operation that does nothing.

Whorl does no work through this ring (docs/decisions/0018): the check is for `whorl info`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct

_SETUP, _ENTER = 425, 426  # the same on every architecture
_ENTRIES = 2
_ENTRY_SIZE = 64
_ENTRIES_AT = 0x10000000
_SINGLE_MAP = 1  # Linux 5.4
_AWAIT_EVENTS = 1
_TOKEN = 0x57686F726C  # comes back with the answer
_PARAMETERS = struct.Struct("=10I8IQ8IQ")


def verdict() -> str:
    """Return "yes", or the reason why not."""
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(_PARAMETERS.size)
    ctypes.set_errno(0)
    fd = libc.syscall(ctypes.c_long(_SETUP), ctypes.c_long(_ENTRIES), parameters)
    if fd < 0:
        return _refused(ctypes.get_errno())
    try:
        return _do_nothing(libc, fd, _PARAMETERS.unpack(parameters.raw))
    except (OSError, ValueError) as error:
        return f"no: {error}"
    finally:
        os.close(fd)


def _do_nothing(libc: ctypes.CDLL, fd: int, parameters: tuple[int, ...]) -> str:
    """Submit one entry, and check whether its completion comes."""
    features, submission, completion = parameters[5], parameters[10:18], parameters[19:27]
    if not features & _SINGLE_MAP:
        return "no: older than Linux 5.4"
    tail_at, array_at = submission[1], submission[6]
    answers_at, answers = completion[5], parameters[1]
    size = max(array_at + 4 * parameters[0], answers_at + 16 * answers)
    with contextlib.ExitStack() as stack:
        ring = stack.enter_context(mmap.mmap(fd, size))
        entries = stack.enter_context(mmap.mmap(fd, _ENTRY_SIZE * parameters[0], offset=_ENTRIES_AT))
        struct.pack_into("=Q", entries, 32, _TOKEN)  # all other fields are 0: the operation that does nothing
        struct.pack_into("=I", ring, array_at, 0)
        struct.pack_into("=I", ring, tail_at, 1)
        ctypes.set_errno(0)
        arguments = (_ENTER, fd, 1, 1, _AWAIT_EVENTS, 0, 0)
        if libc.syscall(*map(ctypes.c_long, arguments)) != 1:
            return _refused(ctypes.get_errno())
        token, result = struct.unpack_from("=Qi", ring, answers_at)
    return "yes" if (token, result) == (_TOKEN, 0) else f"no: a wrong answer ({token:#x}, {result})"


def _refused(code: int) -> str:
    return f"no: {os.strerror(code or errno.EAGAIN)}"
