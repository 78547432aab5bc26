"""asyncio's streams, unchanged, over the loop: open_connection, start_server and what they give."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests import memory
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import digest, noise, reset, turns
from tests.aio.tls_contexts import client_context, server_context

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Serve = Callable[[Reader, Writer], Awaitable[None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path on which a UNIX server listens."""
    return tmp_path / "socket"


@asynccontextmanager
async def served(kind: str, path: Path, serve: Serve, **options: Any) -> AsyncIterator[tuple[Reader, Writer]]:
    """Yield a connection to a server with this handler; then close all and wait for the handler."""
    server = await start(kind, path, serve, **options)
    reader, writer = await connect_to(server, kind, path, **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()
        await end(server)


async def end(server: asyncio.Server) -> None:
    """Close a server, and wait for its handlers."""
    server.close()
    await server.wait_closed()
    handlers = asyncio.all_tasks() - {asyncio.current_task()}
    if handlers:  # before Python 3.12.1 servers do not wait for them
        await asyncio.wait(handlers)


async def start(kind: str, path: Path, serve: Serve, **options: Any) -> asyncio.Server:
    if kind == "unix":
        return await asyncio.start_unix_server(serve, path, **options)
    return await asyncio.start_server(serve, "127.0.0.1", 0, **options)


async def connect_to(server: asyncio.Server, kind: str, path: Path, **options: Any) -> tuple[Reader, Writer]:
    if kind == "unix":
        return await asyncio.open_unix_connection(path, **options)
    return await asyncio.open_connection(*server.sockets[0].getsockname(), **options)


async def echo_lines(reader: Reader, writer: Writer) -> None:
    """Send every line back until the peer's end."""
    async for line in reader:
        writer.write(line)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_lines_come_back(kind: str, path: Path) -> None:
    async with served(kind, path, echo_lines) as (reader, writer):
        for line in (b"one\n", b"two\n", b"\n", b"x" * 60_000 + b"\n"):
            writer.write(line)
            assert await reader.readline() == line
        writer.write(b"without an end")
        writer.write_eof()
        assert await reader.read() == b"without an end"
        assert reader.at_eof()


async def test_stream_reader_offers_all_ways_to_read(kind: str, path: Path) -> None:
    async def serve(reader: Reader, writer: Writer) -> None:
        writer.writelines([b"12345", b"until|", b"line\n", b"1", b"the rest"])
        writer.write_eof()
        await reader.read()
        writer.close()

    async with served(kind, path, serve) as (reader, writer):
        assert await reader.readexactly(5) == b"12345"
        assert await reader.readuntil(b"|") == b"until|"
        assert await reader.readline() == b"line\n"
        assert await reader.read(1) == b"1"
        assert await reader.read(0) == b""
        assert await reader.read() == b"the rest"
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await reader.readexactly(1)
        assert caught.value.partial == b""
        writer.write_eof()


async def test_a_line_that_is_too_long(kind: str, path: Path) -> None:
    async def serve(reader: Reader, writer: Writer) -> None:
        writer.write(b"x" * 1000 + b"\nshort\n")
        writer.close()

    async with served(kind, path, serve, limit=100) as (reader, _):
        with pytest.raises(ValueError, match="chunk"):
            await reader.readline()
        assert b"short\n".endswith((await reader.read())[-6:])


async def test_drain_waits_for_a_slow_reader(loop: whorl.EventLoop, kind: str, path: Path) -> None:
    # A peer that reads slowly holds the writer back: what waits never grows beyond the watermarks.
    waiting: list[int] = []
    data = noise(100_000)
    count = 100

    async def serve(reader: Reader, writer: Writer) -> None:
        for _ in range(count):
            writer.write(data)
            waiting.append(writer.transport.get_write_buffer_size())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with served(kind, path, serve) as (reader, _):
        await turns(20)
        received = 0
        while block := await reader.read(7001):
            start = received % len(data)
            assert block[: len(data) - start] == data[start : start + len(block)]
            received += len(block)
        assert received == count * len(data)
    assert len(waiting) == count
    assert max(waiting) <= 64 * 1024 + len(data)


async def test_a_reader_that_nobody_reads_from_does_not_fill_memory(kind: str, path: Path) -> None:
    # The stream pauses its transport, and then nothing but the two sockets takes data.
    sent = 0

    async def serve(reader: Reader, writer: Writer) -> None:
        nonlocal sent
        with suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 20))
                await writer.drain()
                sent += 1 << 20

    async with served(kind, path, serve) as (reader, writer):
        await reader.read(1)
        before = memory.in_use()
        await turns(2000)
        assert memory.in_use() - before < 20 << 20
        assert sent < 40 << 20
        writer.transport.abort()


async def test_a_megabyte_each_way_at_once(kind: str, path: Path) -> None:
    there, back = noise(1 << 20, 1), noise(1 << 20, 2)
    seen: list[str] = []

    async def serve(reader: Reader, writer: Writer) -> None:
        writer.write(back)
        seen.append(digest(await reader.read()))
        writer.write_eof()
        await writer.drain()
        writer.close()

    async with served(kind, path, serve) as (reader, writer):
        writer.write(there)
        writer.write_eof()
        assert digest(await reader.read()) == digest(back)
    assert seen == [digest(there)]


async def test_a_reset_is_an_error_to_those_who_read(loop: whorl.EventLoop, connect: Connect) -> None:
    reader = asyncio.StreamReader()
    _, peer = await connect("tcp", asyncio.StreamReaderProtocol(reader))
    reading = loop.create_task(reader.read())
    await turns(2)
    reset(peer)
    with pytest.raises(ConnectionResetError):
        await reading


async def test_drain_after_the_end_is_an_error(loop: whorl.EventLoop, connect: Connect, kind: str) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, peer = await connect(kind, protocol)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    peer.close()

    async def write_on() -> None:
        while True:
            writer.write(b"x")
            await writer.drain()

    with pytest.raises(ConnectionError):
        await write_on()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_wait_closed_waits_until_all_is_sent(loop: whorl.EventLoop, kind: str, path: Path) -> None:
    data = noise(12_000_000)  # More than two sockets hold.
    closed = loop.create_future()

    async def serve(reader: Reader, writer: Writer) -> None:
        writer.write(data)
        writer.close()
        await writer.wait_closed()
        closed.set_result(writer.transport.get_write_buffer_size())

    async with served(kind, path, serve) as (reader, _):
        received = await reader.readexactly(1000)
        assert not closed.done()
        assert digest(received + await reader.read()) == digest(data)
        assert await closed == 0


async def test_an_error_of_a_handler_is_reported(
    kind: str, path: Path, reported: list[dict[str, Any]]
) -> None:
    async def serve(reader: Reader, writer: Writer) -> None:
        raise ZeroDivisionError

    server = await start(kind, path, serve)
    reader, writer = await connect_to(server, kind, path)
    if sys.version_info >= (3, 12):
        assert await reader.read() == b""  # The handler's transport is closed.
    while not reported:
        await turns(1)
    assert isinstance(reported.pop()["exception"], ZeroDivisionError)
    writer.close()
    await writer.wait_closed()
    server.close()
    if sys.version_info >= (3, 12):
        await server.wait_closed()
    else:
        gc.collect()


async def test_extra_information(kind: str, path: Path) -> None:
    async with served(kind, path, echo_lines) as (reader, writer):
        writer.write(b"line\n")
        assert await reader.readline() == b"line\n"  # the handler is there
        sock = writer.get_extra_info("socket")
        assert writer.get_extra_info("sockname") == sock.getsockname()
        assert writer.get_extra_info("peername") == sock.getpeername()
        assert writer.can_write_eof()
        assert not writer.is_closing()


async def test_a_stream_goes_on_in_tls(path: Path) -> None:
    async def serve(reader: Reader, writer: Writer) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"go\n")
        await writer.drain()
        await writer.start_tls(server_context())
        await echo_lines(reader, writer)

    async with served("tcp", path, serve) as (reader, writer):
        writer.write(b"STARTTLS\n")
        assert await reader.readline() == b"go\n"
        await writer.start_tls(client_context(), server_hostname="localhost")
        assert writer.get_extra_info("cipher") is not None
        for line in (b"secret\n", b"y" * 50_000 + b"\n"):
            writer.write(line)
            assert await reader.readline() == line


async def test_many_connections_each_get_their_own_lines(kind: str, path: Path) -> None:
    server = await start(kind, path, echo_lines)

    async def converse(number: int) -> None:
        reader, writer = await connect_to(server, kind, path)
        for line in range(20):
            said = b"%d says %d\n" % (number, line)
            writer.write(said)
            assert await reader.readline() == said
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*map(converse, range(50)))
    await end(server)


async def test_closed_streams_leave_no_object_and_no_task(
    loop: whorl.EventLoop, kind: str, path: Path
) -> None:
    references: list[weakref.ref[Any]] = []

    async def serve(reader: Reader, writer: Writer) -> None:
        references.extend(map(weakref.ref, (reader, writer, writer.transport)))
        await echo_lines(reader, writer)

    async with served(kind, path, serve) as (reader, writer):
        references.extend(map(weakref.ref, (reader, writer, writer.transport)))
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
    del reader, writer
    await turns(5)
    gc.collect()
    assert [reference() for reference in references] == [None] * 6
    assert asyncio.all_tasks() == {asyncio.current_task()}
