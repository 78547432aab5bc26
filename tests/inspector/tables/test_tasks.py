"""The table of tasks and the tree: parents, cycles, tasks that are alike, a loop that is stuck."""

from __future__ import annotations

import asyncio
import collections
import gc
import threading
import time
import weakref
from typing import Any

import pytest

import whorl
from tests.aio.test_guide import examples_of
from whorl.inspector.tables.tasks import (
    SHOWN_ALIKE,
    Fold,
    TaskFigures,
    _give_back_ended,
    rows,
    stack,
    states,
    tasks,
    tree,
    tree_of,
)
from whorl.inspector.tables.waits import TIMERS_IN_ONE_GO, TaskWait


def seen(main: Any) -> tuple[list[TaskFigures], str]:
    """Return the table and the tree of the tasks that a program has begun, once they wait."""

    async def look() -> tuple[list[TaskFigures], str]:
        began = await main()
        for _ in range(10):
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        found = tasks(loop), tree(loop)
        for task in began:
            task.cancel()
        return found

    return whorl.run(look())  # type: ignore[no-any-return]


def by_name(found: list[TaskFigures]) -> dict[str, TaskFigures]:
    return {figures.name: figures for figures in found}


def test_a_task_of_a_group_has_the_groups_task_as_parent() -> None:
    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(50), name="inner")

    async def main() -> Any:
        return [asyncio.create_task(grouped(), name="outer")]

    found, text = seen(main)
    rows = by_name(found)
    assert rows["inner"].parent == rows["outer"].id
    assert rows["outer"].waits_for is not None
    assert rows["outer"].waits_for.tasks == (rows["inner"].id,)
    assert "│ waits for a TaskGroup: 1 task not done\n└─ inner  sleep" in text


def test_the_place_is_that_of_the_program() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    async def main() -> Any:
        return [asyncio.create_task(waits(), name="one")]

    found, _ = seen(main)
    where = by_name(found)["one"].where
    assert where is not None
    assert where[0] == __file__
    assert where[1] == waits.__code__.co_firstlineno + 1
    assert where[2].endswith("waits")


def library(name: str) -> Any:
    """Return a coroutine function that an installed package has, and that awaits what it is given."""
    names: dict[str, Any] = {}
    code = f"async def {name}(awaited):\n    return await awaited"
    exec(compile(code, "/venv/lib/python3.13/site-packages/client/connection.py", "exec"), names)
    return names[name]


def test_place_is_the_programs_line_and_not_that_of_a_library_inside_of_it() -> None:
    receive, serve = library("receive"), library("serve")

    async def fetch() -> None:
        await receive(asyncio.Event().wait())

    async def main() -> Any:
        return [
            asyncio.create_task(serve(fetch()), name="fetching"),
            asyncio.create_task(serve(receive(asyncio.Event().wait())), name="of the library"),
        ]

    found, text = seen(main)
    line = fetch.__code__.co_firstlineno + 1
    where = by_name(found)["fetching"].where
    assert where is not None
    assert where[:2] == (__file__, line)
    assert f"fetching  serve  tables/test_tasks.py:{line}\n" in text
    assert "of the library  serve  client/connection.py:2\n" in text


def test_a_name_cannot_drive_the_terminal() -> None:
    async def main() -> Any:
        return [asyncio.create_task(asyncio.sleep(50), name="\x1b]0;x\x07<script>" + "y" * 1000)]

    _, text = seen(main)
    assert r"\x1b]0;x\x07<script>yyy" in text
    assert "\x1b" not in text
    assert "y" * 300 not in text


def test_tasks_that_wait_for_each_other_are_shown_together() -> None:
    rows = [
        TaskFigures(1, "one", "f", "waiting", None, TaskWait("task", "the task two", tasks=(2,)), 2),
        TaskFigures(2, "two", "f", "waiting", None, TaskWait("task", "the task one", tasks=(1,)), 1),
        TaskFigures(3, "below", "f", "waiting", None, None, 2),
        TaskFigures(4, "beside", "f", "scheduled", None),
        TaskFigures(5, "self", "f", "waiting", None, TaskWait("task", "the task self", tasks=(5,)), 5),
    ]
    text = tree_of(rows)
    assert "one and two wait for each other:" in text
    assert "self waits for itself:" in text
    for name in ("one", "two", "below", "beside", "self"):
        assert sum(line.strip(" │├└─").startswith(f"{name}  f") for line in text.splitlines()) == 1


def test_a_cycle_of_real_tasks_is_found() -> None:
    async def wait(others: list[Any]) -> None:
        await others[0]

    async def main() -> str:
        first: list[Any] = []
        second: list[Any] = []
        second.append(asyncio.create_task(wait(first), name="one"))
        first.append(asyncio.create_task(wait(second), name="two"))
        while any(task._fut_waiter is None for task in (*first, *second)):
            await asyncio.sleep(0)
        text = tree(asyncio.get_running_loop())
        for task in (*first, *second):  # To cancel one would never end: each passes it on to the other.
            task._log_destroy_pending = False
        return text

    loop = whorl.new_event_loop()
    text = loop.run_until_complete(main())
    loop.close()
    gc.collect()
    assert "one and two wait for each other:" in text or "two and one wait for each other:" in text
    assert "main" in text


def test_tasks_that_are_alike_are_folded() -> None:
    async def main() -> Any:
        return [asyncio.create_task(asyncio.sleep(50)) for _ in range(1000)]

    found, text = seen(main)
    assert len(found) == 1001
    assert f"… and {1000 - SHOWN_ALIKE:,} more like these" in text
    assert len(text.splitlines()) < 20


def test_the_stack_of_a_task_begins_outside() -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    async def main() -> list[str]:
        task = asyncio.create_task(outer())
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        found = [name.rpartition(".")[2] for _, _, name in stack(loop, id(task))]
        assert stack(loop, -1) == []
        task.cancel()
        return found

    assert whorl.run(main()) == ["outer", "inner", "wait"]


@pytest.mark.gil("only a loop's own thread looks at its tasks without it")
@pytest.mark.parametrize("kind", ["cpython", "compiled"])
def test_the_tables_of_a_stuck_loop_are_there(kind: str) -> None:
    found: list[TaskFigures] = []
    looked = threading.Event()

    async def stuck() -> None:
        assert looked.wait(60)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sleeping = asyncio.create_task(asyncio.sleep(50), name="asleep")
        blocked = asyncio.create_task(stuck(), name="blocked")
        thread = threading.Thread(target=look, args=(loop,))
        thread.start()
        await blocked
        sleeping.cancel()
        thread.join()

    def look(loop: Any) -> None:
        try:
            while not any(row.name == "blocked" and row.state == "running" for row in found):
                found[:] = tasks(loop)
        finally:
            looked.set()

    whorl.run(main(), **({} if kind == "asyncio" else {"tasks": kind}))
    rows = by_name(found)
    assert rows["asleep"].state == "waiting"
    assert rows["blocked"].where is not None
    assert rows["blocked"].where[2].endswith("stuck")


@pytest.mark.gil("only a loop's own thread looks at its tasks without it")
def test_tables_are_made_while_tasks_come_and_go() -> None:
    over = threading.Event()
    errors: list[BaseException] = []
    counts: list[int] = []

    async def work(depth: int) -> None:
        await asyncio.sleep(0)
        if depth:
            await asyncio.gather(work(depth - 1), work(depth - 1))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=look, args=(loop,))
        thread.start()
        while not over.is_set():
            await work(5)
        thread.join()

    def look(loop: Any) -> None:
        try:
            while len(counts) < 20 or max(counts) == 1:
                counts.append(len(tasks(loop)))
        except BaseException as error:
            errors.append(error)
        finally:
            over.set()

    whorl.run(main())
    assert errors == []
    assert max(counts) > 1


def test_the_guides_example_shows_both_tasks(capfd: pytest.CaptureFixture[str]) -> None:
    exec(compile(examples_of("inspector.md")["Tasks and handles in the program"], "example", "exec"), {})
    output = capfd.readouterr().out
    assert "first waits for a sleep, due in" in output
    assert "└─ second  sleep" in output


@pytest.mark.slow
def test_many_tasks_are_listed_once_each() -> None:
    async def main() -> list[TaskFigures]:
        event = asyncio.Event()
        began = [asyncio.create_task(event.wait()) for _ in range(5000)]
        await asyncio.sleep(0)
        found = tasks(asyncio.get_running_loop())
        for task in began:
            task.cancel()
        return found

    began = time.perf_counter()
    found = whorl.run(main())
    assert time.perf_counter() - began < 30
    assert len({row.id for row in found}) == len(found) == 5001


@pytest.mark.parametrize("kind", ["cpython", "compiled"])
def test_states_are_those_of_the_table(kind: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        (reader, writer), (other, other_writer) = [await whorl.open_connection(*address) for _ in range(2)]
        began = [asyncio.create_task(wait) for wait in (reader.read(1), other.read(1), asyncio.sleep(50))]
        for _ in range(3):
            await asyncio.sleep(0)
        reader.feed_data(b"x")  # Its task is to go on in the next turn.
        began.append(asyncio.create_task(asyncio.sleep(50)))
        seen = states(loop)
        assert seen == {"running": 1, "scheduled": 2, "waiting": 2}
        assert collections.Counter(figures.state for figures in tasks(loop)) == collections.Counter(seen)
        for task in began:
            task.cancel()
        await asyncio.wait(began)
        for one in (writer, other_writer):
            one.close()
            await one.wait_closed()
        server.close()

    whorl.run(main(), tasks=kind)


@pytest.mark.gil("only a loop's own thread looks at its tasks without it")
@pytest.mark.parametrize("kind", ["cpython", "compiled"])
def test_task_that_fails_while_it_is_looked_at_is_told_of_by_its_loop(kind: str) -> None:
    threads: list[int] = []

    async def fail(may_fail: asyncio.Event) -> None:
        await may_fail.wait()
        raise ValueError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: threads.append(threading.get_ident()))
        may_fail = asyncio.Event()
        failing = asyncio.create_task(fail(may_fail))
        await asyncio.sleep(0)
        found = filter(None, rows(loop))
        first = next(found)
        may_fail.set()
        await asyncio.wait([failing])
        del failing
        states = await asyncio.to_thread(lambda: [first.state, *(row.state for row in found)])
        assert "done" in states or first.coro.endswith("fail")
        await asyncio.sleep(0)

    whorl.run(main(), tasks=kind)
    assert threads == [threading.get_ident()]


def test_tasks_at_the_same_line_that_wait_alike_are_one_group() -> None:
    async def handle(lock: asyncio.Lock) -> None:
        async with lock:
            await asyncio.sleep(60)

    async def main() -> list[tuple[int, str, str]]:
        lock = asyncio.Lock()
        made = [asyncio.create_task(handle(lock)) for _ in range(5)]
        await asyncio.sleep(0)
        fold = Fold()
        for row in filter(None, rows(asyncio.get_running_loop())):
            fold.add(row)
        for task in made:
            task.cancel()
        return [(group.count, group.coro.rpartition(".")[2], group.kind) for group in fold.rows()]

    found = whorl.run(main())
    assert found[0] == (4, "handle", "lock")
    assert sorted(found[1:]) == [(1, "handle", "timer"), (1, "main", "")]


def test_timers_are_read_in_pieces() -> None:
    async def main() -> list[bool]:
        made = [asyncio.create_task(asyncio.sleep(60)) for _ in range(2 * TIMERS_IN_ONE_GO)]
        await asyncio.sleep(0)
        kinds = [row is None for row in rows(asyncio.get_running_loop())]
        for task in made:
            task.cancel()
        return kinds

    assert whorl.run(main()) == [True] * 2 + [False] * (2 * TIMERS_IN_ONE_GO + 1)


def test_tree_of_a_long_chain_ends_with_words_and_repeated_rows_are_one() -> None:
    chain = [
        TaskFigures(number, f"task {number}", "f", "waiting", None, None, number - 1 if number else None)
        for number in range(2000)
    ]
    drawn = tree_of([*chain, *chain])
    assert "… and those that it waits for" in drawn
    assert len(drawn.splitlines()) < 1000


# The end of a task that is looked at.


@pytest.mark.parametrize("is_closed", [False, True])
def test_table_of_a_loop_that_does_not_run_leaves_nothing_in_it(is_closed: bool) -> None:
    """The asker has gone before the table was whole."""
    loop: Any = whorl.new_event_loop()

    async def work() -> None:
        await asyncio.sleep(0)

    made = [loop.create_task(work()) for _ in range(5)]
    table = rows(loop)
    assert isinstance(next(row for row in table if row is not None), TaskFigures)
    loop.run_until_complete(asyncio.wait(made))
    known = [weakref.ref(task) for task in made]
    if is_closed:
        loop.close()
    made.clear()
    table.close()
    gc.collect()
    assert [task() for task in known] == [None] * 5
    assert loop.metrics().ready == 0
    loop.close()


def test_tasks_that_end_while_they_are_looked_at_are_freed_by_the_thread_of_their_loop() -> None:
    freed: list[int] = []
    made: list[Any] = []
    listed = threading.Event()

    async def work() -> None:
        pass

    async def main() -> None:
        made.append(asyncio.create_task(work()))
        await asyncio.sleep(0)
        weakref.finalize(made[0], lambda: freed.append(threading.get_ident()))
        loops.append(asyncio.get_running_loop())
        listed.set()
        while not freed:
            await asyncio.sleep(0.001)

    loops: list[Any] = []
    thread = threading.Thread(target=whorl.run, args=(main(),))
    thread.start()
    listed.wait()
    number = thread.ident
    _give_back_ended(loops.pop(), made)
    thread.join()
    assert (freed, made) == ([number], [])
