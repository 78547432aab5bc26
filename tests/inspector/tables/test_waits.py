"""The waits of tasks, by kind: with asyncio's tasks and with Whorl's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import whorl
from tests.inspector.tables.waiting_programs import PROGRAMS
from whorl.inspector.tables import waits
from whorl.inspector.tables.tasks import TaskFigures, tasks

KINDS = pytest.mark.parametrize("kind", ["asyncio", "compiled"])


async def figures_of(task: asyncio.Task[Any]) -> TaskFigures:
    """Return the figures of a task, once it waits."""
    loop = asyncio.get_running_loop()
    for _ in range(1000):
        await asyncio.sleep(0)
        found = next(figures for figures in tasks(loop) if figures.id == id(task))
        if found.state == "waiting":
            return found
    raise AssertionError("it never waits")


async def wait_of(begin: Any) -> waits.TaskWait:
    """Return what a program waits for, and end it."""
    async with contextlib.AsyncExitStack() as stack:
        task = asyncio.create_task(await begin(stack))
        found = await figures_of(task)
        task.cancel()
        assert found.waits_for is not None
        result = found.waits_for
    await asyncio.gather(task, return_exceptions=True)
    return result


def run(main: Coroutine[Any, Any, Any], kind: str) -> Any:
    return whorl.run(main, tasks=kind) if kind == "compiled" else whorl.run(main)


def test_look_up_of_a_name_is_named_and_counted() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        task = asyncio.create_task(loop.getaddrinfo("localhost", 80))
        await asyncio.sleep(0)  # It asks, and no poll takes an answer before this task goes on.
        found = next(figures for figures in tasks(loop) if figures.id == id(task))
        assert found.waits_for is not None
        assert found.waits_for.kind == "lookup"
        how = r"for \d+(\.\d)? (µs|ms|s)" if whorl.compiled else "in a thread of an executor"
        assert re.fullmatch(f"a look-up of localhost {how}", found.waits_for.text)
        if whorl.compiled:  # A thread of the executor may have answered already.
            assert loop.metrics().jobs_running == 1
        await task
        assert (loop.metrics().jobs_running, loop.metrics().jobs_waiting) == (0, 0)

    whorl.run(main())


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, the loop's executor is asked")
def test_look_up_that_is_given_up_is_counted_no_more() -> None:
    loop: Any = whorl.EventLoop()

    async def main() -> None:
        asked = [asyncio.create_task(loop.getaddrinfo("localhost", port)) for port in (80, 81)]
        await asyncio.sleep(0)
        asked[0].cancel()
        await asyncio.sleep(0)
        assert loop.metrics().jobs_running == 1
        await asked[1]
        assert loop.metrics().jobs_running == 0

    loop.run_until_complete(main())
    loop.close()


@KINDS
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wait_is_named(name: str, kind: str) -> None:
    expected, text, begin = PROGRAMS[name]
    wait = run(wait_of(begin), kind)
    assert wait.kind == expected
    assert re.fullmatch(text, wait.text), wait.text
    if expected == "descriptor":
        assert f"(fd {wait.fd})" in wait.text


@pytest.mark.parametrize("name", ["wait", "wait_for", "event_with_a_timeout"])
def test_a_timeout_is_told_beside_the_wait(name: str) -> None:
    wait = whorl.run(wait_of(PROGRAMS[name][2]))
    assert 20 < wait.timeout_in <= 30


@pytest.mark.parametrize("name", ["sleep", "future_set_by_a_timer"])
def test_a_timer_tells_when_it_is_due(name: str) -> None:
    assert 40 < whorl.run(wait_of(PROGRAMS[name][2])).due_in <= 100


@pytest.mark.gil("only a loop's own thread looks at its tasks without it")
def test_a_socket_is_named_while_its_loop_waits_in_another_thread() -> None:
    found: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            task = asyncio.create_task(await PROGRAMS["sock_recv"][2](stack))
            await figures_of(task)
            await asyncio.to_thread(look, loop)
            task.cancel()

    def look(loop: Any) -> None:
        while not found or any(figures.waits_for is None for figures in found):
            found[:] = tasks(loop)

    whorl.run(main())
    assert sorted(figures.waits_for.kind for figures in found) == ["descriptor", "job"]


def test_an_object_of_the_program_is_asked_nothing() -> None:
    """Neither its methods run nor its attributes are read, whichever Python looks up by itself elsewhere."""
    asked: list[str] = []

    class Curious:
        def __getattribute__(self, name: str) -> Any:
            if name not in ("__class__", "__await__"):
                asked.append(name)
            return object.__getattribute__(self, name)

        def __repr__(self) -> str:
            asked.append("repr")
            return ""

        def __await__(self) -> Any:
            return (yield from asyncio.get_running_loop().create_future())

    class Event(asyncio.Event):
        def __repr__(self) -> str:
            asked.append("repr")
            return ""

        @property
        def __class__(self) -> type:  # type: ignore[override]
            asked.append("class")
            return int

    async def wait(local: object) -> None:
        await Curious()  # type: ignore[misc]

    async def main() -> None:
        event = Event()
        began = [asyncio.create_task(wait(Curious())), asyncio.create_task(event.wait())]
        seen = [await figures_of(task) for task in began]
        asked.clear()
        tasks(asyncio.get_running_loop())
        assert asked == []
        texts = [figures.waits_for.text for figures in seen if figures.waits_for]
        assert texts[0] == "a future"
        assert texts[1].startswith("Event 0x")
        for task in began:
            task.cancel()

    whorl.run(main())


def test_a_look_keeps_nothing_alive() -> None:
    class Thing:
        pass

    async def wait(event: asyncio.Event) -> None:
        thing = Thing()
        await event.wait()
        del thing
        await event.wait()

    async def main() -> None:
        event = asyncio.Event()
        task = asyncio.create_task(wait(event))
        await figures_of(task)
        event.set()
        event.clear()
        await figures_of(task)
        for _ in range(3):
            await asyncio.sleep(0)
        assert [thing for thing in gc.get_objects() if type(thing) is Thing] == []
        task.cancel()

    whorl.run(main())


def test_a_woken_task_is_scheduled() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        woken = asyncio.create_task(event.wait())
        fresh = asyncio.create_task(asyncio.sleep(0))
        assert {figures.state for figures in tasks(loop)} == {"running", "scheduled"}
        await fresh
        event.set()
        states = {figures.id: figures.state for figures in tasks(loop)}
        assert states[id(woken)] == "scheduled"
        await woken

    whorl.run(main())


def test_an_unfinished_job_is_known_until_it_ends() -> None:
    from whorl.aio.threads.executor_job import unfinished_jobs

    over = threading.Event()

    def fail() -> None:
        over.wait()
        raise ValueError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = [loop.run_in_executor(None, over.wait), loop.run_in_executor(None, fail)]
        assert [job.function for job in unfinished_jobs() if job._future is began[0]] == [over.wait]
        over.set()
        await asyncio.gather(*began, return_exceptions=True)
        cancelled = loop.run_in_executor(None, over.wait)
        cancelled.cancel()
        await loop.shutdown_default_executor()

    whorl.run(main())
    assert unfinished_jobs() == []


def test_a_long_chain_of_coroutines_is_followed() -> None:
    async def nested(depth: int) -> None:
        if depth:
            await nested(depth - 1)
        else:
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(nested(300))
        figures = await figures_of(task)
        assert figures.waits_for is not None
        assert figures.waits_for.kind == "event"
        task.cancel()

    whorl.run(main())


def test_functions_that_are_named_exist() -> None:
    assert len(waits.KNOWN) > 40
