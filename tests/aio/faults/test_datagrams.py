"""Datagram endpoints over a kernel that refuses, once per seed: nothing is lost, doubled or mixed up.

The seeds are those of `test_faults`.
"""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.aio.faults.test_streams import World, replay, run, seeds
from tests.core.kernel.fault_injection import FaultRates

pytestmark = pytest.mark.faults

#: So many datagrams travel one way in a scenario, a few at a time: the kernel drops none of so few.
DATAGRAMS = 80
AT_A_TIME = 6

KINDS = ["ipv4", "ipv6", "unix", "abstract"]
TWO_KINDS = ["ipv4", "unix"]


class Talker(asyncio.DatagramProtocol):
    """A protocol that sends numbered datagrams, obeys the watermarks, and notes the received ones."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.heard: list[bytes] = []
        self.errors: list[OSError] = []
        self.is_paused = False
        self.is_lost = False
        self.event = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        assert self.transport is None, "connection_made was called twice"
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert not self.is_lost, "a datagram after connection_lost"
        self.heard.append(data)
        self.event.set()

    def error_received(self, exc: Exception) -> None:
        assert not self.is_lost, "an error after connection_lost"
        assert isinstance(exc, OSError)
        self.errors.append(exc)
        self.event.set()

    def pause_writing(self) -> None:
        assert not self.is_paused, "pause_writing was called twice"
        self.is_paused = True

    def resume_writing(self) -> None:
        assert self.is_paused, "resume_writing without pause_writing"
        self.is_paused = False
        self.event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.is_lost, "connection_lost was called twice"
        assert exc is None
        self.is_lost = True
        self.event.set()

    async def until(self, condition: Any) -> None:
        """Wait until the condition holds."""
        while not condition():
            self.event.clear()
            await self.event.wait()


class Echo(Talker):
    """A protocol that sends back each datagram."""

    def datagram_received(self, data: bytes, addr: Any) -> None:
        super().datagram_received(data, addr)
        self.transport.sendto(data, addr)


async def endpoint(world: World, talker: Talker, name: str, remote: Any = None) -> Any:
    """Return an endpoint of the world's kind, and its address."""
    options: dict[str, Any] = {"remote_addr": remote}
    if world.kind in ("ipv4", "ipv6"):
        options["local_addr"] = ("127.0.0.1" if world.kind == "ipv4" else "::1", 0)
        if remote is not None:
            options["remote_addr"] = remote[:2]
    else:
        path = world.path + name
        options["local_addr"] = path if world.kind == "unix" else "\0" + path
        options["family"] = socket.AF_UNIX
        if isinstance(remote, bytes):
            options["remote_addr"] = remote.decode()
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: talker, **options)
    return transport.get_extra_info("sockname")


def message(dice: random.Random, number: int) -> bytes:
    """Return a numbered datagram of any size."""
    size = dice.choice([0, 1, 100, 1000, 20_000])
    return number.to_bytes(4, "big") + dice.randbytes(size)


async def echo(world: World, *, connected: bool) -> tuple[int, int]:
    """Check that messages come back once and in order; return their number and that of refusals."""
    there, here = Echo(), Talker()
    address = await endpoint(world, there, "there")
    await endpoint(world, here, "here", address if connected else None)
    here.transport.set_write_buffer_limits(high=world.random.choice([0, 100, 30_000]))
    said: list[bytes] = []

    def arrived() -> int:
        return len(here.heard) + len(here.errors) + len(there.errors)

    for number in range(DATAGRAMS):
        said.append(message(world.random, number))
        here.transport.sendto(said[-1], None if connected else address)
        await here.until(lambda: not here.is_paused)
        if number % AT_A_TIME == 0:
            while arrived() < len(said):
                await asyncio.sleep(0.001)
        if world.random.random() < 0.05:
            here.transport.pause_reading()
            await asyncio.sleep(0)
            here.transport.resume_reading()
    while arrived() < len(said):
        await asyncio.sleep(0.001)
    for talker in (here, there):
        talker.transport.close()
        await talker.until(lambda: talker.is_lost)  # noqa: B023
    positions = [said.index(data) for data in here.heard]
    assert positions == sorted(set(positions)), "datagrams were doubled or mixed up"
    return len(here.heard), len(here.errors) + len(there.errors)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "unconnected"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_datagram_comes_back_or_is_refused(
    kind: str, connected: bool, seed: int, tmp_path: Path
) -> None:
    replay("every_datagram", kind, seed)
    kernel, (heard, refused) = run(
        lambda world: echo(world, connected=connected), kind, seed, FaultRates(again=0.3), tmp_path
    )
    injected = kernel.injected
    assert heard + refused == DATAGRAMS
    assert refused == sum(count for name, count in injected.items() if "send" in name and "ENOBUFS" in name)
    assert len(injected) >= 3


async def closing(world: World) -> int:
    """Check that data sent before `close` arrives, and `connection_lost` comes once; return the refusals."""
    there = Talker()
    address = await endpoint(world, there, "there")
    said = 0
    refused = 0
    for number in range(20):
        here = Talker()
        await endpoint(world, here, f"here{number}", address if number % 2 else None)
        for _ in range(world.random.randrange(AT_A_TIME)):
            here.transport.sendto(b"%d" % number, address if number % 2 == 0 else None)
            said += 1
        here.transport.close()
        await here.until(lambda: here.is_lost)  # noqa: B023
        refused += len(here.errors)
        while len(there.heard) + refused < said:
            await asyncio.sleep(0.001)
    there.transport.abort()
    await there.until(lambda: there.is_lost)
    assert len(there.heard) + refused == said
    return refused


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("kind", TWO_KINDS)
def test_closing_loses_no_datagram(kind: str, seed: int, tmp_path: Path) -> None:
    replay("closing_loses", kind, seed)
    run(closing, kind, seed, FaultRates(again=0.4), tmp_path)


async def refusals(world: World) -> tuple[int, int]:
    """Check that each refusal is reported once, and ends nothing."""
    there, here = Echo(), Talker()
    address = await endpoint(world, there, "there")
    await endpoint(world, here, "here", address)
    for number in range(DATAGRAMS):
        here.transport.sendto(b"%d" % number)
        if number % AT_A_TIME == 0:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    for talker in (here, there):
        assert not talker.transport.is_closing()
        talker.transport.close()
        await talker.until(lambda: talker.is_lost)  # noqa: B023
    return len(here.errors), len(there.errors)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("kind", TWO_KINDS)
def test_refusals_are_told_and_end_nothing(kind: str, seed: int, tmp_path: Path) -> None:
    replay("refusals", kind, seed)
    kernel, told = run(refusals, kind, seed, FaultRates(refused=0.1), tmp_path)
    refused = [count for name, count in kernel.injected.items() if name.endswith(("ENOBUFS", "ECONNREFUSED"))]
    assert sum(told) == sum(refused)


async def sockets(world: World) -> None:
    """Check that the sock_ methods send and receive every datagram."""
    loop = asyncio.get_running_loop()
    family = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}.get(world.kind, socket.AF_UNIX)
    with socket.socket(family, socket.SOCK_DGRAM) as ours, socket.socket(family, socket.SOCK_DGRAM) as theirs:
        for name, sock in (("ours", ours), ("theirs", theirs)):
            sock.setblocking(False)
            path = ("" if world.kind == "unix" else "\0") + world.path + name
            sock.bind({"ipv4": ("127.0.0.1", 0), "ipv6": ("::1", 0)}.get(world.kind, path))
        buffer = bytearray(1 << 16)
        for number in range(DATAGRAMS):
            data = message(world.random, number)
            assert await loop.sock_sendto(ours, data, theirs.getsockname()) == len(data)
            if number % 2:
                assert await loop.sock_recvfrom(theirs, 1 << 16) == (data, ours.getsockname())
            else:
                assert await loop.sock_recvfrom_into(theirs, buffer) == (len(data), ours.getsockname())
                assert buffer[: len(data)] == data


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("kind", TWO_KINDS)
def test_sockets_of_ones_own(kind: str, seed: int, tmp_path: Path) -> None:
    replay("sockets_of_ones_own", kind, seed)
    run(sockets, kind, seed, FaultRates(no_buffers=0), tmp_path)
