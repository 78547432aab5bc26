"""TTY: pseudoterminals, whose other side is the test."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from tests.children import bare_environment
from tests.core.loop_fakes import in_child, run_turns
from whorl.core import Kernel, Loop
from whorl.handles import TTY, Signal, TTYMode, reset_mode

Ends = tuple[int, int]


@pytest.fixture
def ends(no_leak: None) -> Iterator[Ends]:
    """Yield the test's side of a pseudoterminal, and the terminal."""
    master, slave = pty.openpty()
    yield master, slave
    os.close(master)
    os.close(slave)


def opened(loop: Loop, fd: int) -> TTY:
    tty = TTY(loop)
    tty.open(fd)
    return tty


def local_flags(fd: int) -> int:
    return int(termios.tcgetattr(fd)[3])


def read_once(loop: Loop, tty: TTY) -> bytes:
    """Return the next data of the terminal."""
    seen: list[bytes] = []
    tty.read_start(lambda tty, data, error: (seen.append(data), tty.read_stop()))
    loop.run()
    return b"".join(seen)


# Opening.


def test_tty_reads_typed_text_line_by_line(loop: Loop, ends: Ends) -> None:
    master, slave = ends
    tty = opened(loop, slave)
    assert tty.is_readable() and tty.is_writable()  # noqa: PT018
    os.write(master, b"hal")
    run_turns(loop)
    os.write(master, b"lo\n")
    assert read_once(loop, tty) == b"hallo\n"


def test_tty_shows_written_text(loop: Loop, ends: Ends) -> None:
    master, slave = ends
    tty = opened(loop, slave)
    results: list[OSError | None] = []
    tty.write(b"shown\n", lambda request, error: results.append(error))
    loop.run()
    assert results == [None]
    assert os.read(master, 100) == b"shown\r\n"


def test_the_given_descriptor_stays_blocking_and_its_owners(loop: Loop, ends: Ends) -> None:
    slave = ends[1]
    tty = opened(loop, slave)
    assert os.get_blocking(slave)
    assert not os.get_blocking(tty.fileno())
    assert tty.fileno() != slave
    assert not os.get_inheritable(tty.fileno())
    assert os.ttyname(tty.fileno()) == os.ttyname(slave)
    tty.close()
    loop.run()
    assert os.isatty(slave)


@pytest.mark.parametrize(("access", "readable", "writable"), [("r", True, False), ("w", False, True)])
def test_tty_has_the_directions_of_its_descriptor(
    loop: Loop, ends: Ends, access: str, readable: bool, writable: bool
) -> None:
    flags = os.O_RDONLY if access == "r" else os.O_WRONLY
    one_way = os.open(os.ttyname(ends[1]), flags | os.O_NOCTTY)
    tty = opened(loop, one_way)
    os.close(one_way)
    assert (tty.is_readable(), tty.is_writable()) == (readable, writable)


class NeverTwice(Kernel):
    """A kernel in which no terminal can be opened again, as in some containers."""

    def reopen_terminal(self, fd: int, flags: int) -> int:
        return -errno.EACCES


def test_a_terminal_that_cannot_be_opened_again_stays_blocking_and_works(ends: Ends) -> None:
    master, slave = ends
    loop = Loop(kernel=NeverTwice())
    tty = opened(loop, slave)
    assert os.get_blocking(slave)
    os.write(master, b"typed\n")
    assert read_once(loop, tty) == b"typed\n"
    assert os.read(master, 100) == b"typed\r\n"
    tty.write(b"written\n", lambda request, error: tty.close())
    loop.run()
    assert os.read(master, 100) == b"written\r\n"
    loop.close()


def test_the_other_side_is_a_stream_too(loop: Loop, ends: Ends) -> None:
    master, slave = ends
    tty = opened(loop, master)
    os.write(slave, b"to the master\n")
    assert read_once(loop, tty) == b"to the master\r\n"
    assert os.isatty(master)


def test_tty_open_refuses_other_descriptors(loop: Loop, ends: Ends) -> None:
    tty = TTY(loop)
    reader, writer = os.pipe()
    for fd in (reader, -1):
        with pytest.raises(OSError, match="Invalid argument"):
            tty.open(fd)
    os.close(reader)
    os.close(writer)
    for act in (tty.get_winsize, lambda: tty.set_mode(TTYMode.RAW)):
        with pytest.raises(OSError, match="Bad file"):
            act()
    tty.open(ends[1])
    with pytest.raises(OSError, match="busy"):
        tty.open(ends[1])
    with pytest.raises(ValueError, match="7"):
        tty.set_mode(7)  # type: ignore[arg-type]
    tty.close()
    with pytest.raises(OSError, match="closed"):
        tty.open(ends[1])


# Modes.


def test_in_raw_mode_each_key_arrives_at_once(loop: Loop, ends: Ends) -> None:
    master, slave = ends
    tty = opened(loop, slave)
    tty.set_mode(TTYMode.RAW)
    assert tty.mode is TTYMode.RAW
    assert not local_flags(slave) & (termios.ECHO | termios.ICANON | termios.ISIG)
    os.write(master, b"k\x03\r")
    assert read_once(loop, tty) == b"k\x03\r"
    tty.write(b"line\n")
    run_turns(loop)
    assert os.read(master, 100) == b"line\r\n"


def test_in_io_mode_bytes_are_what_they_are(loop: Loop, ends: Ends) -> None:
    master, slave = ends
    tty = opened(loop, slave)
    tty.set_mode(TTYMode.IO)
    everything = bytes(range(256))
    os.write(master, everything)
    assert read_once(loop, tty) == everything
    tty.write(everything)
    run_turns(loop)
    assert os.read(master, 1000) == everything


def test_the_settings_that_were_found_come_back(loop: Loop, ends: Ends) -> None:
    slave = ends[1]
    settings = termios.tcgetattr(slave)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    found = termios.tcgetattr(slave)
    tty = opened(loop, slave)
    for mode in (TTYMode.RAW, TTYMode.IO, TTYMode.RAW):
        tty.set_mode(mode)
        assert termios.tcgetattr(slave) != found
    tty.set_mode(TTYMode.NORMAL)
    assert termios.tcgetattr(slave) == found
    tty.set_mode(TTYMode.RAW)
    tty.close()
    assert termios.tcgetattr(slave) == found


def test_reset_mode_is_for_all_terminals_and_leaves_them_usable(loop: Loop, ends: Ends) -> None:
    master, slave = ends
    found = termios.tcgetattr(slave)
    tty = opened(loop, slave)
    tty.set_mode(TTYMode.RAW)
    reset_mode()
    reset_mode()
    assert termios.tcgetattr(slave) == found
    os.write(master, b"line\n")
    assert read_once(loop, tty) == b"line\n"


ENDS = {
    "by itself": "",
    "by an exception": "raise ZeroDivisionError",
    "by sys.exit": "import sys; sys.exit(3)",
    "by a signal that is handled": (
        "import signal, os, sys\n"
        "signal.signal(signal.SIGTERM, lambda number, frame: (reset_mode(), os._exit(0)))\n"
        "os.kill(os.getpid(), signal.SIGTERM)"
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_program_that_ends_leaves_the_terminal_as_it_found_it(ends: Ends, end: str) -> None:
    slave = ends[1]
    found = termios.tcgetattr(slave)
    program = (
        "from whorl import Loop\nfrom whorl.handles import TTY, TTYMode, reset_mode\n"
        "loop = Loop()\ntty = TTY(loop)\ntty.open(0)\ntty.set_mode(TTYMode.RAW)\n"
        "import termios\nassert not termios.tcgetattr(0)[3] & termios.ECHO\nprint('raw', flush=True)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program + end],
        env=bare_environment(),
        stdin=slave,
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert answer.stdout == b"raw\n", answer.stderr
    assert termios.tcgetattr(slave) == found


def test_a_forked_child_leaves_the_parents_terminal_alone(loop: Loop, ends: Ends) -> None:
    slave = ends[1]
    tty = opened(loop, slave)
    tty.set_mode(TTYMode.RAW)
    raw = termios.tcgetattr(slave)

    def child() -> None:
        reset_mode()
        tty.close()

    assert in_child(child) == 0
    assert termios.tcgetattr(slave) == raw


# The size of the window.


def set_size(fd: int, columns: int, rows: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_the_size_is_columns_and_rows(loop: Loop, ends: Ends) -> None:
    master, slave = ends
    set_size(master, 132, 43)
    assert opened(loop, slave).get_winsize() == (132, 43)


def test_a_change_of_the_size_is_a_signal(loop: Loop, ends: Ends) -> None:
    master, slave = ends
    tty = opened(loop, slave)
    sizes: list[Any] = []

    def changed(handle: Signal, number: int) -> None:
        sizes.append(tty.get_winsize())
        handle.close()

    Signal(loop).start(signal.SIGWINCH, changed)
    set_size(master, 99, 11)
    os.kill(os.getpid(), signal.SIGWINCH)  # as the kernel does to programs in the foreground of a terminal
    loop.run()
    assert sizes == [(99, 11)]
