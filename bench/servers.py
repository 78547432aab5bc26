"""The servers: echo, one for each way of doing I/O that asyncio offers, and HTTP.

usage: servers.py KIND LOOP tcp|udp|tls|unix:PATH

Prints "READY ADDRESS" and serves until it is killed.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import loops
import web_servers
from programs import websocket

BACKLOG = 2048
READ_BYTES = 64 * 1024
BUFFER_BYTES = 256 * 1024
CERTIFICATE = Path(__file__).resolve().parent.parent / "tests" / "aio" / "certificates" / "localhost.pem"
TLS: ssl.SSLContext | None = None  # what the servers speak


class EchoProtocol(asyncio.Protocol):
    """Echo with `data_received`."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class EchoDatagrams(asyncio.DatagramProtocol):
    """Echo with `datagram_received`."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.transport.sendto(data, addr)


class EchoBufferedProtocol(asyncio.BufferedProtocol):
    """Echo with `buffer_updated`; all connections share one buffer, and each write is a copy of it."""

    buffer = memoryview(bytearray(BUFFER_BYTES))
    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


async def serve_protocol(
    listener: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol] = EchoProtocol
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if listener.family == socket.AF_UNIX:
        return await loop.create_unix_server(make_protocol, sock=listener, backlog=BACKLOG)
    return await loop.create_server(make_protocol, sock=listener, backlog=BACKLOG, ssl=TLS)


async def serve_streams(listener: socket.socket) -> asyncio.Server:
    if listener.family == socket.AF_UNIX:
        return await asyncio.start_unix_server(_echo_stream, sock=listener, backlog=BACKLOG)
    return await asyncio.start_server(_echo_stream, sock=listener, backlog=BACKLOG, ssl=TLS)


async def _echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve_datagrams(sock: socket.socket) -> asyncio.BaseTransport:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(EchoDatagrams, sock=sock)
    return transport


async def serve_sock(listener: socket.socket) -> asyncio.Task[None]:
    return asyncio.create_task(_accept_socks(listener))


async def _accept_socks(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    echoes = set()
    while True:
        sock, _ = await loop.sock_accept(listener)
        sock.setblocking(False)
        if sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        echo = asyncio.create_task(_echo_sock(sock))
        echoes.add(echo)
        echo.add_done_callback(echoes.discard)


async def _echo_sock(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with sock, contextlib.suppress(ConnectionError):
        while data := await loop.sock_recv(sock, READ_BYTES):
            await loop.sock_sendall(sock, data)


async def serve_programs(listener: socket.socket) -> object:
    """HTTP for programs that are measured: they close first."""
    leave_no_time_wait(listener)
    return await web_servers.serve_httptools(listener)


def leave_no_time_wait(listener: socket.socket) -> None:
    """Let the sockets that are accepted here reset their connections when they are closed."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


KINDS = {
    "protocol": serve_protocol,
    "buffered": partial(serve_protocol, make_protocol=EchoBufferedProtocol),
    "streams": serve_streams,
    "sock": serve_sock,
    "datagram": serve_datagrams,
    "aiohttp": web_servers.serve_aiohttp,
    "uvicorn": web_servers.serve_uvicorn,
    "fastapi": web_servers.serve_fastapi,
    "hypercorn": web_servers.serve_hypercorn,
    "httptools": web_servers.serve_httptools,
    "http-for-programs": serve_programs,
    "websocket-for-programs": websocket.serve,
}


def listen(address: str) -> tuple[socket.socket, str]:
    """Return a listening socket, and its name for clients."""
    family, _, path = address.partition(":")
    if family == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        reachable_at = address
    else:
        # asyncio sets TCP_NODELAY only where the protocol number is given.
        kind = (socket.SOCK_DGRAM,) if family == "udp" else (socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener = socket.socket(socket.AF_INET, *kind)
        listener.bind(("127.0.0.1", 0))
        reachable_at = f"{family}:{listener.getsockname()[1]}"
    if family != "udp":
        listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener, reachable_at


async def serve(kind: str, address: str) -> None:
    if address == "tls":
        global TLS
        TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        TLS.load_cert_chain(CERTIFICATE)
    listener, reachable_at = listen(address)
    server = await KINDS[kind](listener)
    print("READY", reachable_at, flush=True)
    await asyncio.get_running_loop().create_future()
    del server


def main() -> None:
    kind, loop_name, address = sys.argv[1:]
    loops.die_with_parent()
    with asyncio.Runner(loop_factory=loops.factory(loop_name)) as runner:
        runner.run(serve(kind, address))


if __name__ == "__main__":
    main()
