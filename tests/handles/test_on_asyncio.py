"""Handles on a loop that runs coroutines."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.handles.pairs import Kind, Stream
from whorl.core import Event
from whorl.handles import (
    TTY,
    Async,
    Check,
    FsEvent,
    FsPoll,
    Idle,
    Poll,
    Prepare,
    Signal,
    Timer,
    Work,
    getaddrinfo,
)


@pytest.fixture
def loop(no_leak: None) -> Iterator[whorl.EventLoop]:
    loop = whorl.new_event_loop()
    yield loop
    for handle in loop.walk():
        handle.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_callback_of_a_handle_may_wake_a_coroutine(loop: whorl.EventLoop) -> None:
    async def main() -> list[str]:
        done = [loop.create_future() for _ in range(4)]
        Timer(loop).start(lambda timer: done[0].set_result("timer"), 1_000_000)
        Async(loop, lambda handle: done[1].set_result("async")).send()
        Work(loop, lambda: "work", lambda work, result, error: done[2].set_result(result))
        getaddrinfo(loop, "127.0.0.1", 80, lambda request, found, error: done[3].set_result("dns"))
        return list(await asyncio.gather(*done))

    assert loop.run_until_complete(main()) == ["timer", "async", "work", "dns"]


def test_phases_run_while_coroutines_run(loop: whorl.EventLoop) -> None:
    seen: list[str] = []
    for kind in (Check, Prepare, Idle):
        kind(loop).start(lambda handle: seen.append(type(handle).__name__))

    async def main() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert seen[:6] == ["Idle", "Prepare", "Check"] * 2


def test_a_repeating_timer_and_call_later_share_the_loop(loop: whorl.EventLoop) -> None:
    ticks: list[float] = []
    timer = Timer(loop)
    timer.start(lambda handle: ticks.append(loop.time()), 1_000_000, 1_000_000)

    async def two_ticks() -> None:
        while len(ticks) < 2:
            await asyncio.sleep(0.001)

    loop.run_until_complete(two_ticks())
    timer.stop()
    count = len(ticks)
    loop.run_until_complete(asyncio.sleep(0.005))
    assert len(ticks) == count


def test_a_descriptor_is_watched_by_a_handle_or_by_asyncio(loop: whorl.EventLoop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        got: asyncio.Future[bytes] = loop.create_future()
        poll = Poll(loop, ours)
        poll.start(Event.READABLE, lambda handle, events, error: got.set_result(ours.recv(10)))
        theirs.send(b"hello")
        assert loop.run_until_complete(got) == b"hello"
        poll.close()
        again: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(ours, lambda: again.done() or again.set_result(ours.recv(10)))
        theirs.send(b"again")
        assert loop.run_until_complete(again) == b"again"
        loop.remove_reader(ours)


def test_a_stream_of_asyncio_talks_to_a_handle(loop: whorl.EventLoop, kind: Kind) -> None:
    def take(server: Stream, error: OSError | None) -> None:
        connection = kind.handle(loop)
        server.accept(connection)
        connection.read_start(echo)

    def echo(connection: Stream, data: bytes, error: OSError | None) -> None:
        if data:
            connection.write(data)
        else:
            connection.shutdown(lambda request, error: request.handle.close())

    server = kind.server(loop, take)
    address = server.getsockname()

    async def main() -> bytes:
        if kind.name == "tcp":
            reader, writer = await asyncio.open_connection(*address)
        else:
            reader, writer = await asyncio.open_unix_connection(address)
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        data = await reader.read()
        writer.close()
        await writer.wait_closed()
        return data

    assert loop.run_until_complete(main()) == b"x" * 1_000_000


def test_an_error_out_of_a_callback_goes_to_the_exception_handler(loop: whorl.EventLoop, kind: Kind) -> None:
    reported: list[Any] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context["exception"]))

    def fail(*args: Any) -> None:
        raise ValueError("on purpose")

    client, server = kind.handle(loop), kind.server(loop, fail)
    client.connect(server.getsockname(), fail)
    Timer(loop).start(fail, 0)
    Async(loop, fail).send()
    Work(loop, list, fail)
    prepare = Prepare(loop)
    prepare.start(lambda handle: (handle.stop(), fail()))
    idle = Idle(loop)
    idle.start(lambda handle: None)
    idle.close(fail)

    async def main() -> None:
        while len(reported) < 7:
            await asyncio.sleep(0)

    loop.run_until_complete(asyncio.wait_for(main(), 10))
    assert [type(error) for error in reported] == [ValueError] * 7


def test_a_coroutine_waits_for_files_signals_and_terminals(loop: whorl.EventLoop, tmp_path: Path) -> None:
    async def main() -> None:
        happened: asyncio.Queue[Any] = asyncio.Queue()
        event, signals, poll, tty = FsEvent(loop), Signal(loop), FsPoll(loop), TTY(loop)
        event.start(tmp_path, lambda handle, name, changes, error: happened.put_nowait(name))
        (tmp_path / "made").mkdir()
        assert await happened.get() == "made"
        signals.start(signal.SIGUSR1, lambda handle, number: happened.put_nowait(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        assert await happened.get() == signal.SIGUSR1
        poll.start(tmp_path / "missing", 10**9, lambda handle, error, *rest: happened.put_nowait(error))
        assert isinstance(await happened.get(), FileNotFoundError)
        master, slave = pty.openpty()
        tty.open(slave)
        tty.read_start(lambda tty, data, error: happened.put_nowait(data))
        os.write(master, b"typed\n")
        assert await happened.get() == b"typed\n"
        for handle in (event, signals, poll, tty):
            handle.close()
        os.close(slave)
        os.close(master)
        await asyncio.sleep(0)

    loop.run_until_complete(asyncio.wait_for(main(), 30))


def test_a_watch_that_was_forgotten_is_closed_with_the_loop_and_told(tmp_path: Path) -> None:
    loop = whorl.new_event_loop()
    event, signals = FsEvent(loop), Signal(loop)
    event.start(tmp_path, print)
    signals.start(signal.SIGUSR1, print)
    with pytest.warns(ResourceWarning, match="unclosed handle"):
        loop.close()
    assert event.is_closing()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == -1
