"""An inspector for a test, and the end of everything that it began."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whorl
from whorl.inspector import Inspector, Stall, inspector
from whorl.inspector.watching.own_thread import has_gil

needs_stacks = pytest.mark.skipif(
    not (whorl.compiled or has_gil()), reason="uncompiled and without the GIL, a stall has no stack"
)


@pytest.fixture(autouse=True, scope="session")
def directory_of_the_tests() -> Iterator[None]:
    """Let recordings be made in a directory of the tests: children that are killed leave theirs."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="whorl-tests-", dir=memory) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("WHORL_INSPECT_DIR", os.path.join(folder, "inspected"))
        yield


@pytest.fixture
def inspect() -> Iterator[Callable[..., Inspector]]:
    """Start the inspector; afterwards, stop it, and see that no thread and no descriptor is left."""
    threads, files = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))

    def begin(**options: Any) -> Inspector:
        return inspector.start(**options)

    yield begin
    running = inspector.current()
    if running is not None:
        running.stop()
    assert set(threading.enumerate()) <= threads
    assert set(os.listdir("/proc/self/fd")) <= files


class StallsSeen:
    """The reports of an inspector, and a way to wait for one."""

    def __init__(self, inspected: Inspector) -> None:
        self.stalls: list[Stall] = []
        self._seen = threading.Condition()
        inspected.subscribe(self._note)

    def _note(self, stall: Stall) -> None:
        with self._seen:
            self.stalls.append(stall)
            self._seen.notify_all()

    def wait_for(self, what: Callable[[Stall], bool]) -> Stall:
        """Return the first stall of this kind, when there is one."""
        with self._seen:
            assert self._seen.wait_for(lambda: any(map(what, self.stalls)), 30), self.stalls
            return next(stall for stall in self.stalls if what(stall))
