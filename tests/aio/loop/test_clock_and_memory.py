"""Clocks that jump, machines that were suspended, memory that tracemalloc sees, sizes beyond 32 bits."""

from __future__ import annotations

import asyncio
import mmap
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from build_tools.sources import SOURCES
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import Recorder, socket_pair
from whorl.core import Kernel

HOUR = 3600 * 10**9


#: These tell people when something was; no loop asks them.
TELLS_AGES = (
    "whorl/inspector/asking/directory.py",
    "whorl/inspector/asking/finding.py",
    "whorl/inspector/recordings/file.py",
    "whorl/inspector/view_commands.py",
)


@pytest.mark.text
def test_the_wall_clock_is_not_asked() -> None:
    for path in [path for kind in ("py", "pxd", "h") for path in SOURCES.rglob(f"*.{kind}")]:
        if path.relative_to(SOURCES).as_posix() in TELLS_AGES:
            continue
        text = path.read_text(encoding="utf-8")
        for name in ("CLOCK_REALTIME", "time.time(", "time.time_ns", "gettimeofday"):
            assert name not in text, f"{path} asks the wall clock ({name})"


async def test_jumps_of_the_wall_clock_change_nothing(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for jump in (-1e9, 1e9):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda jump=jump: jump)
            patch.setattr(time, "time_ns", lambda jump=jump: int(jump) * 10**9)
            before = time.monotonic()
            await asyncio.sleep(0.002)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.create_future(), 0.002)
            assert 0.003 < time.monotonic() - before < 20


class Suspended(Kernel):
    """The real kernel of a machine that was suspended for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0

    def now(self) -> int:
        return super().now() + self.slept


def test_after_a_suspension_each_overdue_timer_runs_once_and_in_order() -> None:
    kernel = Suspended()
    loop = whorl.EventLoop(kernel=kernel)
    ran: list[Any] = []

    def repeat() -> None:
        ran.append("again")
        loop.call_later(60, repeat)

    loop.call_later(3, ran.append, 3)
    loop.call_later(60, repeat)
    loop.call_later(1, ran.append, 1)
    loop.call_later(2, ran.append, 2)
    late = loop.call_later(7200, ran.append, "not yet")
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert ran == []
    kernel.slept += HOUR
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert ran == [1, 2, 3, "again"]
    late.cancel()
    loop.close()


# Memory.


@pytest.fixture
def traced() -> Iterator[None]:
    """Trace Python's own memory meanwhile."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def test_tracemalloc_sees_what_waits_to_be_sent(
    loop: whorl.EventLoop, connect: Connect, traced: None
) -> None:
    transport, _ = await connect("unix", Recorder())
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(40):
        transport.write(bytearray(100_000))
    after, _ = tracemalloc.get_traced_memory()
    assert after - before >= transport.get_write_buffer_size() > 3_000_000


def test_tracemalloc_sees_timers_and_callbacks(traced: None) -> None:
    loop = whorl.EventLoop()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(1000):
        loop.call_later(1000 + number, print)
        loop.call_soon(print)
    after, _ = tracemalloc.get_traced_memory()
    assert after - before > 2000 * 50
    loop.close()


# Sizes.


class Greedy(Kernel):
    """A kernel that takes all that it is given, and looks at nothing; or all but a little the first time."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        self.taken: list[int] = []

    def send(self, fd: int, data: Any, offset: int) -> int:
        size = len(data) - offset - self.left
        self.left = 0
        self.taken.append(size)
        return size


@pytest.mark.parametrize("left", [0, 5])
def test_three_gigabytes_in_one_write_are_counted(left: int) -> None:
    kernel = Greedy(left)
    loop = whorl.EventLoop(kernel=kernel)
    size = (3 << 30) + 7

    async def send() -> None:
        ours, peer = socket_pair("unix")
        protocol = Recorder()
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
        with mmap.mmap(-1, size) as memory, memoryview(memory) as view:
            transport.write(view)
        while transport.get_write_buffer_size():
            assert transport.get_write_buffer_size() == left
            await asyncio.sleep(0)
        transport.abort()
        await protocol.until_lost()
        peer.close()

    loop.run_until_complete(send())
    loop.close()
    assert sum(kernel.taken) == size
