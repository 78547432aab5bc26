"""trio as the guest of a Whorl loop: its guest mode, unchanged."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

import whorl

trio = pytest.importorskip("trio", reason="trio is not installed")


async def visit(main: Any, *arguments: Any) -> Any:
    """Run a program of trio's on the running loop of asyncio's; its result."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    trio.lowlevel.start_guest_run(
        main,
        *arguments,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=done.set_result,
        host_uses_signal_set_wakeup_fd=True,
    )
    outcome = await done
    return outcome.unwrap()


async def test_trio_sleeps_and_asyncio_works_meanwhile(loop: whorl.EventLoop) -> None:
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.001)

    async def main() -> str:
        while len(ticks) <= 5:
            await trio.sleep(0.001)
        return await trio.to_thread.run_sync(lambda: "trio is done")

    ticking = asyncio.create_task(tick())
    assert await visit(main) == "trio is done"
    ticking.cancel()


async def test_the_two_talk_over_a_socket(loop: whorl.EventLoop) -> None:
    ours, theirs = socket.socketpair()

    async def echo() -> int:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        size = 0
        async with stream:
            async for data in stream:
                size += len(data)
                await stream.send_all(data)
        return size

    visiting = asyncio.create_task(visit(echo))
    reader, writer = await asyncio.open_connection(sock=ours)
    for number in range(20):
        writer.write(b"%d\n" % number)
        assert await reader.readline() == b"%d\n" % number
    writer.close()
    await writer.wait_closed()
    assert await visiting == 50


async def test_trio_is_cancelled_by_its_host(loop: whorl.EventLoop) -> None:
    scopes: list[Any] = []

    async def main() -> bool:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await trio.sleep_forever()
        return bool(scope.cancelled_caught)

    visiting = asyncio.create_task(visit(main))
    while not scopes:
        await asyncio.sleep(0)
    scopes[0].cancel()
    assert await visiting is True


def test_trio_is_the_host_of_a_loop_of_ours() -> None:
    async def guest() -> str:
        await asyncio.sleep(0.001)
        return "whorl is done"

    async def main() -> Any:
        token = trio.lowlevel.current_trio_token()
        done = trio.Event()
        outcomes: list[Any] = []

        def finish(outcome: Any) -> None:
            outcomes.append(outcome)
            done.set()

        whorl.start_guest_run(guest(), run_sync_soon_threadsafe=token.run_sync_soon, done_callback=finish)
        await done.wait()
        return outcomes[0].result()

    assert trio.run(main) == "whorl is done"
