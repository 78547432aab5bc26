"""The loads that a profile is recorded under: the bench's cases of a loop alone, and clients of its servers.

`python -m build_tools.training` runs them, with nothing but Whorl and a certificate of the tests. With the
argument `simulated` it runs those of simulated worlds, which need the GIL.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import socket
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import whorl
import whorl.inspector
from build_tools import smoke
from build_tools.sources import ROOT
from whorl import sim

sys.path.insert(0, str(ROOT / "bench"))
micro: Any = importlib.import_module("micro")
servers: Any = importlib.import_module("servers")

LEFT_OUT = re.compile(r"timers-among/|tasks/|/(aiofiles|anyio)$")  # crowds, and libraries of others
WATCHED = ("call_soon/chain", "call_later/fire-100000", "sleep-0", "create_task/await", "gather-100")
# Round trips, bytes, clients.
TALKS = ((300, 1 << 10, 10), (30, 10 << 10, 10), (10, 100 << 10, 4), (1, 10 << 20, 1))
CONNECTIONS = 300
DATAGRAMS = 2_000
LIMIT = 120  # seconds for each load

Load = Callable[[], Awaitable[None]]


class Client(asyncio.Protocol):
    """Makes round trips, and closes."""

    transport: Any

    def __init__(self, trips: int, size: int) -> None:
        self.trips, self.message, self.got = trips, bytes(size), 0
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self.message)

    def data_received(self, data: bytes) -> None:
        self.got += len(data)
        if self.got < len(self.message):
            return
        self.got, self.trips = 0, self.trips - 1
        if self.trips:
            self.transport.write(self.message)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


async def talk(kind: str, address: str) -> None:
    """Talk with a server of the bench, by protocols and by streams."""
    loop, options = asyncio.get_running_loop(), {}
    servers.TLS = None
    if address == "tls":
        servers.TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        servers.TLS.load_cert_chain(servers.CERTIFICATE)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        options = {"ssl": context, "server_hostname": "localhost"}
    listener, _ = servers.listen(address)
    name = listener.getsockname()
    server = await servers.KINDS[kind](listener)
    make: Any = loop.create_connection
    open_streams: Any = asyncio.open_connection
    where = name
    if address.startswith("unix:"):
        make, open_streams, where = loop.create_unix_connection, asyncio.open_unix_connection, (name,)

    async def by_protocol(trips: int, size: int) -> None:
        _, client = await make(lambda: Client(trips, size), *where, **options)
        await client.closed

    async def by_streams(trips: int, size: int) -> None:
        reader, writer = await open_streams(*where, **options)
        for _ in range(trips):
            writer.write(bytes(size))
            await reader.readexactly(size)
        writer.close()
        await writer.wait_closed()

    part = 10 if options else 1
    for one in (by_protocol, by_streams):
        for trips, size, many in TALKS:
            await asyncio.gather(*(one(max(1, trips // part), size) for _ in range(many)))
        for _ in range(CONNECTIONS // part):
            await one(1, 100)
        await asyncio.gather(*(one(1, 100) for _ in range(20)))
    if address == "tcp":
        for _ in range(CONNECTIONS // 10):
            _, writer = await asyncio.open_connection("localhost", name[1], family=socket.AF_INET)
            writer.close()
            await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def connections() -> None:
    """Talk with servers of all kinds."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("protocol", "buffered", "streams"):
            for address in ("tcp", f"unix:{folder}/{kind}", "tls"):
                await talk(kind, address)


class Sender(asyncio.DatagramProtocol):
    """Sends a datagram for each that comes back."""

    transport: Any

    def __init__(self) -> None:
        self.left, self.over = DATAGRAMS, asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.sendto(bytes(1000))

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.left -= 1
        if self.left:
            self.transport.sendto(data)
        else:
            self.transport.close()
            self.over.set_result(None)


async def datagrams() -> None:
    """Send datagrams there and back."""
    loop = asyncio.get_running_loop()
    sock, _ = servers.listen("udp")
    address = sock.getsockname()
    server = await servers.KINDS["datagram"](sock)
    for _ in range(3):
        _, sender = await loop.create_datagram_endpoint(Sender, remote_addr=address)
        await sender.over
    server.close()


async def world(simulated: sim.World) -> None:
    """Talk with another host of a simulated world."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(host: sim.Host) -> None:
        async with await asyncio.start_server(echo, host.address, 7) as server:
            await server.serve_forever()

    simulated.host("server", boot=serve)
    await asyncio.sleep(0.1)
    reader, writer = await asyncio.open_connection("server", 7)
    for _ in range(10):
        writer.write(b"hello")
        await reader.readexactly(5)
    writer.close()
    await writer.wait_closed()


def of_the_bench() -> list[Load]:
    """Return the bench's cases of a loop alone."""
    return [batch for name, (batch, _) in micro.CASES.items() if not LEFT_OUT.search(name)]


def watched() -> list[Load]:
    """Return the cases that run with the inspector, too."""
    return [micro.CASES[name][0] for name in WATCHED]


async def within_limit(load: Load) -> None:
    async with asyncio.timeout(LIMIT):
        await load()


def main() -> None:
    """Run all loads; then a few that are watched."""
    for load in (*of_the_bench(), connections, datagrams, smoke.everything):
        whorl.run(within_limit(load))
    smoke.machine()
    inspected = whorl.inspector.start()
    for load in watched():
        whorl.run(within_limit(load))
    inspected.stop()


if __name__ == "__main__":
    if sys.argv[1:] == ["simulated"]:
        for seed in range(200):
            sim.run(world, seed=seed, faults="none")
    else:
        main()
