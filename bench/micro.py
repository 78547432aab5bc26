"""Scheduling operations of a loop alone, without any traffic.

usage: micro.py CASE LOOP SECONDS

Prints as JSON how many operations were done and the times they took. A case is a batch of many operations;
batches are repeated until the time is up, after one that warms up.
"""

import asyncio
import gc
import json
import queue
import random
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crowds
import files
import loops
from servers import CERTIFICATE

Batch = Callable[[], Coroutine[Any, Any, None]]
FOREVER = 3600.0


@dataclass(frozen=True)
class Micro:
    """A batch, and how many operations it stands for."""

    batch: Batch
    operations: int
    has_own_loop: bool = False  # each batch makes its loop itself


CASES: dict[str, Micro] = {}


def case(name: str, operations: int) -> Callable[[Batch], Batch]:
    def register(batch: Batch) -> Batch:
        CASES[name] = Micro(batch, operations)
        return batch

    return register


def nothing() -> None:
    pass


async def nothing_async() -> None:
    pass


# ---- callbacks ----


@case("call_soon/batch-1000", 20_000)
async def call_soon_batch() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(20):
        for _ in range(1000):
            loop.call_soon(nothing)
        await asyncio.sleep(0)


@case("call_soon/chain", 20_000)
async def call_soon_chain() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    left = 20_000

    def step() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(step)
        else:
            done.set_result(None)

    loop.call_soon(step)
    await done


# ---- timers ----


@case("call_later/cancel", 10_000)
async def call_later_cancel() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(10_000):
        loop.call_later(FOREVER, nothing).cancel()


@case("call_later/fire-100000", 100_000)
async def fire_timers() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    order = random.Random(1)
    left = 100_000

    def fire() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set_result(None)

    for _ in range(100_000):
        loop.call_later(order.random() * 0.01, fire)
    await done


# ---- other threads ----


@case("call_soon_threadsafe/same-thread", 10_000)
async def threadsafe_same_thread() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(10):
        for _ in range(1000):
            loop.call_soon_threadsafe(nothing)
        await asyncio.sleep(0)


async def post_from_thread(count: int) -> None:
    """Post so many calls from another thread, and wait for the last."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def send() -> None:
        for _ in range(count - 1):
            loop.call_soon_threadsafe(nothing)
        loop.call_soon_threadsafe(done.set_result, None)

    thread = threading.Thread(target=send)
    thread.start()
    await done
    thread.join()


@case("call_soon_threadsafe/other-thread", 10_000)
async def threadsafe_other_thread() -> None:
    await post_from_thread(10_000)


@case("call_soon_threadsafe/other-thread-flood", 100_000)
async def threadsafe_flood() -> None:
    await post_from_thread(100_000)


@case("call_soon_threadsafe/wake-round-trip", 1_000)
async def wake_round_trip() -> None:
    loop = asyncio.get_running_loop()
    wanted: queue.SimpleQueue[asyncio.Future[None] | None] = queue.SimpleQueue()

    def answer() -> None:
        while (future := wanted.get()) is not None:
            loop.call_soon_threadsafe(future.set_result, None)

    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(1_000):
        future = loop.create_future()
        wanted.put(future)
        await future
    wanted.put(None)
    thread.join()


@case("run_in_executor", 1_000)
async def run_in_executor() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(1_000):
        await loop.run_in_executor(None, nothing)


@case("getaddrinfo/numeric", 500)
async def getaddrinfo_numeric() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(500):
        await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)


# ---- tasks and futures ----


@case("sleep-0", 10_000)
async def sleep_zero() -> None:
    for _ in range(10_000):
        await asyncio.sleep(0)


@case("future/wake", 10_000)
async def future_wake() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(10_000):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


@case("create_task/await", 10_000)
async def create_task_await() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(10_000):
        await loop.create_task(nothing_async())


@case("gather-100", 10_000)
async def gather_100() -> None:
    for _ in range(100):
        await asyncio.gather(*(nothing_async() for _ in range(100)))


@case("taskgroup-100", 10_000)
async def taskgroup_100() -> None:
    for _ in range(100):
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(nothing_async())


@case("queue/ping-pong", 10_000)
async def queue_ping_pong() -> None:
    pings: asyncio.Queue[int] = asyncio.Queue()
    pongs: asyncio.Queue[int] = asyncio.Queue()

    async def answer() -> None:
        for _ in range(10_000):
            await pongs.put(await pings.get())

    answering = asyncio.create_task(answer())
    for number in range(10_000):
        await pings.put(number)
        await pongs.get()
    await answering


@case("timeout/trivial", 10_000)
async def timeout_trivial() -> None:
    for _ in range(10_000):
        async with asyncio.timeout(FOREVER):
            pass


# ---- descriptors and life cycle ----


@case("add_reader/churn", 10_000)
async def add_reader_churn() -> None:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        for _ in range(10_000):
            loop.add_reader(near, nothing)
            loop.remove_reader(near)


@case("add_reader/number", 10_000)
async def add_reader_number() -> None:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with near, far:
        number = near.fileno()
        for _ in range(10_000):
            loop.add_reader(number, nothing)
            loop.remove_reader(number)


@case("sock/ping-pong", 5_000)
async def sock_ping_pong() -> None:
    """Let two tasks send a message to each other over a socket pair."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)

    async def answer() -> None:
        for _ in range(5_000):
            await loop.sock_sendall(far, await loop.sock_recv(far, 1024))

    with near, far:
        answering = asyncio.create_task(answer())
        for _ in range(5_000):
            await loop.sock_sendall(near, LINE)
            await loop.sock_recv(near, 1024)
        await answering


# ---- streams, with a thread at the other end that makes one system call after another ----

LINE = b"x" * 63 + b"\n"
BULK = bytes(64 * 1024 * 1024)  # made once: its first touch costs a page fault for each 4 KiB, on every loop
DRAIN_BYTES = 1024 * 1024


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    for sock in (near, far):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


async def open_stream(near: socket.socket, is_tls: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not is_tls:
        return await asyncio.open_connection(sock=near)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return await asyncio.open_connection(sock=near, ssl=context, server_hostname="localhost")


def far_end(far: socket.socket, is_tls: bool) -> socket.socket:
    """Return the socket of a thread at the other end, once the handshake is done."""
    if not is_tls:
        return far
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context.wrap_socket(far, server_side=True)


async def read_stream(
    data: bytes, use: Callable[[asyncio.StreamReader], Coroutine[Any, Any, None]], is_tls: bool = False
) -> None:
    """Let `use` read what a thread sends."""
    near, far = tcp_pair()

    def send() -> None:
        with far_end(far, is_tls) as peer:
            peer.sendall(data)
            if is_tls:
                peer.recv(1)

    thread = threading.Thread(target=send)
    thread.start()
    reader, writer = await open_stream(near, is_tls)
    await use(reader)
    writer.close()
    await writer.wait_closed()
    thread.join()


async def write_stream(
    use: Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]], is_tls: bool = False
) -> None:
    """Let a thread receive what `use` writes."""
    near, far = tcp_pair()

    def receive() -> None:
        buffer = bytearray(DRAIN_BYTES)
        with far_end(far, is_tls) as peer:
            while peer.recv_into(buffer):
                pass

    thread = threading.Thread(target=receive)
    thread.start()
    _, writer = await open_stream(near, is_tls)
    await use(writer)
    writer.close()
    await writer.wait_closed()
    thread.join()


@case("streams/readline-64B", 20_000)
async def stream_readline() -> None:
    async def read_lines(reader: asyncio.StreamReader) -> None:
        for _ in range(20_000):
            await reader.readline()

    await read_stream(LINE * 20_000, read_lines)


async def read_all(reader: asyncio.StreamReader) -> None:
    left = len(BULK)
    while left:
        left -= len(await reader.read(DRAIN_BYTES))


@case("streams/bulk-read-MiB", len(BULK) // 2**20)
async def stream_bulk_read() -> None:
    await read_stream(BULK, read_all)


@case("streams/tls-bulk-read-MiB", len(BULK) // 2**20)
async def stream_tls_bulk_read() -> None:
    await read_stream(BULK, read_all, is_tls=True)


@case("streams/tls-bulk-write-MiB", len(BULK) // 2**20)
async def stream_tls_bulk_write() -> None:
    async def write_all(writer: asyncio.StreamWriter) -> None:
        block = bytes(DRAIN_BYTES)
        for _ in range(len(BULK) // DRAIN_BYTES):
            writer.write(block)
            await writer.drain()

    await write_stream(write_all, is_tls=True)


@case("streams/small-writes-64B", 10_000)
async def stream_small_writes() -> None:
    async def write_lines(writer: asyncio.StreamWriter) -> None:
        for _ in range(1000):
            for _ in range(10):
                writer.write(LINE)
            await writer.drain()

    await write_stream(write_lines)


@case("streams/writelines-16x64B", 2_000)
async def stream_writelines() -> None:
    lines = [LINE] * 16

    async def write_lines(writer: asyncio.StreamWriter) -> None:
        for _ in range(2000):
            writer.writelines(lines)
            await writer.drain()

    await write_stream(write_lines)


@case("subprocess/true", 10)
async def subprocess_true() -> None:
    for _ in range(10):
        process = await asyncio.create_subprocess_exec("/bin/true")
        await process.wait()


files.register(case)
crowds.register(case)
CASES["run/no-op"] = Micro(nothing_async, 1, has_own_loop=True)


def measure(micro: Micro, loop_name: str, seconds: float) -> dict[str, float | None]:
    """Repeat the batch for `seconds`; how many operations that were, and the times they took."""
    new_loop = loops.factory(loop_name)
    if micro.has_own_loop:
        return repeat(lambda: _run_once(micro.batch, new_loop), micro.operations, seconds)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return repeat(lambda: runner.run(micro.batch()), micro.operations, seconds)


def _run_once(batch: Batch, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(batch())


def repeat(run_batch: Callable[[], None], operations: int, seconds: float) -> dict[str, float | None]:
    """Repeat a batch of so many operations for `seconds`; how many that were, and the times they took."""
    run_batch()
    gc.collect()
    done = 0
    waited_before, busy_before, begin = _waited_seconds(), time.process_time(), time.perf_counter()
    now = begin
    while now - begin < seconds:
        run_batch()
        done += operations
        now = time.perf_counter()
    busy, waited = time.process_time() - busy_before, _waited_seconds()
    return {
        "operations": done,
        "seconds": now - begin,
        "busy_seconds": busy,
        "waited_seconds": waited - waited_before
        if waited is not None and waited_before is not None
        else None,
    }


def _waited_seconds() -> float | None:
    """Return how long this thread has waited for a core that others used, where the kernel reports it."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return None


def main() -> None:
    case_name, loop_name, seconds = sys.argv[1:]
    loops.die_with_parent()
    print(json.dumps(measure(CASES[case_name], loop_name, float(seconds))))


if __name__ == "__main__":
    main()
