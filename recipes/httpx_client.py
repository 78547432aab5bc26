"""Twenty requests at a time with httpx.

$ python httpx_client.py
"""

# /// script
# dependencies = ["httpx", "whorl-loop"]
# ///

import asyncio

import httpx

import whorl


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    await writer.drain()
    writer.close()


async def main() -> None:
    server = await whorl.start_server(answer, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, httpx.AsyncClient() as client:
        responses = await asyncio.gather(*(client.get(address) for _ in range(20)))
    assert [response.text for response in responses] == ["hello"] * 20


if __name__ == "__main__":
    whorl.run(main())
