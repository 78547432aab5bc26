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
from functools import partial
from pathlib import Path
from typing import Any

import files
import loops
from servers import CERTIFICATE

Batch = Callable[[], Coroutine[Any, Any, None]]
FOREVER = 3600.0
CASES: dict[str, tuple[Batch, int]] = {}  # a batch, and how many operations it stands for


def case(name: str, operations: int) -> Callable[[Batch], Batch]:
    def register(batch: Batch) -> Batch:
        CASES[name] = batch, operations
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


case("call_soon_threadsafe/other-thread", 10_000)(partial(post_from_thread, 10_000))
case("call_soon_threadsafe/other-thread-flood", 100_000)(partial(post_from_thread, 100_000))


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


async def watch_again(by_number: bool) -> None:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        watched = near.fileno() if by_number else near
        for _ in range(10_000):
            loop.add_reader(watched, nothing)
            loop.remove_reader(watched)


case("add_reader/churn", 10_000)(partial(watch_again, False))
case("add_reader/number", 10_000)(partial(watch_again, True))


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


async def with_far_end(
    talk: Callable[[socket.socket], Any], use: Callable[[Any, Any], Coroutine[Any, Any, None]], is_tls: bool
) -> None:
    """Let `use` have a stream, and a thread `talk` at its other end."""
    near, far = tcp_pair()
    options: dict[str, Any] = {}
    if is_tls:
        options["ssl"] = ssl._create_unverified_context()
        options["server_hostname"] = "localhost"

    def run_far_end() -> None:
        peer = far
        if is_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            peer = context.wrap_socket(far, server_side=True)
        with peer:
            talk(peer)

    thread = threading.Thread(target=run_far_end)
    thread.start()
    reader, writer = await asyncio.open_connection(sock=near, **options)
    await use(reader, writer)
    writer.close()
    await writer.wait_closed()
    thread.join()


async def read_stream(
    data: bytes, use: Callable[[Any], Coroutine[Any, Any, None]], is_tls: bool = False
) -> None:
    """Let `use` read what a thread sends."""

    def send(peer: socket.socket) -> None:
        peer.sendall(data)
        if is_tls:
            peer.recv(1)

    await with_far_end(send, lambda reader, _: use(reader), is_tls)


async def write_stream(times: int, write: Callable[[Any], None], is_tls: bool = False) -> None:
    """Let a thread receive what is written, and drained each time."""

    def receive(peer: socket.socket) -> None:
        buffer = bytearray(DRAIN_BYTES)
        while peer.recv_into(buffer):
            pass

    async def use(_: object, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            write(writer)
            await writer.drain()

    await with_far_end(receive, use, is_tls)


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


case("streams/bulk-read-MiB", len(BULK) // 2**20)(partial(read_stream, BULK, read_all))
case("streams/tls-bulk-read-MiB", len(BULK) // 2**20)(partial(read_stream, BULK, read_all, is_tls=True))


@case("streams/tls-bulk-write-MiB", len(BULK) // 2**20)
async def stream_tls_bulk_write() -> None:
    block = bytes(DRAIN_BYTES)
    await write_stream(len(BULK) // DRAIN_BYTES, lambda writer: writer.write(block), is_tls=True)


@case("streams/small-writes-64B", 10_000)
async def stream_small_writes() -> None:
    def write_lines(writer: asyncio.StreamWriter) -> None:
        for _ in range(10):
            writer.write(LINE)

    await write_stream(1000, write_lines)


@case("streams/writelines-16x64B", 2_000)
async def stream_writelines() -> None:
    lines = [LINE] * 16
    await write_stream(2000, lambda writer: writer.writelines(lines))


@case("subprocess/true", 10)
async def subprocess_true() -> None:
    for _ in range(10):
        process = await asyncio.create_subprocess_exec("/bin/true")
        await process.wait()


# ---- one timer among many that wait, one task among many that are ready ----

FIRED = 20_000  # timers for one measurement, so many that making what waits is long past
SWITCHES = 200_000  # so many that making the tasks is little of it
SOON = 0.001  # some loops make no timer for a call that is due at once
SCALE = ("timers-among/", "tasks/")  # what the names of these begin with
_waiting: list[asyncio.TimerHandle] = []


async def fire_among(count: int) -> None:
    """Make timers and let them fall due, while others that were made before the first batch go on waiting."""
    loop = asyncio.get_running_loop()
    order = random.Random(1)
    while len(_waiting) < count:
        _waiting.append(loop.call_later(FOREVER * (1 + order.random()), nothing))
    for _ in range(FIRED // 1000):
        done = loop.create_future()
        for _ in range(999):
            loop.call_later(SOON, nothing)
        loop.call_later(SOON, done.set_result, None)
        await done


async def switch_among(count: int) -> None:
    """Run tasks that give way to each other."""

    async def give_way() -> None:
        for _ in range(max(1, SWITCHES // count)):
            await asyncio.sleep(0)

    await asyncio.gather(*[give_way() for _ in range(count)])


for power in range(7):
    case(f"timers-among/{10**power}", FIRED)(partial(fire_among, 10**power))
for power in range(5):
    case(f"tasks/{10**power}", SWITCHES)(partial(switch_among, 10**power))
files.register(case)
case("run/no-op", 1)(nothing_async)


def measure(case_name: str, loop_name: str, seconds: float) -> dict[str, float]:
    """Repeat the batch for `seconds`; how many operations that was, and the times they took."""
    new_loop = loops.factory(loop_name)
    batch, operations = CASES[case_name]

    def run_anew() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(batch())

    if case_name == "run/no-op":
        return repeat(run_anew, operations, seconds)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return repeat(lambda: runner.run(batch()), operations, seconds)


def repeat(run_batch: Callable[[], None], operations: int, seconds: float) -> dict[str, float]:
    """Repeat a batch of so many operations for `seconds`; how many that were, and the times they took."""
    run_batch()
    gc.collect()
    done = 0
    waited, busy, begin = _waited_seconds(), time.process_time(), time.perf_counter()
    now = begin
    while now - begin < seconds:
        run_batch()
        done += operations
        now = time.perf_counter()
    busy = time.process_time() - busy
    waited = _waited_seconds() - waited
    return {"operations": done, "seconds": now - begin, "busy_seconds": busy, "waited_seconds": waited}


def _waited_seconds() -> float:
    """Return how long this thread has waited for a core that others used, where the kernel reports it."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def main() -> None:
    case_name, loop_name, seconds = sys.argv[1:]
    loops.die_with_parent()
    print(json.dumps(measure(case_name, loop_name, float(seconds))))


if __name__ == "__main__":
    main()
