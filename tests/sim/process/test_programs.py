"""Stand-ins for programs: arguments, pipes, exit codes and signals, as asyncio and the handle see them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.sim.conftest import Run
from whorl import sim
from whorl.handles.process.process import Process, Stdio
from whorl.handles.streams.pipe import Pipe

PIPE = asyncio.subprocess.PIPE


async def _shout(program: sim.Program) -> int:
    """Write what comes in capital letters."""
    while line := await program.stdin.readline():
        program.stdout.write(line.upper())
        await program.stdout.drain()
    return 3


async def _sleep(program: sim.Program) -> None:
    await asyncio.sleep(float(program.args[1]))


def test_program_gets_arguments_and_environment(exact: Run) -> None:
    async def show(program: sim.Program) -> None:
        program.stdout.write(repr((program.args, program.env)).encode())

    async def main(world: sim.World) -> Any:
        world.program("show", show)
        process = await asyncio.create_subprocess_exec("/usr/bin/show", "-x", stdout=PIPE, env={"A": "1"})
        return (await process.communicate())[0]

    assert exact(main) == repr((["/usr/bin/show", "-x"], {"A": "1"})).encode()


def test_pipes_carry_input_and_output_and_the_exit_code_comes_last(exact: Run) -> None:
    async def main(world: sim.World) -> Any:
        world.program("shout", _shout)
        process = await asyncio.create_subprocess_exec("shout", stdin=PIPE, stdout=PIPE)
        return await process.communicate(b"one\ntwo\n"), process.returncode

    assert exact(main) == ((b"ONE\nTWO\n", None), 3)


def test_large_output_waits_for_its_reader(exact: Run) -> None:
    async def flood(program: sim.Program) -> None:
        for _ in range(50):
            program.stdout.write(b"x" * 10_000)
            await program.stdout.drain()

    async def main(world: sim.World) -> Any:
        world.program("flood", flood)
        process = await asyncio.create_subprocess_exec("flood", stdout=PIPE)
        await asyncio.sleep(1)
        assert process.returncode is None
        assert process.stdout is not None
        return len(await process.stdout.read()), await process.wait()

    assert exact(main) == (500_000, 0)


def test_shell_command_starts_the_program_of_its_first_word(exact: Run) -> None:
    async def main(world: sim.World) -> Any:
        world.program("sleep", _sleep)
        process = await asyncio.create_subprocess_shell("sleep 2")
        return await process.wait(), round(world.now(), 2)

    assert exact(main) == (0, 2.0)


def test_error_in_a_program_goes_to_stderr_and_its_code_is_1(exact: Run) -> None:
    async def fail(program: sim.Program) -> None:
        raise ValueError("no such option")

    async def main(world: sim.World) -> Any:
        world.program("fail", fail)
        process = await asyncio.create_subprocess_exec("fail", stdout=PIPE, stderr=subprocess.STDOUT)
        return (await process.communicate())[0], process.returncode

    assert exact(main) == (b"ValueError: no such option\n", 1)


def test_exit_of_a_program_sets_its_code(exact: Run) -> None:
    async def leave(program: sim.Program) -> None:
        sys.exit(7)

    async def main(world: sim.World) -> Any:
        world.program("leave", leave)
        return await (await asyncio.create_subprocess_exec("leave")).wait()

    assert exact(main) == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_signal_ends_a_program_at_once_without_its_finally(exact: Run, number: signal.Signals) -> None:
    ran: list[str] = []

    async def hold(program: sim.Program) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ran.append("finally")

    async def main(world: sim.World) -> Any:
        world.program("hold", hold)
        process = await asyncio.create_subprocess_exec("hold", stdout=PIPE)
        await asyncio.sleep(1)
        process.send_signal(number)
        return await process.wait(), await process.stdout.read(), list(ran)  # type: ignore[union-attr]

    assert exact(main) == (-number, b"", [])


def test_program_may_handle_a_signal(exact: Run) -> None:
    async def hold(program: sim.Program) -> int:
        stopped = asyncio.Event()
        program.on_signal(signal.SIGTERM, stopped.set)
        await stopped.wait()
        return 5

    async def main(world: sim.World) -> Any:
        world.program("hold", hold)
        process = await asyncio.create_subprocess_exec("hold")
        await asyncio.sleep(1)
        process.terminate()
        return await process.wait()

    assert exact(main) == 5


def test_program_without_a_stand_in_is_refused_with_the_line(exact: Run) -> None:
    async def main() -> str:
        with pytest.raises(sim.RealProgram) as refused:
            await asyncio.create_subprocess_exec("ls")
        return str(refused.value)

    text = exact(main)
    assert "program 'ls' was started, at " in text
    assert "test_programs.py" in text
    assert "world.program(name, main)" in text


def test_handle_of_the_machine_starts_a_program(exact: Run) -> None:
    async def main(world: sim.World) -> Any:
        world.program("shout", _shout)
        loop: Any = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[int, int]] = loop.create_future()
        process, pipe = Process(loop), Pipe(loop)
        process.spawn(
            ["shout"],
            lambda _, status, number: ended.set_result((status, number)),
            stdio=[Stdio.ignore(), Stdio.create_pipe(pipe, child_writes=True)],
        )
        status = await ended
        process.close()
        pipe.close()
        return status

    assert exact(main) == (3, 0)


def test_programs_end_with_their_host(exact: Run) -> None:
    ran: list[str] = []

    async def boot(host: sim.Host) -> None:
        await asyncio.create_subprocess_exec("hold")
        await asyncio.sleep(100)

    async def hold(program: sim.Program) -> None:
        ran.append("began")
        await asyncio.sleep(2)
        ran.append("went on")

    async def main(world: sim.World) -> None:
        world.program("hold", hold)
        host = world.host("other", boot=boot)
        await asyncio.sleep(1)
        host.kill()
        await asyncio.sleep(10)

    exact(main)
    assert ran == ["began"]
