"""Running and closing a loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import multiprocessing
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import AsyncGenerator, Iterator
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import JumpingClock, turns
from tests.core.conftest import open_descriptors
from whorl.core import Loop, RunMode
from whorl.handles import Timer

pytestmark = pytest.mark.usefixtures("no_leak")


@pytest.fixture
def plain_loop(no_leak: None) -> Iterator[whorl.EventLoop]:
    """Yield a loop that is only closed after the test."""
    loop = whorl.EventLoop()
    yield loop
    loop.close()


# Its kind.


def test_the_loop_is_one_of_asyncios_and_one_of_the_machines(plain_loop: whorl.EventLoop) -> None:
    assert isinstance(plain_loop, asyncio.AbstractEventLoop)
    assert isinstance(plain_loop, Loop)


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, all its attributes lie there")
def test_a_new_loop_keeps_nothing_in_its_instance_dictionary(plain_loop: whorl.EventLoop) -> None:
    """Otherwise the interpreter looks there before it finds a method."""
    assert vars(plain_loop) == {}


def test_every_method_of_asyncios_is_ours() -> None:
    names = [name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")]
    assert not [
        name for name in names if getattr(whorl.EventLoop, name) is getattr(asyncio.AbstractEventLoop, name)
    ]


def test_the_loop_can_be_weakly_referenced_and_given_attributes(plain_loop: whorl.EventLoop) -> None:
    reference = weakref.ref(plain_loop)
    plain_loop.colour = "green"  # type: ignore[attr-defined]
    assert reference() is plain_loop
    assert vars(plain_loop)["colour"] == "green"


def test_a_method_can_be_replaced_on_the_loop(plain_loop: whorl.EventLoop) -> None:
    with mock.patch.object(plain_loop, "create_task") as create_task:
        plain_loop.create_task("anything")  # type: ignore[arg-type]
    create_task.assert_called_once_with("anything")


def test_the_loop_shows_its_state() -> None:
    loop = whorl.EventLoop()
    loop.set_debug(True)
    assert repr(loop) == "<EventLoop running=False closed=False debug=True>"
    loop.close()
    assert repr(loop) == "<EventLoop running=False closed=True debug=True>"


def test_the_attributes_that_libraries_read_have_asyncios_values(plain_loop: whorl.EventLoop) -> None:
    names = (
        "slow_callback_duration",
        "_thread_id",
        "_closed",
        "_default_executor",
        "_exception_handler",
        "_task_factory",
        "_stopping",
    )
    is_as_in_asyncio(lambda loop: [getattr(loop, name) for name in names])
    assert len(plain_loop._asyncgens) == 0


# Running.


def test_run_until_complete_gives_the_result() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    assert is_as_in_asyncio(lambda loop: loop.run_until_complete(answer())) == 42


def test_run_until_complete_adds_asyncios_own_callback_to_its_task() -> None:
    """Libraries know the task at the root of the program by it."""

    async def callbacks() -> list[object]:
        task: Any = asyncio.current_task()
        return [callback for callback, _ in task._callbacks]

    assert is_as_in_asyncio(lambda loop: loop.run_until_complete(callbacks())) == [
        asyncio.base_events._run_until_complete_cb  # type: ignore[attr-defined]
    ]


def test_run_until_complete_raises_the_exception() -> None:
    async def fail(loop: Any) -> None:
        raise LookupError("here")

    assert error_as_in_asyncio(fail) == (LookupError, "here")


def test_run_until_complete_takes_a_future(plain_loop: whorl.EventLoop) -> None:
    future = plain_loop.create_future()
    plain_loop.call_soon(future.set_result, 5)
    assert plain_loop.run_until_complete(future) == 5


def test_a_future_of_another_loop_is_refused(plain_loop: whorl.EventLoop) -> None:
    def run_other(loop: Any) -> None:
        loop.run_until_complete(plain_loop.create_future())

    kind, _ = error_as_in_asyncio(run_other)
    assert kind is ValueError


@pytest.mark.parametrize("wrong", [None, 1, print])
def test_run_until_complete_refuses_a_non_awaitable(wrong: Any) -> None:
    kind, _ = error_as_in_asyncio(lambda loop: loop.run_until_complete(wrong))
    assert kind is TypeError


def test_a_loop_that_is_stopped_too_early_says_so() -> None:
    def stop_early(loop: Any) -> None:
        loop.call_soon(loop.stop)
        loop.run_until_complete(loop.create_future())

    assert error_as_in_asyncio(stop_early)[0] is RuntimeError


def test_stop_before_the_run_means_one_turn(plain_loop: whorl.EventLoop) -> None:
    ran: list[int] = []
    plain_loop.call_soon(lambda: (ran.append(1), plain_loop.call_soon(ran.append, 2)))
    plain_loop.stop()
    plain_loop.run_forever()
    assert ran == [1]
    plain_loop.stop()
    plain_loop.run_forever()
    assert ran == [1, 2]


def test_stop_finishes_the_turn(plain_loop: whorl.EventLoop) -> None:
    ran: list[int] = []
    plain_loop.call_soon(plain_loop.stop)
    plain_loop.call_soon(ran.append, 1)
    plain_loop.run_forever()
    assert ran == [1]


def test_the_loop_is_the_running_one_only_while_it_runs(plain_loop: whorl.EventLoop) -> None:
    seen: list[object] = []
    plain_loop.call_soon(lambda: seen.append(asyncio.get_running_loop()))
    plain_loop.call_soon(lambda: seen.append(plain_loop._thread_id))
    plain_loop.call_soon(plain_loop.stop)
    plain_loop.run_forever()
    assert seen == [plain_loop, threading.get_ident()]
    assert plain_loop._thread_id is None
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


async def test_a_run_inside_a_run_is_refused_and_the_outer_one_goes_on(loop: whorl.EventLoop) -> None:
    for run in (loop.run_forever, lambda: loop.run_until_complete(loop.create_future()), loop.run):
        with pytest.raises(RuntimeError, match="This event loop is already running"):
            run()
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)


def test_a_second_loop_is_refused_in_the_same_thread() -> None:
    async def run_other(loop: Any) -> Any:
        other = whorl.EventLoop()
        try:
            with pytest.raises(RuntimeError) as caught:
                other.run_forever()
            return str(caught.value)
        finally:
            other.close()

    assert is_as_in_asyncio(run_other) == "Cannot run the event loop while another loop is running"


def test_two_loops_run_in_two_threads() -> None:
    results: dict[str, int] = {}

    async def count() -> int:
        for _ in range(100):
            await asyncio.sleep(0)
        return threading.get_ident()

    def run(name: str) -> None:
        results[name] = whorl.run(count())

    thread = threading.Thread(target=run, args=("other",))
    thread.start()
    run("main")
    thread.join()
    assert results == {"main": threading.get_ident(), "other": thread.ident}


def test_an_exception_out_of_a_callback_does_not_hang_the_run(
    loop: whorl.EventLoop, reported: list[dict[str, Any]]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    loop.call_soon(fail)
    assert loop.run_until_complete(asyncio.sleep(0, "done")) == "done"
    assert type(reported.pop()["exception"]) is ZeroDivisionError


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_exit_leaves_run_forever_and_the_rest_runs_next_time(
    plain_loop: whorl.EventLoop, kind: type[BaseException]
) -> None:
    ran: list[int] = []

    def fail() -> None:
        raise kind

    plain_loop.call_soon(ran.append, 1)
    plain_loop.call_soon(fail)
    plain_loop.call_soon(ran.append, 2)
    with pytest.raises(kind):
        plain_loop.run_forever()
    assert ran == [1]
    assert not plain_loop.is_running()
    plain_loop.run_until_complete(asyncio.sleep(0))
    assert ran == [1, 2]


def test_a_task_that_ends_the_program_leaves_the_run_and_is_not_complained_about(
    plain_loop: whorl.EventLoop,
) -> None:
    reported: list[object] = []
    plain_loop.set_exception_handler(lambda loop, context: reported.append(context))

    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        plain_loop.run_until_complete(leave())
    gc.collect()
    assert reported == []
    assert plain_loop.run_until_complete(asyncio.sleep(0, "again")) == "again"


# The machine's way to run.


def test_a_run_of_the_machines_sets_the_running_loop_and_the_hooks(plain_loop: whorl.EventLoop) -> None:
    before = sys.get_asyncgen_hooks()
    seen: list[object] = []
    plain_loop.call_soon(lambda: seen.append(asyncio.get_running_loop()))
    plain_loop.call_soon(lambda: seen.append(sys.get_asyncgen_hooks().firstiter))
    assert not plain_loop.run(RunMode.NOWAIT)
    assert seen == [plain_loop, plain_loop._asyncgen_firstiter_hook]
    assert sys.get_asyncgen_hooks() == before


def test_a_run_of_the_machines_drives_tasks_to_their_end(plain_loop: whorl.EventLoop) -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    task = plain_loop.create_task(work())
    plain_loop.run()
    assert task.result() == "done"


# Asynchronous generators.


async def numbers(closed: list[str]) -> AsyncGenerator[int, None]:
    try:
        yield 1
        yield 2
    finally:
        closed.append("closed")


def test_the_hooks_of_before_are_restored(plain_loop: whorl.EventLoop) -> None:
    def firstiter(generator: object) -> None:
        raise AssertionError("this is not the loop's")

    async def iterate() -> None:
        await anext(numbers([]))

    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=firstiter)
    try:
        plain_loop.run_until_complete(iterate())
        assert sys.get_asyncgen_hooks().firstiter is firstiter
    finally:
        sys.set_asyncgen_hooks(*before)
    plain_loop.run_until_complete(plain_loop.shutdown_asyncgens())


async def test_a_generator_that_nobody_refers_to_is_closed(loop: whorl.EventLoop) -> None:
    closed: list[str] = []
    generator = numbers(closed)
    assert await anext(generator) == 1
    del generator
    gc.collect()
    await turns(3)
    assert closed == ["closed"]


async def test_shutdown_asyncgens_closes_generators(loop: whorl.EventLoop) -> None:
    closed: list[str] = []
    generator = numbers(closed)
    await anext(generator)
    await loop.shutdown_asyncgens()
    assert closed == ["closed"]


async def test_an_error_while_a_generator_is_closed_is_reported(
    loop: whorl.EventLoop, reported: list[dict[str, Any]]
) -> None:
    async def fail() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            raise ZeroDivisionError

    generator = fail()
    await anext(generator)
    await loop.shutdown_asyncgens()
    context = reported.pop()
    assert context["asyncgen"] is generator
    assert type(context["exception"]) is ZeroDivisionError
    assert "an error occurred during closing of asynchronous generator" in context["message"]


async def test_a_generator_begun_after_the_shutdown_is_warned_about(loop: whorl.EventLoop) -> None:
    await loop.shutdown_asyncgens()
    with pytest.warns(ResourceWarning, match=r"was scheduled after loop\.shutdown_asyncgens"):
        await anext(numbers([]))


# Debug mode.


def test_debug_mode_notes_where_coroutines_are_made_while_it_runs(plain_loop: whorl.EventLoop) -> None:
    async def idle() -> None:
        pass

    origins: list[object] = []

    async def look() -> None:
        coroutine = idle()
        origins.append(coroutine.cr_origin)
        await coroutine

    depth = sys.get_coroutine_origin_tracking_depth()
    plain_loop.set_debug(True)
    plain_loop.run_until_complete(look())
    assert sys.get_coroutine_origin_tracking_depth() == depth
    plain_loop.set_debug(False)
    plain_loop.run_until_complete(look())
    assert origins[0]
    assert origins[1] is None


async def test_debug_mode_may_change_while_the_loop_runs(loop: whorl.EventLoop) -> None:
    before = loop.get_debug()
    depths = []
    for debug in (True, False):
        loop.set_debug(debug)
        await turns(2)
        depths.append(sys.get_coroutine_origin_tracking_depth())
    loop.set_debug(before)
    assert depths[0] > 0
    assert depths[1] == 0


@pytest.mark.parametrize("value", [None, "", "1"])
def test_debug_mode_is_on_if_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv("PYTHONASYNCIODEBUG", raising=False)
    else:
        monkeypatch.setenv("PYTHONASYNCIODEBUG", value)
    loop = whorl.EventLoop()
    assert loop.get_debug() == (bool(value) or sys.flags.dev_mode)
    loop.close()


@pytest.mark.parametrize("way", ["an environment of its own", "a function of its own"])
def test_debug_mode_follows_a_replaced_environment_or_function(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "an environment of its own":
        monkeypatch.setattr(os, "environ", {"PYTHONASYNCIODEBUG": "1"})
    else:
        monkeypatch.setattr(asyncio.coroutines, "_is_debug_mode", lambda: True)
    loop = whorl.EventLoop()
    assert loop.get_debug()
    loop.close()


# Another clock.


def fires_at_once(loop: whorl.EventLoop) -> bool:
    """Return whether a timer that is an hour away is due in the next turn after `time` went on by an hour."""
    fired: list[int] = []
    loop.call_later(3600, fired.append, 1)
    loop.shift = 3600  # type: ignore[attr-defined]
    loop.run_until_complete(turns(2))
    return fired == [1]


@pytest.mark.parametrize(("now", "ran"), [(0.289, []), (0.29, [1]), (math.inf, [1])])
def test_a_timer_is_due_where_a_replaced_clock_has_rounded_its_time(now: float, ran: list[int]) -> None:
    def scenario(loop: Any) -> list[int]:
        called: list[int] = []
        loop.time = lambda: 0.2
        timer = loop.call_later(0.09, called.append, 1)
        assert timer.when() > 0.29
        loop.time = lambda: now
        loop.call_soon(loop.stop)
        loop.run_forever()
        return called

    assert is_as_in_asyncio(scenario) == ran


def test_a_clock_put_on_the_loop_moves_the_scheduler(plain_loop: whorl.EventLoop) -> None:
    original = plain_loop.time
    plain_loop.shift = 0  # type: ignore[attr-defined]
    plain_loop.time = lambda: original() + plain_loop.shift  # type: ignore[attr-defined, method-assign]
    assert fires_at_once(plain_loop)


def test_a_clock_put_on_a_running_loop_moves_the_scheduler(plain_loop: whorl.EventLoop) -> None:
    async def shift() -> list[str]:
        original = plain_loop.time
        fired: list[str] = []
        plain_loop.call_later(3600, fired.append, "an hour later")
        with mock.patch.object(plain_loop, "time", return_value=original() + 3601):
            await turns(2)
        plain_loop.call_later(3600, fired.append, "the clock is the old one again")
        await turns(2)
        return fired

    assert plain_loop.run_until_complete(shift()) == ["an hour later"]
    assert not plain_loop._time_replaced


def test_the_clock_of_a_subclass_moves_the_scheduler() -> None:
    class Shifted(whorl.EventLoop):
        shift = 0

        def time(self) -> float:
            return super().time() + self.shift

    loop = Shifted()  # type: ignore[abstract]
    assert fires_at_once(loop)
    loop.close()


def test_a_subclass_may_keep_a_time_and_timers_under_the_names_that_test_loops_use() -> None:
    class Shifted(whorl.EventLoop):
        def __init__(self) -> None:
            super().__init__()
            self._time = 0.0
            self._timers: list[float] = []

        def time(self) -> float:
            return super().time() + self._time

        def call_at(self, when: float, callback: Any, *args: Any, **options: Any) -> Any:
            self._timers.append(when)
            return super().call_at(when, callback, *args, **options)

    loop = Shifted()  # type: ignore[abstract]
    loop.call_later(3600, loop.stop)
    loop._time = 3601.0
    loop.run_forever()
    assert len(loop._timers) == 1
    loop.close()


def test_a_clock_patched_into_the_class_moves_the_scheduler(plain_loop: whorl.EventLoop) -> None:
    own = plain_loop.time
    plain_loop.shift = 0  # type: ignore[attr-defined]
    with mock.patch.object(whorl.EventLoop, "time", lambda loop: own() + loop.shift):
        assert fires_at_once(plain_loop)
    plain_loop.run_until_complete(turns(1))
    assert not plain_loop._time_replaced


def test_time_can_be_called_on_the_class(plain_loop: whorl.EventLoop) -> None:
    before = plain_loop.time()
    assert before <= whorl.EventLoop.time(plain_loop) <= plain_loop.time()


def test_a_time_may_call_that_of_the_class_by_its_name() -> None:
    class Shifted(whorl.EventLoop):
        shift = 0

        def time(self) -> float:
            return whorl.EventLoop.time(self) + self.shift

    loop = Shifted()  # type: ignore[abstract]
    assert fires_at_once(loop)
    loop.shift = 0
    loop.time = lambda: whorl.EventLoop.time(loop) + loop.shift  # type: ignore[method-assign]
    assert fires_at_once(loop)
    loop.close()


def test_the_time_of_the_class_is_that_of_a_patched_clock_of_pythons(plain_loop: whorl.EventLoop) -> None:
    with mock.patch.object(time, "monotonic", return_value=10**6):
        plain_loop.run_until_complete(turns(2))
        assert whorl.EventLoop.time(plain_loop) == 10**6
    plain_loop.run_until_complete(turns(2))
    assert whorl.EventLoop.time(plain_loop) < 10**6


async def test_a_call_at_put_on_a_running_loop_is_noticed_at_once(loop: whorl.EventLoop) -> None:
    with mock.patch.object(loop, "call_at", wraps=loop.call_at) as call_at:
        await asyncio.sleep(1e-9)
        assert call_at.call_count == 1
        loop.call_later(3600, print).cancel()
        assert call_at.call_count == 2
    await asyncio.sleep(1e-9)
    assert call_at.call_count == 2
    assert not loop._time_replaced


@pytest.mark.parametrize("begun", [False, True])
def test_a_patched_clock_of_pythons_moves_the_scheduler(begun: bool) -> None:
    def scenario(loop: Any) -> Any:
        fired: list[str] = []
        seen: list[object] = []

        async def frozen(clock: mock.Mock) -> None:
            await turns(2)
            seen.append((loop.time(), loop.call_later(10, fired.append, "ten seconds later").when()))
            await turns(2)
            seen.append(list(fired))
            clock.return_value += 11
            await turns(2)
            seen.append(list(fired))

        async def freeze() -> None:
            with mock.patch.object(time, "monotonic", return_value=10**6) as clock:
                await frozen(clock)
            await turns(2)
            seen.append(loop.time() < 10**6)

        if begun:
            loop.run_until_complete(freeze())
        else:
            with mock.patch.object(time, "monotonic", return_value=10**6) as clock:
                loop.run_until_complete(frozen(clock))
            loop.run_until_complete(turns(2))
            seen.append(loop.time() < 10**6)
        return seen

    assert is_as_in_asyncio(scenario) == [(10**6, 10**6 + 10), [], ["ten seconds later"], True]


def test_a_clock_of_its_own_is_kept_by_a_loop_when_pythons_is_patched(plain_loop: whorl.EventLoop) -> None:
    plain_loop.time = lambda: 5.0  # type: ignore[method-assign]

    async def look() -> float:
        with mock.patch.object(time, "monotonic", return_value=10**6):
            await turns(2)
            seen = plain_loop.time()
            del plain_loop.time
            await turns(2)
            assert plain_loop.time() == 10**6
        await turns(2)
        return seen

    assert plain_loop.run_until_complete(look()) == 5.0
    assert plain_loop.time() < 10**6
    assert not plain_loop._time_replaced


def test_clock_replaced_in_all_modules_leaves_that_of_the_kernel(
    plain_loop: whorl.EventLoop,
) -> None:
    """Freezegun does that."""
    clocks = {time.monotonic: lambda: 10**6, time.monotonic_ns: lambda: 10**15}
    with contextlib.ExitStack() as replaced:
        for module in [time, *(each for name, each in sys.modules.items() if name.startswith("whorl."))]:
            for name, value in list(vars(module).items()):
                if any(value is clock for clock in clocks):
                    replaced.enter_context(mock.patch.object(module, name, clocks[value]))
        plain_loop.run_until_complete(turns(2))
        assert plain_loop.time() == 10**6
    plain_loop.run_until_complete(turns(2))
    assert plain_loop.time() < 10**6
    assert not plain_loop._time_replaced


def test_a_loop_made_while_pythons_clock_is_patched_goes_on_without() -> None:
    with mock.patch.object(time, "monotonic", return_value=10**6):
        loop = whorl.EventLoop()
    assert loop.time() < 10**6
    loop.run_until_complete(turns(2))
    loop.close()


def test_call_later_goes_through_a_call_at_that_was_replaced() -> None:
    def watch(kind: Any) -> Any:
        class Watching(kind):  # type: ignore[misc]
            calls = 0

            def call_at(self, *args: Any, **options: Any) -> Any:
                self.calls += 1
                return super().call_at(*args, **options)

        loop: Any = Watching()
        loop.call_later(0, int)
        loop.run_until_complete(asyncio.sleep(0.001))
        with mock.patch.object(loop, "call_at", wraps=loop.call_at) as call_at:
            loop.run_until_complete(asyncio.sleep(0.001))
        loop.close()
        return loop.calls, call_at.call_count

    assert watch(whorl.EventLoop) == watch(asyncio.SelectorEventLoop) == (3, 1)


def test_timers_in_the_past_run_by_deadline() -> None:
    async def schedule(loop: Any) -> Any:
        ran: list[int] = []
        for delay in (-1, -3, 0, -2):
            loop.call_later(delay, ran.append, delay)
        await asyncio.sleep(0.001)
        return ran

    assert is_as_in_asyncio(schedule) == [-3, -2, -1, 0]


def test_after_a_long_callback_each_overdue_timer_runs_once_and_new_ones_count_from_now() -> None:
    async def schedule(loop: Any) -> Any:
        ran: list[Any] = []
        began = loop.time()
        for delay in (0.001, 0.002, 0.003):
            loop.call_later(delay, ran.append, delay)
        loop.call_soon(time.sleep, 0.02)
        loop.call_soon(lambda: loop.call_later(0.005, lambda: ran.append(loop.time() - began >= 0.025)))
        await asyncio.sleep(0.05)
        return ran

    assert is_as_in_asyncio(schedule) == [0.001, 0.002, 0.003, True]


def test_nested_timeouts_with_equal_deadlines_end_from_inside() -> None:
    async def wait(loop: Any) -> Any:
        seen: list[Any] = []
        deadline = loop.time() + 0.001
        try:
            async with asyncio.timeout_at(deadline) as outer:
                try:
                    async with asyncio.timeout_at(deadline) as inner:
                        await loop.create_future()
                except TimeoutError:
                    seen.append((inner.expired(), outer.expired()))
                    raise
        except TimeoutError:
            seen.append("outer")
        return seen

    is_as_in_asyncio(wait)


# Pollers.


@pytest.mark.parametrize(
    "selector", [selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector]
)
def test_a_selector_may_be_given_as_asyncio_takes_it(selector: type[selectors.BaseSelector]) -> None:
    loop = whorl.EventLoop(selector())
    assert loop.run_until_complete(asyncio.sleep(0, "ran")) == "ran"
    loop.close()


def test_selector_that_takes_any_number_gets_no_high_one_that_is_not_open() -> None:
    """The table of watched descriptors has a place for each number, so it would take gigabytes."""
    loop = whorl.EventLoop(selectors.PollSelector())
    with pytest.raises(OSError, match="20000000 is not open"):
        loop.add_reader(20_000_000, print)
    loop.close()


def test_a_selector_and_a_poller_are_one_too_many() -> None:
    selector = selectors.SelectSelector()
    with pytest.raises(TypeError, match="one of them"):
        whorl.EventLoop(selector, poller=selector)
    selector.close()


# The end.


CLOSED_LOOP_CALLS = {
    "call_soon": lambda loop: loop.call_soon(print),
    "call_soon_threadsafe": lambda loop: loop.call_soon_threadsafe(print),
    "call_later": lambda loop: loop.call_later(1, print),
    "call_at": lambda loop: loop.call_at(1, print),
    "run_forever": lambda loop: loop.run_forever(),
    "run_in_executor": lambda loop: loop.run_in_executor(None, print),
    "add_reader": lambda loop: loop.add_reader(0, print),
    "add_writer": lambda loop: loop.add_writer(1, print),
    "add_signal_handler": lambda loop: loop.add_signal_handler(10, print),
    "create_task": lambda loop: loop.create_task(None),
    "run_until_complete": lambda loop: loop.run_until_complete(None),
}


@pytest.mark.parametrize("name", CLOSED_LOOP_CALLS)
def test_a_closed_loop_refuses(name: str) -> None:
    def use_closed(loop: Any) -> None:
        loop.close()
        CLOSED_LOOP_CALLS[name](loop)

    assert error_as_in_asyncio(use_closed) == (RuntimeError, "Event loop is closed")


async def test_a_running_loop_cannot_be_closed(loop: whorl.EventLoop) -> None:
    with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
        loop.close()
    assert not loop.is_closed()


def test_closing_again_does_nothing() -> None:
    loop = whorl.EventLoop()
    loop.close()
    loop.close()
    assert loop.is_closed()


def test_closing_forgets_what_was_scheduled() -> None:
    class Thing:
        def call(self) -> None:
            raise AssertionError("the loop is closed")

    loop = whorl.EventLoop()
    thing = Thing()
    reference = weakref.ref(thing)
    loop.call_soon(thing.call)
    loop.call_later(1, thing.call)
    loop.call_soon_threadsafe(thing.call)
    loop.close()
    del thing
    assert reference() is None


def test_closing_shuts_the_executor_down_without_waiting() -> None:
    loop = whorl.EventLoop()
    release = threading.Event()
    job = loop.run_in_executor(None, release.wait)
    executor = loop._default_executor
    assert executor is not None
    loop.close()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(print)
    release.set()
    executor.shutdown(wait=True)
    del job


def test_closed_loops_leave_no_descriptors() -> None:
    def use() -> None:
        loop = whorl.EventLoop()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    use()
    before = open_descriptors().keys()
    for _ in range(100):
        use()
    assert open_descriptors().keys() == before


def test_a_loop_that_is_dropped_gives_a_warning_and_its_descriptors_back() -> None:
    before = open_descriptors().keys()
    loop = whorl.EventLoop()
    loop.call_soon(print, loop)
    loop.call_later(1, print, loop)
    del loop
    with pytest.warns(ResourceWarning, match="unclosed event loop <EventLoop running=False closed=False"):
        gc.collect()
    assert open_descriptors().keys() == before


def test_a_closed_loop_is_dropped_without_a_word() -> None:
    loop = whorl.EventLoop()
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del loop
        gc.collect()


def test_handles_left_open_are_closed_with_a_warning() -> None:
    loop = whorl.EventLoop()
    timer = Timer(loop)
    with pytest.warns(ResourceWarning, match="unclosed handle <Timer"):
        loop.close()
    assert timer.is_closing()


def test_a_loop_with_handles_left_open_is_closed_even_if_warnings_are_errors() -> None:
    loop = whorl.EventLoop()
    handles = [Timer(loop), Timer(loop)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ResourceWarning):
            loop.close()
    assert loop.is_closed()
    assert all(handle.is_closing() for handle in handles)


# A forked child.


def in_child(function: Any) -> int:
    """Return the exit status of a forked child that calls a function."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_that_closes_the_loop_takes_nothing_from_its_parent(plain_loop: whorl.EventLoop) -> None:
    reading, writing = os.pipe()
    received = plain_loop.create_future()
    plain_loop.add_reader(reading, lambda: received.done() or received.set_result(os.read(reading, 100)))
    plain_loop.run_until_complete(turns(2))
    assert in_child(plain_loop.close) == 0
    os.write(writing, b"still here")
    assert plain_loop.run_until_complete(received) == b"still here"
    plain_loop.remove_reader(reading)
    os.close(reading)
    os.close(writing)


def test_a_child_that_collects_the_loop_takes_nothing_from_its_parent() -> None:
    loops = [whorl.EventLoop()]
    one, other = socket.socketpair()
    one.setblocking(False)
    got: list[bytes] = []
    loops[0].add_reader(one, lambda: got.append(one.recv(100)))
    loops[0].call_soon(loops[0].stop)
    loops[0].run_forever()

    def collect() -> None:
        warnings.simplefilter("ignore")
        loop = weakref.ref(loops.pop())
        gc.collect()
        assert loop() is None

    assert in_child(collect) == 0
    other.send(b"still here")
    while not got:
        loops[0].call_soon(loops[0].stop)
        loops[0].run_forever()
    assert got == [b"still here"]
    loops[0].call_soon_threadsafe(loops[0].stop)
    loops[0].run_forever()
    loops[0].remove_reader(one)
    loops[0].close()
    one.close()
    other.close()


def test_a_child_cannot_run_its_parents_loop(plain_loop: whorl.EventLoop) -> None:
    def run() -> None:
        with pytest.raises(RuntimeError, match="before a fork"):
            plain_loop.run_forever()

    assert in_child(run) == 0


def test_a_child_of_a_running_loop_can_run_a_loop_of_its_own(plain_loop: whorl.EventLoop) -> None:
    def run() -> None:
        assert whorl.run(asyncio.sleep(0, "ran")) == "ran"

    async def fork() -> int:
        return in_child(run)

    assert plain_loop.run_until_complete(fork()) == 0


def test_a_child_that_goes_on_in_the_running_loop_ends_with_an_error_and_takes_nothing_from_its_parent() -> (
    None
):
    program = """if True:
        import asyncio, os, socket, whorl

        async def main():
            loop = asyncio.get_running_loop()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                peer, _ = listener.accept()
            peer.send(b"for the parent")
            child = os.fork()
            if child == 0:
                await loop.create_future()
            print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), await reader.read(100))

        whorl.run(main())
    """
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert answer.stdout == "status 1 b'for the parent'\n"
    assert "RuntimeError: This event loop was made before a fork and cannot run in the child" in answer.stderr


def run_a_loop() -> None:
    """Run another loop than that of the test."""
    whorl.run(asyncio.sleep(0.001))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_processes_of_every_kind_start_while_the_loop_runs(loop: whorl.EventLoop) -> None:
    process = multiprocessing.get_context("fork").Process(target=run_a_loop)
    process.start()
    process.join()
    assert process.exitcode == 0
    command = [sys.executable, "-c", "pass"]
    assert subprocess.run(command, preexec_fn=os.getpid).returncode == 0
    child = os.fork()
    if child == 0:
        os.execv(command[0], command)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    await asyncio.sleep(0.001)


class TestTimersInAnotherTime:
    """Timers on a kernel in whose time sleeping takes no time."""

    @pytest.fixture
    def kernel(self) -> JumpingClock:
        return JumpingClock()

    async def test_a_day_passes_at_once(self, loop: whorl.EventLoop) -> None:
        before = loop.time()
        await asyncio.sleep(24 * 3600)
        assert loop.time() - before >= 24 * 3600


def test_a_call_posted_by_another_thread_comes_before_a_later_call_soon(loop: whorl.EventLoop) -> None:
    order: list[str] = []
    poster = threading.Thread(target=loop.call_soon_threadsafe, args=(order.append, "posted"))
    poster.start()
    poster.join()
    loop.call_soon(order.append, "called")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert order == ["posted", "called"]


@pytest.mark.parametrize("debug", [False, True])
def test_a_loop_may_be_closed_while_another_thread_posts(plain_loop: whorl.EventLoop, debug: bool) -> None:
    ran: list[int] = []
    refused: list[str] = []

    def post() -> None:
        number = 0
        try:
            while True:
                plain_loop.call_soon_threadsafe(ran.append, number)
                number += 1
                time.sleep(0)  # lets the loop go on
        except RuntimeError as error:
            refused.append(str(error))

    plain_loop.set_debug(debug)
    thread = threading.Thread(target=post)
    thread.start()
    plain_loop.run_until_complete(asyncio.sleep(0.005))
    plain_loop.close()
    before = list(ran)
    thread.join()
    assert refused == ["Event loop is closed"]
    assert ran == before == list(range(len(before)))


def test_a_machine_run_goes_on_while_a_server_listens(loop: whorl.EventLoop) -> None:
    server = loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
    assert loop.run(whorl.RunMode.NOWAIT)
    server.close()
    assert not loop.run(whorl.RunMode.NOWAIT)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="cancel waits since Python 3.14")
def test_cancelling_a_posted_callback_waits_until_it_has_run(loop: whorl.EventLoop) -> None:
    began, may_end, cancelled = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def posted() -> None:
        began.set()
        assert may_end.wait(10)
        order.append("ran")

    def cancel() -> None:
        assert began.wait(10)
        may_end.set()
        handle.cancel()
        order.append("cancelled")
        cancelled.set()
        loop.call_soon_threadsafe(loop.stop)

    handle = loop.call_soon_threadsafe(posted)
    canceller = threading.Thread(target=cancel)
    canceller.start()
    loop.run_forever()
    canceller.join()
    assert cancelled.is_set()
    assert order == ["ran", "cancelled"]


def test_timers_can_be_found_and_run_before_their_time() -> None:
    def hurry(loop: Any) -> Any:
        seen: list[object] = []

        def fail() -> None:
            raise ZeroDivisionError

        loop.set_exception_handler(lambda loop, context: seen.append(type(context["exception"])))
        loop.call_later(100, seen.append, "first")
        loop.call_at(loop.time() + 200, fail)
        loop.call_soon(seen.append, "no timer")
        timers = sorted(loop._scheduled)
        for timer in timers:
            timer._run()
            timer.cancel()
        return list(seen), [timer.cancelled() for timer in timers]

    assert is_as_in_asyncio(hurry)[0] == ["first", ZeroDivisionError]


def test_a_callback_may_be_cancelled_by_the_thread_that_posted_it(loop: whorl.EventLoop) -> None:
    ran: list[str] = []
    posted = threading.Event()

    def post() -> None:
        cancelled = loop.call_soon_threadsafe(ran.append, "cancelled")
        kept = loop.call_soon_threadsafe(ran.append, "kept")
        cancelled.cancel()
        assert cancelled.cancelled()
        assert not kept.cancelled()
        posted.set()

    def wait_for_thread() -> None:  # so that the loop is not at its queue meanwhile
        thread.start()
        posted.wait()
        loop.call_soon(loop.call_soon, loop.stop)

    thread = threading.Thread(target=post)
    loop.call_soon(wait_for_thread)
    loop.run_forever()
    thread.join()
    assert ran == ["kept"]


def test_replaced_set_running_loop_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[Any] = []
    note = asyncio._set_running_loop

    def note_both(loop: Any) -> None:
        noted.append(loop)
        note(loop)

    monkeypatch.setattr(asyncio.events, "_set_running_loop", note_both)
    loop = whorl.EventLoop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert noted == [loop, None]
