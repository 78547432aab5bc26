"""The descriptors of a world: what `os` and `fcntl` do with those of the host whose code runs."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import struct
import termios
from typing import Any

from whorl.sim.errors import BlockingSocket, Unsimulated
from whorl.sim.files.file import FIRST_FD
from whorl.sim.files.pipes import PAGE, PAGES, ReadEnd, WriteEnd
from whorl.sim.patches.current import RUNNING, Replacement, host

_os_read, _os_write, _os_close, _os_pipe = os.read, os.write, os.close, os.pipe
_os_pipe2, _os_dup, _fdopen = os.pipe2, os.dup, os.fdopen
_fcntl, _ioctl = fcntl.fcntl, fcntl.ioctl

#: What F_SETFL may change (man 2 fcntl).
_MAY_CHANGE = os.O_APPEND | os.O_ASYNC | os.O_NONBLOCK

#: Calls that no simulated descriptor has.
_REFUSED = """
    dup2 fchmod fchown fpathconf fstatvfs lockf posix_fadvise posix_fallocate preadv pwritev readv sendfile
    splice writev
""".split()


def _checked(answer: Any) -> Any:
    if isinstance(answer, int) and answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return answer


def _file(fd: Any) -> Any:
    """Return the open file of a simulated descriptor, or of an object that has one; None for others."""
    number = fd.fileno() if hasattr(fd, "fileno") else fd
    return host().kernel.table.files.get(number) if isinstance(number, int) else None


def _number(fd: Any) -> int:
    return fd.fileno() if hasattr(fd, "fileno") else fd  # type: ignore[no-any-return]


def _transferred(call: str, file: Any, answer: Any) -> Any:
    """Return the result of a transfer, or raise its error. One that would wait is refused by name."""
    if answer == -errno.EAGAIN and isinstance(answer, int) and not file.flags & os.O_NONBLOCK:
        raise BlockingSocket(f"os.{call} would wait")
    return _checked(answer)


def _read(fd: int, size: int) -> bytes:
    file = _file(fd)
    if file is None:
        return _os_read(fd, size)
    return _transferred("read", file, host().kernel.recv(fd, size))  # type: ignore[no-any-return]


def _write(fd: int, data: Any) -> int:
    file = _file(fd)
    if file is None:
        return _os_write(fd, data)
    return _transferred("write", file, host().kernel.send(fd, data, 0))  # type: ignore[no-any-return]


def _close(fd: int) -> None:
    if _file(fd) is None:
        _os_close(fd)
    else:
        host().kernel.close(fd)


def _pipe() -> tuple[int, int]:
    return _checked(host().kernel.pipe())  # type: ignore[no-any-return]


def _pipe2(flags: int) -> tuple[int, int]:
    ends = _pipe()
    for fd in ends:
        host().kernel.set_blocking(fd, not flags & os.O_NONBLOCK)
        _set_inheritable(fd, not flags & os.O_CLOEXEC)
    return ends


def _duplicate(fd: int) -> int:
    if _file(fd) is None:
        return _os_dup(fd)
    return _checked(host().kernel.duplicate(fd))  # type: ignore[no-any-return]


# Modes.


def _set_blocking(fd: int, blocking: bool) -> None:
    _checked(host().kernel.set_blocking(fd, blocking))


def _get_blocking(fd: int) -> bool:
    return not _file(fd).flags & os.O_NONBLOCK


def _set_inheritable(fd: int, inheritable: bool) -> None:
    inherited = host().kernel.table.inherited
    (inherited.add if inheritable else inherited.discard)(fd)


def _get_inheritable(fd: int) -> bool:
    return fd in host().kernel.table.inherited


def _control(fd: Any, command: int, argument: Any = 0) -> Any:
    """Do what `fcntl.fcntl` does, for the commands of a descriptor and of its open file."""
    file, number, kernel = _file(fd), _number(fd), host().kernel
    if file is None:
        return _fcntl(fd, command, argument)
    if command in (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC):
        copy = _checked(kernel.duplicate(number, max(argument, FIRST_FD)))
        _set_inheritable(copy, command == fcntl.F_DUPFD)
        return copy
    if command == fcntl.F_GETFD:
        return 0 if _get_inheritable(number) else fcntl.FD_CLOEXEC
    if command == fcntl.F_SETFD:
        _set_inheritable(number, not argument & fcntl.FD_CLOEXEC)
        return 0
    if command == fcntl.F_GETFL:
        return file.flags
    if command == fcntl.F_SETFL:
        file.flags = file.flags & ~_MAY_CHANGE | argument & _MAY_CHANGE
        return 0
    if command == fcntl.F_GETPIPE_SZ and isinstance(file, (ReadEnd, WriteEnd)):
        return PAGE * PAGES
    raise Unsimulated(f"fcntl.fcntl was called with command {command}")


def _device(fd: Any, request: int, argument: Any = 0, mutate: bool = True) -> Any:
    """Do what `fcntl.ioctl` does, for the requests that sockets and pipes have. None is a terminal."""
    file, number = _file(fd), _number(fd)
    if file is None:
        return _ioctl(fd, request, argument, mutate)
    if request == termios.FIONBIO:
        value = argument if isinstance(argument, int) else struct.unpack_from("i", argument)[0]
        _set_blocking(number, not value)
        return argument if isinstance(argument, bytes) else 0
    if request == termios.FIONREAD and not isinstance(argument, int):
        answer = struct.pack("i", _checked(file.unread()))
        if isinstance(argument, bytes) or not mutate:
            return answer + bytes(argument)[len(answer) :]
        memoryview(argument).cast("B")[: len(answer)] = answer
        return 0
    if request in (termios.TCGETS, termios.TIOCGWINSZ):
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
    raise Unsimulated(f"fcntl.ioctl was called with request {request:#x}")


def _only_real(module: Any, name: str, simulated: Any) -> Replacement:
    """Return a function that asks the system about its own descriptors, and a simulated one about others."""
    real = getattr(module, name)

    def call(fd: Any, *args: Any, **options: Any) -> Any:
        return real(fd, *args, **options) if _file(fd) is None else simulated(fd, *args, **options)

    call.__name__ = name
    return module, name, call


def _refusing(module: Any, name: str) -> Replacement:
    def refuse(fd: Any, *args: Any, **options: Any) -> Any:
        raise Unsimulated(f"{module.__name__}.{name} was called with a simulated descriptor")

    return _only_real(module, name, refuse)


# File objects.


class SimFile(io.RawIOBase):
    """A file object over a simulated descriptor, as `os.fdopen` makes one."""

    def __init__(self, fd: int, mode: str) -> None:
        super().__init__()
        self._fd = fd
        self.mode = mode

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return "r" in self.mode or "+" in self.mode

    def writable(self) -> bool:
        return "r" not in self.mode or "+" in self.mode

    def readinto(self, buffer: Any) -> int | None:
        with memoryview(buffer) as view, view.cast("B") as room:
            data = _read(self._fd, len(room))
            room[: len(data)] = data
            return len(data)

    def write(self, data: Any) -> int:
        return _write(self._fd, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if RUNNING.world is not None:
                _close(self._fd)


def _open_number(fd: int, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
    if _file(fd) is None:
        return _fdopen(fd, mode, buffering, *rest, **options)
    raw = SimFile(fd, mode)
    if buffering == 0:
        return raw
    buffered: Any = io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **options)


DESCRIPTORS: list[Replacement] = [
    (os, "read", _read),
    (os, "write", _write),
    (os, "close", _close),
    (os, "pipe", _pipe),
    (os, "pipe2", _pipe2),
    (os, "dup", _duplicate),
    (os, "fdopen", _open_number),
    (fcntl, "fcntl", _control),
    (fcntl, "ioctl", _device),
    _only_real(os, "set_blocking", _set_blocking),
    _only_real(os, "get_blocking", _get_blocking),
    _only_real(os, "set_inheritable", _set_inheritable),
    _only_real(os, "get_inheritable", _get_inheritable),
    *(_refusing(os, name) for name in _REFUSED if hasattr(os, name)),
    _refusing(fcntl, "flock"),
    _refusing(fcntl, "lockf"),
]
