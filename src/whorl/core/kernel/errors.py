"""System calls that were refused: error numbers, and the exceptions that Python has for them."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

#: The result of `Kernel.connect_descriptor` for an address that only a socket object can convert.
UNKNOWN_ADDRESS = 1

#: Errors of the connection that `accept` would have returned, not of the listening socket (man 2 accept,
#: "Error handling"). The next connection may be fine.
CONNECTION_ERRORS = frozenset(
    {
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENONET,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EPROTO,
    }
)


def negative_errno(error: OSError) -> int:
    """Return the negative error number of a system call that Python reported as an exception.

    Raise errors again that do not come from a system call (name resolution, a socket's own timeout).
    """
    if not isinstance(error, OSError):
        raise error  # A compiled `except` clause gets a MemoryError if there is no memory for a traceback.
    if error.errno is None and isinstance(error, (BlockingIOError, InterruptedError)):
        return -errno.EAGAIN  # raised by an object that stands in for a socket
    if error.errno is None or error.errno <= 0 or isinstance(error, socket.gaierror):
        raise error
    return -error.errno


def os_error(code: int) -> OSError:
    """Return the exception for an error number; negative ones, as the kernel returns them, serve too."""
    code = abs(code)
    return OSError(code, os.strerror(code))


def check_result(value: Any) -> Any:
    """Return the result of a kernel's method; raise OSError if it is a negative error number."""
    if isinstance(value, int) and value < 0:
        raise os_error(value)
    return value
