"""asyncpg: a pool, and a small server of PostgreSQL's protocol that answers each query with its argument."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Any

import asyncpg

from tests.sim.programs.bearing import attempts

CLIENTS, QUERIES = 3, 4
TEXT = 25  # the type's number in PostgreSQL

READY = b"Z\0\0\0\5I"


def message(kind: bytes, content: bytes = b"") -> bytes:
    """Return a message of the protocol."""
    return kind + struct.pack("!i", len(content) + 4) + content


def columns(name: bytes) -> bytes:
    """Return the description of one column of text."""
    return message(b"T", struct.pack("!h", 1) + name + b"\0" + struct.pack("!ihihih", 0, 0, TEXT, -1, -1, 0))


def row(value: bytes) -> bytes:
    """Return a row with one value."""
    return message(b"D", struct.pack("!hi", 1, len(value)) + value)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take any password, and answer queries."""
    with contextlib.suppress(ConnectionError, OSError, asyncio.IncompleteReadError):
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        await reader.readexactly(size - 4)
        greeting = message(b"R", struct.pack("!i", 0))
        for name, value in ((b"server_version", b"16.0"), (b"client_encoding", b"UTF8")):
            greeting += message(b"S", name + b"\0" + value + b"\0")
        writer.write(greeting + message(b"K", struct.pack("!ii", 1, 2)) + READY)
        value = b""
        while True:
            kind = await reader.readexactly(1)
            (size,) = struct.unpack("!i", await reader.readexactly(4))
            content = await reader.readexactly(size - 4)
            if kind == b"Q":
                writer.write(message(b"C", b"RESET\0") + READY)
            elif kind == b"P":
                writer.write(message(b"1"))
            elif kind == b"D":
                writer.write(message(b"t", struct.pack("!hi", 1, TEXT)) + columns(b"value"))
            elif kind == b"B":
                value = bound(content)
                writer.write(message(b"2"))
            elif kind == b"E":
                await asyncio.sleep(0.002)
                writer.write(row(value) + message(b"C", b"SELECT 1\0"))
            elif kind == b"C":
                writer.write(message(b"3"))
            elif kind == b"S":
                writer.write(READY)
            elif kind == b"X":
                break
            if kind in b"QSH":
                await writer.drain()
    writer.close()


def bound(content: bytes) -> bytes:
    """Return the first argument of a Bind message."""
    place = content.index(b"\0") + 1
    place = content.index(b"\0", place) + 1
    (formats,) = struct.unpack_from("!h", content, place)
    place += 2 + 2 * formats
    count, size = struct.unpack_from("!hi", content, place)
    return content[place + 6 : place + 6 + size] if count else b""


async def main(world: Any) -> int:
    """Query through a pool; each answer belongs to its query."""
    asyncpg.connection._uid = (
        0  # its names of statements count up in a process; a run is to begin with the first
    )
    server = None
    async for attempt in attempts():
        with attempt:
            server = await asyncio.start_server(serve, "10.0.0.1", 5432)
    assert server is not None
    borne = (asyncpg.PostgresError, asyncpg.InterfaceError)
    pool = None
    async for attempt in attempts(*borne):
        with attempt:
            pool = await asyncpg.create_pool(
                host="main",
                port=5432,
                user="u",
                password="p",
                database="d",
                ssl=False,
                min_size=1,
                max_size=2,
            )
    assert pool is not None
    done = 0

    async def queries(number: int) -> None:
        nonlocal done
        for place in range(QUERIES):
            async for attempt in attempts(*borne):
                with attempt:
                    value = await pool.fetchval("SELECT $1::text", f"{number}.{place}")
                    assert value == f"{number}.{place}", value
                    done += 1

    await asyncio.gather(*(queries(number) for number in range(CLIENTS)))
    pool.terminate()
    server.close()
    assert done == CLIENTS * QUERIES
    return done
