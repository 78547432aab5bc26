"""A server and a client of websockets.

$ python websockets_echo.py
"""

# /// script
# dependencies = ["websockets", "whorl-loop"]
# ///

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

import whorl


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def main() -> None:
    async with serve(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}") as client:
            await client.send("hello")
            assert await client.recv() == "hello"


if __name__ == "__main__":
    whorl.run(main())
