"""The functions of `os`, `fcntl` and `selectors` take descriptors of a world."""

from __future__ import annotations

import fcntl
import os
import selectors
import socket
import stat
import struct
import termios
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.conftest import Run
from whorl import sim
from whorl.sim.errors import BlockingSocket, Unsimulated


def test_descriptor_keeps_whether_programs_inherit_it(exact: Run) -> None:
    async def main() -> list[Any]:
        with socket.socket() as sock:
            fd = sock.fileno()
            found: list[Any] = [os.get_inheritable(fd), fcntl.fcntl(fd, fcntl.F_GETFD)]
            os.set_inheritable(fd, True)
            found += [sock.get_inheritable(), fcntl.fcntl(sock, fcntl.F_GETFD)]
            fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
            return [*found, os.get_inheritable(fd)]

    assert exact(main) == [False, fcntl.FD_CLOEXEC, True, 0, False]


def test_open_file_keeps_whether_it_waits(exact: Run) -> None:
    async def main() -> list[Any]:
        with socket.socket() as sock:
            found: list[Any] = [os.get_blocking(sock.fileno())]
            sock.setblocking(False)
            found += [os.get_blocking(sock.fileno()), fcntl.fcntl(sock, fcntl.F_GETFL)]
            os.set_blocking(sock.fileno(), True)
            found.append(os.get_blocking(sock.fileno()))
            fcntl.ioctl(sock, termios.FIONBIO, struct.pack("i", 1))
            return [*found, os.get_blocking(sock.fileno())]

    assert exact(main) == [True, False, os.O_RDWR | os.O_NONBLOCK, True, False]


def test_ioctl_tells_how_much_can_be_read(exact: Run) -> None:
    async def main() -> list[int]:
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        ours.send(b"hello")
        os.write(writer, b"bye")
        answers = [fcntl.ioctl(end, termios.FIONREAD, bytes(4)) for end in (theirs, reader)]
        for end in (ours, theirs):
            end.close()
        for fd in (reader, writer):
            os.close(fd)
        return [struct.unpack("i", answer)[0] for answer in answers]

    assert exact(main) == [5, 3]


def test_fstat_tells_a_socket_from_a_pipe(exact: Run) -> None:
    async def main() -> list[bool]:
        reader, writer = os.pipe()
        with socket.socket() as sock:
            modes = [os.fstat(fd).st_mode for fd in (sock.fileno(), reader)]
        os.close(reader)
        os.close(writer)
        return [stat.S_ISSOCK(modes[0]), stat.S_ISFIFO(modes[1])]

    assert exact(main) == [True, True]


@pytest.mark.parametrize(
    "make", [selectors.DefaultSelector, selectors.PollSelector, selectors.SelectSelector]
)
def test_selector_finds_what_is_ready(exact: Run, make: Callable[[], Any]) -> None:
    async def main() -> list[str]:
        ours, theirs = socket.socketpair()
        ours.send(b"x")
        with make() as selector:
            selector.register(ours, selectors.EVENT_READ, "ours")
            selector.register(theirs, selectors.EVENT_READ, "theirs")
            found = [key.data for key, _ in selector.select(0)]
        ours.close()
        theirs.close()
        return found

    assert exact(main) == ["theirs"]


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda fd: os.read(fd, 1), BlockingSocket),
        (lambda fd: os.dup2(fd, fd + 1), Unsimulated),
        (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), Unsimulated),
        (lambda fd: fcntl.fcntl(fd, fcntl.F_GETOWN), Unsimulated),
        (lambda fd: fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), Unsimulated),
    ],
)
def test_call_that_is_not_simulated_names_its_line(act: Callable[[int], Any], error: type) -> None:
    async def main() -> None:
        reader, _ = os.pipe()
        act(reader)

    [finding] = sim.run(main, allow={"leaks"}).findings
    assert type(finding.exception) is error
    assert "test_descriptors.py" in finding.text


def test_descriptors_of_the_process_are_its_own(exact: Run) -> None:
    real = os.pipe()

    async def main() -> tuple[int, bool]:
        return fcntl.fcntl(real[0], fcntl.F_GETFD), os.get_blocking(real[0])

    try:
        assert exact(main) == (fcntl.FD_CLOEXEC, True)
    finally:
        for fd in real:
            os.close(fd)
