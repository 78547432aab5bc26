"""A day in the simulated world; run as a program, it prints a digest of all events.

`--guarded` forbids functions that do real I/O. `--marked` lives the day twice and writes a line before and
after the second time. A tracer can look for system calls between these lines.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import whorl
from tests.aio.scenarios import SCENARIOS, World
from whorl import sim

BEGIN, END = b"the day begins\n", b"the day is over\n"

#: The functions that do real I/O, start threads, look at the clock or listen to signals.
FORBIDDEN: dict[Any, tuple[str, ...]] = {
    os: ("close", "eventfd", "fstat", "getpid", "open", "pipe", "read", "readv", "set_blocking", "stat",
         "unlink", "urandom", "write", "writev"),
    select: ("epoll", "poll", "select"),
    signal: ("set_wakeup_fd", "signal", "siginterrupt"),
    socket: ("socket", "socketpair", "getaddrinfo", "getnameinfo"),
    subprocess: ("Popen",),
    threading.Thread: ("start",),
    time: ("monotonic", "monotonic_ns", "perf_counter", "sleep", "time", "time_ns"),
}  # fmt: skip


async def heartbeats(world: World) -> None:
    """Run a day of timers: one every minute, one at noon, one that is cancelled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(60)
            beats += 1

    beating = asyncio.ensure_future(beat())
    called_off = loop.call_later(3600, beating.cancel)
    called_off.cancel()
    try:
        async with asyncio.timeout(12 * 3600):
            await asyncio.sleep(24 * 3600)
    except TimeoutError:
        assert 0 <= loop.time() - began - 12 * 3600 < 0.01
    await asyncio.sleep(12 * 3600 + 1)
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    assert beats in (24 * 60 - 1, 24 * 60)  # code takes time, too


def live(act: Callable[[World], Awaitable[Any]], kind: str, seed: int) -> list[tuple[Any, ...]]:
    """Live one scenario in a world of its own; return every call of the kernel's."""

    async def main() -> None:
        await act(World(kind, seed, "/"))
        await asyncio.sleep(10)  # what is still on its way arrives

    result = sim.run(main, seed=seed, keeps_calls=True, limit_s=48 * 3600)
    result.check()
    assert result.remarks == []
    assert result.calls is not None
    return result.calls


def day(seed: int) -> str:
    """Return a digest of the events in all scenarios."""
    digest = hashlib.blake2b(digest_size=16)
    for kind in ("tcp", "unix"):
        for act in (*SCENARIOS, heartbeats):
            for entry in live(act, kind, seed):
                digest.update(repr(entry).encode())
    return digest.hexdigest()


def forbid(names: dict[Any, tuple[str, ...]]) -> None:
    """Make these raise."""

    def replacement(name: str) -> Callable[..., Any]:
        def refuse(*args: Any, **options: Any) -> Any:
            raise AssertionError(f"{name} was called in the simulated world")

        return refuse

    for owner, functions in names.items():
        for name in functions:
            setattr(owner, name, replacement(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--guarded", action="store_true")
    parser.add_argument("--marked", action="store_true")
    parser.add_argument("seed", type=int)
    options = parser.parse_args()
    build = b"compiled" if whorl.compiled else b"pure"
    write = os.write
    if options.guarded:
        forbid(FORBIDDEN)
    digest = day(options.seed)
    if options.marked:
        gc.collect()
        write(1, BEGIN)
        assert day(options.seed) == digest, "the second day differed"
        write(1, END)
    write(1, b"%s %s\n" % (build, digest.encode()))


if __name__ == "__main__":
    main()
