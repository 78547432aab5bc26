"""The transports over a kernel that refuses and cuts short, once per seed: every byte is accounted for.

The seeds are those of `tests.seeds`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.scenarios import (
    SCENARIOS,
    Listener,
    World,
    connections_that_break,
    echo_of_sockets,
    end,
    files_among_writes,
    many_connections,
)
from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from tests.core.loop_fakes import SECOND
from tests.seeds import seeds_of_run
from whorl.aio.connections import server as server_module

pytestmark = pytest.mark.faults

Scenario = Callable[[World], Awaitable[Any]]

#: A sleep this long without an event is over: all peers are in this process. A long sleep gets 20 times as
#: much. On a busy system TCP may find its window closed, and asks again later.
QUIET_NS = SECOND // 20
LONG_SLEEP_NS = 10 * SECOND

#: How accept fails when descriptors or memory ran out; a server reports that and rests.
EXHAUSTED = ("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM")


#: A scenario without end is one that takes longer, in seconds of the hurried clock.
ENDLESS = 600


def seeds() -> range:
    """Return the seeds to run."""
    return seeds_of_run(3)


class HurriedFaultKernel(FaultKernel):
    """A kernel that fails on purpose, and lets the clock jump in a quiet sleep: no rest takes a second."""

    def __init__(self, seed: int, rates: FaultRates) -> None:
        super().__init__(seed, rates)
        self.keeps_edges = seed % 2 == 0  # TCP sockets are watched one way or the other
        self.skipped = 0

    def now(self) -> int:
        return super().now() + self.skipped

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        if 0 <= timeout_ns <= QUIET_NS:
            return super().epoll_wait(epfd, timeout_ns, events)
        quiet_ns = QUIET_NS if 0 < timeout_ns < LONG_SLEEP_NS else 20 * QUIET_NS
        found = super().epoll_wait(epfd, quiet_ns, events)
        if found == 0:
            assert timeout_ns > 0, "the world stands still: nobody is to come, and no timer is set"
            self.skipped += timeout_ns - quiet_ns
        return found


def replay(test: str, kind: str, seed: int) -> None:
    """Print how to run a seed again; pytest shows it if the test fails."""
    build = "compiled" if whorl.compiled else "pure"
    print(f"replay: WHORL_FAULT_SEED={seed} make faults WHORL_BUILD={build} ARGS=\"-k '{test} and {kind}'\"")


def run(
    scenario: Scenario,
    kind: str,
    seed: int,
    rates: FaultRates,
    folder: Path,
    world: type[World] = World,
) -> tuple[FaultKernel, Any]:
    """Run a scenario over faults, and look whether anything is left; the kernel, and what came out."""
    kernel = HurriedFaultKernel(seed, rates)
    loop = whorl.EventLoop(kernel=kernel)
    loop.configure(collect_writes=seed % 3 > 0)
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context))

    async def main() -> Any:
        async with asyncio.timeout(ENDLESS):
            return await scenario(world(kind, seed, folder))

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=lambda: loop) as runner:
        # Nothing may be left, so `wait_closed` waits for the connections, too, as it does since Python 3.12.
        patch.setattr(server_module, "_WAITS_FOR_CONNECTIONS", True)
        result = runner.run(main())
        assert loop.walk() == []
        assert loop.metrics().active_handles == 0
    if loop._transports:
        gc.collect()
    assert not loop._transports
    exhaustions = [context for context in reported if "out of system resource" in context["message"]]
    assert len(exhaustions) <= sum(kernel.injected[f"accept {name}"] for name in EXHAUSTED)
    assert [context for context in reported if context not in exhaustions] == []
    return kernel, result


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_byte_arrives(scenario: Scenario, kind: str, seed: int, tmp_path: Path) -> None:
    replay(scenario.__name__, kind, seed)
    kernel, _ = run(scenario, kind, seed, FaultRates(), tmp_path)
    if scenario is many_connections:  # others may be over before anything fails
        assert len(kernel.injected) > 10


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_every_byte_arrives_over_sockets_of_ones_own(kind: str, seed: int, tmp_path: Path) -> None:
    replay("sockets_of_ones_own", kind, seed)
    rates = FaultRates(no_buffers=0, aborted=0, exhausted=0)  # these would be for the caller to handle
    run(echo_of_sockets, kind, seed, rates, tmp_path)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_every_byte_of_a_file_arrives(kind: str, seed: int, tmp_path: Path) -> None:
    replay("byte_of_a_file", kind, seed)
    run(files_among_writes, kind, seed, FaultRates(no_buffers=0), tmp_path)


async def end_with_a_connection_open(world: World) -> None:
    """Close the server at once when the client closes, before the other side can know."""
    server = await world.serve(Listener)
    _, client = await world.connect(Listener)
    peer = await world.peer()
    client.transport.close()
    await end(server)
    assert peer.is_lost


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_scenario_ends_after_the_connections_of_its_server(kind: str, tmp_path: Path) -> None:
    run(end_with_a_connection_open, kind, 0, FaultRates(), tmp_path)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_connections_break_cleanly(kind: str, seed: int, tmp_path: Path) -> None:
    replay("break_cleanly", kind, seed)
    rates = FaultRates(reset=0.03, unopened=0.1)
    kernel, resets = run(connections_that_break, kind, seed, rates, tmp_path)
    injected = sum(count for name, count in kernel.injected.items() if name.endswith("ECONNRESET"))
    assert resets >= injected  # breaking one connection may break its other end
