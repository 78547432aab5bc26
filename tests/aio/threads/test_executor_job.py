"""A loop's jobs in threads of an executor, compared with asyncio's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import logging
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from whorl.aio.threads.executor_job import ExecutorJob

pytestmark = pytest.mark.usefixtures("no_leak")

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

ERRORS: list[BaseException] = [
    ZeroDivisionError("no"),
    StopIteration(3),
    SystemExit(4),
    KeyboardInterrupt("stop"),
    GeneratorExit(),
    asyncio.CancelledError("by itself"),
    asyncio.InvalidStateError("state"),
    concurrent.futures.CancelledError("theirs"),
    concurrent.futures.InvalidStateError("their state"),
    TimeoutError("late"),
]


def fail_with(error: BaseException) -> None:
    raise error


def note_reports(loop: Any) -> list[str]:
    """Return a list that gets the loop's reports from now on."""
    reports: list[str] = []
    loop.set_exception_handler(lambda _, report: reports.append(repr(report.get("exception"))))
    return reports


class Busy:
    """Keeps the only thread of a loop's executor at work."""

    def __init__(self, loop: Any) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="busy")
        loop.set_default_executor(self.executor)
        self.release = threading.Event()
        self.work = loop.run_in_executor(None, self.release.wait)

    async def end(self) -> None:
        """Let the thread do all that it was given."""
        self.release.set()
        await self.work
        self.executor.submit(int).result()


# Results and errors.


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_is_what_it_is_in_asyncio(error: BaseException) -> None:
    async def scenario(loop: Any) -> Any:
        reports = note_reports(loop)
        future = loop.run_in_executor(None, fail_with, error)
        while not future.done() and not reports:
            await asyncio.sleep(0)
        if not future.done():
            return reports
        if future.cancelled():
            return "cancelled"
        found = future.exception()
        return type(found), found.args, found is error

    is_as_in_asyncio(scenario)


async def test_a_traceback_leads_to_the_function_by_as_many_steps(loop: whorl.EventLoop) -> None:
    future = loop.run_in_executor(None, fail_with, ZeroDivisionError())
    await asyncio.wait([future])
    error = future.exception()
    assert error is not None
    frames = traceback.extract_tb(error.__traceback__)
    assert [frame.name.split(".")[-1] for frame in frames] == ["run", "fail_with"]


async def test_an_error_leaves_no_cycle(loop: whorl.EventLoop) -> None:
    class OwnError(Exception):
        pass

    def fail() -> None:
        raise OwnError

    gc.collect()
    gc.disable()
    try:
        future = loop.run_in_executor(None, fail)
        await asyncio.wait([future])
        gone = weakref.ref(future.exception())  # type: ignore[arg-type]
        del future
        await loop.shutdown_default_executor()
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.gil("the thread that made an object may have to drop it")
async def test_function_and_arguments_are_dropped_in_the_thread(loop: whorl.EventLoop) -> None:
    class Argument:
        pass

    dropped: list[int] = []
    argument = Argument()
    weakref.finalize(argument, lambda: dropped.append(threading.get_ident()))
    release = threading.Event()

    def work(given: Any) -> int:
        release.wait()
        return threading.get_ident()

    future = loop.run_in_executor(None, work, argument)
    del argument
    release.set()
    ident = await future
    await loop.shutdown_default_executor()
    assert dropped == [ident]


@pytest.mark.gil("the thread that made an object may have to drop it")
async def test_a_waiting_thread_keeps_no_result(loop: whorl.EventLoop) -> None:
    class Result:
        pass

    result = weakref.ref(await loop.run_in_executor(None, Result))
    await loop.run_in_executor(None, int)
    assert result() is None


def test_a_function_sees_the_context_of_to_thread_only() -> None:
    async def scenario(loop: Any) -> Any:
        variable.set("mine")
        return await asyncio.to_thread(variable.get), await loop.run_in_executor(None, variable.get)

    if getattr(sys.flags, "thread_inherit_context", 0):
        is_as_in_asyncio(scenario)
    else:
        assert is_as_in_asyncio(scenario) == ("mine", "none")


# Cancelling.


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_job_cancelled_before_it_begins_is_not_called(turns: int) -> None:
    async def scenario(loop: Any) -> Any:
        busy = Busy(loop)
        called: list[int] = []
        future = loop.run_in_executor(None, called.append, 1)
        cancelled = future.cancel()
        for _ in range(max(turns, 1)):
            await asyncio.sleep(0)
        await busy.end()
        return cancelled, future.cancelled(), called

    assert is_as_in_asyncio(scenario) == (True, True, [])


def test_job_cancelled_after_it_began_goes_on_and_its_result_is_dropped() -> None:
    async def scenario(loop: Any) -> Any:
        reports = note_reports(loop)
        began, release = threading.Event(), threading.Event()
        called: list[int] = []

        def work() -> None:
            began.set()
            release.wait()
            called.append(1)

        future = loop.run_in_executor(None, work)
        began.wait()
        cancelled = future.cancel()
        await asyncio.sleep(0)
        release.set()
        await loop.shutdown_default_executor()
        await asyncio.sleep(0)
        return cancelled, future.cancelled(), called, reports

    assert is_as_in_asyncio(scenario) == (True, True, [1], [])


def test_executor_future_ended_by_its_user_is_reported_as_an_error() -> None:
    async def scenario(loop: Any) -> Any:
        reports = note_reports(loop)
        release = threading.Event()
        future = loop.run_in_executor(None, release.wait)
        future.set_result("mine")
        release.set()
        while not reports:
            await asyncio.sleep(0)
        return future.result(), reports

    assert is_as_in_asyncio(scenario) == ("mine", ["AssertionError()"])


# Executors that end.


def test_an_executor_cancels_what_waits_when_it_is_shut_down() -> None:
    async def scenario(loop: Any) -> Any:
        busy = Busy(loop)
        called: list[int] = []
        future = loop.run_in_executor(None, called.append, 1)
        busy.executor.shutdown(wait=False, cancel_futures=True)
        at_once = future.done()
        await asyncio.wait([future])
        busy.release.set()
        await busy.work
        return at_once, future.cancelled(), called

    is_as_in_asyncio(scenario)


def test_an_executor_is_shut_down_in_another_thread() -> None:
    async def scenario(loop: Any) -> Any:
        busy = Busy(loop)
        future = loop.run_in_executor(None, int)
        thread = threading.Thread(target=lambda: busy.executor.shutdown(wait=False, cancel_futures=True))
        thread.start()
        await asyncio.wait([future])
        thread.join()
        busy.release.set()
        await busy.work
        return future.cancelled()

    assert is_as_in_asyncio(scenario) is True


def test_an_executor_that_was_shut_down_refuses() -> None:
    def scenario(loop: Any) -> Any:
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
        loop.run_in_executor(executor, int)

    is_as_in_asyncio(scenario)


def test_jobs_fail_if_the_threads_of_the_executor_cannot_begin(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(loop: Any) -> Any:
        release = threading.Event()

        def begin() -> None:
            release.wait()
            raise ZeroDivisionError

        executor = ThreadPoolExecutor(1, initializer=begin)
        future = loop.run_in_executor(executor, int)
        release.set()
        found = await asyncio.gather(future, return_exceptions=True)
        executor.shutdown()
        try:
            loop.run_in_executor(executor, int)
        except RuntimeError as error:
            found.append(error)
        return [(type(error), str(error)) for error in found]

    caplog.set_level(logging.CRITICAL + 1, "concurrent.futures")
    is_as_in_asyncio(scenario)


def test_a_loop_that_was_closed_hears_of_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def scenario(loop: Any) -> Any:
        release = threading.Event()
        executor = ThreadPoolExecutor(1)
        loop.set_default_executor(executor)
        future = loop.run_in_executor(None, release.wait)
        loop.close()
        release.set()
        executor.shutdown()
        return future.done()

    assert is_as_in_asyncio(scenario) is False
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


# Programs that look on.


def test_the_executor_of_a_loop_is_the_standard_librarys() -> None:
    async def scenario(loop: Any) -> Any:
        await loop.run_in_executor(None, int)
        executor = loop._default_executor
        threads = [(thread.name, thread.daemon) for thread in executor._threads]
        return type(executor), executor._max_workers, threads

    assert is_as_in_asyncio(scenario)[0] is ThreadPoolExecutor


def test_jobs_and_what_is_submitted_are_called_in_one_order() -> None:
    async def scenario(loop: Any) -> Any:
        busy = Busy(loop)
        called: list[int] = []
        for number in range(10):
            if number % 2:
                loop.run_in_executor(None, called.append, number)
            else:
                busy.executor.submit(called.append, number)
        await busy.end()
        return called

    assert is_as_in_asyncio(scenario) == list(range(10))


def test_replaced_submit_receives_the_submitted_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = ThreadPoolExecutor.submit
    seen: list[Any] = []

    def noting_submit(self: Any, fn: Callable[..., Any], *args: Any) -> Any:
        seen.append(args)
        return submit(self, fn, *args)

    async def scenario(loop: Any) -> Any:
        seen.clear()
        monkeypatch.setattr(ThreadPoolExecutor, "submit", noting_submit)
        await loop.run_in_executor(None, divmod, 7, 3)
        monkeypatch.undo()
        loop._default_executor.submit = lambda *args: noting_submit(loop._default_executor, *args)
        await loop.run_in_executor(None, divmod, 9, 2)
        return seen

    assert is_as_in_asyncio(scenario) == [(7, 3), (9, 2)]


def test_subclasses_are_submitted_to() -> None:
    class Noting(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **options: Any) -> Any:
            seen.append(args)
            return super().submit(fn, *args, **options)

    seen: list[Any] = []

    async def scenario(loop: Any) -> Any:
        seen.clear()
        with Noting(1) as executor:
            await loop.run_in_executor(executor, divmod, 7, 3)
        return seen

    assert is_as_in_asyncio(scenario) == [(7, 3)]


@pytest.mark.parametrize("hook", ["settrace", "setprofile"])
def test_hooks_of_threads_see_the_function(hook: str) -> None:
    def function() -> None:
        pass

    async def scenario(loop: Any) -> Any:
        seen: list[str] = []

        def look(frame: Any, event: str, argument: Any) -> None:
            if frame.f_code is function.__code__:
                seen.append(event)

        getattr(threading, hook)(look)
        try:
            await loop.run_in_executor(None, function)
            await loop.shutdown_default_executor()
        finally:
            getattr(threading, hook)(None)
        return seen

    assert is_as_in_asyncio(scenario)


async def test_an_overridden_way_into_the_loop_is_used(no_leak: None) -> None:
    posted: list[Any] = []

    class Loop(whorl.EventLoop):
        def call_soon_threadsafe(self, *args: Any, **options: Any) -> Any:
            posted.append(args)
            return super().call_soon_threadsafe(*args, **options)

    def run() -> int:
        with asyncio.Runner(loop_factory=Loop) as runner:
            return runner.run(asyncio.to_thread(int, 3))

    assert await asyncio.to_thread(run) == 3
    assert posted


def test_futures_of_another_class_are_not_asked_in_other_threads() -> None:
    asking: set[int] = set()

    class OwnFuture(asyncio.Future[Any]):
        def cancelled(self) -> bool:
            asking.add(threading.get_ident())
            return super().cancelled()

    class Loop(whorl.EventLoop):
        def create_future(self) -> asyncio.Future[Any]:
            return OwnFuture(loop=self)

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(asyncio.to_thread(int, 3)) == 3
    assert asking == {threading.get_ident()}


async def test_a_way_into_the_loop_that_fails_is_logged(
    loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> Any:
        raise OSError("no way")

    future = loop.create_future()
    job = ExecutorJob(loop, future, int, ())
    monkeypatch.setattr(loop, "call_soon_threadsafe", refuse)
    await asyncio.get_running_loop().create_task(in_a_thread(job.run))
    assert "exception calling callback" in caplog.text
    assert not future.done()
    caplog.clear()


async def in_a_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
