"""Client libraries as they are, against servers in processes of their own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from programs.program import Operation, Program, check

VALUE = b"x" * 100
PIPELINED = 50
CONNECTIONS = 20


@dataclass(frozen=True)
class Query:
    """A query, how many rows it has, and the last of them."""

    text: str
    rows: int
    last: tuple[object, ...]


ONE_ROW = Query("select 1", 1, (1,))
MANY_ROWS = Query(
    "select number, 'row ' || number from generate_series(1, 1000) as number", 1000, (1000, "row 1000")
)


@contextlib.asynccontextmanager
async def redis_get(address: str) -> AsyncIterator[Operation]:
    from redis import asyncio as redis

    async with redis.from_url(address) as client:
        await client.set("key", VALUE)

        async def get() -> None:
            check(await client.get("key"), VALUE)

        yield get


@contextlib.asynccontextmanager
async def redis_pipeline(address: str) -> AsyncIterator[Operation]:
    from redis import asyncio as redis

    async with redis.from_url(address) as client:
        await client.set("key", VALUE)

        async def get_many() -> None:
            async with client.pipeline(transaction=False) as pipeline:
                for _ in range(PIPELINED):
                    pipeline.get("key")
                check(await pipeline.execute(), [VALUE] * PIPELINED)

        yield get_many


@contextlib.asynccontextmanager
async def asyncpg_fetch(query: Query, address: str) -> AsyncIterator[Operation]:
    import asyncpg

    connection = await asyncpg.connect(address)

    async def fetch() -> None:
        rows = await connection.fetch(query.text)
        check((len(rows), tuple(rows[-1])), (query.rows, query.last))

    yield fetch
    await connection.close()


@contextlib.asynccontextmanager
async def psycopg_fetch(query: Query, address: str) -> AsyncIterator[Operation]:
    import psycopg

    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:

        async def fetch() -> None:
            cursor = await connection.execute(query.text)
            rows = await cursor.fetchall()
            check((len(rows), rows[-1]), (query.rows, query.last))

        yield fetch


@contextlib.asynccontextmanager
async def aiohttp_get(keeps_alive: bool, address: str) -> AsyncIterator[Operation]:
    import aiohttp

    numbers = itertools.count()
    connector = aiohttp.TCPConnector(force_close=not keeps_alive)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def get() -> None:
            number = str(next(numbers))
            async with session.get(f"{address}/{number}") as response:
                check(await response.text(), number)

        yield get


@contextlib.asynccontextmanager
async def httpx_get(address: str) -> AsyncIterator[Operation]:
    import httpx

    numbers = itertools.count()
    async with httpx.AsyncClient(trust_env=False) as client:  # whatever proxies the environment names

        async def get() -> None:
            number = str(next(numbers))
            response = await client.get(f"{address}/{number}")
            check(response.text, number)

        yield get


@contextlib.asynccontextmanager
async def websockets_echo(address: str) -> AsyncIterator[Operation]:
    from websockets.asyncio.client import connect

    numbers = itertools.count()
    async with contextlib.AsyncExitStack() as stack:
        free = [await stack.enter_async_context(connect(address, proxy=None)) for _ in range(CONNECTIONS)]

        async def echo() -> None:
            connection, message = free.pop(), f"message {next(numbers)}"
            await connection.send(message)
            check(await connection.recv(), message)
            free.append(connection)

        yield echo


_redis = partial(Program, service="redis", packages=("redis",))
_asyncpg = partial(Program, service="postgresql", packages=("asyncpg",))
_psycopg = partial(Program, service="postgresql", packages=("psycopg",))
_aiohttp = partial(Program, service="http", packages=("aiohttp",))
_httpx = partial(Program, service="http", packages=("httpx",))
_websockets = partial(Program, service="websocket", packages=("websockets",))
_keeping, _closing = partial(aiohttp_get, True), partial(aiohttp_get, False)
PROGRAMS = (
    _redis("program/redis/get/1", "redis: GET, one at a time", redis_get, 300),
    _redis("program/redis/get/50", "redis: GET, 50 at a time", redis_get, 10, 50),
    _redis("program/redis/pipeline", "redis: 50 GETs in a pipeline", redis_pipeline, 40, counts=PIPELINED),
    _asyncpg("program/asyncpg/select", "asyncpg: `select 1`", partial(asyncpg_fetch, ONE_ROW), 400),
    _asyncpg("program/asyncpg/rows", "asyncpg: 1,000 rows", partial(asyncpg_fetch, MANY_ROWS), 100),
    _psycopg("program/psycopg/select", "psycopg: `select 1`", partial(psycopg_fetch, ONE_ROW), 400),
    _psycopg("program/psycopg/rows", "psycopg: 1,000 rows", partial(psycopg_fetch, MANY_ROWS), 100),
    _aiohttp("program/aiohttp/keep-alive/1", "aiohttp client, keep-alive, one at a time", _keeping, 200),
    _aiohttp("program/aiohttp/keep-alive/20", "aiohttp client, keep-alive, 20 at a time", _keeping, 15, 20),
    _aiohttp("program/aiohttp/close/1", "aiohttp client, no keep-alive, one at a time", _closing, 100),
    _aiohttp("program/aiohttp/close/20", "aiohttp client, no keep-alive, 20 at a time", _closing, 10, 20),
    _httpx("program/httpx/1", "httpx, one at a time", httpx_get, 50),
    _httpx("program/httpx/20", "httpx, 20 at a time", httpx_get, 3, 20),
    _websockets("program/websockets/1", "websockets: echo, one at a time", websockets_echo, 400),
    _websockets("program/websockets/20", "websockets: echo, 20 at a time", websockets_echo, 50, CONNECTIONS),
)
