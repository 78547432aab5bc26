"""An echo server, and what Prometheus reads of its loop. Needs prometheus-client."""

import asyncio
import time
import urllib.request

import prometheus_client

import whorl
import whorl.inspector

MESSAGES = 1000
SHOWN = ("turns_total", "bytes_total", "handles", "tasks", "away_seconds_bucket", "away_seconds_count")


async def echo(reader, writer):
    while line := await reader.readline():
        if line == b"block\n":
            time.sleep(0.1)  # Nobody is answered meanwhile: `away_seconds` shows it.
        writer.write(line)
    writer.close()


async def talk(address):
    reader, writer = await asyncio.open_connection(*address)
    for number in range(MESSAGES):
        writer.write(b"block\n" if number == MESSAGES // 2 else b"message\n")
        await reader.readline()
    return reader, writer


def scrape(port):
    """Read the metrics as Prometheus does."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode()


async def main():
    prometheus_client.REGISTRY.register(whorl.inspector.Collector())
    metrics, thread = prometheus_client.start_http_server(0, addr="127.0.0.1")
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await talk(server.sockets[0].getsockname())
    text = await asyncio.to_thread(scrape, metrics.server_port)
    shown = tuple(f"asyncio_eventloop_{name}" for name in SHOWN)
    print(*(line for line in text.splitlines() if line.startswith(shown)), sep="\n")
    writer.write_eof()
    await reader.read()  # until the server has closed the connection
    writer.close()
    server.close()
    metrics.shutdown()
    metrics.server_close()
    thread.join()


if __name__ == "__main__":
    whorl.run(main())
