"""Objects that all loops use: without the GIL, threads count no references to them."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import sysconfig
import threading
from asyncio import futures, tasks
from typing import Any

import pytest

import whorl
from whorl.core.shared_objects import stop_counting

STOPS = bool(
    whorl.compiled and sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info[:2] == (3, 13)
)
where_it_stops = pytest.mark.skipif(not STOPS, reason="references are counted")


def is_counted(thing: Any) -> bool:
    """Return whether more references give a higher number."""
    before = sys.getrefcount(thing)
    more = [thing] * 1000
    return sys.getrefcount(thing) - before == len(more)


class Held:
    """An object that some threads use."""


def test_an_object_is_counted_no_more_without_the_gil_only() -> None:
    thing = Held()
    assert is_counted(thing)
    assert stop_counting(thing) is STOPS
    assert is_counted(thing) is not STOPS
    assert stop_counting(thing) is STOPS


@where_it_stops
def test_an_object_of_another_thread_stays_as_it_is() -> None:
    made: list[Held] = []
    release = threading.Event()

    def make() -> None:
        made.append(Held())
        release.wait()

    thread = threading.Thread(target=make)
    thread.start()
    while not made:
        pass
    assert not stop_counting(made[0])
    assert is_counted(made[0])
    release.set()
    thread.join()


@where_it_stops
def test_methods_of_loops_and_classes_of_futures_are_counted_no_more() -> None:
    loop, own = whorl.EventLoop(), whorl.new_event_loop(tasks="compiled")
    coro = asyncio.sleep(0)
    future, task = loop.create_future(), loop.create_task(coro)
    names = ("call_soon", "create_task", "create_future")
    shared = [vars(cls).get(name) for cls in type(own).__mro__ for name in names]
    found = [each for each in shared if type(each).__name__ == "cython_function_or_method"]
    kinds = [futures._CFuture, tasks._CTask, type(iter(future))]  # type: ignore[attr-defined]
    assert len(found) == 5
    assert [each for each in (*found, *kinds) if is_counted(each)] == []
    loop.run_until_complete(task)
    loop.close()
    own.close()


@where_it_stops
def test_an_object_that_threads_are_counting_is_never_freed() -> None:
    """Other threads drop references that they have counted before, and the collector looks at it."""
    thing = Held()
    ended, began = threading.Event(), threading.Barrier(3)

    def count() -> None:
        began.wait()
        while not ended.is_set():
            held = [thing] * 10
            del held

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    began.wait()
    for _ in range(100):
        sum(range(1000))
    stop_counting(thing)
    for _ in range(20):
        gc.collect()
    ended.set()
    for thread in threads:
        thread.join()
    gc.collect()
    assert type(thing) is Held
    assert sys.getrefcount(thing) > 1_000_000


@pytest.mark.parametrize("where", ["main()", "t = threading.Thread(target=main); t.start(); t.join()"])
def test_the_first_task_has_the_first_name_wherever_whorl_is_imported(where: str) -> None:
    program = (
        "import asyncio, threading\n"
        "async def name(): return asyncio.current_task().get_name()\n"
        "def main():\n"
        "    import whorl\n"
        "    print(whorl.run(name()))\n" + where
    )
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("Task-1\n", "")
