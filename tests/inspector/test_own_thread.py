"""Without the GIL, the tables of a loop are made in its own thread, or are not known."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whorl
import whorl.inspector
from whorl.inspector.tables.tasks import tasks
from whorl.inspector.watching import own_thread
from whorl.inspector.watching.own_thread import NotKnown, call, read


@pytest.fixture
def no_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "has_gil", lambda: False)


def thread_of(loop: Any) -> int:
    return threading.get_ident()


def read_in_a_thread(read_table: Callable[[Any], Any]) -> Any:
    """Return what a function of a running loop returns in another thread, while the loop goes on."""

    async def main() -> Any:
        return await asyncio.to_thread(read_table, asyncio.get_running_loop())

    return whorl.run(main())


def test_a_table_is_made_in_the_loops_thread(no_gil: None) -> None:
    assert read_in_a_thread(lambda loop: read(loop, thread_of, 60)) == threading.get_ident()


def test_a_table_is_made_in_the_callers_thread_under_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "has_gil", lambda: True)
    numbers = read_in_a_thread(lambda loop: (read(loop, thread_of), threading.get_ident()))
    assert numbers[0] == numbers[1] != threading.get_ident()


def test_the_loops_own_thread_reads_at_once(no_gil: None) -> None:
    async def main() -> int:
        return read(asyncio.get_running_loop(), thread_of, 0)

    assert whorl.run(main()) == threading.get_ident()


def test_an_error_of_a_table_reaches_the_caller(no_gil: None) -> None:
    def fail(loop: Any) -> None:
        raise LookupError("the table's")

    with pytest.raises(LookupError, match="the table's"):
        read_in_a_thread(lambda loop: read(loop, fail, 60))


def test_a_busy_loop_is_not_known_and_makes_no_table_later(no_gil: None) -> None:
    made: list[int] = []
    problems: list[Exception] = []

    def ask(loop: Any) -> None:
        try:
            read(loop, lambda loop: made.append(1), 0)
        except NotKnown as error:
            problems.append(error)

    async def main() -> None:
        thread = threading.Thread(target=ask, args=(asyncio.get_running_loop(),))
        thread.start()
        thread.join()  # The loop is busy meanwhile.
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)

    whorl.run(main())
    assert [str(error) for error in problems] == [
        "not known without the GIL, as the loop is busy or does not run"
    ]
    assert made == []


def test_a_loop_that_does_not_run_is_read_by_its_own_thread_only(no_gil: None) -> None:
    loop = whorl.new_event_loop()
    problems: list[Exception] = []

    def ask() -> None:
        try:
            read(loop, thread_of, 0)
        except NotKnown as error:
            problems.append(error)

    try:
        assert read(loop, thread_of, 0) == threading.get_ident()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    finally:
        loop.close()
    assert len(problems) == 1


def test_a_call_is_made_in_the_loops_thread(no_gil: None) -> None:
    called: list[int] = []
    is_over = read_in_a_thread(lambda loop: call(loop, lambda loop: called.append(threading.get_ident()), 60))
    assert (is_over, called) == (True, [threading.get_ident()])


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "COMPILED", False)
    monkeypatch.setattr(own_thread, "has_gil", lambda: True)


def test_uncompiled_a_call_is_made_in_the_loops_thread(uncompiled: None) -> None:
    called: list[int] = []
    is_over = read_in_a_thread(lambda loop: call(loop, lambda loop: called.append(threading.get_ident()), 60))
    assert (is_over, called) == (True, [threading.get_ident()])


def test_uncompiled_a_call_of_a_busy_loop_is_made_by_the_caller(uncompiled: None) -> None:
    called: list[int] = []
    threads: list[threading.Thread] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ask = functools.partial(call, loop, lambda loop: called.append(threading.get_ident()), 0)
        threads.append(threading.Thread(target=ask))
        threads[0].start()
        threads[0].join()  # The loop is busy meanwhile.
        assert called == [threads[0].ident]
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)

    whorl.run(main())
    assert len(called) == 1


def test_uncompiled_a_call_of_a_loop_that_does_not_run_is_made_by_the_caller(uncompiled: None) -> None:
    loop = whorl.new_event_loop()
    answers: list[bool] = []
    try:
        thread = threading.Thread(target=lambda: answers.append(call(loop, lambda loop: None, 0)))
        thread.start()
        thread.join()
        assert loop.metrics().ready == 0
    finally:
        loop.close()
    assert answers == [True]


def test_a_call_of_a_busy_loop_is_made_when_it_goes_on(no_gil: None) -> None:
    called: list[int] = []
    answers: list[bool] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=lambda: answers.append(call(loop, lambda loop: called.append(1), 0)))
        thread.start()
        thread.join()  # The loop is busy meanwhile.
        assert called == []
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)

    whorl.run(main())
    assert (answers, called) == ([False], [1])


def test_a_closed_loop_is_called_by_no_other_thread(no_gil: None) -> None:
    loop = whorl.new_event_loop()
    loop.close()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(call(loop, lambda loop: None, 60)))
    thread.start()
    thread.join()
    assert answers == [False]


def test_a_recording_that_another_thread_begins_and_ends_has_the_loop(no_gil: None, tmp_path: Path) -> None:
    path = tmp_path / "named.recording"

    async def main() -> list[bool]:
        loop: Any = asyncio.get_running_loop()
        seen = [loop._recorder is None]
        start = functools.partial(whorl.inspector.start, loop, socket=False, recording=path)
        inspector = await asyncio.to_thread(start)
        seen.append(loop._recorder is None)
        await asyncio.to_thread(inspector.stop)
        return [*seen, loop._recorder is None]

    assert whorl.run(main()) == [True, False, True]
    assert len(whorl.inspector.read(path).loops()) == 1


def test_a_loop_that_has_not_yet_ended_its_recording_is_recorded_anew(no_gil: None) -> None:
    loop: Any = whorl.new_event_loop()
    former = whorl.inspector.start(socket=False)
    thread = threading.Thread(target=loop.run_until_complete, args=(asyncio.sleep(0),))
    thread.start()
    thread.join()
    former.stop()
    inspector = whorl.inspector.start(socket=False)
    recorders: list[Any] = [loop._recorder]

    async def main() -> None:
        await asyncio.sleep(0)
        recorders.append(loop._recorder)

    try:
        loop.run_until_complete(main())
    finally:
        inspector.stop()
        loop.close()
    assert None not in recorders
    assert recorders[0] is not recorders[1]


@pytest.mark.parametrize("kind", ["cpython", "compiled"])
def test_other_threads_read_tables_while_tasks_come_and_go(kind: str) -> None:
    found: list[int] = []
    over = threading.Event()

    async def work(depth: int) -> None:
        await asyncio.sleep(0)
        if depth:
            await asyncio.gather(work(depth - 1), work(depth - 1))

    def look(loop: Any) -> None:
        try:
            while len(found) < 20:
                found.append(len(read(loop, tasks, 60)))
        finally:
            over.set()

    async def main() -> None:
        thread = threading.Thread(target=look, args=(asyncio.get_running_loop(),))
        thread.start()
        while not over.is_set():
            await work(5)
        thread.join()

    whorl.run(main(), **({} if kind == "cpython" else {"tasks": "compiled"}))
    assert len(found) == 20
    assert min(found) >= 1
