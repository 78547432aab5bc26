"""The kind of handle that fits a descriptor."""

from __future__ import annotations

import enum
import socket
import stat
from typing import TYPE_CHECKING

from whorl.core.kernel.kernel import Kernel

if TYPE_CHECKING:
    from whorl.handles.watchers.poll import HasFileno


class HandleKind(enum.Enum):
    """The kind of handle for a descriptor (libuv: ``uv_handle_type``)."""

    UNKNOWN = enum.auto()  #: none but perhaps Poll
    FILE = enum.auto()  #: a file on a disk, or a device that is not waited for
    PIPE = enum.auto()  #: a pipe or a UNIX socket
    TCP = enum.auto()
    TTY = enum.auto()
    UDP = enum.auto()


_INTERNET = (int(socket.AF_INET), int(socket.AF_INET6))


def kind_of(kernel: Kernel, fd: int) -> HandleKind:
    """Return the kind of a descriptor; UNKNOWN if it is none."""
    if kernel.is_terminal(fd):
        return HandleKind.TTY
    mode = kernel.file_mode(fd) if fd >= 0 else -1
    if mode < 0:
        return HandleKind.UNKNOWN
    if stat.S_ISREG(mode) or stat.S_ISCHR(mode):
        return HandleKind.FILE
    if stat.S_ISFIFO(mode):
        return HandleKind.PIPE
    found = kernel.socket_kind(fd) if stat.S_ISSOCK(mode) else -1
    if isinstance(found, int):
        return HandleKind.UNKNOWN
    family, kind = found
    if kind == socket.SOCK_STREAM:
        if family in _INTERNET:
            return HandleKind.TCP
        return HandleKind.PIPE if family == socket.AF_UNIX else HandleKind.UNKNOWN
    return HandleKind.UDP if kind == socket.SOCK_DGRAM and family in _INTERNET else HandleKind.UNKNOWN


def guess_handle(file: int | HasFileno) -> HandleKind:
    """Return the kind of handle for a descriptor, or a file or socket object (``uv_guess_handle``)."""
    return kind_of(Kernel(), file if isinstance(file, int) else file.fileno())
