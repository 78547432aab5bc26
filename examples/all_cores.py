"""An echo server on all cores: `python3.13t examples/all_cores.py [PORT]`, `nc 127.0.0.1 PORT`, Ctrl-C."""

import asyncio
import contextlib
import sys

import whorl

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 8007


class Echo(asyncio.Protocol):
    """Sends back what comes. It belongs to one loop, so it needs no lock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def main(index: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", PORT, reuse_port=True)
    print(f"loop {index} listens on port {PORT}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        whorl.run_loops(main)
