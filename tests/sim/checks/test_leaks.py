"""Findings about what a run leaves behind, and conditions that hold or do not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from whorl import sim

Main = Callable[..., Coroutine[Any, Any, Any]]

kept: list[Any] = []  # what a program does not close


@pytest.fixture(autouse=True)
def _let_go() -> Any:
    yield
    kept.clear()


def _findings(main: Main, **options: Any) -> list[str]:
    return [f"{found.kind}: {found.text}" for found in sim.run(main, faults="none", **options).findings]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read up to the end, and close."""
    await reader.read()
    writer.close()


async def leaves_a_connection() -> None:
    """Keep a connection open on both sides."""
    server = await asyncio.start_server(lambda reader, writer: kept.append(writer), "10.0.0.1", 80)
    kept.append(await asyncio.open_connection("10.0.0.1", 80))
    await asyncio.sleep(1)
    server.close()


async def stubborn() -> None:
    """Sleep, and end as if nothing had happened when that is cancelled."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(10)


async def swallows() -> None:
    """Cancel a task that swallows it."""
    task = asyncio.create_task(stubborn(), name="stubborn")
    await asyncio.sleep(1)
    task.cancel()
    await task


def test_connection_that_was_not_closed_is_found() -> None:
    (text,) = _findings(leaves_a_connection)
    line = leaves_a_connection.__code__.co_firstlineno + 3
    assert f"connected to ('10.0.0.1', 80), made at {__file__}:{line} in leaves_a_connection" in text
    assert text.count("made at") == 1  # The server's side is made by the loop.
    assert text.startswith("leak: descriptors were not closed: ")
    assert "a socket at ('10.0.0.1', 80), connected to" in text
    assert "connected to ('10.0.0.1', 80)" in text


def test_leak_has_the_same_key_whatever_was_left() -> None:
    result = sim.run(leaves_a_connection)
    assert [found.key for found in result.findings] == [("leak", "descriptors were not closed")]


def test_server_that_was_not_closed_is_found() -> None:
    async def main() -> None:
        kept.append(await asyncio.start_server(answer, "10.0.0.1", 80))

    assert "a socket at ('10.0.0.1', 80)" in _findings(main)[0]


def test_handler_that_never_closes_its_side_is_found() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda _, writer: kept.append(writer), "10.0.0.1", 80)
        _, writer = await asyncio.open_connection("10.0.0.1", 80)
        writer.close()
        await asyncio.sleep(5)
        server.close()

    (text,) = _findings(main)
    assert text.count("a socket at") == 1


@pytest.mark.parametrize("make", [lambda: socket.socketpair(), lambda: os.pipe()], ids=["socketpair", "pipe"])
def test_pair_that_was_not_closed_is_found(make: Callable[[], Any]) -> None:
    async def main() -> None:
        kept.append(make())

    assert len(_findings(main)) == 1


def test_socket_that_was_collected_is_found() -> None:
    async def main() -> None:
        socket.socket()
        await asyncio.sleep(1)

    (text,) = _findings(main)
    line = main.__code__.co_firstlineno + 1
    assert "<SimSocket fd=" in text
    assert f"test_leaks.py:{line} in main" in text


def test_pipe_of_a_child_that_nobody_waits_for_is_found() -> None:
    async def main(world: sim.World) -> None:
        async def sleeps(program: sim.Program) -> int:
            await asyncio.sleep(100)
            return 0

        world.program("sleeps", sleeps)
        await asyncio.create_subprocess_exec("sleeps", stdout=asyncio.subprocess.PIPE)

    assert "a ReadEnd" in _findings(main)[0]


def test_long_list_of_descriptors_is_cut() -> None:
    async def main() -> None:
        kept.extend(socket.socket() for _ in range(8))

    assert _findings(main)[0].endswith("; 3 more")


def test_run_that_closes_everything_has_no_finding() -> None:
    async def main() -> None:
        async with await asyncio.start_server(answer, "10.0.0.1", 80):
            _, writer = await asyncio.open_connection("10.0.0.1", 80)
            writer.close()
            await writer.wait_closed()
            await asyncio.sleep(1)

    assert _findings(main) == []


@pytest.mark.parametrize("unread", [b"", b"x"], ids=["end", "reset"])
def test_connection_whose_end_is_under_way_is_no_leak(unread: bytes) -> None:
    async def send_and_wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(unread)
        await answer(reader, writer)

    async def main() -> None:
        server = await asyncio.start_server(send_and_wait, "10.0.0.1", 80)
        _, writer = await asyncio.open_connection("10.0.0.1", 80)
        await asyncio.sleep(5)
        writer.transport.pause_reading()
        writer.close()
        server.close()

    for seed in range(10):
        assert sim.run(main, seed=seed).findings == []


def test_connection_that_only_the_end_of_the_run_closes_is_a_leak() -> None:
    async def answer_until_cancelled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer_until_cancelled, "10.0.0.1", 80)
        kept.append(await asyncio.open_connection("10.0.0.1", 80))
        await asyncio.sleep(5)
        server.close()

    assert "connected to ('10.0.0.1', 80)" in _findings(main)[0]


def test_descriptors_of_another_host_are_no_leak() -> None:
    async def serve(host: sim.Host) -> None:
        await (await asyncio.start_server(answer, host.address, 80)).serve_forever()

    async def main(world: sim.World) -> None:
        world.host("server", boot=serve)
        await asyncio.sleep(1)

    assert _findings(main) == []


def test_task_that_swallows_its_cancellation_is_a_remark() -> None:
    result = sim.run(swallows, faults="none")
    assert result.findings == []
    (text,) = result.remarks
    assert "cancellations were swallowed: task 'stubborn' (stubborn at " in text
    assert text.endswith(") ended without CancelledError")


def test_leak_does_not_hide_a_swallowed_cancellation() -> None:
    async def main() -> None:
        kept.append(socket.socket())
        await swallows()

    result = sim.run(main, faults="none")
    assert [found.kind for found in result.findings] == ["leak"]
    assert len(result.remarks) == 1


def test_task_that_swallows_the_cancellation_at_the_end_of_the_run_is_no_remark() -> None:
    async def main() -> None:
        kept.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(1)

    assert sim.run(main, faults="none").remarks == []


def test_timeout_that_takes_its_cancellation_back_is_no_remark() -> None:
    async def main() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(10)

    assert sim.run(main, faults="none").remarks == []


def test_descriptors_that_a_run_may_leave_are_a_remark() -> None:
    result = sim.run(leaves_a_connection, faults="none", allow={"leaks"})
    assert result.findings == []
    assert len(result.remarks) == 1


def test_allowance_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="allow has 'leak'; it may have files, leaks, threads"):
        sim.run(swallows, allow={"leak"})


def test_leak_of_a_run_that_failed_is_not_told() -> None:
    async def main() -> None:
        kept.append(socket.socket())
        raise KeyError

    result = sim.run(main)
    assert [found.kind for found in result.findings] == ["exception"]
    assert result.remarks == []


def test_system_calls_are_refused_when_leaks_are_allowed() -> None:
    async def main() -> None:
        os.fork()

    assert [found.kind for found in sim.run(main, allow={"leaks"}).findings] == ["limit"]


def test_condition_that_stops_holding_ends_the_run() -> None:
    async def main(world: sim.World) -> None:
        values = [0]
        world.always("it stays small", lambda: values[0] < 3)
        while True:
            await asyncio.sleep(1)
            values[0] += 1

    result = sim.run(main)
    assert [found.text for found in result.findings] == ["it stays small: it does not hold"]
    assert result.elapsed_s < 5


def test_condition_that_never_held_is_found_when_its_time_is_over() -> None:
    async def main(world: sim.World) -> None:
        world.eventually("it happens", lambda: False, within=5)
        await asyncio.sleep(100)

    result = sim.run(main)
    assert [found.kind for found in result.findings] == ["eventually"]
    assert 5 <= result.elapsed_s < 6


async def handles_a_signal() -> int:
    """Open the loop's pipe for signals, which only handlers need; return how many descriptors that takes."""
    loop: Any = asyncio.get_running_loop()
    before = len(loop._sim_host.kernel.table.files)
    loop.add_signal_handler(signal.SIGTERM, print)
    opened = len(loop._sim_host.kernel.table.files) - before
    await asyncio.sleep(1)
    return opened


def test_pipe_for_signals_is_not_left_by_the_program() -> None:
    result = sim.run(handles_a_signal, faults="none")
    assert not result.findings
    assert result.value == 2
