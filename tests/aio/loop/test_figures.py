"""The figures of an asyncio loop: bytes, connections, jobs, errors, and callbacks that take long."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import Connection
from whorl.core.limits import SAMPLED_TURNS


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


@pytest.mark.exact(reason="it counts the calls of the kernel")
async def test_bytes_and_calls_are_counted_for_the_loop_and_for_each_transport(
    loop: whorl.EventLoop,
) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for size in (1, 10, 100):
        writer.write(b"x" * size)
        await reader.readexactly(size)
    transport: Any = writer.transport
    seen = loop.metrics()
    assert (seen.bytes_in, seen.bytes_out, seen.reads, seen.writes) == (222, 222, 6, 6)
    assert (transport._received_total, transport._read_calls) == (111, 3)
    assert (transport._sent_total, transport._write_calls) == (111, 3)
    assert (seen.accepts, seen.connections_opened, seen.connections_closed) == (1, 2, 0)
    assert seen.handles_by_kind == {"Acceptor": 1, type(transport).__name__: 2}
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    while loop.metrics().connections_closed < 2:
        await asyncio.sleep(0)
    assert loop.metrics().handles_by_kind == {}


async def test_data_that_the_kernel_takes_in_parts_is_counted_once(
    loop: whorl.EventLoop, connect: Any, kind: str
) -> None:
    connection: Connection = await connect(kind, asyncio.Protocol())
    transport, peer = connection
    sizes = [3_000_000, 1000, 2000]
    transport.write(b"x" * sizes[0])
    transport.writelines([b"y" * sizes[1], bytearray(sizes[2])])
    read = 0
    while read < sum(sizes):
        read += len(await loop.sock_recv(peer, 1 << 20))
    assert loop.metrics().bytes_out == transport._sent_total == sum(sizes)
    assert loop.metrics().writes == transport._write_calls >= 1
    assert loop.metrics().bytes_in == 0  # The methods of sockets are not counted.


async def test_pipes_are_counted(loop: whorl.EventLoop) -> None:
    process = await asyncio.create_subprocess_exec(
        "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate(b"12345")
    assert output == b"12345"
    assert (loop.metrics().bytes_in, loop.metrics().bytes_out) == (5, 5)
    assert loop.metrics().connections_opened == 0


async def test_datagrams_are_counted(loop: whorl.EventLoop) -> None:
    got = loop.create_future()

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, address: Any) -> None:
            got.set_result(data)

    receiver, _ = await loop.create_datagram_endpoint(Receiver, ("127.0.0.1", 0))
    address = receiver.get_extra_info("sockname")
    sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
    sender.sendto(b"12345")
    assert await got == b"12345"
    seen = loop.metrics()
    assert (seen.bytes_in, seen.bytes_out, seen.reads, seen.writes) == (5, 5, 1, 1)
    sender.close()
    receiver.close()
    await asyncio.sleep(0)


async def test_jobs_are_counted_while_they_wait_and_run(loop: whorl.EventLoop) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        go_on.wait()

    with ThreadPoolExecutor(1) as executor:
        jobs = [loop.run_in_executor(executor, job) for _ in range(3)]
        begun.wait()
        assert (loop.metrics().jobs_waiting, loop.metrics().jobs_running) == (2, 1)
        jobs[2].cancel()
        go_on.set()
        await asyncio.gather(*jobs[:2])
    assert (loop.metrics().jobs_waiting, loop.metrics().jobs_running) == (0, 0)


async def test_jobs_that_an_executor_drops_do_not_wait(loop: whorl.EventLoop) -> None:
    begun, go_on = threading.Event(), threading.Event()
    executor = ThreadPoolExecutor(1)
    first = loop.run_in_executor(executor, lambda: (begun.set(), go_on.wait()))
    second = loop.run_in_executor(executor, print)
    begun.wait()
    executor.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (loop.metrics().jobs_waiting, loop.metrics().jobs_running) == (0, 0)


async def test_requests_of_the_thread_pool_are_jobs(loop: whorl.EventLoop, tmp_path: Any) -> None:
    (tmp_path / "file").write_bytes(b"content")
    async with whorl.fs.open(tmp_path / "file", "rb") as file:
        await file.read()
    while loop.metrics().jobs_running:
        await asyncio.sleep(0)
    assert loop.metrics().jobs_waiting == 0
    totals = loop._figures.totals()
    assert totals["jobs_submitted"] == totals["jobs_ended"] > 0


async def test_errors_that_are_reported_are_counted(loop: whorl.EventLoop, reported: list[Any]) -> None:
    loop.call_soon(lambda: 1 // 0)
    await asyncio.sleep(0)
    assert loop.metrics().errors_reported == len(reported) == 1
    reported.clear()


async def test_a_blocking_callback_shows_in_the_histograms(loop: whorl.EventLoop) -> None:
    for _ in range(100):
        await asyncio.sleep(0)
    before = loop.histograms()
    loop.call_later(0.01, list)
    await asyncio.sleep(0)
    time.sleep(0.03)
    for _ in range(30):
        await asyncio.sleep(0)
    since = loop.histograms().away - before.away
    late = loop.histograms().late - before.late
    assert since.max >= 30_000_000
    assert since.percentile(50) < since.max  # type: ignore[operator]
    assert late.count == 1
    assert late.max >= 20_000_000
    assert loop.metrics().timers_fired >= 1


async def test_steps_of_tasks_are_timed_in_one_turn_of_61(loop: whorl.EventLoop) -> None:
    async def steps() -> None:
        for _ in range(SAMPLED_TURNS * 4):
            await asyncio.sleep(0)

    await asyncio.gather(*[steps() for _ in range(10)])
    assert loop.histograms().callback.count >= 20
