"""The loads that a profile is recorded under: each thing that programs do with a loop, for a moment.

They need nothing but Whorl, and a certificate of the tests. `python -m build_tools.training` runs them, and
with the argument `simulated` those of simulated worlds, which need the GIL.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import whorl
import whorl.inspector
from build_tools.sources import ROOT
from whorl import sim

CERTIFICATE = ROOT / "tests" / "aio" / "certificates" / "localhost.pem"
HOST = "127.0.0.1"
CALLS = 20_000  # of the operations of the loop alone
TALKS = ((300, 1 << 10, 10), (30, 10 << 10, 10), (10, 100 << 10, 4))  # round trips, bytes, connections
CONNECTIONS = 300
LIMIT = 120  # seconds for each load


class Echo(asyncio.Protocol):
    """Answers with what it gets."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """Answers with what it gets, from a buffer of its own."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = bytearray(1 << 16)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(memoryview(self.buffer)[:nbytes]))


async def echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


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


class Talk:
    """Round trips with a server of one kind: over TCP or a UNIX socket, with TLS or without."""

    def __init__(self, server: Any, path: str, with_tls: bool) -> None:
        self.server, self.path = server, path
        self.loop = asyncio.get_running_loop()
        self.theirs: Any = None
        self.ours: dict[str, Any] = {}
        if with_tls:
            self.theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.theirs.load_cert_chain(CERTIFICATE)
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.ours = {"ssl": context, "server_hostname": "localhost"}

    async def listen(self) -> Any:
        streams = self.server is echo_stream
        start: Any
        if self.path:
            start = asyncio.start_unix_server if streams else self.loop.create_unix_server
            return await start(self.server, self.path, ssl=self.theirs)
        start = asyncio.start_server if streams else self.loop.create_server
        server = await start(self.server, HOST, 0, ssl=self.theirs)
        self.address = server.sockets[0].getsockname()
        return server

    async def by_protocol(self, trips: int, size: int) -> None:
        def make() -> Client:
            return Client(trips, size)

        if self.path:
            _, client = await self.loop.create_unix_connection(make, self.path, **self.ours)
        else:
            _, client = await self.loop.create_connection(make, *self.address, **self.ours)
        await client.closed

    async def by_streams(self, trips: int, size: int) -> None:
        if self.path:
            reader, writer = await asyncio.open_unix_connection(self.path, **self.ours)
        else:
            reader, writer = await asyncio.open_connection(*self.address, **self.ours)
        for _ in range(trips):
            writer.write(bytes(size))
            await reader.readexactly(size)
        writer.close()
        await writer.wait_closed()

    async def run(self) -> None:
        server = await self.listen()
        part = 10 if self.theirs else 1
        for talk in (self.by_protocol, self.by_streams):
            for trips, size, many in TALKS:
                await asyncio.gather(*(talk(max(1, trips // part), size) for _ in range(many)))
            for _ in range(CONNECTIONS // part):
                await talk(1, 100)
            await asyncio.gather(*(talk(1, 100) for _ in range(20)))
        server.close()
        await server.wait_closed()


async def connections() -> None:
    """Talk with servers of all kinds."""
    with tempfile.TemporaryDirectory() as folder:
        servers: tuple[Any, ...] = (Echo, BufferedEcho, echo_stream)
        for server in servers:
            await Talk(server, "", False).run()
            await Talk(server, f"{folder}/{server.__name__}", False).run()
            await Talk(server, "", True).run()
    async with await asyncio.start_server(echo_stream, "localhost", 0) as named:
        port = named.sockets[0].getsockname()[1]
        for _ in range(CONNECTIONS // 10):
            _, writer = await asyncio.open_connection("localhost", port)
            writer.close()
            await writer.wait_closed()


async def sockets() -> None:
    """Use the loop's methods for sockets, and readers."""
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)

    async def answer() -> None:
        while data := await loop.sock_recv(other, 1 << 16):
            await loop.sock_sendall(other, data)

    answering = loop.create_task(answer())
    for _ in range(CALLS // 10):
        await loop.sock_sendall(one, b"x" * 1000)
        await loop.sock_recv(one, 1 << 16)
    one.close()
    await answering
    for _ in range(CALLS // 4):
        loop.add_reader(other, int)
        loop.remove_reader(other)
    other.close()


async def datagrams() -> None:
    """Send datagrams there and back."""
    loop = asyncio.get_running_loop()

    class Server(asyncio.DatagramProtocol):
        transport: Any

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.transport.sendto(data, addr)

    class Sender(Server):
        left = CALLS // 10

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.left -= 1
            if self.left > 0:
                self.transport.sendto(data)
            elif not over.done():
                over.set_result(None)

    over = loop.create_future()
    server, _ = await loop.create_datagram_endpoint(Server, local_addr=(HOST, 0))
    address = server.get_extra_info("sockname")
    senders = [(await loop.create_datagram_endpoint(Sender, remote_addr=address))[0] for _ in range(3)]
    for sender in senders:
        sender.sendto(bytes(1000))
    await over
    for each in (server, *senders):
        each.close()


async def writes() -> None:
    """Write lines, much at once, and a file."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    class Sink(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            over.set_result(None)

    server = await loop.create_server(Sink, HOST, 0)
    transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
    for _ in range(CALLS // 10):
        transport.writelines([b"x" * 64] * 16)
        await asyncio.sleep(0)
    transport.write(bytes(10_000_000))
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1_000_000))
        file.seek(0)
        await loop.sendfile(transport, file)
    transport.close()
    await over
    server.close()


async def programs() -> None:
    """Run programs."""
    for _ in range(20):
        await (await asyncio.create_subprocess_exec("true")).wait()
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        await process.communicate(b"hello")


async def calls() -> None:
    """Call soon, later, and from another thread."""
    loop = asyncio.get_running_loop()

    async def until_called(post: Callable[[Callable[[], None]], Any], times: int) -> None:
        """Post a call so many times, and wait until it came often; posted once, it posts the next itself."""
        left, over = CALLS, loop.create_future()

        def call() -> None:
            nonlocal left
            left -= 1
            if not left:
                over.set_result(None)
            elif times == 1:
                post(call)

        for _ in range(times):
            post(call)
        await over

    await until_called(loop.call_soon, 1)
    await until_called(loop.call_soon, CALLS)
    await asyncio.to_thread(lambda: [loop.call_soon_threadsafe(int) for _ in range(CALLS)])
    for _ in range(10):
        timers = [loop.call_later(number / 1e5, int) for number in range(500)]
        for timer in timers[::2]:
            timer.cancel()
        await asyncio.sleep(0.006)


async def tasks() -> None:
    """Use tasks, futures, and what asyncio builds of them."""
    loop = asyncio.get_running_loop()
    for _ in range(CALLS):
        await asyncio.sleep(0)
    for _ in range(CALLS // 4):
        await loop.create_task(asyncio.sleep(0))
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future
    for _ in range(CALLS // 50):
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(20)))
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(asyncio.sleep(0.0001))
    queue: asyncio.Queue[int] = asyncio.Queue(10)

    async def consume() -> None:
        while await queue.get() < CALLS:
            pass

    consumer = loop.create_task(consume())
    for number in range(CALLS + 1):
        await queue.put(number)
    await consumer
    for _ in range(CALLS // 4):
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
    for _ in range(200):
        await asyncio.to_thread(int)


async def world(simulated: sim.World) -> None:
    """Talk with another host of a simulated world."""

    async def serve(host: sim.Host) -> None:
        async with await asyncio.start_server(echo_stream, host.address, 7) as server:
            await server.serve_forever()

    simulated.host("server", boot=serve)
    await asyncio.sleep(0.1)
    reader, writer = await asyncio.open_connection("server", 7)
    for _ in range(10):
        writer.write(b"hello")
        await reader.readexactly(5)
    writer.close()
    await writer.wait_closed()


async def all_of(*loads: Callable[[], Awaitable[None]]) -> None:
    """Run loads one after another, each within its time."""
    for load in loads:
        async with asyncio.timeout(LIMIT):
            await load()


def main() -> None:
    """Run all loads; then a few that are watched."""
    whorl.run(all_of(calls, tasks, connections, sockets, datagrams, writes, programs))
    inspected = whorl.inspector.start()
    whorl.run(all_of(calls, tasks))
    inspected.stop()


def simulate() -> None:
    """Run some simulated worlds."""
    for seed in range(200):
        sim.run(world, seed=seed, faults="none")


if __name__ == "__main__":
    if sys.argv[1:] == ["simulated"]:
        simulate()
    else:
        main()
