"""Signals of a simulated process: handlers of the loop and of Python, and what the system does by default."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest

from tests.sim.conftest import Run
from whorl import sim


def _after_a_signal(boot: Any, number: int, seconds: float = 1.0) -> Any:
    """Return a program: boot a host, send it a signal after a second, and return whether it is dead then."""

    async def main(world: sim.World) -> bool:
        host = world.host("other", boot=boot)
        await asyncio.sleep(1)
        host.signal(number)
        await asyncio.sleep(seconds)
        return host.is_dead

    return main


def test_handler_of_the_loop_runs_in_a_turn_of_the_host(exact: Run) -> None:
    seen: list[Any] = []

    async def boot(host: sim.Host) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: seen.append(asyncio.get_running_loop() is loop))
        await asyncio.sleep(100)

    assert exact(_after_a_signal(boot, signal.SIGTERM)) is False
    assert seen == [True]


def test_handler_of_python_gets_the_number(exact: Run) -> None:
    seen: list[int] = []

    async def boot(host: sim.Host) -> None:
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        await asyncio.sleep(100)

    assert exact(_after_a_signal(boot, signal.SIGUSR1)) is False
    assert seen == [signal.SIGUSR1]


def test_signal_to_a_sleeping_host_needs_no_other_event(exact: Run) -> None:
    async def boot(host: sim.Host) -> None:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await stopped.wait()
        host.world.note("stopped")

    result = sim.run(_after_a_signal(boot, signal.SIGTERM), faults="none")
    assert not result.failed
    assert any("stopped" in line for line in result.story)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGUSR2])
def test_default_action_ends_the_process(exact: Run, number: int) -> None:
    async def boot(host: sim.Host) -> None:
        await asyncio.sleep(100)

    assert exact(_after_a_signal(boot, number)) is True


@pytest.mark.parametrize("number", [signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG])
def test_harmless_signal_does_nothing(exact: Run, number: int) -> None:
    async def boot(host: sim.Host) -> None:
        await asyncio.sleep(100)

    assert exact(_after_a_signal(boot, number)) is False


def test_ignored_signal_does_nothing(exact: Run) -> None:
    async def boot(host: sim.Host) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await asyncio.sleep(100)

    assert exact(_after_a_signal(boot, signal.SIGTERM)) is False


def test_stopped_process_gets_no_turn_until_it_is_continued(exact: Run) -> None:
    ticks: list[float] = []

    async def boot(host: sim.Host) -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(host.world.timeline.now / 1e9)

    async def main(world: sim.World) -> None:
        host = world.host("other", boot=boot)
        await asyncio.sleep(2.5)
        host.signal(signal.SIGSTOP)
        await asyncio.sleep(10)
        host.signal(signal.SIGCONT)
        await asyncio.sleep(0.6)

    exact(main)
    assert [round(tick, 1) for tick in ticks] == [1.0, 2.0, 12.5]


def test_interrupt_cancels_the_main_task_and_ends_the_process(exact: Run) -> None:
    seen: list[str] = []

    async def boot(host: sim.Host) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            seen.append("cleaned up")

    assert exact(_after_a_signal(boot, signal.SIGINT)) is True
    assert seen == ["cleaned up"]


def test_exit_in_a_handler_ends_the_process_as_an_interrupt_does(exact: Run) -> None:
    async def boot(host: sim.Host) -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        await asyncio.sleep(100)

    assert exact(_after_a_signal(boot, signal.SIGTERM)) is True


def test_process_sends_itself_a_signal(exact: Run) -> None:
    seen: list[int] = []

    async def main() -> Any:
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        return list(seen)

    assert exact(main) == [signal.SIGUSR1] * 2


def test_server_stops_gracefully_and_finishes_what_it_has_begun(exact: Run) -> None:
    async def boot(host: sim.Host) -> None:
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        busy: set[asyncio.Task[Any]] = set()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            busy.add(asyncio.current_task())  # type: ignore[arg-type]
            await reader.readline()
            await asyncio.sleep(5)
            writer.write(b"done")
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(answer, host.address, 80)
        await stopping.wait()
        server.close()
        await asyncio.wait(busy)

    async def main(world: sim.World) -> Any:
        host = world.host("server", boot=boot)
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("server", 80)
        writer.write(b"work\n")
        await asyncio.sleep(1)
        host.signal(signal.SIGTERM)
        await asyncio.sleep(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", 80)
        answer = await reader.read()
        writer.close()
        return answer

    assert exact(main) == b"done"
