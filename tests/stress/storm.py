"""A storm: several loops at once, each with traffic of every kind, and with posts to all others.

Each loop counts what it has sent and what has come. At the end nothing is lost, doubled or out of order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import whorl
import whorl.inspector
from whorl.inspector.tables.handles import handles
from whorl.inspector.tables.tasks import states, tasks
from whorl.inspector.watching.own_thread import NotKnown, read

WITHIN = ("tcp", "unix", "udp", "streams", "timers", "tasks", "executor", "asyncs")
BETWEEN = ("posts", "cancels", "closes", "tables", "figures", "recordings")
KINDS = WITHIN + BETWEEN


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Caller(asyncio.Protocol):
    """Sends a message, and hands the answer to a future."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.waiting: asyncio.Future[bytes] | None = None
        self.wanted = 0
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    async def call(self, message: bytes) -> bytes:
        self.waiting = asyncio.get_running_loop().create_future()
        self.wanted, self.received = len(message), b""
        self.transport.write(message)
        return await self.waiting

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= self.wanted and self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(self.received)


class Datagrams(asyncio.DatagramProtocol):
    """Sends datagrams back, or keeps those that come."""

    transport: asyncio.DatagramTransport

    def __init__(self, is_server: bool) -> None:
        self.is_server = is_server
        self.received: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.DatagramTransport)
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if self.is_server:
            self.transport.sendto(data, address)
        else:
            self.received.put_nowait(data)


class Member:
    """One loop of a storm, and what has come to it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.loop: asyncio.AbstractEventLoop | None = None
        self.arrived: dict[int, int] = {}  # by the sender: how many of its posts have come
        self.operations = dict.fromkeys(KINDS, 0)
        self.remote: asyncio.Event | None = None

    def take(self, sender: int, number: int) -> None:
        """Take a post, which comes in the order in which its sender made it."""
        assert self.arrived.get(sender, 0) == number, (self.index, sender, number, self.arrived)
        self.arrived[sender] = number + 1


@contextlib.contextmanager
def restless() -> Iterator[None]:
    """Let Python change threads and collect so often that this happens inside of most calls."""
    switching, collecting = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(50)
    try:
        yield
    finally:
        sys.setswitchinterval(switching)
        gc.set_threshold(*collecting)


class Storm:
    """So many loops for so many seconds; `kinds` are those of `KINDS`."""

    def __init__(
        self,
        loops: int,
        seconds: float,
        folder: Path,
        seed: int,
        tasks: str = "cpython",
        kinds: tuple[str, ...] = KINDS,
    ) -> None:
        self._members = [Member(index) for index in range(loops)]
        self._tasks = tasks
        self._seconds = seconds
        self._folder = folder
        self._seed = seed
        self._kinds = kinds
        self._barrier = threading.Barrier(loops)
        self._posted = [[0] * loops for _ in range(loops)]  # by sender and receiver
        self._short_lived: list[asyncio.AbstractEventLoop] = []

    def run(self) -> dict[str, int]:
        """Run all loops; return the number of operations of each kind. Raises what one of them raised."""
        whorl.run_loops(self._main, len(self._members), tasks=self._tasks)
        for member in self._members:
            sent = {
                sender: counts[member.index]
                for sender, counts in enumerate(self._posted)
                if counts[member.index]
            }
            assert member.arrived == sent, (member.index, member.arrived, sent)
        return {kind: sum(member.operations[kind] for member in self._members) for kind in self._kinds}

    async def _main(self, index: int) -> None:
        member = self._members[index]
        member.loop = asyncio.get_running_loop()
        await self._meet()
        chance = random.Random(f"{self._seed} {index}")
        deadline = time.monotonic() + self._seconds
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds:
                group.create_task(self._repeat(kind, member, chance, deadline))
        await self._meet()  # By now nobody posts any more.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _repeat(self, kind: str, member: Member, chance: random.Random, deadline: float) -> None:
        function: Callable[[Member, random.Random], Awaitable[None]] = getattr(self, f"_run_{kind}")
        while not member.operations[kind] or time.monotonic() < deadline:
            await function(member, chance)
            member.operations[kind] += 1

    async def _meet(self) -> None:
        """Wait until all loops are here. A thread of the loop's executor does so."""
        await asyncio.get_running_loop().run_in_executor(None, self._barrier.wait, 60)

    # Traffic within a loop.

    async def _exchange(self, caller: Any, chance: random.Random) -> None:
        for _ in range(20):
            message = chance.randbytes(chance.choice((1, 30, 3_000, 100_000)))
            assert await caller.call(message) == message

    async def _run_tcp(self, member: Member, chance: random.Random) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        transport, caller = await loop.create_connection(Caller, *address)
        await self._exchange(caller, chance)
        transport.close()
        server.close()

    async def _run_unix(self, member: Member, chance: random.Random) -> None:
        loop = asyncio.get_running_loop()
        path = str(self._folder / f"{member.index}-{member.operations['unix']}")
        server = await loop.create_unix_server(Echo, path)
        transport, caller = await loop.create_unix_connection(Caller, path)
        await self._exchange(caller, chance)
        transport.close()
        server.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    async def _run_udp(self, member: Member, chance: random.Random) -> None:
        loop = asyncio.get_running_loop()
        server, _ = await loop.create_datagram_endpoint(lambda: Datagrams(True), ("127.0.0.1", 0))
        address = server.get_extra_info("sockname")
        client, protocol = await loop.create_datagram_endpoint(lambda: Datagrams(False), remote_addr=address)
        for _ in range(20):
            message = chance.randbytes(chance.choice((1, 30, 1_400)))
            client.sendto(message)
            assert await asyncio.wait_for(protocol.received.get(), 30) == message
        client.close()
        server.close()

    async def _run_streams(self, member: Member, chance: random.Random) -> None:
        left, right = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=left)
        other_reader, other_writer = await asyncio.open_connection(sock=right)
        lines = [chance.randbytes(50).hex().encode() + b"\n" for _ in range(30)]
        writer.writelines(lines)
        writer.write_eof()
        for line in lines:
            assert await other_reader.readline() == line
        other_writer.write(b"done")
        other_writer.close()
        assert await reader.read() == b"done"
        writer.close()
        await asyncio.gather(writer.wait_closed(), other_writer.wait_closed())

    async def _run_timers(self, member: Member, chance: random.Random) -> None:
        loop = asyncio.get_running_loop()
        called: list[int] = []
        handles = [loop.call_later(chance.random() / 500, called.append, number) for number in range(100)]
        for handle in handles[::2]:
            handle.cancel()
        await asyncio.sleep(0.004)
        assert sorted(called) == list(range(1, 100, 2))

    async def _run_tasks(self, member: Member, chance: random.Random) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(3)

        async def produce() -> None:
            for number in range(30):
                await queue.put(number)
                await asyncio.sleep(0)

        async def consume() -> int:
            return sum([await queue.get() for _ in range(30)])

        lost = asyncio.create_task(asyncio.sleep(1000))
        _, total = await asyncio.gather(produce(), consume())
        assert total == 435
        assert asyncio.current_task() in asyncio.all_tasks()
        lost.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await lost

    async def _run_executor(self, member: Member, chance: random.Random) -> None:
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(None, pow, 3, number) for number in range(10)]
        jobs[3].cancel()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert all(results[number] == 3**number for number in range(10) if number != 3)
        with contextlib.suppress(asyncio.CancelledError):
            await jobs[3]

    # From one loop to another.

    def _other(self, chance: random.Random) -> Member:
        return chance.choice(self._members)

    async def _run_posts(self, member: Member, chance: random.Random) -> None:
        for _ in range(chance.randrange(1, 60)):
            other = self._other(chance)
            number = self._posted[member.index][other.index]
            self._posted[member.index][other.index] = number + 1
            assert other.loop is not None
            other.loop.call_soon_threadsafe(other.take, member.index, number)
        await asyncio.sleep(0)

    async def _run_cancels(self, member: Member, chance: random.Random) -> None:
        """Cancel callbacks, timers and coroutines of other loops."""
        other = self._other(chance)
        assert other.loop is not None
        called: list[int] = []
        handles = [other.loop.call_soon_threadsafe(called.append, number) for number in range(20)]
        for handle in handles[::3]:
            handle.cancel()
        waiting = [asyncio.run_coroutine_threadsafe(asyncio.sleep(1000), other.loop) for _ in range(3)]
        for future in waiting:
            future.cancel()
        done = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "slept"), other.loop)
        assert await asyncio.wait_for(asyncio.wrap_future(done), 30) == "slept"
        assert called == sorted(called)
        assert set(called) >= {number for number in range(20) if number % 3}

    async def _run_closes(self, member: Member, chance: random.Random) -> None:
        """Open a loop, and close it while other threads post to it."""
        loop = whorl.new_event_loop()
        self._short_lived.append(loop)

        def run_and_close() -> None:
            loop.call_later(0.002, loop.stop)
            loop.run_forever()
            loop.close()

        closing = asyncio.get_running_loop().run_in_executor(None, run_and_close)
        posted = 0
        while not closing.done():
            for target in self._short_lived[-4:]:
                with contextlib.suppress(RuntimeError):
                    target.call_soon_threadsafe(int)
                    posted += 1
            await asyncio.sleep(0)
        await closing
        assert loop.is_closed()
        if len(self._short_lived) > 100:
            del self._short_lived[:50]

    async def _run_tables(self, member: Member, chance: random.Random) -> None:
        """Let a thread look at the tasks and the handles of another loop, as the inspector does."""
        loop = asyncio.get_running_loop()
        other = self._other(chance)
        for table in (tasks, states, handles):
            with contextlib.suppress(NotKnown):  # The other loop may be at its end.
                assert await loop.run_in_executor(None, read, other.loop, table)

    async def _run_figures(self, member: Member, chance: random.Random) -> None:
        """Let a thread ask for the figures of a loop that runs, and of one that is being closed."""
        ask = asyncio.get_running_loop().run_in_executor
        for asked in [self._other(chance).loop, *self._short_lived[-1:]]:
            loop: Any = asked
            turns = loop.metrics().turns
            metrics, histograms = await ask(None, loop.metrics), await ask(None, loop.histograms)
            assert metrics.turns >= turns
            assert min(metrics.ready, metrics.timers, metrics.handles, histograms.late.count) >= 0
            assert 0 <= (await ask(None, loop.utilization)).utilization <= 1

    async def _run_recordings(self, member: Member, chance: random.Random) -> None:
        """Let a thread begin and end the recording of all loops, which one of them asks for."""
        if member.index == 0:
            ask = asyncio.get_running_loop().run_in_executor
            path = str(self._folder / f"{member.operations['recordings']}.recording")
            start = functools.partial(whorl.inspector.start, threshold=0.05, socket=False, recording=path)
            inspector = await ask(None, functools.partial(start, record_all=chance.random() < 0.5))
            await asyncio.sleep(chance.random() / 5)
            await ask(None, inspector.stop)
            assert whorl.inspector.read(path).loops()
            os.unlink(path)
        await asyncio.sleep(0.01)

    async def _run_asyncs(self, member: Member, chance: random.Random) -> None:
        """Let a thread send an Async, which calls back after its last send."""
        loop: Any = asyncio.get_running_loop()
        called = asyncio.Event()
        sent: list[int] = []
        seen: list[int] = []

        def call_back(handle: whorl.handles.Async) -> None:
            seen[:] = sent
            if len(seen) == 50:
                called.set()

        handle = whorl.handles.Async(loop, call_back)

        def send() -> None:
            for number in range(50):
                sent.append(number)
                handle.send()

        await loop.run_in_executor(None, send)
        await asyncio.wait_for(called.wait(), 30)
        handle.close()
