"""Greenlets that switch out of blocking code into the loop, in SQLAlchemy's way."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import whorl

greenlet = pytest.importorskip("greenlet", reason="greenlet is not installed")

name = contextvars.ContextVar("name", default="nobody")


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """Wait for an awaitable in code that knows no `await`."""
    return greenlet.getcurrent().parent.switch(awaitable)


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call code without `await`, and await the objects for which it waits."""
    running = greenlet.greenlet(function)
    running.gr_context = contextvars.copy_context()
    result = running.switch(*arguments)
    while not running.dead:
        try:
            value = await result
        except BaseException as error:
            result = running.throw(type(error), error)
        else:
            result = running.switch(value)
    return result


def query(number: int) -> str:
    """Run code that looks like blocking code."""
    name.set(f"query {number}")
    answers = [wait_for(asyncio.sleep(0.001, f"{number}.{part}")) for part in range(3)]
    assert name.get() == f"query {number}"
    return " ".join(answers)


async def test_blocking_code_waits_on_the_loop(loop: whorl.EventLoop) -> None:
    answers = await asyncio.gather(*(call(query, number) for number in range(10)))
    assert answers == [f"{number}.0 {number}.1 {number}.2" for number in range(10)]
    assert name.get() == "nobody"


async def test_an_error_reaches_blocking_code(loop: whorl.EventLoop) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("here")

    def blocking() -> str:
        try:
            wait_for(fail())
        except LookupError as error:
            return f"caught {error}"
        return "nothing"

    assert await call(blocking) == "caught here"


async def test_cancelling_reaches_blocking_code(loop: whorl.EventLoop) -> None:
    cleaned_up: list[int] = []

    def blocking() -> None:
        try:
            wait_for(loop.create_future())
        finally:
            cleaned_up.append(1)

    task = asyncio.create_task(call(blocking))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned_up == [1]


def test_a_loop_runs_inside_a_greenlet(loop: whorl.EventLoop) -> None:
    def run() -> Any:
        loop.call_soon(main.switch, "out of a callback")
        return loop.run_until_complete(asyncio.sleep(0.001, "done"))

    main = greenlet.getcurrent()
    inner = greenlet.greenlet(run)
    assert inner.switch() == "out of a callback"
    assert loop.is_running()
    assert inner.switch() == "done"
    assert not loop.is_running()
