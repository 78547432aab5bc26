"""TTY: terminals, with their modes.

A descriptor of a terminal is often shared: with the shell, with other programs of a pipeline, with
`sys.stdout`. The non-blocking mode would hold for all of them. So the handle opens the terminal once more,
for itself, and leaves the given descriptor as it is. If that is impossible, it works on a duplicate, and
writes to it block.
"""

from __future__ import annotations

import atexit
import enum
import errno
import os
import termios
from typing import TYPE_CHECKING, Any

from whorl.core.kernel.errors import check_result, os_error
from whorl.core.process.host import Host
from whorl.handles.streams.stream_handle import StreamHandle

if TYPE_CHECKING:
    from whorl.core.kernel.kernel import Kernel
    from whorl.core.loop.loop import Loop


class TTYMode(enum.Enum):
    """The processing of typed and written characters by a terminal (libuv: ``uv_tty_mode_t``)."""

    NORMAL = enum.auto()  #: as the handle found it: lines, echo, Ctrl-C
    RAW = enum.auto()  #: each key at once, no echo, Ctrl-C is a key; output is as in NORMAL
    IO = enum.auto()  #: bytes as they are, both ways: for programs that talk to each other


class TTY(StreamHandle):
    """A terminal (libuv: ``uv_tty_t``), read and written as a stream."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._mode = TTYMode.NORMAL
        self._original: Any = None  # the original settings; None while they are in force

    def open(self, fd: int) -> None:
        """Work on the terminal of a descriptor, which stays its owner's.

        The access mode of the descriptor decides whether the handle is readable and writable. Raises OSError:
        EINVAL if it is no terminal, EBUSY if the handle has one.
        """
        self._check_open()
        self._check_unused()
        if not self._kernel.is_terminal(fd):
            raise os_error(errno.EINVAL)
        access = check_result(self._kernel.file_flags(fd)) & os.O_ACCMODE
        is_master = self._kernel.is_terminal_master(fd)
        own = -1 if is_master else self._kernel.reopen_terminal(fd, access)
        if own < 0:
            own = check_result(self._kernel.duplicate(fd))
            if is_master:  # no other handle has this terminal, and it cannot be opened again
                self._kernel.set_blocking(own, False)
        self._attach(None, own, False, False)
        self._begin(access != os.O_WRONLY, access != os.O_RDONLY)

    @property
    def mode(self) -> TTYMode:
        """The mode that was set last."""
        return self._mode

    def set_mode(self, mode: TTYMode) -> None:
        """Change the terminal's mode, once the written data has gone out (``uv_tty_set_mode``).

        The original settings are in force again in the mode NORMAL, when the handle is closed, after
        `reset_mode`, and when the program ends.
        """
        self._check_terminal()
        mode = TTYMode(mode)
        if mode is self._mode:
            return
        if self._original is None:
            self._original = check_result(self._kernel.terminal_settings(self._fd))
        settings = changed(self._original, mode)
        check_result(self._kernel.set_terminal(self._fd, settings, drain=True))
        self._mode = mode
        if mode is TTYMode.NORMAL:
            _forget(self._fd)
            self._original = None
        else:
            loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
            _remember(loop._host.process_id(), self._kernel, self._fd, self._original)

    def get_winsize(self) -> tuple[int, int]:
        """Return the columns and rows of the terminal (``uv_tty_get_winsize``)."""
        self._check_terminal()
        size: tuple[int, int] = check_result(self._kernel.terminal_size(self._fd))
        return size

    def _check_terminal(self) -> None:
        if self.is_closing() or self._fd < 0:
            raise os_error(errno.EBADF)

    def _release(self) -> None:
        if self._original is not None:
            loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
            if loop._is_in_creating_process():
                self._kernel.set_terminal(self._fd, self._original, drain=False)
            _forget(self._fd)
            self._original = None
        StreamHandle._release(self)


def changed(settings: list[Any], mode: TTYMode) -> list[Any]:
    """Return the settings of a terminal for a mode, made from the original ones (man 3 termios)."""
    iflag, oflag, cflag, lflag, *speeds, characters = settings
    if mode is TTYMode.NORMAL:
        return settings
    characters = list(characters)
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    lflag &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    iflag &= ~(termios.BRKINT | termios.ICRNL | termios.ISTRIP | termios.IXON)
    if mode is TTYMode.RAW:
        iflag &= ~termios.INPCK
        oflag |= termios.ONLCR
        cflag |= termios.CS8
    else:
        iflag &= ~(termios.IGNBRK | termios.PARMRK | termios.INLCR | termios.IGNCR)
        oflag &= ~termios.OPOST
        lflag &= ~termios.ECHONL
        cflag = cflag & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    return [iflag, oflag, cflag, lflag, *speeds, characters]


# The terminals whose settings are not those that were found, by descriptor: the process that changed them,
# its kernel, and the settings.
_changed: dict[int, tuple[int, Kernel, list[Any]]] = {}


def _remember(process: int, kernel: Kernel, fd: int, settings: list[Any]) -> None:
    if not _changed:
        atexit.unregister(reset_mode)
        atexit.register(reset_mode)
    _changed[fd] = process, kernel, settings


def _forget(fd: int) -> None:
    _changed.pop(fd, None)


def reset_mode() -> None:
    """Give all terminals their original settings again (``uv_tty_reset_mode``).

    It runs by itself at the end of the program, also after an exception. A program that ends itself by
    `os._exit`, or on a signal, calls it before; it may be called in a signal handler.
    """
    process = Host().process_id()
    for fd, (owner, kernel, settings) in list(_changed.items()):
        if owner == process:  # and not a process that was forked from it
            kernel.set_terminal(fd, settings, drain=False)
