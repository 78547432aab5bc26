"""Thousands of connections: idle ones, coming and going ones, one that never reads, and one too many."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from build_tools.sources import ROOT
from tests import memory
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import Notes, Recorder, digest, fill, noise, receive, receive_all, turns

IDLE = 5000
CLIENTS = 1000
AT_A_TIME = 100


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Let this process have descriptors for both ends of all idle connections."""
    wanted = 2 * IDLE + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} descriptors, and the hard limit is {hard}")
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Echo(Recorder):
    """Sends everything back, and ends when its peer ends."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class Census:
    """Makes protocols and remembers them, at first strongly and then weakly."""

    def __init__(self) -> None:
        self.protocols: list[Notes] = []
        self.references: list[weakref.ref[Any]] = []

    def __call__(self) -> Notes:
        protocol = Echo()
        self.protocols.append(protocol)
        return protocol

    def forget(self) -> None:
        """Refer to them weakly from now on."""
        self.references += [weakref.ref(item) for item in self.protocols]
        self.references += [weakref.ref(item.transport) for item in self.protocols]
        self.protocols.clear()

    def survivors(self) -> list[Any]:
        """Return the objects that still have references."""
        gc.collect()
        return [item for reference in self.references if (item := reference()) is not None]


async def serve(census: Census) -> tuple[asyncio.Server, Any]:
    server = await asyncio.get_running_loop().create_server(census, "127.0.0.1", 0, backlog=4096)
    return server, server.sockets[0].getsockname()


@pytest.mark.slow
async def test_five_thousand_idle_connections_cost_no_turns(
    many_descriptors: None, loop: whorl.EventLoop
) -> None:
    census = Census()
    server, address = await serve(census)
    peers: list[socket.socket] = []
    while len(peers) < IDLE:
        for _ in range(AT_A_TIME):
            peers.append(socket.create_connection(address))
            peers[-1].setblocking(False)
        while len([item for item in census.protocols if item.calls]) < len(peers):
            await asyncio.sleep(0)
    await turns(3)

    before = loop.metrics()
    await asyncio.sleep(1)
    after = loop.metrics()
    assert after.turns - before.turns <= 2
    assert after.events - before.events <= 1
    assert after.idle_ns - before.idle_ns > 900_000_000

    for index in random.Random(7).sample(range(IDLE), 200):
        peers[index].send(b"%d is awake" % index)
        assert await receive(peers[index], len(b"%d is awake" % index)) == b"%d is awake" % index
    for peer in peers:
        peer.close()
    for protocol in census.protocols:
        assert await protocol.until_lost() is None
    server.close()
    await server.wait_closed()
    del protocol
    census.forget()
    await turns(2)
    assert len(census.references) == 2 * IDLE
    assert census.survivors() == []


class Client(Recorder):
    """A client that sends its data in pieces of its own choice, and leaves in its own way."""

    def __init__(self, number: int) -> None:
        super().__init__(keep_open=True)
        self.number = number
        self.choices = random.Random(number)
        self.data = b"%4d" % number + noise(self.choices.choice([0, 1, 100, 10_000, 200_000]), number)
        self.manners = self.choices.choice(["end", "end", "close", "abort", "vanish"])

    async def converse(self) -> None:
        """Connect, talk and leave."""
        position = 0
        while position < len(self.data):
            size = self.choices.choice([1, 1000, 30_000, 150_000])
            self.transport.write(self.data[position : position + size])
            position += size
            if self.choices.random() < 0.5:
                await asyncio.sleep(0)
            if self.is_lost:
                return
        if self.manners == "end":
            self.transport.write_eof()
            await self.until(lambda: "eof_received" in self.calls)
            assert digest(self.received) == digest(self.data), f"client {self.number} got something else"
            self.transport.close()
        elif self.manners == "close":
            # An acknowledgement of everything, so that there is no data that resets the connection.
            await self.until_received(len(self.data))
            assert digest(self.received) == digest(self.data), f"client {self.number} got something else"
            self.transport.close()
        elif self.manners == "abort":
            self.transport.abort()
        else:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.transport.abort()
        await self.until_lost()


@pytest.mark.slow
async def test_a_thousand_clients_come_and_go(loop: whorl.EventLoop) -> None:
    census = Census()
    server, address = await serve(census)
    clients = [Client(number) for number in range(CLIENTS)]
    free = asyncio.Semaphore(AT_A_TIME)

    async def visit(client: Client) -> None:
        async with free:
            await loop.create_connection(lambda: client, *address)
            await client.converse()

    before = loop.metrics()
    await asyncio.gather(*map(visit, clients))
    for protocol in census.protocols:
        await protocol.until_lost()
    assert len(census.protocols) == CLIENTS
    assert [client.calls.count("connection_lost") for client in clients] == [1] * CLIENTS
    assert [item.calls.count("connection_lost") for item in census.protocols] == [1] * CLIENTS

    # Every byte is right. The server got the data of each client, or its beginning if the client left without
    # waiting. Each client got back the beginning of its data.
    heard = dict.fromkeys(range(CLIENTS), bytearray())
    heard.update((int(item.received[:4]), item.received) for item in census.protocols if item.received)
    for client in clients:
        if client.manners in ("end", "close"):
            assert digest(heard[client.number]) == digest(client.data)
        assert client.data.startswith(heard[client.number])
        assert client.data.startswith(client.received)
    polite = [client for client in clients if client.manners in ("end", "close")]
    assert [client.error for client in polite] == [None] * len(polite)
    assert len(polite) > CLIENTS / 3
    assert loop.metrics().turns - before.turns < 100 * CLIENTS

    server.close()
    await server.wait_closed()
    census.protocols += clients
    del clients, polite, client, protocol
    census.forget()
    await turns(2)
    assert census.survivors() == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_client_that_never_reads_fills_no_memory(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    block = bytes(100_000)

    class Source(Recorder):
        """A protocol that writes as long as it may."""

        written = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.resume_writing()

        def resume_writing(self) -> None:
            self.may_write = True
            while self.may_write:
                self.transport.write(block)
                self.written += len(block)

        def pause_writing(self) -> None:
            super().pause_writing()
            self.may_write = False

    before = memory.in_use()
    source = Source()
    transport, peer = await connect(kind, source)
    await turns(1000)
    _, high = transport.get_write_buffer_limits()
    assert high < transport.get_write_buffer_size() <= high + len(block)
    assert source.written < 20 << 20
    assert memory.in_use() - before < 10 << 20
    turns_before = loop.metrics().turns
    await asyncio.sleep(0.1)
    assert loop.metrics().turns - turns_before <= 4
    # It is served on as soon as it reads.
    await receive(peer, source.written)
    assert source.written > 20 << 10
    assert source.calls.count("pause_writing") >= 2


async def test_a_server_that_never_reads_fills_no_memory(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    # An echo whose peer sends and never reads: reading must stop when writing does.
    class Careful(Echo):
        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

        def pause_writing(self) -> None:
            self.transport.pause_reading()

        def resume_writing(self) -> None:
            self.transport.resume_reading()

    transport, peer = await connect(kind, Careful())
    data = noise(1 << 20)
    sent = idle = 0
    while idle < 100:
        more = fill(peer, data[sent % len(data) :])
        sent += more
        idle = 0 if more else idle + 1
        await turns(1)
    assert sent < 40 << 20
    assert transport.get_write_buffer_size() <= transport.get_write_buffer_limits()[1] + (256 << 10)
    peer.shutdown(socket.SHUT_WR)
    received = await receive_all(peer)
    assert len(received) == sent
    whole, rest = divmod(sent, len(data))
    assert digest(received) == digest(data * whole + data[:rest])


EXHAUSTION = """
import asyncio, json, os, resource, socket, sys
import whorl
from tests.aio.sockets_for_tests import JumpingClock, receive, turns

COUNT = 12
reports = []
kernel = JumpingClock()
loop = whorl.EventLoop(kernel=kernel)
loop.set_exception_handler(lambda loop, context: reports.append(context))

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        accepted.append(self)
    def data_received(self, data):
        self.transport.write(data)

accepted = []

async def main():
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    clients = [socket.socket() for _ in range(COUNT)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 6, hard))
    for client in clients:
        client.connect(address)
        client.setblocking(False)
    before = loop.metrics().turns
    began = loop.time()
    while loop.time() < began + 5.5:
        await asyncio.sleep(0.5)
    told = {
        "accepted while exhausted": len(accepted),
        "turns": loop.metrics().turns - before,
        "reports": [report["message"] for report in reports],
        "errno": reports[0]["exception"].errno,
        "socket": reports[0]["socket"].fileno() == server.sockets[0].fileno(),
    }
    for protocol in accepted:
        assert protocol.transport.is_reading()
    clients[0].send(b"served meanwhile")
    assert await receive(clients[0], 16) == b"served meanwhile"
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    while len(accepted) < COUNT:
        await asyncio.sleep(0.1)
    for number, client in enumerate(clients):
        client.send(b"%4d" % number)
        assert await receive(client, 4) == b"%4d" % number
    told["recovered"] = len(accepted)
    told["reports afterwards"] = len(reports)
    for client in clients:
        client.close()
    server.close()
    await server.wait_closed()
    await turns(5)
    print(json.dumps(told))

loop.run_until_complete(main())
loop.close()
left = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
assert not any("socket:" in name for name in left), left
"""


def test_a_server_out_of_descriptors_rests_and_recovers() -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXHAUSTION],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    assert 0 < told["accepted while exhausted"] < 12
    assert told["reports"] == ["socket.accept() out of system resource"], "it is said once"
    assert told["errno"] == 24
    assert told["socket"]
    assert told["turns"] < 60
    assert told["recovered"] == 12
    assert told["reports afterwards"] == 1
