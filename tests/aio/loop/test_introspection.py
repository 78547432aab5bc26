"""The view of tasks from outside: the same on Whorl's loop as on asyncio's."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio

pytestmark = pytest.mark.usefixtures("no_leak")

HAS_CALL_GRAPHS = sys.version_info >= (3, 14)


def plain(text: str) -> str:
    """Return a text without the parts that differ from run to run, and from loop to loop."""
    text = re.sub(r"0x[0-9a-f]+", "ADDRESS", text)
    text = re.sub(r"Task-\d+", "Task-N", text)
    return re.sub(r"/\S*/(asyncio|whorl/aio)/\w+\.py:\d+", "PLACE", text)


async def wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def wait_for_two() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(wait_for_ever(), name="first")
        group.create_task(wait_for_ever(), name="second")


@asynccontextmanager
async def waiting(main: Any, name: str) -> AsyncIterator[asyncio.Task[Any]]:
    """Yield a task that waits while others look at it."""
    task = asyncio.create_task(main, name=name)
    for _ in range(3):
        await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_the_tasks_of_a_loop_and_the_current_one_are_known() -> None:
    async def look(loop: Any) -> Any:
        async with waiting(wait_for_two(), "both"):
            current = asyncio.current_task()
            names = {task.get_name() for task in asyncio.all_tasks() - {current}}
            return names, current in asyncio.all_tasks(loop), asyncio.current_task(loop) is current

    assert is_as_in_asyncio(look) == ({"both", "first", "second"}, True, True)


def test_current_task_is_none_in_a_callback() -> None:
    async def look(loop: Any) -> Any:
        seen = loop.create_future()
        loop.call_soon(lambda: seen.set_result(asyncio.current_task()))
        return await seen

    assert is_as_in_asyncio(look) is None


def test_tasks_show_themselves_as_on_asyncios_loop() -> None:
    async def look(loop: Any) -> Any:
        async with waiting(wait_for_ever(), "name") as task:
            seen = [plain(repr(task))]
            task.add_done_callback(print)
            seen.append(plain(repr(task)))
            task.remove_done_callback(print)
        return [*seen, plain(repr(task)), plain(repr(asyncio.current_task()))]

    shown = is_as_in_asyncio(look)
    assert "wait_for=<Future pending" in shown[0]
    assert "_run_until_complete_cb() at" in shown[3]


def test_stacks_are_those_on_asyncios_loop() -> None:
    async def look(loop: Any) -> Any:
        async with waiting(wait_for_two(), "both") as task:
            text = io.StringIO()
            task.print_stack(file=text)
            return plain(text.getvalue()), [frame.f_code.co_name for frame in task.get_stack()]

    text, names = is_as_in_asyncio(look)
    assert "in wait_for_two" in text
    assert names == ["wait_for_two"]


@pytest.mark.skipif(not HAS_CALL_GRAPHS, reason="call graphs are new in Python 3.14")
def test_call_graphs_are_those_on_asyncios_loop() -> None:
    async def look(loop: Any) -> Any:
        async with waiting(wait_for_two(), "both") as task:
            child = next(task for task in asyncio.all_tasks() if task.get_name() == "first")
            graph = asyncio.capture_call_graph(child)
            waiters = [edge.future.get_name() for edge in graph.awaited_by]
            texts = [asyncio.format_call_graph(one) for one in (task, child, asyncio.current_task())]
            return waiters, [plain(text) for text in texts]

    waiters, texts = is_as_in_asyncio(look)
    assert waiters == ["both"]
    assert "Awaited by" in texts[1]


def ask(command: str) -> str:
    """Return the output of `python -m asyncio COMMAND` for this process."""
    answer = subprocess.run(
        [sys.executable, "-m", "asyncio", command, str(os.getpid())],
        capture_output=True,
        text=True,
        timeout=20,
    )
    refused = re.search(r"[Pp]ermission|not permitted|not supported", answer.stderr)
    if answer.returncode and refused:
        pytest.skip(f"this system does not let one process look into another: {answer.stderr.strip()[-200:]}")
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.skipif(not HAS_CALL_GRAPHS, reason="`python -m asyncio ps` is new in Python 3.14")
async def test_ps_shows_a_running_loop_from_outside(loop: whorl.EventLoop) -> None:
    async with waiting(wait_for_two(), "both"):
        table = await asyncio.to_thread(ask, "ps")
    [first] = [line for line in table.splitlines() if re.search(r"\bfirst\b", line)]
    assert re.search(r"\bfirst\s+wait_for_ever\b.*\bwait_for_two\b.*\bboth\b", first)


@pytest.mark.skipif(not HAS_CALL_GRAPHS, reason="`python -m asyncio pstree` is new in Python 3.14")
async def test_pstree_shows_who_waits_for_whom(loop: whorl.EventLoop) -> None:
    async with waiting(wait_for_two(), "both"):
        tree = await asyncio.to_thread(ask, "pstree")
    order = [re.search(rf"\b{word}\b", tree) for word in ("both", "wait_for_two", "first", "wait_for_ever")]
    places = [found.start() for found in order if found]
    assert len(places) == 4
    assert places[:2] == sorted(places[:2])
    assert places[1] < min(places[2:])


def test_coroutines_have_the_names_of_asyncios() -> None:
    async def ask(loop: Any) -> Any:
        names = {
            name: method.__qualname__
            for name in dir(asyncio.AbstractEventLoop)
            if inspect.iscoroutinefunction(method := getattr(loop, name))
        }
        return names

    assert is_as_in_asyncio(ask)["shutdown_asyncgens"] == "BaseEventLoop.shutdown_asyncgens"
