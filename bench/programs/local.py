"""Programs that need no server beside them: a proxy's own ends, subprocesses, threads, a queue."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from functools import partial

from programs.program import Operation, Program, check

MESSAGE = bytes(range(256)) * 4
READ_BYTES = 64 * 1024
CONNECTIONS = 20
ITEMS = 2_000
CONSUMERS = 10
QUEUE_SIZE = CONSUMERS
TRUE = shutil.which("true") or "/bin/true"


@contextlib.asynccontextmanager
async def proxy(address: str) -> AsyncIterator[Operation]:
    """Run a proxy over streams before an echo server, and its clients."""
    host, port = address.split(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection(host, port)
        await asyncio.gather(_copy(reader, behind[1]), _copy(behind[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy_address = server.sockets[0].getsockname()
    free = [await asyncio.open_connection(*proxy_address) for _ in range(CONNECTIONS)]

    async def echo() -> None:
        reader, writer = free.pop()
        writer.write(MESSAGE)
        await writer.drain()
        check(await reader.readexactly(len(MESSAGE)), MESSAGE)
        free.append((reader, writer))

    yield echo
    for _, writer in free:
        writer.close()
    server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(READ_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def subprocess(_: str) -> AsyncIterator[Operation]:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(TRUE, stdout=PIPE, stderr=PIPE)
        check(await process.communicate(), (b"", b""))
        check(process.returncode, 0)

    yield run


@contextlib.asynccontextmanager
async def to_thread(_: str) -> AsyncIterator[Operation]:
    async def call() -> None:
        check(await asyncio.to_thread(int, "7"), 7)

    yield call


@contextlib.asynccontextmanager
async def queue(_: str) -> AsyncIterator[Operation]:
    async def consume(items: asyncio.Queue[int], found: list[int]) -> None:
        while True:
            found.append(await items.get())
            items.task_done()

    async def produce() -> None:
        items: asyncio.Queue[int] = asyncio.Queue(QUEUE_SIZE)
        found: list[int] = []
        consumers = [asyncio.create_task(consume(items, found)) for _ in range(CONSUMERS)]
        for number in range(ITEMS):
            await items.put(number)
        await items.join()
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        check(sorted(found), list(range(ITEMS)))

    yield produce


_proxy = partial(Program, opened=proxy, service="echo")
PROGRAMS = (
    _proxy("program/proxy/1", "A proxy over streams, 1 KiB, one at a time", times=300),
    _proxy("program/proxy/20", "A proxy over streams, 1 KiB, 20 at a time", times=30, at_once=CONNECTIONS),
    Program("program/subprocess/1", "A subprocess with pipes, one at a time", subprocess, 10),
    Program("program/subprocess/20", "A subprocess with pipes, 20 at a time", subprocess, 1, 20),
    Program("program/to_thread/1", "`to_thread`, one at a time", to_thread, 1000),
    Program("program/to_thread/20", "`to_thread`, 20 at a time", to_thread, 100, 20),
    Program("program/queue", "A producer and 10 consumers of a queue", queue, 20, counts=ITEMS),
)
