"""The times of tasks: asyncio's in C and in Python, and Whorl's."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import socket
import subprocess
import sys
import textwrap
import weakref
from asyncio import tasks
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.core.loop_fakes import ObedientClock
from tests.core.recording.test_recorder import MS, Recorded, spin
from whorl.aio.futures import task as own
from whorl.core.recording import layout
from whorl.core.recording.loop_recorder import LoopRecorder
from whorl.core.recording.task_figures import EndedTasks
from whorl.inspector.tables.task_kinds import know_all_tasks
from whorl.inspector.tables.tasks import tasks as table_of

Main = Coroutine[Any, Any, Any]


@pytest.fixture
def clock() -> ObedientClock:
    return ObedientClock()


@pytest.fixture
def recorded() -> Recorded:
    know_all_tasks()
    return Recorded(events=1 << 14)


@pytest.fixture(params=["native", "python", "own"])
def loop(request: pytest.FixtureRequest, clock: ObedientClock) -> Iterator[Any]:
    loop = whorl.EventLoop(kernel=clock)
    if request.param == "python":
        pure: Any = tasks._PyTask  # type: ignore[attr-defined]
        loop.set_task_factory(lambda loop, coro, **options: pure(coro, loop=loop, **options))
    elif request.param == "own":
        loop.set_task_factory(lambda loop, coro, **options: own.Task(coro, loop=loop, **options))
    yield loop
    loop.close()


def rows(recorder: LoopRecorder) -> dict[str, EndedTasks]:
    """Return the ended tasks by the last part of their coroutine's name."""
    return {row.coroutine.rpartition(".")[2]: row for row in recorder.ended_tasks()}


def test_task_begins_in_a_known_way_in_this_python() -> None:
    assert know_all_tasks()


def test_life_of_a_task_is_busy_scheduled_and_idle(
    recorded: Recorded, loop: Any, clock: ObedientClock
) -> None:
    """The task spins 100 ms, sleeps 200 ms, and waits 150 ms behind another's spin."""
    gates = [loop.create_future(), loop.create_future()]

    async def other() -> None:
        await gates[0]
        spin(clock, 150)

    async def watched() -> None:
        spin(clock, 100)
        loop.call_later(0.2, lambda: [gate.set_result(None) for gate in gates])
        await gates[1]

    async def main() -> None:
        await asyncio.gather(other(), watched())

    recorder = recorded.watch(loop)
    loop.run_until_complete(main())
    row = rows(recorder)["watched"]
    times = (row.busy_ns, row.scheduled_ns, row.idle_ns)
    assert times == pytest.approx((100 * MS, 150 * MS, 200 * MS), abs=1)  # a deadline is a float
    assert row.longest_ns == 100 * MS
    made = {event.number: event.at_ns for event in recorded.events(layout.TASK_MADE)}
    lives = {
        recorded.read().name(event.name_id).rpartition(".")[2]: event.at_ns - made[event.number]
        for event in recorded.events(layout.TASK_DONE)
    }
    assert lives["watched"] == sum(times)


def test_steps_and_wakes_are_counted(recorded: Recorded, loop: Any, clock: ObedientClock) -> None:
    async def sleeper() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)

    recorder = recorded.watch(loop)
    loop.run_until_complete(sleeper())
    row = rows(recorder)["sleeper"]
    assert (row.tasks, row.steps, row.wakes, row.self_wakes) == (1, 5, 4, 3)


def test_task_is_told_by_who_woke_it(recorded: Recorded, loop: Any, clock: ObedientClock) -> None:
    async def waiter(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        event = asyncio.Event()
        task = asyncio.create_task(waiter(event))
        await asyncio.sleep(0)
        event.set()
        await task

    recorded.watch(loop)
    loop.run_until_complete(main())
    by = [(event.subject >> 32, event.number) for event in recorded.events(layout.WAKE)]
    assert by == [(0, 1), (1, 2), (1, 1), (1, 2), (2, 1)]


def test_outcome_of_a_task_is_recorded(recorded: Recorded, loop: Any, clock: ObedientClock) -> None:
    async def fails() -> None:
        raise ValueError("it fails")

    async def waits() -> None:
        await asyncio.sleep(10)

    async def main() -> None:
        task = asyncio.create_task(waits())
        with pytest.raises(ValueError, match="it fails"):
            await asyncio.create_task(fails())
        task.cancel()
        await asyncio.wait([task])

    recorder = recorded.watch(loop)
    loop.run_until_complete(main())
    found = rows(recorder)
    outcomes = {name: (row.cancelled, row.failed) for name, row in found.items()}
    assert outcomes == {"fails": (0, 1), "waits": (1, 0), "main": (0, 0)}
    flags = sorted(event.flags for event in recorded.events(layout.TASK_DONE))
    assert flags == [0, layout.CANCELLED, layout.FAILED]


def test_error_of_a_task_is_not_taken_for_retrieved(recorded: Recorded, loop: Any) -> None:
    errors: list[Any] = []

    async def fails() -> None:
        raise ValueError

    async def main() -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(0)
        del task
        await asyncio.sleep(0)

    loop.set_exception_handler(lambda loop, context: errors.append(context["message"]))
    recorded.watch(loop)
    loop.run_until_complete(main())
    gc.collect()
    assert errors == ["Task exception was never retrieved"]


def test_name_of_a_task_is_recorded(recorded: Recorded, loop: Any) -> None:
    async def main() -> None:
        await asyncio.create_task(asyncio.sleep(0), name="order 4711")
        await asyncio.create_task(asyncio.sleep(0), name="Task-77")

    recorded.watch(loop)
    loop.run_until_complete(main())
    made = recorded.events(layout.TASK_MADE)
    assert [recorded.read().name(event.name_id) for event in made[1:]] == ["order 4711", ""]
    assert made[2].took_ns == 77 * layout.TOOK_UNIT_NS


@pytest.mark.parametrize(("steps", "made"), [(15, 0), (25, 1)])
def test_task_that_only_gives_way_has_events_once_it_is_a_millisecond_old(
    loop: Any, clock: ObedientClock, steps: int, made: int
) -> None:
    async def gives_way() -> None:
        for _ in range(steps):
            spin(clock, 0.05)
            await asyncio.sleep(0)

    know_all_tasks()
    recorded = Recorded(shortest_ns=100_000)
    recorder = recorded.watch(loop)
    loop.run_until_complete(gives_way())
    assert len(recorded.events(layout.TASK_MADE)) == made
    assert len(recorded.events(layout.TASK_DONE)) == made
    assert rows(recorder)["gives_way"].steps == steps + 1


def test_task_that_waits_has_events_at_once(loop: Any, clock: ObedientClock) -> None:
    async def waits() -> None:
        await asyncio.sleep(1e-6)

    know_all_tasks()
    recorded = Recorded(shortest_ns=100_000)
    recorded.watch(loop)
    loop.run_until_complete(waits())
    assert len(recorded.events(layout.TASK_MADE)) == 1


def test_task_that_runs_when_recording_begins_was_watched_late(recorded: Recorded, loop: Any) -> None:
    async def early(gate: asyncio.Event) -> None:
        await gate.wait()

    async def main() -> LoopRecorder:
        gate = asyncio.Event()
        waiting = asyncio.create_task(early(gate))
        queued = asyncio.create_task(asyncio.sleep(0))
        await asyncio.sleep(0)
        recorder = recorded.watch(loop)
        new = asyncio.create_task(asyncio.sleep(0))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(waiting, queued, new)
        return recorder

    loop.run_until_complete(main())
    flags = [event.flags for event in recorded.events(layout.TASK_MADE)]
    assert flags.count(0) == 1
    assert flags.count(layout.WATCHED_LATE) == 3


def test_running_task_is_in_the_slot_and_its_times_go_on(
    recorded: Recorded, loop: Any, clock: ObedientClock
) -> None:
    async def main() -> None:
        task: Any = asyncio.current_task() or asyncio.tasks._py_current_task()  # type: ignore[attr-defined]
        spin(clock, 10)
        times = recorder.times_of(task)
        assert times is not None
        assert (times.busy_ns, times.longest_ns, times.steps) == (10 * MS, 10 * MS, 0)
        assert recorded.fields()["call_task"] == times.number == 1
        name = recorded.read().name(recorded.fields()["call_name"])
        assert name.endswith("main")
        for row in table_of(loop):  # asyncio does not know Whorl's tasks, unless a runner tells it
            assert (row.busy_ns, row.steps, row.wakes) == (10 * MS, 0, 0)
        loop._set_recorder(None)
        assert all(row.busy_ns is None for row in table_of(loop))
        loop._set_recorder(recorder)

    recorder = recorded.watch(loop)
    loop.run_until_complete(main())


def test_step_inside_of_a_callback_of_a_descriptor_is_the_tasks(
    recorded: Recorded, clock: ObedientClock
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    loop = whorl.EventLoop(kernel=clock)

    async def reader() -> None:
        await loop.sock_recv(ours, 10)
        spin(clock, 5)

    async def main() -> None:
        task = asyncio.create_task(reader())
        await asyncio.sleep(0)
        theirs.send(b"x")
        await task

    recorder = recorded.watch(loop)
    loop.run_until_complete(main())
    row = rows(recorder)["reader"]
    assert (row.steps, row.busy_ns, row.wakes) == (2, 5 * MS, 1)
    assert max(event.took_ns for event in recorded.events(layout.CALLBACK)) in (5 * MS // 16 * 16, 0)
    loop.close()
    ours.close()
    theirs.close()


def test_many_short_tasks_are_few_rows_and_leave_no_records(recorded: Recorded, loop: Any) -> None:
    async def short() -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        for _ in range(20):
            await asyncio.gather(*(short() for _ in range(50)))

    recorder = recorded.watch(loop)
    loop.run_until_complete(main())
    found = rows(recorder)
    assert (found["short"].tasks, found["short"].steps) == (1000, 2000)
    fields = recorded.fields()
    assert fields["tasks_made"] == fields["tasks_done"] == 1001


def test_rows_of_ended_tasks_are_bounded(recorded: Recorded, loop: Any) -> None:
    recorder = recorded.watch(loop)
    for number in range(300):
        names: dict[str, Any] = {}
        exec(f"async def coro_{number}(): pass", names)
        loop.run_until_complete(names[f"coro_{number}"]())
    found = recorder.ended_tasks()
    assert len(found) == 257
    assert (found[-1].coroutine, found[-1].tasks) == ("…", 44)


def test_task_that_is_lost_is_dropped(recorded: Recorded, loop: Any) -> None:
    async def lost() -> None:
        await loop.create_future()

    async def main() -> None:
        for number in range(200):
            asyncio.create_task(lost())  # noqa: RUF006
            await asyncio.sleep(0)
            if number % 10 == 0:
                gc.collect()

    loop.set_exception_handler(lambda loop, context: None)
    recorded.watch(loop)
    loop.run_until_complete(main())
    fields = recorded.fields()
    assert fields["tasks_made"] == 201
    assert fields["tasks_done"] >= 101


async def never() -> None:
    pass


def test_task_that_never_ran_ends_with_its_loop(recorded: Recorded, loop: Any) -> None:
    loop.set_exception_handler(lambda loop, context: None)
    recorded.watch(loop)
    coro = never()
    reference = weakref.ref(loop.create_task(coro))
    loop.close()
    assert reference() is None
    coro.close()


def test_forgotten_loop_is_collected_with_a_task_that_never_ran(
    recorded: Recorded, clock: ObedientClock
) -> None:
    loop: Any = whorl.EventLoop(kernel=clock)
    loop.set_exception_handler(lambda loop, context: None)
    recorded.watch(loop)
    coro = never()
    loop.create_task(coro)
    reference = weakref.ref(loop)
    del loop
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        gc.collect()
    assert reference() is None
    coro.close()


def test_recording_that_the_end_of_a_task_ends_holds_no_task(
    recorded: Recorded, clock: ObedientClock
) -> None:
    class Ends(asyncio.Task):  # type: ignore[type-arg]
        def __del__(self) -> None:
            recorder.close()

    loop: Any = whorl.EventLoop(kernel=clock)
    recorder = recorded.watch(loop)
    first = Ends(never(), loop=loop)
    loop._set_recorder(None)  # So the recorder does not see its end, and holds it.
    loop.run_until_complete(first)
    loop._set_recorder(recorder)
    del first
    second = loop.create_task(never())
    assert recorded.fields()["state"] == 2
    loop.run_until_complete(second)
    reference = weakref.ref(second)
    del second
    assert reference() is None
    loop.close()


def test_recording_that_a_task_ends_when_it_is_asked_writes_no_more(
    recorded: Recorded, clock: ObedientClock
) -> None:
    pure: Any = tasks._PyTask  # type: ignore[attr-defined]

    class Ends(pure):  # type: ignore[misc]
        @property
        def _exception(self) -> None:
            recorder.close()

    loop: Any = whorl.EventLoop(kernel=clock)
    recorder = recorded.watch(loop)
    loop.run_until_complete(Ends(never(), loop=loop))
    fields = recorded.fields()
    assert (fields["state"], fields["tasks_made"], fields["tasks_done"]) == (2, 1, 0)
    loop.run_until_complete(never())
    assert recorded.fields()["tasks_made"] == 1
    loop.close()


def test_task_of_a_class_that_could_not_be_looked_up_is_known_later(
    recorded: Recorded, clock: ObedientClock
) -> None:
    class Refusing(type):
        def __hash__(cls) -> int:
            if refusals:
                raise refusals.pop()
            return type.__hash__(cls)

    class Task(own.Task, metaclass=Refusing):  # type: ignore[type-arg, misc]
        pass

    async def short() -> None:
        await asyncio.sleep(0)

    refusals: list[Exception] = []
    loop: Any = whorl.EventLoop(kernel=clock)
    recorder = recorded.watch(loop)
    refusals.append(MemoryError())
    loop.run_until_complete(Task(short(), loop=loop))
    assert not refusals
    assert rows(recorder)["short"].tasks == 1
    loop.close()


def test_tasks_that_the_collector_makes_are_known_beside_those_of_the_program(
    recorded: Recorded, loop: Any
) -> None:
    """Until Python 3.12, the collector may run while a recorder makes a weak reference."""

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            made.append(loop.create_task(never()))

    async def main() -> None:
        for _ in range(50):
            Garbage()
            made.append(loop.create_task(never()))
        gc.set_threshold(*threshold)
        gc.collect()
        await asyncio.gather(*made)

    made: list[Any] = []
    threshold = gc.get_threshold()
    recorder = recorded.watch(loop)
    gc.set_threshold(1)
    try:
        loop.run_until_complete(main())
    finally:
        gc.set_threshold(*threshold)
    assert rows(recorder)["never"].tasks == len(made) == 100
    assert recorded.fields()["tasks_made"] == recorded.fields()["tasks_done"] == 101


def test_task_is_named_as_its_coroutine(recorded: Recorded, loop: Any) -> None:
    recorder = recorded.watch(loop)
    coro = never()
    coro.__qualname__ = "renamed"
    loop.run_until_complete(coro)
    assert rows(recorder)["renamed"].tasks == 1


def test_audit_hook_hears_of_no_look_at_a_coroutine(tmp_path: Path) -> None:
    program = """
        import asyncio, sys
        import whorl
        heard = []
        def hear(event, args):
            if event == "object.__getattr__" and getattr(args[0], "__name__", "") == "nothing":
                heard.append(args[1])
        sys.addaudithook(hear)
        async def nothing(): pass
        async def main():
            await asyncio.gather(nothing(), nothing())
            print(heard)
        inspected = whorl.inspector.start()
        whorl.run(main())
        inspected.stop()
    """
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "WHORL_INSPECT_DIR": str(tmp_path / "inspected")},
    )
    assert (answer.stderr, answer.stdout) == ("", "[]\n")


def test_subclass_of_a_task_runs_none_of_its_code(recorded: Recorded, clock: ObedientClock) -> None:
    class Odd(asyncio.Task):  # type: ignore[type-arg]
        def get_name(self) -> str:
            raise AssertionError

        get_coro = done = cancelled = get_name  # type: ignore[assignment]

    async def nothing() -> None:
        pass

    loop = whorl.EventLoop(kernel=clock)
    recorder = recorded.watch(loop)
    task = Odd(nothing(), loop=loop)
    loop.call_soon(loop.call_soon, loop.stop)
    loop.run_forever()
    assert rows(recorder)["nothing"].tasks == 1
    del task
    loop.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no eager tasks")
def test_eager_task_is_its_makers_until_it_waits(recorded: Recorded, clock: ObedientClock) -> None:
    async def eager() -> None:
        spin(clock, 10)
        await asyncio.sleep(0.1)
        spin(clock, 20)

    async def main() -> None:
        await asyncio.Task(eager(), loop=loop, eager_start=True)

    loop = whorl.EventLoop(kernel=clock)
    recorder = recorded.watch(loop)
    loop.run_until_complete(main())
    found = rows(recorder)
    assert (found["main"].busy_ns, found["eager"].busy_ns) == (10 * MS, 20 * MS)
    loop.close()


def test_task_keeps_its_context_and_nothing_keeps_the_task(recorded: Recorded, loop: Any) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    freed: list[int] = []

    class Witness:
        def __del__(self) -> None:
            freed.append(variable.get())

    async def holder() -> None:
        variable.set(5)
        witness = Witness()
        await asyncio.sleep(0)
        assert variable.get() == 5
        del witness

    async def main() -> None:
        await asyncio.create_task(holder())
        assert freed

    recorded.watch(loop)
    loop.run_until_complete(main())


def test_recording_that_a_task_ends_ends(recorded: Recorded, loop: Any) -> None:
    async def child() -> None:
        await asyncio.sleep(0)

    async def main() -> int:
        children = [asyncio.create_task(child()) for _ in range(3)]
        await asyncio.sleep(0)
        recorder.close()
        await asyncio.sleep(0)
        loop._set_recorder(None)
        await asyncio.gather(*children)
        return 7

    recorder = recorded.watch(loop)
    assert loop.run_until_complete(main()) == 7
    assert recorded.fields()["state"] == 2
