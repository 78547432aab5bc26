"""A game loop that draws ten frames a second hosts a loop of Whorl's: an echo server and its client.

The host's loop is written out, as a game has it: events, then the frame, then sleep until the next one.
"""

import asyncio
import collections
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import whorl

FRAME = 0.1  # seconds


class Game:
    """A host: its events are functions that other threads may add."""

    def __init__(self) -> None:
        self.events: collections.deque[Callable[[], object]] = collections.deque()
        self.something_happened = threading.Event()
        self.running = True
        self.frames = 0

    def call_soon(self, function: Callable[[], object]) -> None:
        self.events.append(function)
        self.something_happened.set()

    def run(self) -> None:
        next_frame = time.monotonic()
        while self.running:
            self.something_happened.wait(max(0.0, next_frame - time.monotonic()))
            self.something_happened.clear()
            for _ in range(len(self.events)):
                self.events.popleft()()
            if time.monotonic() >= next_frame:
                self.frames += 1
                next_frame += FRAME


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.readline():
        writer.write(data)
    writer.close()


async def play() -> int:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for number in range(3):
            writer.write(f"move {number}\n".encode())
            print("echoed:", (await reader.readline()).decode().strip())
            await asyncio.sleep(FRAME)
        writer.write_eof()
        await reader.read()  # until the server has hung up too
        writer.close()
        await writer.wait_closed()
    return number + 1


def main() -> None:
    game = Game()

    def done(outcome: Future[int]) -> None:
        print("moves:", outcome.result())
        game.running = False

    whorl.start_guest_run(play(), run_sync_soon_threadsafe=game.call_soon, done_callback=done)
    game.run()
    print("frames drawn meanwhile:", game.frames)


if __name__ == "__main__":
    main()
