"""Programs with planted bugs, and without, for the tests of runs."""

from __future__ import annotations

import asyncio
import random
import re
import socket

from whorl import sim


async def calm() -> int:
    """Sleep for a while, and return a number."""
    await asyncio.sleep(1)
    return 7


async def chooses_seven(world: sim.World) -> None:
    """Fail for one choice of ten, whatever else happens."""
    for _ in range(5):
        await asyncio.sleep(0.001)
    world.note("about to choose")
    if world.choose(10, "number") == 7:
        raise ValueError("seven")


async def depends_on_addresses() -> None:
    """Wait in the order of a set of objects, which is that of their addresses."""

    class Thing:
        def __init__(self, number: int) -> None:
            self.number = number

    for thing in {Thing(number) for number in range(64)}:
        await asyncio.sleep(thing.number / 1000)


async def writes_last_come_first() -> None:
    """Fail if of two sockets that are readable in one poll the second one comes first."""
    if await ready_order(2) != [0, 1]:
        raise ValueError("the second socket came first")


async def ready_order(number: int) -> list[int]:
    """Return the order in which sockets are read that became readable together, by datagrams of a network."""
    loop = asyncio.get_running_loop()
    sender, *socks = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(number + 1))
    order: list[int] = []

    def read(place: int) -> None:
        socks[place].recv(1)
        order.append(place)

    for sock in socks:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        sender.sendto(b"x", sock.getsockname())
    await asyncio.sleep(1)
    for place, sock in enumerate(socks):
        loop.add_reader(sock, read, place)
    while len(order) < number:
        await asyncio.sleep(0.001)
    for sock in socks:
        loop.remove_reader(sock)
        sock.close()
    sender.close()
    return order


async def at(time: float) -> None:
    """Wait until a time of the loop's clock."""
    loop = asyncio.get_running_loop()
    reached = loop.create_future()
    loop.call_at(time, reached.set_result, None)
    await reached


async def _adds_one(began: float, times: tuple[float, ...], held: dict[str, int], is_atomic: bool) -> None:
    """Wait, read, wait, write, wait."""
    for time in times[:-2]:
        await at(began + time)
    value = held["value"]
    await at(began + times[-2])
    held["value"] = (held["value"] if is_atomic else value) + 1
    await at(began + times[-1])


async def _two_add(is_atomic: bool) -> None:
    began = asyncio.get_running_loop().time()
    held = {"value": 0}
    first, second = (0.25, 0.75, 1.0), (0.5, 0.75, 1.25, 1.5)
    await asyncio.gather(*(_adds_one(began, times, held, is_atomic) for times in (first, second)))
    if held["value"] != 2:
        raise ValueError("an update was lost")


async def loses_an_update() -> None:
    """Let one of two tasks read before the other has written, if the timers of one time change places."""
    await _two_add(False)


async def loses_no_update() -> None:
    """Do the same without the bug."""
    await _two_add(True)


async def needs_three_orders() -> None:
    """Fail if of two sockets one comes first for a while, then the other, then the one again."""
    loop = asyncio.get_running_loop()
    sender, *socks = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3))
    seen: list[int] = []

    def read(place: int) -> None:
        socks[place].recv(1)
        seen.append(place)
        loop.remove_reader(socks[place])

    for sock in socks:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
    firsts = ""
    for _ in range(16):
        seen.clear()
        for sock in socks:
            sender.sendto(b"x", sock.getsockname())
        await asyncio.sleep(1)
        for place, sock in enumerate(socks):
            loop.add_reader(sock, read, place)
        while len(seen) < 2:
            await asyncio.sleep(0.001)
        firsts += str(seen[0])
    for sock in (sender, *socks):
        sock.close()
    if re.search("1{4,}0{4,}1{4,}", firsts):
        raise ValueError(f"the order was {firsts}")


async def fails_by_chance(world: sim.World) -> None:
    """Fail if a random number is small, whatever else happens."""
    for _ in range(5):
        await asyncio.sleep(0.001)
    if random.random() < 0.1:
        raise ValueError("a small number")
