"""The production loop and its transports on a kernel of plain Python, in virtual time."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from build_tools.sources import ROOT, SOURCES
from tests.aio import simulated_day
from tests.aio.scenarios import SCENARIOS, Echo, Listener, World
from tests.aio.simulated_kernel import (
    LATENCY_NS,
    RETRY_NS,
    SECOND,
    Deadlock,
    Livelock,
    SimulatedHost,
    SimulatedKernel,
)
from whorl.core import Host, Kernel

SEEDS = 3

#: System calls of the interpreter's own: for memory and locks; asyncio asks for the process before 3.12.
HARMLESS = {"brk", "mmap", "munmap", "mremap", "madvise", "futex", "getpid"}


@pytest.fixture(autouse=True)
def no_hang() -> None:
    """Set no alarm: a world that stands still raises, and other processes take their time."""


@pytest.fixture
def kernel() -> SimulatedKernel:
    return SimulatedKernel(1)


@pytest.fixture
def loop(kernel: SimulatedKernel) -> Iterator[whorl.EventLoop]:
    """Yield a loop in the simulated world that leaves no socket open there."""
    loop = whorl.EventLoop(kernel=kernel, host=SimulatedHost())
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context))
    yield loop
    loop.close()
    assert reported == []
    assert kernel.files == {}


def in_a_process(*options: str, sources: str | None = None, prefix: tuple[str, ...] = ()) -> str:
    """Return the output of a day in a process of its own, with the build under test or with other sources."""
    environment = dict(os.environ)
    if sources is not None:
        environment["PYTHONPATH"] = sources
    environment.pop("PYTHONHASHSEED", None)
    command = [*prefix, sys.executable, "-m", "tests.aio.simulated_day", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Conversations.


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_byte_arrives(scenario: Callable[[World], Awaitable[Any]], kind: str, seed: int) -> None:
    assert simulated_day.live(scenario, kind, seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    for kind in ("tcp", "unix"):
        for scenario in SCENARIOS:
            assert simulated_day.live(scenario, kind, seed) == simulated_day.live(scenario, kind, seed)


def test_another_seed_gives_another_trace() -> None:
    assert simulated_day.day(1) != simulated_day.day(2)


# Processes.


@pytest.mark.slow
def test_simulated_day_is_the_same_on_both_builds() -> None:
    build, digest = in_a_process("--guarded", "7").split()
    assert build == ("compiled" if whorl.compiled else "pure")
    assert in_a_process("--guarded", "7", sources=str(SOURCES)).split() == ["pure", digest]
    assert simulated_day.day(7) == digest


def test_the_guard_sees_what_is_real() -> None:
    script = (
        "import asyncio, whorl\n"
        "from tests.aio import simulated_day\n"
        "simulated_day.forbid(simulated_day.FORBIDDEN)\n"
        "whorl.EventLoop()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "was called in the simulated world" in done.stderr


def can_trace() -> bool:
    """Return whether processes can be traced here."""
    strace = shutil.which("strace")
    return strace is not None and subprocess.run([strace, "-o", "/dev/null", "true"]).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace")
def test_simulated_day_makes_no_system_call(tmp_path: Path) -> None:
    log = tmp_path / "strace"
    in_a_process("--marked", "3", prefix=("strace", "-f", "-o", str(log)))
    before, _, rest = log.read_text().partition(simulated_day.BEGIN.decode().strip())
    during, _, after = rest.partition(simulated_day.END.decode().strip())
    assert "openat" in calls_in(before)
    assert "exit_group" in calls_in(after)
    assert calls_in(during) - HARMLESS - {"write"} == set()
    assert during.count("write(") == 1  # that of the second mark


def calls_in(log: str) -> set[str]:
    """Return the system calls in a part of a trace."""
    return set(re.findall(r"^\d+ +(\w+)\(", log, re.MULTILINE))


# Time.


def test_a_day_of_timers_takes_no_time(loop: whorl.EventLoop, kernel: SimulatedKernel) -> None:
    began = kernel.now()
    loop.run_until_complete(simulated_day.heartbeats(World("tcp", 1)))
    assert kernel.now() - began == (24 * 3600 + 1) * SECOND
    assert loop.metrics().turns <= 2 * 24 * 60 + 10  # for each beat: a timer, then the task it wakes
    assert loop.metrics().idle_ns == (24 * 3600 + 1) * SECOND


def test_a_world_in_which_nothing_can_come_is_a_deadlock(loop: whorl.EventLoop) -> None:
    async def wait_for_each_other() -> None:
        await asyncio.Event().wait()

    task = loop.create_task(wait_for_each_other())
    with pytest.raises(Deadlock):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_a_world_that_turns_in_circles_is_a_livelock(loop: whorl.EventLoop) -> None:
    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Livelock):
        loop.run_forever()


def test_messages_take_the_time_they_travel(loop: whorl.EventLoop, kernel: SimulatedKernel) -> None:
    async def main() -> None:
        world = World("tcp", 1)
        server = await world.serve(Echo)
        began = kernel.now()
        _, client = await world.connect(Listener)
        assert kernel.now() - began == 2 * LATENCY_NS
        for number in range(1, 4):
            client.transport.write(b"ping")
            await client.until(lambda number=number: len(client.received) == 4 * number)
            assert kernel.now() - began == (2 + 2 * number) * LATENCY_NS
        client.transport.close()
        await client.until_lost()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(1)

    loop.run_until_complete(main())


# Refusals.


def test_connect_without_a_listener_is_refused(loop: whorl.EventLoop) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Listener, "127.0.0.1", 9)
        with pytest.raises(FileNotFoundError):
            await loop.create_unix_connection(Listener, "/nobody")

    loop.run_until_complete(main())


def test_an_address_is_taken_once(loop: whorl.EventLoop) -> None:
    async def main() -> None:
        server = await loop.create_server(Listener, "127.0.0.1", 80)
        with pytest.raises(OSError) as caught:  # noqa: PT011 -- the number is looked at below
            await loop.create_server(Listener, "127.0.0.1", 80)
        assert caught.value.errno == errno.EADDRINUSE
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


def test_a_full_listener_is_asked_again(loop: whorl.EventLoop, kernel: SimulatedKernel) -> None:
    async def main() -> None:
        server = await loop.create_server(Listener, "127.0.0.1", 80, backlog=1, start_serving=False)
        kernel.listen(server.sockets[0]._sock, 1)
        connecting = [
            asyncio.ensure_future(loop.create_connection(Listener, "127.0.0.1", 80)) for _ in range(5)
        ]
        await asyncio.sleep(0.5)
        assert sum(task.done() for task in connecting) == 2
        began = kernel.now()
        await server.start_serving()
        connections = await asyncio.gather(*connecting)
        assert 0 < kernel.now() - began <= 2 * RETRY_NS
        for transport, protocol in connections:
            transport.abort()
            await protocol.until_lost()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(1)

    loop.run_until_complete(main())


def test_a_reset_reaches_the_other_side(loop: whorl.EventLoop) -> None:
    async def main() -> None:
        world = World("tcp", 1)
        server = await world.serve(Listener)
        _, client = await world.connect(Listener)
        peer = await world.peer()
        client.transport.pause_reading()
        peer.transport.write(b"nobody reads this")
        await asyncio.sleep(1)
        client.transport.abort()  # with unread data
        await peer.until_lost()
        assert isinstance(peer.error, ConnectionResetError)
        assert client.error is None
        await client.until_lost()
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


# The kernel itself.


@pytest.mark.parametrize(("ours", "real"), [(SimulatedKernel, Kernel), (SimulatedHost, Host)])
def test_simulated_classes_override_every_method_of_the_real_ones(ours: type, real: type) -> None:
    methods = {name for name, _ in inspect.getmembers(real, callable) if not name.startswith("_")}
    assert methods
    assert methods - vars(ours).keys() == set()
