"""The kernel's calls for terminals. The rules are those of `Kernel`."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Any

from whorl.core.kernel.errors import negative_errno
from whorl.core.kernel.fd_passing import FdPassingCalls


class TerminalCalls(FdPassingCalls):
    """The part of the kernel for terminals."""

    def is_terminal_master(self, fd: int) -> bool:
        """Return whether a descriptor is the other side of a pseudoterminal (man 4 tty_ioctl, TIOCGPTN)."""
        import termios

        is_one = True
        try:
            fcntl.ioctl(fd, getattr(termios, "TIOCGPTN", 0x80045430), bytes(4))
        except OSError:
            is_one = False
        return is_one

    def reopen_terminal(self, fd: int, flags: int) -> int:
        """Open the terminal of a descriptor once more, non-blocking and unshared."""
        try:
            result = os.open(os.ttyname(fd), flags | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            result = negative_errno(error)
        return result

    def terminal_settings(self, fd: int) -> list[Any] | int:
        """Return the settings of a terminal, as `termios.tcgetattr` gives them."""
        import termios

        try:
            answer: list[Any] | int = termios.tcgetattr(fd)
        except termios.error as error:
            answer = -int(error.args[0])
        return answer

    def set_terminal(self, fd: int, settings: list[Any], *, drain: bool) -> int:
        """Change the settings of a terminal; if `drain`, once all written data has gone out."""
        import termios

        code = 0
        try:
            termios.tcsetattr(fd, termios.TCSADRAIN if drain else termios.TCSANOW, settings)
        except termios.error as error:
            code = -int(error.args[0])
        return code

    def terminal_size(self, fd: int) -> tuple[int, int] | int:
        """Return the columns and rows of a terminal (man 4 tty_ioctl, TIOCGWINSZ)."""
        import termios

        try:
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))
        except OSError as error:
            answer: tuple[int, int] | int = negative_errno(error)
        else:
            answer = columns, rows
        return answer
