"""The kernel's calls for descriptors that travel through UNIX sockets, and for the kind of a descriptor.

The rules are those of `Kernel`.
"""

from __future__ import annotations

import array
import errno
import os
import socket
from typing import TYPE_CHECKING, Any

from whorl.core.kernel.errors import negative_errno
from whorl.core.limits import DESCRIPTORS_PER_MESSAGE

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_ANCILLARY_SIZE = socket.CMSG_SPACE(DESCRIPTORS_PER_MESSAGE * array.array("i").itemsize)


def _passed(messages: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors in the ancillary data."""
    found = array.array("i")
    for level, kind, data in messages:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


class FdPassingCalls:
    """The part of the kernel that passes descriptors on, and tells their kind."""

    def receive_descriptors(self, sock: Any, limit: int) -> tuple[bytes, list[int], bool] | int:
        """Receive data and the descriptors that come with it, which are ours to close (man 7 unix).

        Return also whether some descriptors were lost because this process can have no more.
        """
        try:
            data, messages, flags, _ = sock.recvmsg(limit, _ANCILLARY_SIZE, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            answer: tuple[bytes, list[int], bool] | int = negative_errno(error)
        else:
            answer = data, _passed(messages), bool(flags & socket.MSG_CTRUNC)
        return answer

    def receive_descriptors_into(
        self, sock: Any, buffer: WriteableBuffer
    ) -> tuple[int, list[int], bool] | int:
        """Receive the same into a buffer; return the byte count, the descriptors, whether some were lost."""
        try:
            size, messages, flags, _ = sock.recvmsg_into([buffer], _ANCILLARY_SIZE, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            answer: tuple[int, list[int], bool] | int = negative_errno(error)
        else:
            answer = size, _passed(messages), bool(flags & socket.MSG_CTRUNC)
        return answer

    def send_descriptors(self, sock: Any, data: ReadableBuffer, fds: list[int]) -> int:
        """Send data with descriptors; return how many bytes were sent. The descriptors go with the first."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        try:
            sent: int = sock.sendmsg([data], [rights], socket.MSG_NOSIGNAL)
        except OSError as error:
            sent = negative_errno(error)
        return sent

    def socket_kind(self, fd: int) -> tuple[int, int] | int:
        """Return the family and the type of a socket, by its descriptor; -ENOTSOCK for other files."""
        if fd < 0:
            return -errno.EBADF
        try:
            sock = socket.socket(fileno=fd)
        except OSError as error:
            answer: tuple[int, int] | int = negative_errno(error)
        else:
            answer = int(sock.family), int(sock.type)
            sock.detach()
        return answer

    def is_terminal(self, fd: int) -> bool:
        """Return whether a descriptor is a terminal (man 3 isatty)."""
        return fd >= 0 and os.isatty(fd)
