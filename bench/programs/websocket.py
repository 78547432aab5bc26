"""A plain WebSocket server: it echoes short messages, and no extension slows it down."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
from typing import cast

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
HEAD_BYTES = 6  # of a short message from a client: two, and the mask
CLOSE = 0x88


class Echo(asyncio.Protocol):
    """A connection: the request to talk WebSocket, then messages of at most 125 bytes."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.received = b""
        self.is_open = False

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.is_open and b"\r\n\r\n" in self.received:
            request, _, self.received = self.received.partition(b"\r\n\r\n")
            self.transport.write(accept(request))
            self.is_open = True
        while self.is_open and len(self.received) > 1:
            end = HEAD_BYTES + (self.received[1] & 127)
            if len(self.received) < end:
                return
            message, self.received = self.received[:end], self.received[end:]
            self.transport.write(answer(message))
            if message[0] == CLOSE:
                self.transport.close()


def accept(request: bytes) -> bytes:
    """Return the answer to a request to talk WebSocket."""
    headers = (line.partition(b":") for line in request.split(b"\r\n")[1:])
    key = next(value.strip() for name, _, value in headers if name.lower() == b"sec-websocket-key")
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % base64.b64encode(hashlib.sha1(key + GUID).digest())
    )


def answer(message: bytes) -> bytes:
    """Return a client's message without its mask: a text, or the end of the connection."""
    size = len(message) - HEAD_BYTES
    mask = int.from_bytes((message[2:HEAD_BYTES] * (size // 4 + 1))[:size])
    return bytes((message[0], size)) + (int.from_bytes(message[HEAD_BYTES:]) ^ mask).to_bytes(size)


async def serve(listener: socket.socket) -> object:
    return await asyncio.get_running_loop().create_server(Echo, sock=listener)
