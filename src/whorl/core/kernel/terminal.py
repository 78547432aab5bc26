"""The kernel's calls for terminals. The rules are those of `Kernel`."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from typing import Any

from whorl.core.kernel.errors import negative_errno
from whorl.core.kernel.fd_passing import FdPassingCalls

_TIOCGPTN = getattr(termios, "TIOCGPTN", 0x80045430)


class TerminalCalls(FdPassingCalls):
    """The part of the kernel for terminals."""

    def is_terminal_master(self, fd: int) -> bool:
        """Return whether a descriptor is the other side of a pseudoterminal (man 4 tty_ioctl, TIOCGPTN)."""
        try:
            fcntl.ioctl(fd, _TIOCGPTN, bytes(4))
        except OSError:
            return False
        return True

    def reopen_terminal(self, fd: int, flags: int) -> int:
        """Open the terminal of a descriptor once more, non-blocking and unshared."""
        try:
            return os.open(os.ttyname(fd), flags | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return negative_errno(error)

    def terminal_settings(self, fd: int) -> list[Any] | int:
        """Return the settings of a terminal, as `termios.tcgetattr` gives them."""
        try:
            return termios.tcgetattr(fd)
        except termios.error as error:
            return -int(error.args[0])

    def set_terminal(self, fd: int, settings: list[Any], *, drain: bool) -> int:
        """Change the settings of a terminal; if `drain`, once all written data has gone out."""
        try:
            termios.tcsetattr(fd, termios.TCSADRAIN if drain else termios.TCSANOW, settings)
        except termios.error as error:
            return -int(error.args[0])
        return 0

    def terminal_size(self, fd: int) -> tuple[int, int] | int:
        """Return the columns and rows of a terminal (man 4 tty_ioctl, TIOCGWINSZ)."""
        try:
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))
        except OSError as error:
            return negative_errno(error)
        return columns, rows
