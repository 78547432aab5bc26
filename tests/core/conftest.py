"""The basis of every test of the machine: no hang, no leaked descriptor, and a loop on each poller."""

from __future__ import annotations

import gc
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from whorl.core import Loop, RunMode

MakeLoop = Callable[..., Loop]

#: After this many seconds a test is taken to hang, and fails where it stands.
PATIENCE = 60
THREAD_PATIENCE = 5

SELECTORS = {
    name: getattr(selectors, name)
    for name in ("SelectSelector", "PollSelector", "EpollSelector")
    if hasattr(selectors, name)
}


def open_descriptors() -> dict[int, str]:
    """Return the open descriptors of this process, with their targets."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the directory itself, which listdir had open
            continue
    return found


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Fail a test that hangs, where it stands."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"the test hangs: {PATIENCE} seconds have passed")

    former = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)


@pytest.fixture(autouse=True)
def no_leak(no_hang: None) -> Iterator[None]:
    """Check that a test leaves no more descriptors behind than it found."""
    before = open_descriptors().items()
    yield
    if open_descriptors().items() - before:
        gc.collect()
        # A thread that woke a loop closes what the loop has given up meanwhile, as soon as it runs again.
        latest = time.monotonic() + THREAD_PATIENCE
        while open_descriptors().items() - before and time.monotonic() < latest:
            time.sleep(0)
        assert not open_descriptors().items() - before


@pytest.fixture
def loop(no_leak: None) -> Iterator[Loop]:
    """Yield a loop on the best available poller."""
    loop = Loop()
    yield loop
    close_all(loop)


@pytest.fixture(params=["epoll", *SELECTORS])
def make_loop(request: pytest.FixtureRequest, no_leak: None) -> Iterator[MakeLoop]:
    """Yield a function that makes loops on one kind of poller."""
    made: list[Loop] = []

    def make(**options: object) -> Loop:
        poller = SELECTORS[request.param]() if request.param in SELECTORS else request.param
        made.append(Loop(poller=poller, **options))
        return made[-1]

    yield make
    for loop in made:
        close_all(loop)


def close_all(loop: Loop) -> None:
    """Close a loop and the handles that a test left open."""
    if loop.is_closed():
        return
    for handle in loop.walk():
        handle.close()
    loop.run(RunMode.NOWAIT)
    try:
        loop.close()
    except OSError:  # A thread of the pool is still at work.
        loop.run(RunMode.ONCE)
        loop.close()
