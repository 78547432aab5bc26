"""Operations of a loop while Python's memory allocators refuse: run in a process of its own, which may crash.

    python -m tests.aio.refused_memory NAME FIRST LAST STEP

Each operation of this name runs once for each number: its allocations fail from that one on, one of them or
all. It may fail, but it must leave no descriptor open, and its loop must still work. So must the inspector's
threads if `WHORL_INSPECT` is set. No closures and no
comprehensions run meanwhile: some versions of CPython crash if they get no memory for a function.
"""

from __future__ import annotations

import _testcapi
import asyncio
import faulthandler
import gc
import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import whorl
from tests.aio.tls_contexts import client_context, server_context
from whorl.aio.futures.task import create_task
from whorl.inspector import inspector

#: Seconds after which an operation is given up that waits for what failed.
PATIENCE = 0.02
#: How many allocations fail. Without an end, a `finally` of CPython's may try for ever to get memory.
WIDTHS = (1, 30)
GREETING = b"hello"
NO_ADDRESS = ("127.0.0.1",)
CLIENT, SERVER = client_context(), server_context()


class Echo(asyncio.Protocol):
    """A protocol that echoes."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Waiting(asyncio.Protocol):
    """A protocol that notes its data."""

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


class WithoutBuffer(asyncio.BufferedProtocol):
    """A protocol that fails when it is asked for a buffer."""

    def get_buffer(self, sizehint: int) -> bytearray:
        raise ValueError


class FailingAtEnd(asyncio.Protocol):
    """A protocol that fails when the other side has ended."""

    def eof_received(self) -> None:
        raise ValueError


class Datagrams(asyncio.DatagramProtocol):
    """A protocol that counts datagrams."""

    def __init__(self) -> None:
        self.received = 0

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received += 1


class World:
    """A loop, and what an operation needs of others: made while there is memory."""

    def __init__(self, name: str) -> None:
        self.loop = whorl.new_event_loop()
        self.loop.set_exception_handler(ignore)
        self.name = name
        self.sockets: list[socket.socket] = []
        self.transports: list[Any] = []
        self.server: Any = None
        self.address: Any = None
        self.serving: asyncio.Task[Any] | None = None

    async def prepare(self) -> None:
        loop = self.loop
        self.server = await loop.create_server(Echo, "127.0.0.1", 0)
        self.address = self.server.sockets[0].getsockname()
        for _ in range(3):
            sock = socket.socket()
            sock.setblocking(False)
            self.sockets.append(sock)
        if self.name in ("write", "receive"):
            pair = socket.socketpair()
            for sock in pair:
                sock.setblocking(False)
            self.sockets.append(pair[1])
            transport, _ = await loop.create_connection(Waiting, sock=pair[0])
            self.transports.append(transport)
        if self.name == "failure":
            for protocol in (WithoutBuffer, FailingAtEnd):
                pair = socket.socketpair()
                self.sockets.append(pair[1])
                transport, _ = await loop.create_connection(protocol, sock=pair[0])
                self.transports.append(transport)
        if self.name == "tls":
            self.sockets += socket.socketpair()
            serving = loop.connect_accepted_socket(Echo, self.sockets[-2], ssl=SERVER)
            self.serving = loop.create_task(serving)
        if self.name == "socket":
            self.sockets += socket.socketpair()
            for sock in self.sockets:
                sock.setblocking(False)
        if self.name in ("udp", "failure"):
            transport, _ = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
            self.transports.append(transport)
        if self.name == "executor":
            pool = ThreadPoolExecutor(1)
            loop.set_default_executor(pool)
            await loop.run_in_executor(None, int)
            pool._idle_semaphore = Idle()  # type: ignore[attr-defined]

    async def end(self) -> None:
        """Show that the loop works, and close everything."""
        loop = self.loop
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(GREETING)
        assert await reader.readexactly(len(GREETING)) == GREETING
        own = ThreadPoolExecutor(1)  # The loop's executor may have lost its thread.
        assert await loop.run_in_executor(own, int) == 0
        own.shutdown()
        await asyncio.sleep(0.0001)
        writer.transport.abort()
        self.server.close()
        for transport in [*self.transports, *loop._transports.values()]:  # type: ignore[attr-defined]
            transport.abort()
        if self.serving is not None:
            self.serving.cancel()
            await asyncio.wait([self.serving])
        for _ in range(5):
            await asyncio.sleep(0)
        for sock in self.sockets:
            sock.close()
        if loop._default_executor is not None:  # type: ignore[attr-defined]
            loop._default_executor.shutdown(wait=False)  # type: ignore[attr-defined]


class Idle:
    """A stand-in for an executor's semaphore, in which a thread that has no memory leaves a lock locked."""

    def acquire(self, timeout: float) -> bool:
        return True

    def release(self) -> None:
        """Do nothing, as there is one thread."""


def ignore(loop: Any, context: Any) -> None:
    """Ignore expected errors."""


# Operations. They note the objects that they make, so that these can be closed.


async def accept(world: World) -> None:
    for sock in world.sockets:
        sock.connect_ex(world.address)
        await asyncio.sleep(0)
        sock.send(GREETING)
    for _ in range(6):
        await asyncio.sleep(0)


async def connect(world: World) -> None:
    transport, _ = await world.loop.create_connection(Waiting, *world.address)
    world.transports.append(transport)
    transport.write(GREETING)
    for _ in range(4):
        await asyncio.sleep(0)


async def write(world: World) -> None:
    transport = world.transports[0]
    for _ in range(3):
        transport.write(GREETING)
        transport.write(bytearray(300_000))
        transport.writelines([GREETING, GREETING])
        await asyncio.sleep(0)
        world.sockets[-1].recv(200_000)


async def receive(world: World) -> None:
    for _ in range(5):
        world.sockets[-1].send(GREETING)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def timer(world: World) -> None:
    loop = world.loop
    for number in range(5):
        loop.call_later(0.0001 * number, int)
        loop.call_later(10, int).cancel()
        loop.call_at(loop.time(), int)
        await asyncio.sleep(0.0001)


async def executor(world: World) -> None:
    for _ in range(3):
        await world.loop.run_in_executor(None, int)


async def udp(world: World) -> None:
    loop, first = world.loop, world.transports[0]
    address = first.get_extra_info("sockname")
    transport, _ = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
    world.transports.append(transport)
    for _ in range(4):
        transport.sendto(GREETING)
        first.sendto(GREETING, address)
        await asyncio.sleep(0)


async def tls(world: World) -> None:
    transport, _ = await world.loop.create_connection(
        Waiting, sock=world.sockets[-1], ssl=CLIENT, server_hostname="localhost"
    )
    world.transports.append(transport)
    transport.write(GREETING)
    for _ in range(6):
        await asyncio.sleep(0)
    transport.close()
    for _ in range(6):
        await asyncio.sleep(0)


async def failure(world: World) -> None:
    """Let what Whorl calls fail, which memory for a traceback goes with."""
    udp = world.transports[-1]
    world.sockets[-2].send(GREETING)  # which nobody has a buffer for
    world.sockets[-1].shutdown(socket.SHUT_WR)
    for _ in range(3):
        await asyncio.sleep(0)
    task = create_task(world.loop, fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    udp.sendto(GREETING, NO_ADDRESS)
    await asyncio.sleep(0)


async def fail() -> None:
    raise ValueError


async def sock_methods(world: World) -> None:
    loop, sockets = world.loop, world.sockets
    await loop.sock_connect(sockets[0], world.address)
    for _ in range(3):
        receiving = loop.create_task(loop.sock_recv(sockets[3], 100))
        await asyncio.sleep(0)
        await loop.sock_sendall(sockets[4], GREETING)
        await receiving


Operation = Callable[[World], Awaitable[None]]
OPERATIONS: dict[str, Operation] = {
    "accept": accept,
    "connect": connect,
    "write": write,
    "receive": receive,
    "timer": timer,
    "executor": executor,
    "udp": udp,
    "tls": tls,
    "failure": failure,
    "socket": sock_methods,
}


class Attempt:
    """One operation, from one allocation on without memory."""

    def __init__(self, name: str, first: int, last: int) -> None:
        self.world = World(name)
        self.operation = OPERATIONS[name]
        self.first, self.last = first, last
        self.is_over = False

    async def without_memory(self) -> None:
        """Run it. The memory comes back when it is over, or by a timer."""
        await asyncio.sleep(0.0001)  # Now the loop has its pair of sockets; without memory CPython loses one.
        _testcapi.set_nomemory(self.first, self.last)
        try:
            await self.operation(self.world)
        finally:
            _testcapi.remove_mem_hooks()
            if not self.is_over:
                self.world.loop.stop()

    def run(self) -> None:
        make_room_for_current_tasks()
        world = self.world
        loop = world.loop
        loop.run_until_complete(world.prepare())
        task = loop.create_task(self.without_memory())
        loop.call_later(PATIENCE, _testcapi.remove_mem_hooks)
        stop = loop.call_later(PATIENCE, loop.stop)
        try:
            loop.run_forever()
        except MemoryError:
            _testcapi.remove_mem_hooks()
        self.is_over = True
        assert not loop.is_running()
        if sys.version_info < (3, 12):  # To say that no loop runs takes memory there.
            asyncio._set_running_loop(None)
        assert asyncio._get_running_loop() is None
        stop.cancel()
        task.cancel()
        loop.run_until_complete(asyncio.wait([task], timeout=PATIENCE))  # CPython may have lost it.
        loop.run_until_complete(asyncio.wait_for(world.end(), 5))
        for handle in loop.walk():  # one whose `__init__` had no memory to hide it
            loop._mark_internal(handle)
        loop.close()


def make_room_for_current_tasks() -> None:
    """Let CPython note the task that runs without more memory.

    In 3.13 `setdefault`, which notes it, counts an entry that it had no memory for, and later reads beyond
    its table.
    """
    current = getattr(asyncio.tasks, "_current_tasks", None)
    if isinstance(current, dict):
        for number in range(400):
            current[number] = None  # type: ignore[index]
        for number in range(400):
            del current[number]  # type: ignore[arg-type]


def open_descriptors() -> set[str]:
    inspected = inspector.current()
    if inspected is not None and inspected.watchdog is not None:
        inspected.watchdog.look_now()  # which closes what it had open for loops that are gone
    return set(os.listdir("/proc/self/fd"))


def main(name: str, *numbers: str) -> None:
    first, last, step = map(int, numbers)
    warnings.simplefilter("ignore")
    sys.unraisablehook = int  # type: ignore[assignment]
    logging.disable()
    faulthandler.enable()
    Attempt(name, 10**9, 0).run()  # Objects that are made once exist before.
    gc.collect()
    before = open_descriptors()
    for number in range(first, last, step):
        for width in WIDTHS:
            print(f"{name} {number} {width}", flush=True)
            faulthandler.dump_traceback_later(30, exit=True)
            attempt = Attempt(name, number, number + width)
            attempt.run()
            faulthandler.cancel_dump_traceback_later()
            gc.collect()
            left = open_descriptors() - before
            assert not left, {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in left}
    if inspector.current() is not None:
        assert {"whorl-watchdog", "whorl-inspector"} <= {thread.name for thread in threading.enumerate()}
    print("done", flush=True)
    os._exit(0)  # without waiting for threads


if __name__ == "__main__":
    main(*sys.argv[1:])
