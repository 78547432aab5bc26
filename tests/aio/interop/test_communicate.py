"""`communicate` of processes, cancelled and called again."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import turns
from whorl.aio.interop import communicate

pytestmark = pytest.mark.usefixtures("no_leak")

#: The beginning of each program: it waits until the test lets it go on.
BEGINNING = """
import os, sys
def say(fd, text): os.write(fd, text)
def wait(): os.read(int(sys.argv[1]), 1)
"""


class Program:
    """A program that goes on when the test says so."""

    def __init__(self, process: Process, go_on: Callable[[], None]) -> None:
        self.process: Any = process
        self.go_on = go_on

    async def cancel_after(self, output: bytes, errors: bytes = b"", data: bytes | None = None) -> None:
        """Cancel a `communicate` that has read so much."""
        task = asyncio.ensure_future(self.process.communicate(data))
        expected = [output, errors]
        while self.kept() != expected:
            assert not task.done()
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def kept(self) -> list[bytes]:
        """Return what the running `communicate` has read."""
        kept = self.process._transport._communication
        return [] if kept is None else [b"".join(kept.output[fd]) for fd in (1, 2)]


Start = Callable[[str], Awaitable[Program]]


@pytest.fixture
def start(loop: whorl.EventLoop) -> Iterator[Start]:
    """Return a function that starts a program."""
    ends: list[int] = []

    async def start(code: str) -> Program:
        read_end, write_end = os.pipe()
        ends.append(write_end)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-c", BEGINNING + code, str(read_end)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            pass_fds=[read_end],
        )
        os.close(read_end)
        return Program(process, lambda: [None, os.write(write_end, b"!")][0])

    yield start
    for end in ends:
        os.close(end)


async def test_communicate_that_was_cancelled_keeps_what_it_has_read(start: Start) -> None:
    program = await start("say(1, b'first '); say(2, b'an error'); wait(); say(1, b'second')")
    await program.cancel_after(b"first ", b"an error")
    await program.cancel_after(b"first ", b"an error")
    program.go_on()
    assert await program.process.communicate() == (b"first second", b"an error")
    assert await program.process.communicate() == (b"", b"")


async def test_communicate_keeps_a_stream_that_has_ended(start: Start) -> None:
    program = await start("say(1, b'all'); os.close(1); say(2, b'some '); wait(); say(2, b'more')")
    await program.cancel_after(b"all", b"some ")
    program.go_on()
    assert await program.process.communicate() == (b"all", b"some more")


async def test_communicate_keeps_all_while_the_program_goes_on(start: Start) -> None:
    program = await start("say(1, b'out'); say(2, b'err'); os.close(1); os.close(2); wait()")
    await program.cancel_after(b"out", b"err")
    await turns(5)
    await program.cancel_after(b"out", b"err")
    program.go_on()
    assert await program.process.communicate() == (b"out", b"err")
    assert program.process.returncode == 0


@pytest.mark.parametrize("count", range(8))
async def test_communicate_sends_its_whole_input_whenever_it_is_cancelled(
    loop: whorl.EventLoop, count: int
) -> None:
    data = os.urandom(300_000)
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    task = asyncio.ensure_future(process.communicate(data))
    await turns(count + 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await process.communicate() == (data, None)


async def test_communicate_refuses_more_input_after_a_cancellation(start: Start) -> None:
    program = await start("say(1, b'out '); wait(); say(1, sys.stdin.buffer.read())")
    await program.cancel_after(b"out ", data=b"in")
    with pytest.raises(ValueError, match="cannot send input after starting communication"):
        await program.process.communicate(b"more")
    program.go_on()
    assert await program.process.communicate() == (b"out in", b"")


def test_communicate_of_other_loops_is_asyncios() -> None:
    async def talk() -> Any:
        process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        return await process.communicate(b"data"), process.returncode

    for make_loop in (whorl.EventLoop, asyncio.SelectorEventLoop):
        with asyncio.Runner(loop_factory=make_loop) as runner:
            assert runner.run(talk()) == ((b"data", None), 0)


def test_communicate_that_a_program_has_replaced_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(self: Any) -> None:
        """Do nothing."""

    assert Process.communicate.__qualname__ == "Process.communicate"
    monkeypatch.setattr(Process, "communicate", own)
    communicate.replace_stock()
    assert Process.communicate is own
