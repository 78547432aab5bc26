"""A shop over HTTP, and its customers. Orders block the loop now and then: they wait for an old library.

Start it for a minute by `whorl run --inspect examples/orders.py 60`, and try the commands that it prints.
"""

import asyncio
import os
import random
import sys
import time

LIFETIME = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0  # seconds
COMMANDS = ("top", "tasks", "stalls", "handles", "metrics", "report", "trace")


async def price(writer):
    """Answer from a database."""
    await asyncio.sleep(0.002)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n" + bytes(4096))


async def search(writer):
    """Compute for a while."""
    end = time.thread_time() + random.uniform(0.001, 0.008)
    while time.thread_time() < end:
        pass
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def handle_order(writer):
    """Call a library that was not made for asyncio."""
    send_mail()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def send_mail():
    time.sleep(random.choice([0.02, 0.15, 0.3]))


async def serve(reader, writer):
    pages = {b"/price": price, b"/search": search, b"/order": handle_order}
    while request := await reader.readline():
        await reader.readline()
        await asyncio.create_task(pages[request.split()[1]](writer))
    writer.close()


async def customer(port, number):
    """Look at pages, and order now and then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end = time.monotonic() + LIFETIME
    while time.monotonic() < end:
        await asyncio.sleep(random.expovariate(20))
        page = random.choices([b"/price", b"/search", b"/order"], [200, 10, 1])[0]
        writer.write(b"GET " + page + b" HTTP/1.1\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.split()[-1]))
    writer.close()


async def main():
    random.seed(3)
    print(
        "While this runs, try:", *(f"  whorl {name} {os.getpid()}" for name in COMMANDS), sep="\n", flush=True
    )
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.TaskGroup() as customers:
        for number in range(40):
            port = server.sockets[0].getsockname()[1]
            customers.create_task(customer(port, number), name=f"customer {number}")


asyncio.run(main())
