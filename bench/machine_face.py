"""The machine's cases on Whorl's handles: the same programs as in `uv_bench.c`, with callbacks in Python.

usage: machine_face.py echo tcp|unix:PATH
       machine_face.py timers|asyncs|threads SECONDS
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import loops

import whorl
from whorl.handles import TCP, Async, Check, Pipe, Timer

BACKLOG = 2048
TIMERS = 1000
CHECK_EVERY = 1000


def serve(address: str) -> None:
    """Echo, with libuv's callbacks."""
    loop = whorl.Loop()
    family, _, path = address.partition(":")
    kind: Any = TCP if family == "tcp" else Pipe

    def on_read(stream: Any, data: bytes, error: OSError | None) -> None:
        if data:
            stream.write(data)
        else:
            stream.close()

    def on_connection(server: Any, error: OSError | None) -> None:
        if error is not None:
            raise error
        client = kind(loop)
        if family == "tcp":
            client.nodelay()
        server.accept(client)
        client.read_start(on_read)

    server = kind(loop)
    server.bind(("127.0.0.1", 0) if family == "tcp" else path)
    server.listen(BACKLOG, on_connection)
    print("READY", f"tcp:{server.getsockname()[1]}" if family == "tcp" else address, flush=True)
    loop.run()


class Count:
    """A count of operations, and a check whether the time is up, made once in so many of them."""

    def __init__(self, seconds: float) -> None:
        self.operations = 0
        self.until = time.monotonic() + seconds


def run_timers(loop: whorl.Loop, count: Count) -> None:
    """Run many timers that are due at once, each of which starts itself again."""

    def on_timer(timer: Timer) -> None:
        timer.start(on_timer, 0)

    def on_turn(check: Check) -> None:
        count.operations += TIMERS
        if time.monotonic() >= count.until:
            loop.stop()

    for _ in range(TIMERS):
        Timer(loop).start(on_timer, 0)
    Check(loop).start(on_turn)
    loop.run()


def run_asyncs(loop: whorl.Loop, count: Count) -> None:
    """Run an async that sends itself."""

    def on_async(handle: Async) -> None:
        count.operations += 1
        if not count.operations % CHECK_EVERY and time.monotonic() >= count.until:
            loop.stop()
        handle.send()

    Async(loop, on_async).send()
    loop.run()


def run_threads(loop: whorl.Loop, count: Count) -> None:
    """Run two loops in two threads that send to each other."""
    other = whorl.Loop()

    def on_ping(handle: Async) -> None:
        count.operations += 1
        if not count.operations // 2 % CHECK_EVERY and time.monotonic() >= count.until:
            loop.stop()
        pong.send()

    def on_pong(handle: Async) -> None:
        count.operations += 1
        ping.send()

    ping, pong = Async(loop, on_ping), Async(other, on_pong)
    thread = threading.Thread(target=other.run)
    thread.start()
    pong.send()
    loop.run()
    stop = Async(other, lambda handle: other.stop())
    stop.send()
    thread.join()


CASES: dict[str, Callable[[whorl.Loop, Count], None]] = {
    "timers": run_timers,
    "asyncs": run_asyncs,
    "threads": run_threads,
}


def main() -> None:
    name, argument = sys.argv[1:]
    loops.die_with_parent()
    if not whorl.compiled:
        raise ImportError("found a whorl that is not compiled")
    if name == "echo":
        serve(argument)
        return
    seconds = float(argument)
    count = Count(seconds)
    began, cpu = time.monotonic(), time.process_time()
    CASES[name](whorl.Loop(), count)
    took, busy = time.monotonic() - began, time.process_time() - cpu
    found = {"operations": count.operations, "seconds": took, "busy_seconds": busy, "waited_seconds": None}
    print(json.dumps(found), flush=True)
    os._exit(0)  # The loops are left as they are: nothing of their end is of interest.


if __name__ == "__main__":
    main()
