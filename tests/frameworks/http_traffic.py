"""Clients of an HTTP server: polite, abrupt and slow ones; each checks that its replies are its own.

The server has two resources. `POST /echo` answers with the body of the request and its `X-Request`
header. `GET /noise/<seed>/<size>` answers with that many bytes, which follow from the seed.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from typing import Any, NamedTuple

from tests.aio.sockets_for_tests import digest, noise, turns

POLITE = 25
ABRUPT = 25
SLOW = 3
REQUESTS = 8
BIG = 2_000_000

Address = tuple[str, int] | str
TLS = ssl.SSLContext | None


class Reply(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """A connection that makes one request after the other, or several at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: Address, tls: TLS = None, small: bool = False) -> Client:
        """Connect to a host and port, or to the path of a UNIX socket."""
        unix = isinstance(address, str)
        sock = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        sock.setblocking(False)
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        options: dict[str, Any] = {"ssl": tls, "server_hostname": "localhost"} if tls else {}
        if unix:
            reader, writer = await asyncio.open_unix_connection(sock=sock, **options)
        else:
            reader, writer = await asyncio.open_connection(sock=sock, **options)
        return cls(reader, writer)

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """Send a request."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def reply(self) -> Reply:
        """Receive the next reply."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body = await self._chunks()
        else:
            body = await self.reader.readexactly(int(headers["content-length"]))
        return Reply(int(first.split()[1]), headers, body)

    async def _chunks(self) -> bytes:
        body = bytearray()
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return bytes(body)

    async def close(self) -> None:
        """Say good-bye."""
        self.writer.close()
        await self.writer.wait_closed()

    def reset(self) -> None:
        """Leave with a reset."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def echo(client: Client, name: str, body: bytes) -> None:
    """Make one request, whose reply must be its own."""
    client.send("POST", "/echo", body, X_Request=name)
    check(await client.reply(), name, body)


def check(reply: Reply, name: str, body: bytes) -> None:
    assert reply.status == 200
    assert reply.headers["x-request"] == name, "this is the reply to another request"
    assert digest(reply.body) == digest(body), "this is the body of another request"


async def be_polite(number: int, address: Address, tls: TLS) -> None:
    """Make several requests over one connection, one after the other."""
    dice = random.Random(number)
    client = await Client.connect(address, tls)
    for count in range(REQUESTS):
        await echo(client, f"{number}-{count}", noise(dice.choice([0, 1, 1000, 70_000]), number))
    await client.close()


async def pipeline(number: int, address: Address, tls: TLS) -> None:
    """Make several requests at once: the replies come in their order."""
    client = await Client.connect(address, tls)
    for count in range(REQUESTS):
        client.send("POST", "/echo", b"%d" % count, X_Request=f"{number}-{count}")
    for count in range(REQUESTS):
        check(await client.reply(), f"{number}-{count}", b"%d" % count)
    await client.close()


async def be_abrupt(number: int, address: Address, tls: TLS) -> None:
    """Leave with a reset, in the middle of a request, of a reply, or between two."""
    dice = random.Random(number)
    client = await Client.connect(address, tls)
    match number % 5:
        case 0:  # at once
            pass
        case 1:  # in the middle of the head
            client.writer.write(b"POST /echo HTTP/1.1\r\nHost: loc")
            await turns(dice.randrange(20))
        case 2:  # in the middle of the body
            client.writer.write(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nsome")
            await turns(dice.randrange(20))
        case 3:  # in the middle of the reply
            client.send("GET", f"/noise/{number}/{BIG}")
            await client.reader.readexactly(1000)
        case 4:  # before the reply
            client.send("GET", f"/noise/{number}/{BIG}")
            await turns(dice.randrange(20))
    client.reset()


async def be_slow(number: int, address: Address, tls: TLS) -> None:
    """Read a long reply in small bites."""
    client = await Client.connect(address, tls, small=True)
    client.send("GET", f"/noise/{number}/{BIG}")
    await turns(50)
    reply = await client.reply()
    assert digest(reply.body) == digest(noise(BIG, number))
    await client.close()


async def traffic(address: Address, tls: TLS = None, pipelining: bool = True) -> None:
    """Run all of them at the same time; the server still answers afterwards."""
    visits = [be_polite(number, address, tls) for number in range(POLITE)]
    visits += [be_abrupt(number, address, tls) for number in range(ABRUPT)]
    visits += [be_slow(number, address, tls) for number in range(SLOW)]
    if pipelining:
        visits += [pipeline(number, address, tls) for number in range(SLOW)]
    async with asyncio.TaskGroup() as group:
        for visit in visits:
            group.create_task(visit)
    await be_polite(0, address, tls)
