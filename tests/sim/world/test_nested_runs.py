"""Runs inside of a callback of a simulated host's loop: the world goes on while they sleep."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import whorl
from tests.sim.conftest import Run
from whorl import sim


def nest(coroutine: Any) -> Any:
    """Run a coroutine inside of the task that runs."""
    loop: Any = asyncio.get_running_loop()
    whorl.allow_nested_runs(loop)
    return loop.run_until_complete(coroutine)


@pytest.mark.parametrize("tasks", ["cpython", "compiled"])
def test_run_inside_of_the_main_host_takes_virtual_time(exact: Run, tasks: str) -> None:
    async def main(world: sim.World) -> tuple[float, str, str]:
        began = world.now()
        got = nest(asyncio.sleep(3600, "slept"))
        return round(world.now() - began), got, await asyncio.sleep(1, "goes on")

    assert exact(main, tasks=tasks) == (3600, "slept", "goes on")


def test_other_hosts_answer_while_a_host_runs_its_loop_inside(exact: Run) -> None:
    async def serve(host: sim.Host) -> None:
        async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.readline()
            nest(asyncio.sleep(5))
            writer.write(data.upper())
            writer.close()

        await (await asyncio.start_server(shout, host.address, 80)).serve_forever()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("server", 80)
        writer.write(b"line\n")
        data = await reader.read()
        writer.close()
        return data

    async def main(world: sim.World) -> tuple[bytes, int]:
        world.host("server", boot=serve)
        await asyncio.sleep(0.1)
        began = world.now()
        return nest(ask()), int(world.now() - began)

    assert exact(main) == (b"LINE\n", 5)


def test_host_that_dies_inside_of_a_nested_run_ends_with_it(exact: Run) -> None:
    ran: list[str] = []

    async def boot(host: sim.Host) -> None:
        ran.append("booted")
        if len(ran) == 1:
            try:
                nest(asyncio.sleep(100))
            except asyncio.CancelledError:
                ran.append("died")
                raise
            ran.append("slept")

    async def main(world: sim.World) -> None:
        host = world.host("other", boot=boot)
        await asyncio.sleep(1)
        host.restart()
        await asyncio.sleep(1000)

    exact(main)
    assert sorted(ran) == ["booted", "booted", "died"]


def test_nested_runs_are_the_same_for_the_same_seed() -> None:
    async def main(world: sim.World) -> list[Any]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                writer.write(data)
            writer.close()

        async def ask(number: int) -> bytes:
            reader, writer = await asyncio.open_connection("server", 80)
            writer.write(bytes([number]) * 50)
            nest(asyncio.sleep(number / 10))
            data = await reader.readexactly(50)
            writer.close()
            return data[:1]

        await world.host("server").run(asyncio.start_server, echo, None, 80)
        got = [nest(ask(number)) for number in range(3)]
        return [*got, *await asyncio.gather(ask(3), ask(4)), world.now()]

    first, second = (sim.run(main, seed=7).check() for _ in range(2))
    assert first == second
    assert first[:5] == [b"\0", b"\1", b"\2", b"\3", b"\4"]


def test_loop_run_by_the_program_may_be_nested(world: sim.World) -> None:
    async def main() -> float:
        began = world.now()
        nest(asyncio.sleep(60))
        return round(world.now() - began)

    loop: Any = world.main.loop
    assert loop.run_until_complete(main()) == 60
