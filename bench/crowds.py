"""One timer among many that wait, one task among many that are ready; and a holder of idle connections."""

import asyncio
import random
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import loops

CONNECTIONS = (1, 10, 100, 1_000, 10_000)
TIMERS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
TASKS = (1, 10, 100, 1_000, 10_000)
FIRED = 20_000  # timers for one measurement, so many that making what waits is long past
AT_ONCE = 1_000
SWITCHES = 200_000  # so many that making the tasks is little of it
SOON = 0.001  # some loops make no timer for a call that is due at once
FAR = 3600.0
PER_SOURCE = 20_000  # connections from one address: it has not many more ports

_waiting: list[asyncio.TimerHandle] = []


def register(case: Callable[[str, int], Callable[[Any], Any]]) -> None:
    """Add every case to the micro cases."""
    for count in TIMERS:
        case(f"timers-among/{count}", FIRED)(partial(fire_among, count))
    for count in TASKS:
        case(f"tasks/{count}", max(SWITCHES, count))(partial(switch_among, count))


def is_one(name: str) -> bool:
    """Return whether a micro case is one of these."""
    return name.startswith(("timers-among/", "tasks/"))


async def fire_among(count: int) -> None:
    """Make timers and let them fall due, while others that were made before the first batch go on waiting."""
    loop = asyncio.get_running_loop()
    order = random.Random(1)
    while len(_waiting) < count:
        _waiting.append(loop.call_later(FAR + order.random() * FAR, _never))
    for _ in range(FIRED // AT_ONCE):
        done = loop.create_future()
        for _ in range(AT_ONCE - 1):
            loop.call_later(SOON, _nothing)
        loop.call_later(SOON, done.set_result, None)
        await done


async def switch_among(count: int) -> None:
    """Run tasks that give way to each other."""
    await asyncio.gather(*[_give_way(max(1, SWITCHES // count)) for _ in range(count)])


async def _give_way(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def _nothing() -> None:
    pass


def _never() -> None:
    raise AssertionError("an hour has not passed")


def hold(address: str, count: int) -> None:
    """Open connections to a server and keep them."""
    port = int(address.removeprefix("tcp:"))
    kept = [connection(f"127.0.0.{1 + index // PER_SOURCE}", port) for index in range(count)]
    print("READY", len(kept), flush=True)
    threading.Event().wait()


def connection(source: str, port: int) -> socket.socket:
    """Return a connection from this address. Other connections may share its port (ip(7))."""
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
    sock.bind((source, 0))
    sock.connect(("127.0.0.1", port))
    return sock


if __name__ == "__main__":
    loops.die_with_parent()
    hold(sys.argv[1], int(sys.argv[2]))
