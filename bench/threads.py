"""Several loops at once, each in a thread: what two give for one. `make bench ARGS=--threads`.

Each measurement is a process of its own. A thread that serves has a listener and clients of its own. Else the
kernel would carry bytes from core to core, at a price that varies and is the same for all loops.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import servers
import web_servers
from loops import Choice, factory
from measure import MeasurementError, last_line

LOOPS = ("whorl", "whorl-cpython-tasks", "rloop", "asyncio")
AT_ONCE = 100  # timers, callbacks and tasks of each loop
CONNECTIONS = 20
HOST = "127.0.0.1"
WARM_UP = 0.2  # of the seconds of a measurement
LIMIT_SECONDS = 60
MESSAGE = bytes(1000)
REQUEST = b"GET /path HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\npath"


class Counter:
    """Counts the operations of one loop."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[object] = []


class Client(asyncio.Protocol):
    """Sends a message when the answer to the one before has come."""

    transport: Any

    def __init__(self, counter: Counter, message: bytes, answer_size: int) -> None:
        self.counter, self.message = counter, message
        self.missing = self.answer_size = answer_size

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self.message)

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing == 0:
            self.missing = self.answer_size
            self.counter.count += 1
            self.transport.write(self.message)


async def _serve(protocol: Any, message: bytes, answer_size: int, counter: Counter) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, HOST, 0)
    counter.kept.append(server)
    for _ in range(CONNECTIONS):
        address = server.sockets[0].getsockname()
        await loop.create_connection(lambda: Client(counter, message, answer_size), *address)


async def _post(name: str, arguments: Sequence[object], counter: Counter) -> None:
    """Start callbacks that post the next one by a method of the loop."""
    post = partial(getattr(asyncio.get_running_loop(), name), *arguments)

    def again() -> None:
        counter.count += 1
        post(again)

    for _ in range(AT_ONCE):
        again()


async def _switch(counter: Counter) -> None:
    """Start tasks that switch by `sleep(0)`."""

    async def switch() -> None:
        while True:
            await asyncio.sleep(0)
            counter.count += 1

    counter.kept += [asyncio.ensure_future(switch()) for _ in range(AT_ONCE)]


async def _wake(counter: Counter) -> None:
    """Start tasks that wait for futures, which callbacks wake."""
    loop = asyncio.get_running_loop()

    async def wake() -> None:
        while True:
            future = loop.create_future()
            loop.call_soon(future.set_result, None)
            await future
            counter.count += 1

    counter.kept += [asyncio.ensure_future(wake()) for _ in range(AT_ONCE // 2)]


CASES: Mapping[str, Callable[[Counter], Any]] = {
    "echo": partial(_serve, servers.EchoProtocol, MESSAGE, len(MESSAGE)),
    "http": partial(_serve, web_servers.Service, REQUEST, len(ANSWER)),
    "timers": partial(_post, "call_later", [0.0001]),
    "callbacks": partial(_post, "call_soon", []),
    "tasks": _switch,
    "futures": _wake,
    "posts": partial(_post, "call_soon_threadsafe", []),
}


def measure_here(name: str, case: str, count: int, seconds: float) -> float:
    """Return the operations a second of `count` loops, in this process."""
    make = factory(name)
    begin = threading.Barrier(count)
    rates = [0.0] * count

    def run(index: int) -> None:
        loop = make()
        counter = Counter()  # made here, so that no counter of another thread lies beside it in memory
        loop.run_until_complete(CASES[case](counter))
        begin.wait()
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
    try:
        answer = subprocess.run(
            command, env=choice.environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise MeasurementError("it hung") from None
    if answer.returncode or not float(answer.stdout):
        raise MeasurementError(last_line(answer.stderr))
    return float(answer.stdout)


def table(choices: Sequence[Choice], cases: Sequence[str], rounds: int, seconds: float) -> Iterator[str]:
    """Measure in interleaved rounds; yield a line for each case and loop."""
    many = len(os.sched_getaffinity(0))
    yield f"\n{'case':12} {'loop':20} {'one a second':>12} {'a core each':>12}    gain"
    for case in cases:
        rates: dict[str, list[tuple[float, float]]] = {choice.name: [] for choice in choices}
        problems: dict[str, str] = {}
        for _ in range(rounds):
            for choice in choices:
                try:
                    if choice.name not in problems:
                        one = _measure(choice, case, 1, seconds)
                        rates[choice.name].append((one, _measure(choice, case, many, seconds)))
                except MeasurementError as problem:
                    problems[choice.name] = str(problem)
        for name, found in rates.items():
            if name in problems:
                yield f"{case:12} {name:20} {problems[name]}"
                continue
            alone, together = (statistics.median(column) for column in zip(*found, strict=True))
            gain = statistics.median(after / before for before, after in found)
            yield f"{case:12} {name:20} {alone:12,.0f} {together:12,.0f} {gain:6.2f}x"


if __name__ == "__main__":
    result = measure_here(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    print(result, flush=True)
    os._exit(0)  # The loops still have their connections.
