"""What Python's exceptions say of a system call that was refused."""

from __future__ import annotations

import errno
import socket


def refusal(error: OSError) -> int:
    """The negative error number of a system call that Python reported as an exception.

    Errors that are no system call's (name resolution, a socket's own timeout) are raised again.
    """
    if error.errno is None and isinstance(error, (BlockingIOError, InterruptedError)):
        return -errno.EAGAIN  # raised by an object that stands in for a socket
    if error.errno is None or error.errno <= 0 or isinstance(error, socket.gaierror):
        raise error
    return -error.errno
