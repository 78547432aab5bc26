"""An echo server with asyncio's streams: `python examples/echo_server.py [PORT]`, `nc 127.0.0.1 PORT`."""

import asyncio
import contextlib
import sys

import whorl


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
    writer.close()


async def main(port: int) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", port)
    print("listening on 127.0.0.1, port", server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        whorl.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8007))
