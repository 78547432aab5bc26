"""Datagrams in a simulated world."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from tests.sim.conftest import Run
from whorl import sim
from whorl.sim.files.udp import membership


class Collector(asyncio.DatagramProtocol):
    """Keeps what a datagram endpoint is told."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.errors: list[Exception] = []
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.DatagramTransport)
        self.transport = transport

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.got.append(data)

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)


async def collect(port: int) -> Collector:
    _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        Collector, local_addr=("0.0.0.0", port)
    )
    return protocol


async def send(world: sim.World, number: int) -> list[bytes]:
    """Send datagrams to another host; return what arrives."""
    server = world.host("server")
    collector = await server.run(collect, 53)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=("server", 53)
    )
    for each in range(number):
        transport.sendto(b"%d" % each)
    await asyncio.sleep(1)
    transport.close()
    return collector.got  # type: ignore[no-any-return]


def test_datagrams_arrive(exact: Run) -> None:
    async def main(world: sim.World) -> list[bytes]:
        return await send(world, 3)

    assert exact(main) == [b"0", b"1", b"2"]


def test_lost_datagrams_do_not_arrive() -> None:
    async def main(world: sim.World) -> int:
        world.net.link("main", world.host("server"), loss=0.5)
        return len(await send(world, 200))

    assert 60 < sim.run(main, seed=1).check() < 140


def test_datagrams_are_doubled_and_overtaken() -> None:
    async def main(world: sim.World) -> list[bytes]:
        world.net.link("main", world.host("server"), duplicate=0.3, reorder=0.3)
        return await send(world, 100)

    got = sim.run(main, seed=1).check()
    numbers = [int(data) for data in got]
    assert len(got) > 100
    assert set(numbers) == set(range(100))
    assert numbers != sorted(numbers)


def test_held_datagrams_arrive_once_they_are_released(exact: Run) -> None:
    async def main(world: sim.World) -> tuple[list[bytes], list[bytes]]:
        hold = world.net.hold("main", world.host("server"))
        got = await send(world, 3)
        before = list(got)
        hold.release()
        await asyncio.sleep(1)
        return before, got

    assert exact(main) == ([], [b"0", b"1", b"2"])


def test_connected_socket_hears_that_nobody_has_the_port(exact: Run) -> None:
    async def main(world: sim.World) -> list[int | None]:
        world.host("server")
        transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
            Collector, remote_addr=("server", 53)
        )
        transport.sendto(b"hello")
        await asyncio.sleep(1)
        transport.close()
        return [getattr(error, "errno", None) for error in protocol.errors]

    assert exact(main) == [errno.ECONNREFUSED]


def test_datagram_that_is_too_long_is_refused(exact: Run) -> None:
    async def main() -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with pytest.raises(OSError, match="Message too long"):
            sock.sendto(bytes(65_508), ("127.0.0.1", 53))
        sock.close()

    exact(main)


def test_peeked_datagram_stays(exact: Run) -> None:
    async def main() -> list[Any]:
        receiver, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        receiver.bind(("127.0.0.1", 53))
        sender.sendto(b"hello", ("127.0.0.1", 53))
        await asyncio.sleep(1)
        peeked = [receiver.recv(9, socket.MSG_PEEK), receiver.recvfrom(9, socket.MSG_PEEK)[0]]
        data, _, flags, _ = receiver.recvmsg(2)
        receiver.close()
        sender.close()
        return [*peeked, data, flags]

    assert exact(main) == [b"hello", b"hello", b"he", socket.MSG_TRUNC]


def test_members_of_a_group_get_its_datagrams(exact: Run) -> None:
    async def main(world: sim.World) -> list[list[bytes]]:
        async def join(port: int) -> Collector:
            collector = await collect(port)
            assert collector.transport is not None
            sock = collector.transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership("224.1.1.1"))
            return collector

        collectors = [
            await world.host("a").run(join, 5000),
            await world.host("b").run(join, 5000),
            await world.host("c").run(collect, 5000),
        ]
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("0.0.0.0", 0)
        )
        transport.sendto(b"to the group", ("224.1.1.1", 5000))
        await asyncio.sleep(1)
        transport.close()
        return [collector.got for collector in collectors]

    assert exact(main) == [[b"to the group"], [b"to the group"], []]


def test_datagrams_beyond_the_buffer_are_dropped(exact: Run) -> None:
    async def main() -> int:
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("127.0.0.1", 53))
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(10):
            sender.sendto(bytes(60_000), ("127.0.0.1", 53))
        await asyncio.sleep(1)
        receiver.setblocking(False)
        got = 0
        with pytest.raises(BlockingIOError):  # noqa: PT012
            while receiver.recv(65536):
                got += 1
        receiver.close()
        sender.close()
        return got

    assert exact(main) == 3


def test_datagrams_reach_a_host_that_comes_later_and_its_next_life() -> None:
    async def main(world: sim.World) -> list[str]:
        got: list[str] = []

        class Take(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: Any) -> None:
                got.append(f"{len(lives)}: {data.decode()}")

        lives: list[sim.Host] = []

        async def listen(host: sim.Host) -> None:
            lives.append(host)
            await asyncio.get_running_loop().create_datagram_endpoint(Take, local_addr=("0.0.0.0", 9))

        loop = asyncio.get_running_loop()
        sender, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("0.0.0.0", 0), allow_broadcast=True
        )

        async def send(text: str) -> None:
            sender.sendto(text.encode(), ("10.0.0.2", 9))
            await asyncio.sleep(1)

        await send("nobody")
        server = world.host("server", "10.0.0.2", boot=listen)
        await asyncio.sleep(1)
        await send("first")
        server.restart()
        await asyncio.sleep(1)
        await send("second")
        sender.close()
        return got

    assert sim.run(main).check() == ["1: first", "2: second"]
