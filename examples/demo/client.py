"""The client: many keep-alive connections, one request outstanding on each, every reply checked.

usage: client.py PORT CONNECTIONS SECONDS

Prints one line of JSON. It speaks just enough HTTP/1.1 to be faster than the service, and runs on asyncio's
own loop whatever loop the service is on.
"""

import asyncio
import contextlib
import gc
import json
import random
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, cast

import content

HOST = "127.0.0.1"
WARM_UP_SECONDS = 0.5
GRACE_SECONDS = 5.0  # what replies outstanding at the end may take before they count as lost
RECEIVE_BYTES = 256 * 1024
HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"


@dataclass(frozen=True)
class Kind:
    """A kind of request: its data, the expected reply, and how long the handler sleeps on purpose."""

    weight: int
    request: Callable[[int], bytes]
    is_right: Callable[[int, bytes], bool]
    sleep: float = 0.0


def get(path: str) -> Callable[[int], bytes]:
    return lambda number: f"GET {path}/{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def upload(number: int) -> bytes:
    body = content.upload(number)
    return (
        f"POST /checksum/{number} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def is_checksum(number: int, body: bytes) -> bool:
    sent = content.upload(number)
    return bool(json.loads(body) == {"number": number, "bytes": len(sent), "crc32": zlib.crc32(sent)})


KINDS = (
    Kind(
        60,
        get("/echo"),
        lambda number, body: json.loads(body) == {"number": number, "path": f"/echo/{number}"},
    ),
    Kind(20, get("/page"), lambda number, body: body == content.page(number)),
    Kind(15, upload, is_checksum),
    Kind(
        5,
        get("/wait"),
        lambda number, body: json.loads(body) == {"number": number},
        sleep=content.WAIT_SECONDS,
    ),
)
MIX = random.Random(2).choices(KINDS, [kind.weight for kind in KINDS], k=10_000)


class Load:
    """The state that all connections share: the next request's number, and the results."""

    def __init__(self) -> None:
        self.next_number = 0
        self.is_measuring = False
        self.is_stopping = False
        self.latencies_us: list[int] = []
        self.errors: list[str] = []

    def take_number(self) -> int:
        self.next_number += 1
        return self.next_number


class Connection(asyncio.BufferedProtocol):
    """One keep-alive connection: request, reply, check, next request."""

    _shared_buffer = memoryview(bytearray(RECEIVE_BYTES))
    _transport: asyncio.Transport

    def __init__(self, load: Load) -> None:
        self.finished = asyncio.get_running_loop().create_future()
        self._load = load
        self._received = bytearray()
        self._expected_bytes = 0  # of head and body, or 0 before the head is complete
        self._body_begin = 0
        self._number = 0
        self._kind = KINDS[0]
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send_next()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._shared_buffer[:nbytes]
        if not self._expected_bytes:
            self._parse_head()
        if self._expected_bytes and len(self._received) >= self._expected_bytes:
            self._finish_request()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.done():
            self._fail(f"the connection was lost: {exc or 'closed by the service'}")

    def _send_next(self) -> None:
        self._number = self._load.take_number()
        self._kind = MIX[self._number % len(MIX)]
        self._received.clear()
        self._expected_bytes = 0
        self._sent_at = perf_counter()
        self._transport.write(self._kind.request(self._number))

    def _parse_head(self) -> None:
        end = self._received.find(HEAD_END)
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        if not head.startswith(b"http/1.1 200 ") or LENGTH not in head:
            self._fail(f"not the reply expected: {head[:80]!r}")
            return
        self._body_begin = end + len(HEAD_END)
        self._expected_bytes = self._body_begin + int(head.partition(LENGTH)[2].partition(b"\r\n")[0])

    def _finish_request(self) -> None:
        latency = perf_counter() - self._sent_at - self._kind.sleep
        body = bytes(self._received[self._body_begin :])
        if not self._kind.is_right(self._number, body):
            self._fail(f"a body that does not belong to the request: {body[:80]!r}")
            return
        if self._load.is_measuring:
            self._load.latencies_us.append(round(latency * 1e6))
        if self._load.is_stopping:
            self._end()
        else:
            self._send_next()

    def _fail(self, what: str) -> None:
        self._load.errors.append(f"request {self._number}: {what}")
        self._end()

    def _end(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)
        self._transport.close()


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Return by how much each number has grown."""
    return {name: after[name] - number for name, number in before.items() if isinstance(number, int)}


async def drive(port: int, connection_count: int, seconds: float) -> dict[str, Any]:
    """Load the service for `seconds`; what was seen of it, and what its loop did meanwhile."""
    loop = asyncio.get_running_loop()
    load = Load()
    connections = [
        (await loop.create_connection(lambda: Connection(load), HOST, port))[1]
        for _ in range(connection_count)
    ]
    await asyncio.sleep(WARM_UP_SECONDS)

    before = await fetch_json(port, "/loop")
    load.is_measuring = True
    begin, busy_before = perf_counter(), process_time()
    await asyncio.sleep(seconds)
    load.is_measuring = False
    elapsed, busy = perf_counter() - begin, process_time() - busy_before
    after = await fetch_json(port, "/loop")

    load.is_stopping = True
    lost = await _wait_for_the_last(connections)
    load.errors += [f"{lost} connections never got their last reply"] if lost else []
    return {
        "seconds": elapsed,
        "client_busy": busy / elapsed,
        "latencies_us": load.latencies_us,
        "errors": len(load.errors),
        "first_error": load.errors[0] if load.errors else None,
        "loop": _difference(before, after) if before else None,
    }


async def fetch_json(port: int, path: str) -> Any:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    reply = await reader.read()
    writer.close()
    await writer.wait_closed()
    return json.loads(reply.partition(HEAD_END)[2])


async def _wait_for_the_last(connections: list[Connection]) -> int:
    _, lost = await asyncio.wait([connection.finished for connection in connections], timeout=GRACE_SECONDS)
    return len(lost)


def main() -> None:
    port, connection_count, seconds = sys.argv[1:]
    gc.disable()  # a collection here would be seen as latency there
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(asyncio.run(drive(int(port), int(connection_count), float(seconds)))))


if __name__ == "__main__":
    main()
