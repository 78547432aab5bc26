"""The host: its main thread, and its children, which are started, signalled and reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.core.loop_fakes import in_child
from whorl.core.process.host import Host


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture(params=["pidfd", "number"])
def child(request: pytest.FixtureRequest, host: Host) -> Iterator[tuple[int, int]]:
    """Yield a child that sleeps, and a descriptor for it, or -1."""
    process = host.spawn(["sleep", "60"])
    pidfd = os.pidfd_open(process.pid) if request.param == "pidfd" else -1
    yield process.pid, pidfd
    if pidfd >= 0:
        os.close(pidfd)
    process.kill()
    process.wait()


def test_the_thread_that_forks_is_the_main_one_of_the_child(host: Host) -> None:
    found: list[object] = []

    def fork() -> None:
        found.append(host.is_main_thread())
        status = in_child(lambda: None if host.is_main_thread() else sys.exit(1))
        found.append(status)

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert found == [False, 0]
    assert host.is_main_thread()


def ended(host: Host, pid: int) -> None:
    """Wait until a child has ended, and leave it to others to reap it."""
    done = threading.Event()
    host.await_exit(pid, done.set)
    assert done.wait(30)


def test_a_child_is_reaped_once(host: Host, child: tuple[int, int]) -> None:
    pid, _ = child
    assert host.reap(*child) is None
    host.signal_child(*child, signal.SIGTERM)
    ended(host, pid)
    assert host.reap(*child) == -signal.SIGTERM
    with pytest.raises(ChildProcessError):
        host.reap(*child)
    with pytest.raises(ProcessLookupError):
        host.signal_child(*child, signal.SIGTERM)


@pytest.mark.parametrize("code", [0, 1, 77, 255])
def test_exit_codes_are_told_from_signals(host: Host, code: int) -> None:
    for with_pidfd in (True, False):
        process = host.spawn(["sh", "-c", f"exit {code}"])
        pidfd = os.pidfd_open(process.pid) if with_pidfd else -1
        ended(host, process.pid)
        assert host.reap(process.pid, pidfd) == code
        process.returncode = code
        if with_pidfd:
            os.close(pidfd)


def test_a_pidfd_that_cannot_be_used_leaves_the_number(host: Host) -> None:
    """Some systems have only some of the calls; these refuse any other descriptor."""
    process = host.spawn(["sleep", "60"])
    with open(os.devnull) as wrong:
        host.signal_child(process.pid, wrong.fileno(), signal.SIGKILL)
        ended(host, process.pid)
        assert host.reap(process.pid, wrong.fileno()) == -signal.SIGKILL
    process.returncode = -signal.SIGKILL


def test_spawn_refuses_a_missing_program(host: Host) -> None:
    with pytest.raises(FileNotFoundError):
        host.spawn(["/does/not/exist"])


def test_a_thread_notices_that_somebody_else_reaped(host: Host) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    ended(host, process.pid)


def test_signals_go_to_any_process(host: Host) -> None:
    process = subprocess.Popen(["sleep", "60"])
    host.kill(process.pid, 0)
    host.kill(process.pid, signal.SIGINT)
    assert process.wait() == -signal.SIGINT
    with pytest.raises(ProcessLookupError):
        host.kill(process.pid, 0)
