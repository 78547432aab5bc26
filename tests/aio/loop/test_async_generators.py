"""The shutdowns of a loop: they take effect, and what is due runs meanwhile, as in asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio

pytestmark = pytest.mark.usefixtures("no_leak")

ENDINGS = ["shutdown_asyncgens", "shutdown_default_executor"]


@pytest.fixture(params=ENDINGS)
def ending(request: pytest.FixtureRequest) -> str:
    """Return the name of a method that shuts down a part of the loop."""
    name: str = request.param
    return name


@pytest.fixture(params=["cpython", "compiled"])
def ended(request: pytest.FixtureRequest) -> Iterator[whorl.EventLoop]:
    """Yield a loop that has run and that is only closed after the test."""
    loop = whorl.new_event_loop(tasks=request.param)
    loop.run_until_complete(asyncio.sleep(0))
    yield loop
    loop.close()


def test_shutdown_of_an_unused_loop_takes_effect(ended: whorl.EventLoop) -> None:
    async def use_executor() -> None:
        with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
            ended.run_in_executor(None, list)

    async def use_generator() -> None:
        async def numbers() -> Any:
            yield 1

        async for _ in numbers():
            pass

    for ending in ENDINGS:
        ended.run_until_complete(getattr(ended, ending)())
    ended.run_until_complete(use_executor())
    with pytest.warns(ResourceWarning, match=r"was scheduled after loop\.shutdown_asyncgens\(\) call"):
        ended.run_until_complete(use_generator())


def test_shutdown_coroutine_cannot_be_run_again(ending: str) -> None:
    def run_twice(loop: Any) -> None:
        coroutine = getattr(loop, ending)()
        loop.run_until_complete(coroutine)
        loop.run_until_complete(coroutine)

    assert error_as_in_asyncio(run_twice) == (RuntimeError, "cannot reuse already awaited coroutine")


def test_shutdown_runs_ready_callbacks(ending: str) -> None:
    def schedule(loop: Any) -> list[str]:
        seen: list[str] = []
        loop.call_soon(seen.append, "soon")
        loop.run_until_complete(getattr(loop, ending)())
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(seen.append, "posted"))
        thread.start()
        thread.join()
        loop.run_until_complete(getattr(loop, ending)())
        loop.call_later(0, seen.append, "due")
        loop.run_until_complete(getattr(loop, ending)())
        task = loop.create_task(asyncio.sleep(0))
        loop.run_until_complete(getattr(loop, ending)())
        return [*seen, "done" if task.done() else "pending"]

    assert is_as_in_asyncio(schedule) == ["soon", "posted", "due", "done"]


def test_shutdown_runs_callbacks_of_readable_descriptors(ending: str) -> None:
    def watch(loop: Any) -> list[str]:
        seen: list[str] = []
        read_end, write_end = os.pipe()
        loop.add_reader(read_end, seen.append, "readable")
        os.write(write_end, b"x")
        loop.run_until_complete(getattr(loop, ending)())
        loop.remove_reader(read_end)
        os.close(read_end)
        os.close(write_end)
        return seen[:1]

    assert is_as_in_asyncio(watch) == ["readable"]


def test_shutdown_runs_handlers_of_signals(ending: str) -> None:
    def handle(loop: Any) -> list[str]:
        seen: list[str] = []
        loop.add_signal_handler(signal.SIGUSR1, seen.append, "signal")
        signal.raise_signal(signal.SIGUSR1)
        loop.run_until_complete(getattr(loop, ending)())
        loop.run_until_complete(asyncio.sleep(0))
        loop.remove_signal_handler(signal.SIGUSR1)
        return seen

    assert is_as_in_asyncio(handle) == ["signal"]


def test_a_generator_that_was_begun_is_closed() -> None:
    def leave_one(loop: Any) -> list[str]:
        ended: list[str] = []

        async def numbers() -> Any:
            try:
                yield 1
                yield 2
            finally:
                ended.append("closed")

        async def begin() -> None:
            await kept.__anext__()

        kept = numbers()
        loop.run_until_complete(begin())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.run_until_complete(loop.shutdown_asyncgens())
        return list(ended)

    assert is_as_in_asyncio(leave_one) == ["closed"]


@pytest.mark.parametrize("make", ["whorl.EventLoop()", "whorl.Loop()"])
def test_a_loop_that_is_left_open_when_the_interpreter_ends_says_nothing(make: str) -> None:
    program = f"import asyncio, whorl; asyncio.loop = {make}"
    if "Event" in make:
        program += "; asyncio.set_event_loop(asyncio.loop)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stderr == ""
