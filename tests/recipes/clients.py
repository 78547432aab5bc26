"""HTTP clients that number their requests and keep account of the answers, while servers come and go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

TIMEOUT = 40  # seconds, for servers that come and go


class Clients:
    """Clients with one request on each connection; an HTTP client repeats a request that nobody began."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answered: dict[int, int] = {}  # the number of a request, and the process that answered
        self.loops: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.seen: list[int] = []  # the process of each answer, in order
        self._number = 0
        self._answer = asyncio.Event()

    @asynccontextmanager
    async def running(self, count: int = 8) -> AsyncIterator[None]:
        """Ask all the time, by `count` clients; wait for the last answers at the end."""
        stop = asyncio.Event()
        clients = [asyncio.create_task(self._ask_until(stop)) for _ in range(count)]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*clients)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for answers until the condition holds."""
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._answer.clear()
                await self._answer.wait()

    async def connected(self) -> None:
        """Wait for a server that listens."""
        async with asyncio.timeout(TIMEOUT):
            while await self.ask() == "refused":
                await asyncio.sleep(0.02)
        self.outcomes.clear()

    async def _ask_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.outcomes[await self.ask()] += 1

    async def ask(self) -> str:
        """Send one request, and return what became of it."""
        self._number += 1
        number = self._number
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionRefusedError:
            return "refused"
        except ConnectionResetError:  # The worker that was to accept it ended, before the client had looked.
            return "closed"
        data = b""
        try:
            writer.write(f"GET /{number} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            while part := await reader.read(65536):
                data += part
        except ConnectionError:
            pass
        finally:
            writer.close()
        if not data:
            return "closed"
        words = data.rpartition(b"\r\n\r\n")[2].decode().split()
        if len(words) != 3 or words[0] != str(number) or not data.startswith(b"HTTP/1.1 200"):
            return "broken"
        self.answered[number] = int(words[1])
        self.seen.append(int(words[1]))
        self.loops.add(words[2])
        self._answer.set()
        return "answered"

    def lost(self, log: Path) -> set[int]:
        """Return the processes that began a request and did not answer it."""
        begun = (line.split() for line in log.read_text().splitlines())
        return {int(process) for number, process in begun if int(number) not in self.answered}
