"""Crashes: what a life leaves behind, what its peers see, and what the next life finds."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.conftest import Run
from whorl import sim


async def _serve(host: sim.Host) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, host.address, 80)
    await server.serve_forever()


async def _connect(world: sim.World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("server", 80)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    return reader, writer


async def _error_of(reading: Coroutine[Any, Any, Any], world: sim.World) -> tuple[str, float]:
    """Return the error that ends a coroutine, and after how many seconds; the result if there is no error."""
    began = world.now()
    try:
        shown = repr(await reading)
    except OSError as error:
        shown = type(error).__name__
    return shown, round(world.now() - began, 3)


def _with_server(main: Callable[..., Any]) -> Any:
    async def program(world: sim.World) -> Any:
        server = world.host("server", boot=_serve)
        await asyncio.sleep(0.1)
        return await main(world, server)

    return program


# A dead life.


def test_finally_of_a_crashed_host_does_not_run_in_the_world(exact: Run) -> None:
    ran: list[str] = []

    async def boot(host: sim.Host) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ran.append("finally")
            host.disk.open("/srv/late", "w")

    async def main(world: sim.World) -> Any:
        host = world.host("other", boot=boot)
        await asyncio.sleep(1)
        host.crash()
        await asyncio.sleep(1000)
        return list(ran), host.disk.exists("/srv/late")

    assert exact(main) == ([], False)
    assert ran == ["finally"]  # after the run, against a dead kernel


def test_timers_jobs_and_callbacks_of_a_dead_life_never_run(exact: Run) -> None:
    ran: list[str] = []

    async def boot(host: sim.Host) -> None:
        if ran:
            return
        ran.append("booted")
        loop = asyncio.get_running_loop()
        loop.call_later(1, ran.append, "timer")
        loop.run_in_executor(None, ran.append, "job")
        await asyncio.sleep(0.5)
        ran.append("task")

    async def main(world: sim.World) -> Any:
        host = world.host("other", boot=boot)
        await asyncio.sleep(0.00001)
        host.kill()
        host.restart()
        await asyncio.sleep(10)

    exact(main)
    assert ran == ["booted"]


def test_crash_of_the_own_host_ends_it_with_that_turn(exact: Run) -> None:
    ran: list[str] = []

    async def boot(host: sim.Host) -> None:
        host.crash()
        await asyncio.sleep(0)
        ran.append("after")

    async def main(world: sim.World) -> None:
        world.host("other", boot=boot)
        await asyncio.sleep(10)

    exact(main)
    assert ran == []


def test_work_on_a_host_that_crashes_raises_for_the_waiting_task(exact: Run) -> None:
    async def main(world: sim.World) -> str:
        host = world.host("other")
        asyncio.get_running_loop().call_later(1, host.crash)
        with pytest.raises(sim.HostDied) as died:
            await host.run(asyncio.sleep, 100)
        return str(died.value)

    assert exact(main) == "host other has lost its power"


def test_end_of_the_main_host_is_a_finding() -> None:
    async def main(world: sim.World) -> None:
        asyncio.get_running_loop().call_later(1, world.main.kill)
        await asyncio.sleep(100)

    assert [found.kind for found in sim.run(main).findings] == ["killed"]


# What peers see.


def test_peer_of_a_host_without_power_times_out_after_all_retransmissions(exact: Run) -> None:
    async def main(world: sim.World, server: sim.Host) -> Any:
        reader, writer = await _connect(world)
        server.crash()
        writer.write(b"anybody?")
        return await _error_of(reader.read(1), world)

    error, seconds = exact(_with_server(main))
    assert error == "TimeoutError"
    assert 900 < seconds < 950


def test_user_timeout_ends_a_silent_connection_sooner(exact: Run) -> None:
    async def main(world: sim.World, server: sim.Host) -> Any:
        reader, writer = await _connect(world)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 5000)
        server.crash()
        writer.write(b"anybody?")
        return await _error_of(reader.read(1), world)

    error, seconds = exact(_with_server(main))
    assert error == "TimeoutError"
    assert 5 <= seconds < 5.1


def test_keepalive_finds_a_silent_peer_of_an_idle_connection(exact: Run) -> None:
    async def main(world: sim.World, server: sim.Host) -> Any:
        reader, writer = await _connect(world)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        server.crash()
        return await _error_of(reader.read(1), world)

    error, seconds = exact(_with_server(main))
    assert error == "TimeoutError"
    assert 15.9 < seconds < 16.1


def test_idle_peer_without_keepalive_hears_nothing_of_a_power_cut(exact: Run) -> None:
    async def main(world: sim.World, server: sim.Host) -> Any:
        reader, writer = await _connect(world)
        server.crash()
        server.restart(after=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 3000)
        writer.close()
        return reader.exception()

    assert exact(_with_server(main)) is None


def test_host_that_came_back_resets_connections_of_its_former_life(exact: Run) -> None:
    async def main(world: sim.World, server: sim.Host) -> Any:
        reader, writer = await _connect(world)
        server.crash()
        server.restart(after=1)
        await asyncio.sleep(2)
        writer.write(b"still there?")
        first = await _error_of(reader.read(1), world)
        (await _connect(world))[1].close()
        return first[0]

    assert exact(_with_server(main)) == "ConnectionResetError"


def test_connecting_to_a_host_without_power_times_out(exact: Run) -> None:
    async def main(world: sim.World, server: sim.Host) -> Any:
        server.crash()
        return await _error_of(asyncio.open_connection("server", 80), world)

    assert exact(_with_server(main)) == ("TimeoutError", 127.0)


def test_peer_of_a_killed_process_reads_the_end_and_is_refused_then(exact: Run) -> None:
    async def main(world: sim.World, server: sim.Host) -> Any:
        reader, writer = await _connect(world)
        server.kill()
        first = await _error_of(reader.read(1), world)
        writer.close()
        return first[0], (await _error_of(asyncio.open_connection("server", 80), world))[0]

    assert exact(_with_server(main)) == ("b''", "ConnectionRefusedError")


# A write-ahead log.

RECORD = struct.Struct("<I508s")


def _log(synced: bool) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a program: a host appends numbered records to a log, and acknowledges each; then it crashes."""
    acknowledged: list[int] = []

    async def boot(host: sim.Host) -> None:
        if not host.disk.exists("/srv/log"):
            host.disk.write("/srv/log", b"")
        log = host.disk.open("/srv/log", "ab")
        number = len(host.disk.read("/srv/log")) // RECORD.size
        while True:
            log.write(RECORD.pack(number, b"record"))
            log.flush()
            if synced:
                await asyncio.to_thread(os.fsync, log.fileno())
            acknowledged.append(number)
            number += 1
            await asyncio.sleep(0.01)

    async def main(world: sim.World) -> None:
        acknowledged.clear()
        host = world.host("db", boot=boot)
        for _ in range(2):
            await asyncio.sleep(0.02 + world.choose(40, "crash") / 1000)
            host.crash()
            content = host.disk.read("/srv/log")
            whole = content[: len(content) // RECORD.size * RECORD.size]
            found = [number for number, _ in RECORD.iter_unpack(whole)]
            wanted = list(range(len(set(acknowledged))))
            assert found[: len(wanted)] == wanted, (found, wanted)
            host.restart(after=0.1)
            await asyncio.sleep(0.13)

    return main


def test_log_that_is_synced_keeps_what_it_acknowledged() -> None:
    main = _log(synced=True)
    for seed in range(30):
        sim.run(main, seed=seed).check()


@pytest.mark.slow
def test_log_that_is_synced_has_no_finding_in_many_seeds() -> None:
    main = _log(synced=True)
    for seed in range(30, 150):
        sim.run(main, seed=seed).check()


def test_log_that_is_not_synced_loses_what_it_acknowledged() -> None:
    main = _log(synced=False)
    assert all(sim.run(main, seed=seed).failed for seed in range(5))


# A program that fails at its start.


async def _boot_fails(host: sim.Host) -> None:
    raise ValueError("no settings")


async def _boot_exits(host: sim.Host) -> None:
    raise SystemExit(3)


async def _is_refused(world: sim.World, host: sim.Host) -> None:
    await asyncio.open_connection("other", 80)


async def _is_killed(world: sim.World, host: sim.Host) -> None:
    host.kill()


async def _is_ended(world: sim.World, host: sim.Host) -> None:
    pass


@pytest.mark.parametrize("boot", [_boot_fails, _boot_exits])
@pytest.mark.parametrize("then", [_is_refused, _is_killed, _is_ended])
def test_boot_that_fails_is_a_finding_however_the_run_ends(boot: Any, then: Any) -> None:
    async def main(world: sim.World) -> None:
        host = world.host("other", boot=boot)
        await asyncio.sleep(1)
        await then(world, host)

    findings = sim.run(main, faults=sim.Faults.none()).findings
    error = "SystemExit: 3" if boot is _boot_exits else "ValueError: no settings"
    assert [f"{each.host}: {each.text}" for each in findings if each.kind == "unhandled"] == [
        f"other: boot failed ({error})"
    ]
    assert [each.kind for each in findings if each.kind != "unhandled"] == ["exception"] * (
        then is _is_refused
    )


def test_boot_that_exits_well_or_whose_error_is_handled_is_no_finding() -> None:
    async def boot_ends(host: sim.Host) -> None:
        raise SystemExit

    async def main(world: sim.World) -> None:
        world.host("one", boot=boot_ends)
        other = world.host("other", boot=_boot_fails)
        await asyncio.sleep(1)
        assert other.main_task is not None
        assert isinstance(other.main_task.exception(), ValueError)

    assert sim.run(main, faults=sim.Faults.none()).findings == []
