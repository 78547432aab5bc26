"""Several loops at once, each in a thread: what two give for one. `make bench ARGS=--threads`.

Each measurement is a process of its own. A thread has a loop, a listener on the port of all, and clients. The
kernel gives each connection to one of the listeners. A client whose connection another thread got connects
again. Else the kernel carries bytes from core to core, at a price that varies and is the same for all loops.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from loops import Choice, factory

LOOPS = ("whorl", "whorl-cpython-tasks", "rloop", "asyncio")
CONNECTIONS = 20  # of each loop
HOST = "127.0.0.1"
WARM_UP = 0.2  # of the seconds of a measurement
MESSAGE = bytes(1000)
REQUEST = b"GET /path HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nContent-Type: text/plain\r\n\r\nHello, World!"


class Counter:
    """Counts the operations of one loop, and knows the clients that its listener got."""

    def __init__(self, port: int) -> None:
        self.count = 0
        self.port = port
        self.accepted: set[object] = set()


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    transport: Any

    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.counter.accepted.add(transport.get_extra_info("peername"))

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Http(Echo):
    """Answers requests, which httptools reads."""

    def __init__(self, counter: Counter) -> None:
        import httptools

        super().__init__(counter)
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(ANSWER)


class Client(asyncio.Protocol):
    """Sends a message when the answer to the one before has come."""

    transport: Any

    def __init__(self, counter: Counter, message: bytes, answer_size: int) -> None:
        self.counter = counter
        self.message = message
        self.missing = self.answer_size = answer_size
        self.is_answered = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self.message)

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing == 0:
            if not self.is_answered.done():
                self.is_answered.set_result(None)
            self.missing = self.answer_size
            self.counter.count += 1
            self.transport.write(self.message)


async def _serve(counter: Counter, server: type[Echo], message: bytes, answer_size: int) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: server(counter), HOST, counter.port, reuse_port=True)
    missing = CONNECTIONS
    while missing:
        client = Client(counter, message, answer_size)
        transport, _ = await loop.create_connection(lambda client=client: client, HOST, counter.port)
        await client.is_answered  # So one of the listeners has got it.
        if transport.get_extra_info("sockname") in counter.accepted:
            missing -= 1
        else:
            transport.close()


async def echo(counter: Counter) -> None:
    """Start clients that exchange 1,000 bytes with an echo server, by TCP."""
    await _serve(counter, Echo, MESSAGE, len(MESSAGE))


async def http(counter: Counter) -> None:
    """Start clients that send requests to a server with httptools, by TCP."""
    await _serve(counter, Http, REQUEST, len(ANSWER))


async def timers(counter: Counter) -> None:
    """Start timers that start the next one."""
    loop = asyncio.get_running_loop()

    def again() -> None:
        counter.count += 1
        loop.call_later(0.0001, again)

    for _ in range(100):
        again()


async def callbacks(counter: Counter) -> None:
    """Start callbacks that schedule the next one."""
    loop = asyncio.get_running_loop()

    def again() -> None:
        counter.count += 1
        loop.call_soon(again)

    for _ in range(100):
        again()


async def tasks(counter: Counter) -> None:
    """Start tasks that switch by `sleep(0)`."""

    async def switch() -> None:
        while True:
            await asyncio.sleep(0)
            counter.count += 1

    counter.tasks = [asyncio.ensure_future(switch()) for _ in range(100)]  # type: ignore[attr-defined]


async def futures(counter: Counter) -> None:
    """Start pairs of tasks that wake each other by futures."""
    loop = asyncio.get_running_loop()

    async def wake() -> None:
        while True:
            future = loop.create_future()
            loop.call_soon(future.set_result, None)
            await future
            counter.count += 1

    counter.tasks = [asyncio.ensure_future(wake()) for _ in range(50)]  # type: ignore[attr-defined]


async def posts(counter: Counter) -> None:
    """Start callbacks that post the next one, as other threads do."""
    loop = asyncio.get_running_loop()

    def again() -> None:
        counter.count += 1
        loop.call_soon_threadsafe(again)

    for _ in range(100):
        again()


CASES: dict[str, Callable[[Counter], Awaitable[None]]] = {
    case.__name__: case for case in (echo, http, timers, callbacks, tasks, futures, posts)
}
WITH_LISTENERS = ("echo", "http")


def measure_here(name: str, case: str, count: int, seconds: float) -> float:
    """Return the operations a second of `count` loops, in this process."""
    make = factory(name)
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind((HOST, 0))
    port = kept.getsockname()[1]
    begin = threading.Barrier(count)
    rates = [0.0] * count

    async def prepare(counter: Counter) -> None:
        await CASES[case](counter)
        if case in WITH_LISTENERS:  # So it answers the others' clients meanwhile.
            await asyncio.get_running_loop().run_in_executor(None, begin.wait)
        else:
            begin.wait()

    def run(index: int) -> None:
        loop = make()
        counter = Counter(port)  # made here, so that no counter of another thread lies beside it in memory
        loop.run_until_complete(prepare(counter))
        loop.run_until_complete(asyncio.sleep(WARM_UP * seconds))
        before, began = counter.count, time.perf_counter()
        loop.run_until_complete(asyncio.sleep(seconds))
        rates[index] = (counter.count - before) / (time.perf_counter() - began)
        begin.wait()  # None ends earlier: the others would be quicker alone.

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        print("the GIL is on", file=sys.stderr)
    return sum(rates)


def _measure(choice: Choice, case: str, count: int, seconds: float) -> float:
    command = [sys.executable, __file__, choice.name, case, str(count), str(seconds)]
    answer = subprocess.run(command, env=choice.environment, capture_output=True, text=True, timeout=60)
    if answer.returncode:
        raise RuntimeError(answer.stderr.strip().splitlines()[-1])
    rate = float(answer.stdout)
    if not rate:
        raise RuntimeError("it did nothing")
    return rate


def table(choices: Sequence[Choice], cases: Sequence[str], rounds: int, seconds: float) -> Iterator[str]:
    """Measure in interleaved rounds; yield a line for each case and loop."""
    count = len(os.sched_getaffinity(0))
    for case in cases:
        rates: dict[tuple[str, int], list[float]] = {}
        problems: dict[str, str] = {}
        for _ in range(rounds):
            for choice in choices:
                for number in (1, count):
                    if choice.name in problems:
                        continue
                    try:
                        rate = _measure(choice, case, number, seconds)
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        problems[choice.name] = str(error)
                    else:
                        rates.setdefault((choice.name, number), []).append(rate)
        for choice in choices:
            if choice.name in problems:
                yield f"{case:12} {choice.name:12} {problems[choice.name]}"
                continue
            one, many = rates[choice.name, 1], rates[choice.name, count]
            gains = [after / before for before, after in zip(one, many, strict=True)]
            yield (
                f"{case:12} {choice.name:12} {statistics.median(one):12,.0f} "
                f"{statistics.median(many):12,.0f} {statistics.median(gains):6.2f}x"
            )


if __name__ == "__main__":
    result = measure_here(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    print(result, flush=True)
    os._exit(0)  # The loops still have their connections.
