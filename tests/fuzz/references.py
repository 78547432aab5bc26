"""Counts references over many rounds of the same work, on a debug build of Python: they must stay as many.

`python3.11-dbg -m build_tools --with test --config checked -- -m tests.fuzz.references [ROUNDS]`
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from typing import Any

import whorl
from tests.aio.sockets_for_tests import Recorder
from tests.aio.tls_contexts import client_context, server_context

WARM_UP = 30  # rounds until caches are full
#: References that may be left, in all rounds together: of what Python itself keeps for later.
SLACK = 0.2  # for each round

CONTEXTS: list[Any] = []


class Echo(asyncio.Protocol):
    """A protocol that echoes."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def connections(tls: bool = False) -> None:
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"ssl": CONTEXTS[0]} if tls else {}
    server = await loop.create_server(Echo, "127.0.0.1", 0, **options)
    options = {"ssl": CONTEXTS[1], "server_hostname": "localhost"} if tls else {}
    address = server.sockets[0].getsockname()
    transport, protocol = await loop.create_connection(Recorder, *address, **options)
    transport.write(b"x" * 100_000)
    transport.writelines([b"a", bytearray(b"b"), memoryview(b"c")])
    await protocol.until_received(100_003)
    transport.close()
    await protocol.until_lost()
    server.close()
    await server.wait_closed()


async def encrypted() -> None:
    await connections(tls=True)


async def tasks_and_timers() -> None:
    loop = asyncio.get_running_loop()
    cancelled = loop.call_later(100, print)
    await asyncio.gather(*[asyncio.sleep(0) for _ in range(5)], asyncio.sleep(0.0001))
    cancelled.cancel()
    task = asyncio.ensure_future(asyncio.sleep(100))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await loop.run_in_executor(None, int)


async def sockets() -> None:
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    reading = asyncio.ensure_future(loop.sock_recv(one, 10))
    await asyncio.sleep(0)
    await loop.sock_sendall(other, bytearray(b"data"))
    await reading
    loop.add_writer(one, print)
    loop.remove_writer(one)
    with one, other:
        pass


async def datagrams() -> None:
    loop = asyncio.get_running_loop()

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, address: Any) -> None:
            arrived.set_result(data)

    arrived = loop.create_future()
    one, _ = await loop.create_datagram_endpoint(Receiver, local_addr=("127.0.0.1", 0))
    one.sendto(b"datagram", one.get_extra_info("sockname"))
    await arrived
    one.close()
    await asyncio.sleep(0)


async def pipes() -> None:
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as source, os.fdopen(writing, "wb", 0) as target:
        reader, protocol = await loop.connect_read_pipe(Recorder, source)
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, target)
        writer.writelines([b"a", bytearray(b"b")])
        await protocol.until_received(2)
        writer.close()
        await protocol.until_lost()
        reader.close()


async def programs() -> None:
    program = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    await program.communicate(b"echoed")


async def files() -> None:
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    with other, open(__file__, "rb") as file:
        transport, protocol = await loop.connect_accepted_socket(Recorder, one)
        await loop.sendfile(transport, file, 10, 100)
        transport.abort()
        await protocol.until_lost()


async def signals() -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, arrived.set)
    signal.raise_signal(signal.SIGUSR1)
    await arrived.wait()
    loop.remove_signal_handler(signal.SIGUSR1)


def handles() -> None:
    loop = whorl.Loop()
    kinds = whorl.handles
    timer, idle, poke = kinds.Timer(loop), kinds.Idle(loop), kinds.Async(loop, lambda handle: None)
    timer.start(lambda handle: None, 0, 1)
    idle.start(lambda handle: None)
    poke.send()
    one, other = socket.socketpair()
    streams = [kinds.Pipe(loop), kinds.Pipe(loop)]
    streams[0].open(one.detach())
    streams[1].open(other.detach())
    streams[0].read_start(lambda stream, data, error: stream.read_stop())
    streams[1].write(b"bytes", lambda request, error: None)
    udp = kinds.UDP(loop)
    udp.bind(("127.0.0.1", 0))
    udp.recv_start(lambda *details: None)
    udp.send(b"datagram", udp.getsockname(), lambda request, error: None)
    for _ in range(5):
        loop.run(whorl.RunMode.NOWAIT)
    for handle in loop.walk():
        handle.close(lambda handle: None)
    loop.run()
    loop.close()


def on_a_loop(work: Callable[[], Any]) -> Callable[[], None]:
    def once() -> None:
        whorl.run(work())

    once.__name__ = work.__name__
    return once


def grown(work: Callable[[], None], rounds: int) -> tuple[int, int]:
    """Return how many references and descriptors so many rounds added."""
    for _ in range(WARM_UP):
        work()
    gc.collect()
    references, descriptors = total(), len(os.listdir("/proc/self/fd"))
    for _ in range(rounds):
        work()
    gc.collect()
    return total() - references, len(os.listdir("/proc/self/fd")) - descriptors


def total() -> int:
    """Return the number of all references, or without a debug build of all tracked objects."""
    count: Callable[[], int] = getattr(sys, "gettotalrefcount", lambda: len(gc.get_objects()))
    return count()


def main(rounds: int) -> int:
    CONTEXTS[:] = [server_context(), client_context()]
    print("counting", "references" if hasattr(sys, "gettotalrefcount") else "objects", "in", rounds, "rounds")
    works = (connections, encrypted, tasks_and_timers, sockets, datagrams, pipes, programs, files, signals)
    kinds = [*map(on_a_loop, works), handles]
    failed = 0
    for work in kinds:
        references, descriptors = grown(work, rounds)
        leaks = references > rounds * SLACK or descriptors > 0
        failed += leaks
        print(f"{work.__name__:20} {references:+6} references {descriptors:+3} descriptors{' LEAKS' * leaks}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
