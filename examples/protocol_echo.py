"""An echo server with a protocol, and a client of it, over a UNIX socket: `python examples/protocol_echo.py`.

Protocols are called by the loop itself, with no task in between: the fastest way to do I/O here. A peer that
reads slower than it writes is not read from until it has caught up, so that memory stays bounded.
"""

import asyncio
import tempfile
from typing import cast

import whorl


class Echo(asyncio.Protocol):
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


class Sender(asyncio.Protocol):
    """Sends a message, ends its side, and collects what comes back."""

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.received = bytearray()
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writer = cast(asyncio.Transport, transport)
        writer.write(self.message)
        writer.write_eof()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


async def main() -> None:
    loop = asyncio.get_running_loop()
    message = b"round it goes " * 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/echo"
        async with await loop.create_unix_server(Echo, path):
            _, sender = await loop.create_unix_connection(lambda: Sender(message), path)
            await sender.closed
    print(f"{len(message):,} bytes sent, and the same came back: {sender.received == message}")


if __name__ == "__main__":
    whorl.run(main())
