"""Pipes and subprocesses over a kernel that refuses and cuts short: every byte is accounted for."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.faults.test_streams import replay, run, seeds
from tests.aio.scenarios import Listener, World, digest
from tests.core.kernel.fault_injection import FaultKernel, FaultRates

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("no_leak")]

SEEDS = pytest.mark.parametrize("seed", seeds())


def ends(kind: str) -> tuple[Any, Any]:
    """Return a reading and a writing file object."""
    if kind == "pipe":
        read_fd, write_fd = os.pipe()
    else:
        read_fd, write_fd = (sock.detach() for sock in socket.socketpair())
    return open(read_fd, "rb", 0), open(write_fd, "wb", 0)


async def one_way(world: World) -> None:
    """Check that written data arrives in order, and then the end."""
    loop = asyncio.get_running_loop()
    read_end, write_end = ends(world.kind)
    _, reader = await loop.connect_read_pipe(Listener, read_end)
    _, writer = await loop.connect_write_pipe(Listener, write_end)
    data = world.noise(400_000)
    for piece in world.pieces(data):
        await writer.until(lambda: not writer.is_paused)
        writer.transport.write(piece)
        if world.random.random() < 0.1:
            reader.transport.pause_reading()
            await asyncio.sleep(0)
            reader.transport.resume_reading()
    writer.transport.close()
    await reader.until_lost()
    await writer.until_lost()
    assert digest(reader.received) == digest(data)
    assert reader.error is writer.error is None


async def shared(world: World) -> None:
    """Run a reader and a writer on one descriptor, and the same at the other side."""
    loop = asyncio.get_running_loop()
    talkers = []
    for sock in socket.socketpair():
        file = open(sock.detach(), "rb", 0)
        _, reader = await loop.connect_read_pipe(Listener, file)
        _, writer = await loop.connect_write_pipe(Listener, open(os.dup(file.fileno()), "wb", 0))
        talkers.append((reader, writer, world.noise(100_000)))
    for _, writer, data in talkers:
        for piece in world.pieces(data):
            writer.transport.write(piece)
    for (reader, _, _), (_, _, data) in zip(talkers, reversed(talkers), strict=True):
        await reader.until(lambda reader=reader, data=data: len(reader.received) >= len(data))
        assert digest(reader.received) == digest(data)
    for reader, writer, _ in talkers:
        reader.transport.close()
        writer.transport.close()
        await reader.until_lost()
        await writer.until_lost()


@SEEDS
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_every_byte_goes_through_a_pipe(kind: str, seed: int, tmp_path: Path) -> None:
    replay("goes_through_a_pipe", kind, seed)
    run(one_way, kind, seed, FaultRates(), tmp_path)


@SEEDS
def test_every_byte_goes_both_ways(seed: int, tmp_path: Path) -> None:
    replay("goes_both_ways", "", seed)
    run(shared, "socket", seed, FaultRates(), tmp_path)


@SEEDS
def test_every_byte_goes_through_a_program(seed: int) -> None:
    """Time is real here: the program is another process."""
    replay("goes_through_a_program", "", seed)
    world = World("pipe", seed)
    loop = whorl.EventLoop(kernel=FaultKernel(seed, FaultRates(unopened=0.5)))
    reported: list[Any] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context))

    async def talk() -> None:
        data = world.noise(world.size(300_000))
        process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        output, _ = await process.communicate(data)
        assert digest(output) == digest(data)
        assert process.returncode == 0
        task = loop.create_task(asyncio.create_subprocess_exec("sleep", "60", stdin=PIPE))
        for _ in range(world.random.randrange(5)):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            process = await task
            process.kill()
            assert await process.wait() == -signal.SIGKILL

    async def main() -> None:
        async with asyncio.timeout(30):
            await talk()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
        assert not loop._children
        assert loop.metrics().active_handles == 0
    assert not reported
