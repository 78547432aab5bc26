"""Runs inside of a callback or a task of the running loop."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import functools
import gc
import inspect
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import JumpingClock, receive, socket_pair, turns
from whorl.aio.loop import nested_runs, nested_turns
from whorl.core import Kernel, Probe
from whorl.handles import Idle, Pipe, Timer

pytestmark = pytest.mark.usefixtures("no_leak")

EAGER = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after each test what it has allowed."""
    monkeypatch.setattr(nested_runs, "_allows_all", False)
    monkeypatch.setattr(asyncio, "run", asyncio.run)
    monkeypatch.setattr(asyncio.runners, "run", asyncio.runners.run)


@pytest.fixture(params=["cpython", "compiled", "debug"])
def nesting(request: pytest.FixtureRequest, no_leak: None) -> Iterator[whorl.EventLoop]:
    """Yield a loop that allows nested runs, and reports no error."""
    reported: list[dict[str, Any]] = []
    debug = request.param == "debug"
    loop = whorl.new_event_loop(tasks="cpython" if debug else request.param)
    loop.set_debug(debug)
    loop.slow_callback_duration = 100
    loop.set_exception_handler(lambda loop, context: reported.append(context))
    whorl.allow_nested_runs(loop)
    yield loop
    loop.close()
    gc.collect()
    assert not reported


async def give(value: Any, yields: int = 3) -> Any:
    await turns(yields)
    return value


# What may run.


def test_run_inside_of_a_task_returns_the_result(nesting: whorl.EventLoop) -> None:
    async def main() -> tuple[Any, Any]:
        return nesting.run_until_complete(give(1)), await give(2)

    assert nesting.run_until_complete(main()) == (1, 2)


def test_run_inside_of_a_callback_returns_the_result(nesting: whorl.EventLoop) -> None:
    got: list[Any] = []

    def call() -> None:
        got.append(nesting.run_until_complete(give("inner")))
        nesting.stop()

    nesting.call_soon(call)
    nesting.run_forever()
    assert got == ["inner"]


def test_run_inside_of_a_nested_run_returns_the_result(nesting: whorl.EventLoop) -> None:
    async def nest(depth: int) -> int:
        await asyncio.sleep(0)
        inner = nesting.run_until_complete(nest(depth - 1)) if depth else 0
        return await give(inner + 1)  # type: ignore[no-any-return]

    assert nesting.run_until_complete(nest(10)) == 11


def test_run_inside_of_callbacks_of_timers_descriptors_and_threads(nesting: whorl.EventLoop) -> None:
    ours, theirs = socket_pair("unix")
    got: list[str] = []

    def call(name: str) -> None:
        got.append(nesting.run_until_complete(give(name)))
        nesting.remove_reader(ours)
        if len(got) == 3:
            nesting.stop()

    nesting.call_later(0.001, call, "timer")
    nesting.add_reader(ours, call, "descriptor")
    theirs.send(b"x")
    thread = threading.Thread(target=nesting.call_soon_threadsafe, args=(call, "thread"))
    thread.start()
    nesting.run_forever()
    thread.join()
    ours.close()
    theirs.close()
    assert sorted(got) == ["descriptor", "thread", "timer"]


def test_run_inside_sleeps_until_its_timers_are_due(nesting: whorl.EventLoop) -> None:
    async def main() -> int:
        before = nesting.metrics().turns
        nesting.run_until_complete(asyncio.sleep(0.05))
        return nesting.metrics().turns - before

    assert nesting.run_until_complete(main()) < 10


def test_run_inside_waits_for_connections_and_threads(nesting: whorl.EventLoop) -> None:
    async def ask() -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.readline()
            writer.write(nesting.run_until_complete(give(data.upper())))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"line\n")
            data = await reader.read()
            writer.close()
            await writer.wait_closed()
        return data + await asyncio.to_thread(bytes, 1)

    async def main() -> bytes:
        return nesting.run_until_complete(ask())

    assert nesting.run_until_complete(main()) == b"LINE\n\0"
    nesting.run_until_complete(nesting.shutdown_default_executor())


def test_future_that_is_done_already_is_returned(nesting: whorl.EventLoop) -> None:
    async def main() -> Any:
        done = nesting.create_future()
        done.set_result("done")
        return nesting.run_until_complete(done)

    assert nesting.run_until_complete(main()) == "done"


def test_done_callbacks_of_the_inner_future_run_before_the_run_returns(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        order: list[Any] = []
        task = nesting.create_task(give(None))
        task.add_done_callback(lambda _: order.append("callback"))
        nesting.run_until_complete(task)
        order.append("returned")
        assert order == ["callback", "returned"]

    nesting.run_until_complete(main())


def test_run_once_of_a_subclass_is_called_for_inner_turns() -> None:
    class Counting(whorl.EventLoop):
        turned = 0

        def _run_once(self) -> None:
            self.turned += 1
            super()._run_once()

    loop = Counting()
    whorl.allow_nested_runs(loop)

    async def main() -> int:
        before = loop.turned
        loop.run_until_complete(give(None))
        return loop.turned - before

    assert loop.run_until_complete(main()) >= 3
    loop.close()


# Who may.


def test_run_inside_is_refused_by_default() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for run in (loop.run_until_complete, asyncio.run, whorl.run):
            coroutine = give(1)
            with pytest.raises(RuntimeError, match=r"already running|called from a running event loop"):
                run(coroutine)  # type: ignore[operator]
            coroutine.close()
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()
        assert not hasattr(loop, "_nest_patched")

    whorl.run(main())


def test_loop_that_allows_nested_runs_allows_no_other_loop(nesting: whorl.EventLoop) -> None:
    other = whorl.EventLoop()

    async def main() -> None:
        coroutine = give(1)
        with pytest.raises(RuntimeError, match="Cannot run the event loop while another loop is running"):
            other.run_until_complete(coroutine)
        coroutine.close()

    nesting.run_until_complete(main())
    other.close()


def test_all_loops_allow_nested_runs_if_no_loop_was_named() -> None:
    async def main() -> Any:
        return asyncio.get_running_loop().run_until_complete(give(1))

    whorl.allow_nested_runs()
    assert whorl.run(main()) == 1


@pytest.mark.parametrize("what", [asyncio.SelectorEventLoop, whorl.Loop, object])
def test_allowing_nested_runs_refuses_what_is_no_loop_for_asyncio(what: Any) -> None:
    thing = what()
    with pytest.raises(TypeError, match="a loop of Whorl's was expected"):
        whorl.allow_nested_runs(thing)
    if hasattr(thing, "close"):
        thing.close()


def test_another_thread_may_not_run_the_loop(nesting: whorl.EventLoop) -> None:
    async def main() -> Any:
        def run() -> str:
            coroutine = give(1)
            try:
                nesting.run_until_complete(coroutine)
            except RuntimeError as error:
                return str(error)
            finally:
                coroutine.close()
            return "ran"

        return await nesting.run_in_executor(None, run)

    assert nesting.run_until_complete(main()) == "This event loop is already running"
    nesting.run_until_complete(nesting.shutdown_default_executor())


def test_code_between_two_callbacks_may_not_run_the_loop(nesting: whorl.EventLoop) -> None:
    refused: list[str] = []

    class Poller(Probe):
        """A probe, which the loop calls outside of its callbacks."""

        def polled(self, slept_ns: int, events: int) -> None:
            coroutine = give(1)
            try:
                nesting.run_until_complete(coroutine)
            except RuntimeError as error:
                refused.append(str(error))
            coroutine.close()

    nesting.set_probe(Poller())
    nesting.run_until_complete(asyncio.sleep(0.001))
    nesting.set_probe(None)
    assert set(refused) == {"This event loop is already running"}


def test_closed_loop_is_refused_inside_of_another_one(nesting: whorl.EventLoop) -> None:
    closed = whorl.EventLoop()
    closed.close()
    whorl.allow_nested_runs(closed)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            closed.run_forever()

    nesting.run_until_complete(main())


def test_loop_cannot_be_closed_inside_of_a_nested_run(nesting: whorl.EventLoop) -> None:
    async def close() -> None:
        nesting.close()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            nesting.run_until_complete(close())

    nesting.run_until_complete(main())


def test_task_that_waits_for_itself_is_refused(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        task: Any = asyncio.current_task()
        with pytest.raises(RuntimeError, match="until it is done itself"):
            nesting.run_until_complete(task)

    nesting.run_until_complete(main())


# The batch.


def test_rest_of_a_batch_runs_in_order_inside(nesting: whorl.EventLoop) -> None:
    order: list[Any] = []

    def nest() -> None:
        nesting.call_soon(order.append, "late")
        order.append("begins")
        nesting.run_until_complete(give(None))
        order.append("ended")

    for number in range(3):
        nesting.call_soon(order.append, number)
    nesting.call_soon(nest)
    for number in range(3, 9):
        nesting.call_soon(order.append, number)
    nesting.run_until_complete(give(None, 1))
    assert order == [0, 1, 2, "begins", *range(3, 9), "late", "ended"]


def test_inner_future_may_depend_on_the_rest_of_the_batch(nesting: whorl.EventLoop) -> None:
    async def main() -> Any:
        future = nesting.create_future()
        got: list[Any] = []
        nesting.call_soon(lambda: got.append(nesting.run_until_complete(future)))
        nesting.call_soon(future.set_result, "of the batch")
        await turns(1)
        return got

    assert nesting.run_until_complete(main()) == ["of the batch"]


def test_every_callback_of_nested_batches_runs_once(nesting: whorl.EventLoop) -> None:
    ran: list[int] = []

    def call(number: int) -> None:
        ran.append(number)
        if number % 3 == 0 and number < 60:
            nesting.call_soon(call, number + 100)
            nesting.run_until_complete(give(None, 1))

    for number in range(12):
        nesting.call_soon(call, number)
    nesting.run_until_complete(give(None, 10))
    assert sorted(ran) == [*range(12), *range(100, 112, 3)]
    assert nesting.metrics().ready == 0


def test_moved_callbacks_are_counted_once() -> None:
    def callbacks_of(nests: bool) -> int:
        loop = whorl.EventLoop()
        whorl.allow_nested_runs(loop)
        done = loop.create_future()
        if nests:
            loop.call_soon(loop.run_until_complete, done)
        else:
            loop.call_soon(int)
        for _ in range(5):
            loop.call_soon(int)
        loop.call_soon(done.set_result, None)
        loop.run_until_complete(give(None, 5))
        count = loop.metrics().callbacks
        loop.close()
        return count

    # The nested run adds one: the note that its future is done.
    assert callbacks_of(nests=True) == callbacks_of(nests=False) + 1


def test_turns_inside_take_what_the_inbox_has(nesting: whorl.EventLoop) -> None:
    async def main() -> Any:
        future = nesting.create_future()
        nesting.call_soon_threadsafe(future.set_result, "posted")
        return nesting.run_until_complete(future)

    assert nesting.run_until_complete(main()) == "posted"


def test_callback_of_a_run_in_the_order_of_libuv_may_not_run_the_loop(nesting: whorl.EventLoop) -> None:
    refused: list[str] = []

    def nest() -> None:
        coroutine = give(1)
        with pytest.raises(RuntimeError, match="already running"):
            nesting.run_until_complete(coroutine)
        coroutine.close()
        refused.append("refused")

    nesting.call_soon(nest)
    nesting.run()
    assert refused == ["refused"]
    assert nesting.run_until_complete(give("usable")) == "usable"


def test_driven_loop_may_be_nested_and_sleeps_inside(nesting: whorl.EventLoop) -> None:
    got: list[Any] = []

    def call() -> None:
        before = nesting.metrics().turns
        got.append(nesting.run_until_complete(asyncio.sleep(0.02, "slept")))
        got.append(nesting.metrics().turns - before < 10)

    nesting.call_soon(call)
    with whorl.Driver(nesting) as driver:
        assert driver.step()
        assert got == ["slept", True]
        assert driver.step()
        assert asyncio._get_running_loop() is None


# The state of the thread, the task and the context.


def test_current_task_and_running_loop_are_as_before_afterwards(nesting: whorl.EventLoop) -> None:
    seen: list[Any] = []

    async def inner() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    async def main() -> None:
        task = asyncio.current_task()
        nesting.call_soon(lambda: seen.append(asyncio.current_task()))
        nesting.run_until_complete(inner())
        assert asyncio.current_task() is task
        assert asyncio.get_running_loop() is nesting
        assert seen[0] is None
        assert seen[1] is seen[2] is not task
        await asyncio.sleep(0)
        assert asyncio.current_task() is task

    nesting.run_until_complete(main())
    assert asyncio._get_running_loop() is None


def test_context_of_the_task_is_intact_afterwards(nesting: whorl.EventLoop) -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def inner() -> str:
        before = variable.get()
        variable.set("inner")
        await asyncio.sleep(0)
        return before

    async def main() -> None:
        variable.set("outer")
        timer = Timer(nesting)
        timer.start(lambda timer: variable.set("timer"), timeout_ns=0)
        assert nesting.run_until_complete(inner()) == "outer"
        assert variable.get() == "outer"
        nesting.call_soon(variable.set, "callback")
        nesting.run_until_complete(give(None))
        assert variable.get() == "outer"
        timer.close()
        await turns(2)
        assert variable.get() == "outer"

    nesting.run_until_complete(main())


def test_context_of_the_task_is_not_that_of_the_turns_inside(nesting: whorl.EventLoop) -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    class Setting(Probe):
        """A probe, which the loop calls in the context of its turns."""

        def polled(self, slept_ns: int, events: int) -> None:
            variable.set("probe")

    async def main() -> None:
        nesting.set_probe(Setting())
        nesting.run_until_complete(give(None))
        nesting.set_probe(None)
        assert variable.get() == "unset"

    nesting.run_until_complete(main())


def test_task_in_the_context_of_the_outer_one_is_put_off(nesting: whorl.EventLoop) -> None:
    """As cells of a kernel share a context, which cannot be entered twice."""
    context = contextvars.copy_context()
    ran: list[str] = []

    async def sibling() -> None:
        ran.append("sibling")

    async def main() -> None:
        task = nesting.create_task(sibling(), context=context)
        nesting.call_soon(ran.append, "callback in it", context=context)
        nesting.call_soon(ran.append, "another")
        inner = nesting.create_task(give(None))
        inner.add_done_callback(lambda _: nesting.call_soon(ran.append, "newer"))
        nesting.run_until_complete(inner)
        assert ran == ["another"]
        await task
        await turns(1)

    nesting.run_until_complete(nesting.create_task(main(), context=context))
    assert ran == ["another", "sibling", "callback in it", "newer"]


def test_equal_timers_in_the_context_of_the_outer_task_all_run(nesting: whorl.EventLoop) -> None:
    calls: list[int] = []
    context = contextvars.copy_context()

    async def main() -> None:
        now = nesting.time()
        for _ in range(3):
            nesting.call_at(now, calls.append, 1, context=context)
        nesting.run_until_complete(give("inner", 5))
        assert calls == []
        await asyncio.sleep(0)

    nesting.run_until_complete(nesting.create_task(main(), context=context))
    assert calls == [1, 1, 1]


def test_task_in_the_context_of_the_outer_one_that_receives_is_put_off(nesting: whorl.EventLoop) -> None:
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    context = contextvars.copy_context()
    got: list[bytes] = []

    async def receive() -> None:
        got.append(await nesting.sock_recv(ours, 10))

    async def main() -> None:
        task = nesting.create_task(receive(), context=context)
        await asyncio.sleep(0)
        peer.send(b"data")
        nesting.run_until_complete(give("inner", 5))
        assert got == []
        await task

    try:
        nesting.run_until_complete(nesting.create_task(main(), context=context))
    finally:
        ours.close()
        peer.close()
    assert got == [b"data"]


def test_idle_handle_that_runs_the_loop_is_not_called_inside(nesting: whorl.EventLoop) -> None:
    calls: list[str] = []
    idle = Idle(nesting)

    def call(idle: Idle) -> None:
        calls.append("begins")
        if len(calls) == 1:
            nesting.run_until_complete(give(None, 20))
            idle.close()
        calls.append("ends")

    idle.start(call)
    nesting.run_until_complete(give(None, 5))
    assert calls == ["begins", "ends"]


def test_turns_after_a_nested_run_do_not_nest_by_themselves(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        nesting.run_until_complete(give(None))
        with pytest.raises(RuntimeError, match="in the middle of a turn"):
            nesting._run_once()

    nesting.run_until_complete(main())


def test_replaced_method_of_handles_runs_the_callbacks_inside(
    nesting: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Any = asyncio.Handle._run
    ran: list[Any] = []

    def noted(handle: Any) -> None:
        ran.append(handle._callback)
        run(handle)

    def inner() -> None:
        """Do nothing."""

    async def main() -> None:
        nesting.call_soon(inner)
        nesting.run_until_complete(give(None))

    monkeypatch.setattr(asyncio.Handle, "_run", noted)
    nesting.run_until_complete(main())
    assert inner in ran


def test_generator_hooks_are_as_before_afterwards(nesting: whorl.EventLoop) -> None:
    closed: list[str] = []

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async def main() -> None:
        hooks = sys.get_asyncgen_hooks()
        nesting.run_until_complete(give(None))
        assert sys.get_asyncgen_hooks() == hooks
        kept = generate()
        await anext(kept)
        nesting.run_until_complete(nesting.shutdown_asyncgens())
        assert closed == ["closed"]

    before = sys.get_asyncgen_hooks()
    nesting.run_until_complete(main())
    assert sys.get_asyncgen_hooks() == before


@EAGER
def test_run_inside_of_an_eager_task_returns_the_result(nesting: whorl.EventLoop) -> None:
    async def eager() -> Any:
        task = asyncio.current_task()
        got = nesting.run_until_complete(give("eager"))
        assert asyncio.current_task() is task
        return got

    async def main() -> Any:
        task: Any = asyncio.current_task()
        inner = type(task)(eager(), loop=nesting, eager_start=True)
        assert inner.done()
        assert asyncio.current_task() is task
        return await inner

    assert nesting.run_until_complete(main()) == "eager"


def test_debug_mode_tracks_origins_until_the_outer_run_ends() -> None:
    loop = whorl.EventLoop()
    whorl.allow_nested_runs(loop)
    loop.set_debug(True)
    loop.slow_callback_duration = 100

    async def main() -> bool:
        loop.run_until_complete(give(None))
        coroutine = give(None)
        tracked = coroutine.cr_origin is not None
        await coroutine
        return tracked

    assert loop.run_until_complete(main())
    assert sys.get_coroutine_origin_tracking_depth() == 0
    loop.close()


def test_exception_handler_gets_the_error_of_an_inner_callback(nesting: whorl.EventLoop) -> None:
    reports: list[dict[str, Any]] = []
    handler = nesting.get_exception_handler()
    nesting.set_exception_handler(lambda loop, context: reports.append(context))

    def fail() -> None:
        raise ValueError("inner")

    async def main() -> None:
        nesting.call_soon(fail)
        nesting.run_until_complete(give(None))

    nesting.run_until_complete(main())
    nesting.set_exception_handler(handler)
    assert [str(report["exception"]) for report in reports] == ["inner"]


# Errors, cancellation, and the end.


def test_exception_of_the_inner_future_is_raised(nesting: whorl.EventLoop) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("inner")

    async def main() -> str:
        with pytest.raises(ValueError, match="inner"):
            nesting.run_until_complete(fail())
        return await give("goes on")  # type: ignore[no-any-return]

    assert nesting.run_until_complete(main()) == "goes on"


def test_cancelled_inner_future_raises_cancelled_error(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        task = nesting.create_task(asyncio.sleep(100))
        nesting.call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            nesting.run_until_complete(task)

    nesting.run_until_complete(main())


def test_task_that_is_cancelled_while_it_runs_the_loop_is_cancelled_at_its_next_wait(
    nesting: whorl.EventLoop,
) -> None:
    async def main() -> None:
        task: Any = asyncio.current_task()
        nesting.call_soon(task.cancel)
        assert nesting.run_until_complete(give("whole")) == "whole"
        assert task.cancelling() == 1
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        task.uncancel()

    nesting.run_until_complete(main())


def test_timeout_that_passes_inside_ends_the_block_afterwards(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        passed = nesting.create_future()
        nesting.call_later(0.005, passed.set_result, "whole")
        got: list[str] = []
        try:
            async with asyncio.timeout(0):
                got.append(nesting.run_until_complete(passed))
                await asyncio.sleep(0)
                got.append("went on")
        except TimeoutError:
            got.append("timed out")
        assert got == ["whole", "timed out"]

    nesting.run_until_complete(main())


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupt_leaves_all_runs_and_the_loop_is_usable(nesting: whorl.EventLoop, kind: Any) -> None:
    ran: list[str] = []

    def interrupt() -> None:
        raise kind

    async def main() -> None:
        nesting.call_soon(interrupt)
        nesting.call_soon(ran.append, "rest")
        with pytest.raises(kind):
            nesting.run_until_complete(give(None))
        raise kind

    task = nesting.create_task(main())
    with pytest.raises(kind):
        nesting.run_until_complete(task)
    assert nesting.run_until_complete(give("usable")) == "usable"
    assert ran == ["rest"]
    assert asyncio._get_running_loop() is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupt_of_the_inner_task_is_no_error_of_its_own(nesting: whorl.EventLoop, kind: Any) -> None:
    async def inner() -> None:
        raise kind

    async def main() -> None:
        with pytest.raises(kind):
            nesting.run_until_complete(inner())

    nesting.run_until_complete(main())


def test_ctrl_c_inside_leaves_the_runs(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        nesting.call_soon(signal.raise_signal, signal.SIGINT)
        nesting.run_until_complete(asyncio.sleep(100))

    with pytest.raises(KeyboardInterrupt):
        nesting.run_until_complete(main())
    for task in asyncio.all_tasks(nesting):
        task.cancel()
    assert nesting.run_until_complete(give("usable")) == "usable"


@pytest.mark.skipif(not whorl.compiled, reason="interpreted code can be interrupted between any two steps")
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("moment", range(4))
def test_ctrl_c_while_a_nested_run_leaves_or_restores_the_state_of_the_thread_is_raised_later(
    nesting: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch, moment: int, is_first: bool
) -> None:
    swaps = nested_turns.SWAPS
    interrupt = interrupting_at(moment)
    monkeypatch.setattr(nested_turns, "SWAPS", [interrupt, *swaps] if is_first else [*swaps, interrupt])

    async def main() -> str:
        task = asyncio.current_task()
        inner = nesting.create_task(give("goes on"))  # It stays: the end of a task runs Python code.
        with pytest.raises(KeyboardInterrupt):
            nesting.run_until_complete(inner)
        assert asyncio.current_task() is task
        assert asyncio.get_running_loop() is nesting
        return await inner  # type: ignore[no-any-return]

    assert nesting.run_until_complete(main()) == "goes on"


def interrupting_at(moment: int) -> Any:
    """Return a function in C that notes a Ctrl-C in one of its calls, as the handler in C does.

    Python's handler runs later, when Python code does.
    """
    signals = [0] * 8  # No signal has the number 0.
    signals[moment] = signal.SIGINT

    class Number:
        """The next number is passed in place of the argument."""

        from_param = functools.partial(next, map(ctypes.c_int, signals))

    function = ctypes.pythonapi["PyErr_SetInterruptEx"]
    function.argtypes = [Number, ctypes.py_object]
    return function


def test_stop_inside_ends_all_runs(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        nesting.call_soon(nesting.stop)
        with pytest.raises(RuntimeError, match="Event loop stopped before Future completed"):
            nesting.run_until_complete(asyncio.sleep(100))

    task = nesting.create_task(main())
    nesting.run_forever()
    assert nesting.run_until_complete(task) is None  # type: ignore[func-returns-value]


def test_stop_ends_an_inner_run_forever_alone(nesting: whorl.EventLoop) -> None:
    async def main() -> str:
        nesting.call_soon(nesting.stop)
        nesting.run_forever()
        return await give("goes on")  # type: ignore[no-any-return]

    assert nesting.run_until_complete(main()) == "goes on"


def test_stop_before_a_nested_run_ends_the_outer_one(nesting: whorl.EventLoop) -> None:
    got: list[Any] = []

    def call() -> None:
        nesting.stop()
        got.append(nesting.run_until_complete(give("whole")))

    nesting.call_soon(call)
    nesting.run_forever()
    assert got == ["whole"]


def test_stop_before_an_inner_run_forever_ends_it_after_one_turn(nesting: whorl.EventLoop) -> None:
    async def main() -> list[str]:
        order: list[str] = []
        for name in ("first", "second"):
            nesting.call_soon(order.append, name)
            nesting.stop()
            nesting.run_forever()
            order.append("pumped")
        return order

    assert nesting.run_until_complete(main()) == ["first", "pumped", "second", "pumped"]


@pytest.mark.parametrize("forever", [False, True])
def test_run_inside_is_not_ended_by_an_outer_future_that_was_done_before(
    nesting: whorl.EventLoop, forever: bool
) -> None:
    got: list[Any] = []

    def nest() -> None:
        assert outer.done()
        if forever:
            nesting.call_later(0.01, nesting.stop)
            nesting.call_later(0.005, got.append, "inner")
            nesting.run_forever()
        else:
            got.append(nesting.run_until_complete(give("inner")))

    async def end() -> str:
        nesting.call_soon(nest)
        return "outer"

    outer = nesting.create_task(end())
    assert nesting.run_until_complete(outer) == "outer"
    assert got == ["inner"]


def test_stop_before_an_inner_run_forever_that_fails_ends_no_other_run(nesting: whorl.EventLoop) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> str:
        nesting.stop()
        nesting.call_soon(interrupt)
        with pytest.raises(KeyboardInterrupt):
            nesting.run_forever()
        return await give("goes on")  # type: ignore[no-any-return]

    assert nesting.run_until_complete(main()) == "goes on"


def test_stop_ends_an_inner_run_forever_after_the_outer_future_is_done(nesting: whorl.EventLoop) -> None:
    order: list[str] = []

    def nest() -> None:
        outer.add_done_callback(lambda _: nesting.call_later(0, nesting.stop))
        nesting.run_forever()
        order.append("inner")

    outer = nesting.create_task(give("outer", 5))
    nesting.call_soon(nest)
    assert nesting.run_until_complete(outer) == "outer"
    assert order == ["inner"]


def test_outer_future_that_is_done_meanwhile_ends_the_outer_run_afterwards(nesting: whorl.EventLoop) -> None:
    order: list[str] = []

    def nest() -> None:
        order.append(nesting.run_until_complete(give("inner", 20)))
        order.append(nesting.run_until_complete(give("another", 5)))

    nesting.call_soon(nest)
    assert nesting.run_until_complete(give("outer", 5)) == "outer"
    assert order == ["inner", "another"]


def test_nesting_without_end_is_a_recursion_error(nesting: whorl.EventLoop) -> None:
    async def nest() -> None:
        coroutine = nest()
        try:
            nesting.run_until_complete(coroutine)
        finally:
            coroutine.close()

    with pytest.raises(RecursionError):
        nesting.run_until_complete(nest())
    assert nesting.run_until_complete(give("usable")) == "usable"
    assert asyncio._get_running_loop() is None


# asyncio.run and other loops.


@pytest.mark.parametrize("name", ["asyncio", "whorl"])
def test_run_uses_the_running_loop(nesting: whorl.EventLoop, name: str) -> None:
    run = {"asyncio": lambda main: asyncio.run(main), "whorl": whorl.run}[name]

    async def inner() -> Any:
        return asyncio.get_running_loop()

    async def main() -> None:
        assert run(inner()) is nesting
        with pytest.raises(TypeError):
            run(5)

    nesting.run_until_complete(main())


def test_run_outside_of_a_loop_makes_one(nesting: whorl.EventLoop) -> None:
    async def kind() -> Any:
        return asyncio.get_running_loop()

    assert asyncio.run(kind()) is not nesting
    assert "loop_factory" in inspect.signature(asyncio.run).parameters or sys.version_info < (3, 12)


def test_run_inside_of_a_stock_loop_is_refused(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        coroutine = give(1)
        for run in (asyncio.run, whorl.run):
            with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
                run(coroutine)
        coroutine.close()

    stock = asyncio.SelectorEventLoop()
    stock.run_until_complete(main())
    stock.close()


def test_run_with_options_makes_a_loop_inside(nesting: whorl.EventLoop) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert whorl.run(give("another"), loop_factory=whorl.EventLoop) == "another"
        assert whorl.run(give("compiled"), tasks="compiled") == "compiled"
        if sys.version_info >= (3, 12):
            assert asyncio.run(give("factory"), loop_factory=whorl.EventLoop) == "factory"
        assert asyncio.get_running_loop() is nesting
        assert asyncio.current_task() is task
        await asyncio.sleep(0)

    nesting.run_until_complete(main())


def test_run_in_debug_mode_gives_the_mode_back(nesting: whorl.EventLoop) -> None:
    async def mode() -> bool:
        return asyncio.get_running_loop().get_debug()

    async def main() -> None:
        before = nesting.get_debug()
        for debug in (True, False):
            assert asyncio.run(mode(), debug=debug) is debug
            assert nesting.get_debug() is before

    nesting.run_until_complete(main())


def test_run_that_is_interrupted_cancels_its_task(nesting: whorl.EventLoop) -> None:
    ended: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("cancelled")

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        nesting.call_soon(nesting.call_soon, interrupt)
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(inner())
        assert ended == ["cancelled"]

    nesting.run_until_complete(main())


def test_runner_inside_of_a_run_is_refused_and_harms_nothing(nesting: whorl.EventLoop) -> None:
    whorl.allow_nested_runs()

    async def main() -> Any:
        coroutine = give(1)
        with (
            pytest.raises(RuntimeError, match="cannot be called from a running event loop"),
            whorl.Runner() as runner,
        ):
            runner.run(coroutine)
        coroutine.close()
        return await give("goes on")

    assert nesting.run_until_complete(main()) == "goes on"


def test_run_that_is_interrupted_reports_the_error_of_its_task(loop: whorl.EventLoop) -> None:
    whorl.allow_nested_runs(loop)
    reports: list[str] = []
    loop.set_exception_handler(lambda loop, context: reports.append(str(context["exception"])))

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def inner() -> None:
        loop.call_soon(loop.call_soon, interrupt)
        try:
            await asyncio.sleep(100)
        finally:
            raise ValueError("at the end")

    async def main() -> bool:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(inner(), debug=True)
        return loop.get_debug()

    assert not loop.run_until_complete(main())
    assert reports == ["at the end"]


def test_overridden_run_is_called_once_while_another_loop_runs() -> None:
    calls: list[str] = []

    class Counting(whorl.EventLoop):
        def run_until_complete(self, future: Any) -> Any:
            calls.append("until complete")
            return super().run_until_complete(future)

        def run_forever(self) -> None:
            calls.append("forever")
            super().run_forever()

    outer, inner = whorl.EventLoop(), Counting()
    whorl.allow_nested_runs(inner)

    async def main() -> None:
        inner.run_until_complete(give(None))
        inner.call_soon(inner.stop)
        inner.run_forever()

    outer.run_until_complete(main())
    outer.close()
    inner.close()
    assert calls == ["until complete", "forever", "forever"]


@pytest.mark.parametrize("outer_kind", [whorl.EventLoop, asyncio.SelectorEventLoop])
def test_another_loop_runs_inside_while_the_outer_one_stands_still(outer_kind: Any) -> None:
    outer, inner = outer_kind(), whorl.EventLoop()
    whorl.allow_nested_runs(inner)
    order: list[Any] = []

    async def main() -> None:
        task = asyncio.current_task()
        outer.call_soon(order.append, "outer")
        order.append(inner.run_until_complete(give("inner")))
        inner.call_soon(inner.stop)
        inner.run_forever()
        assert asyncio.get_running_loop() is outer
        assert asyncio.current_task() is task
        await asyncio.sleep(0)

    outer.run_until_complete(main())
    outer.close()
    inner.close()
    assert order == ["inner", "outer"]


def test_outer_loop_may_be_run_inside_of_another_loops_run() -> None:
    first, second = whorl.EventLoop(), whorl.EventLoop()
    for loop in (first, second):
        whorl.allow_nested_runs(loop)

    async def on_first_again() -> str:
        hook: Any = sys.get_asyncgen_hooks().firstiter
        return "first again" if hook.__self__ is first else "wrong hooks"

    async def on_second() -> Any:
        task, hooks = asyncio.current_task(), sys.get_asyncgen_hooks()
        got = first.run_until_complete(on_first_again())
        assert sys.get_asyncgen_hooks() == hooks
        assert asyncio.get_running_loop() is second
        assert asyncio.current_task() is task
        return await give(got)

    async def on_first() -> Any:
        task = asyncio.current_task()
        got = second.run_until_complete(on_second())
        assert asyncio.current_task() is task
        return await give(got)

    assert first.run_until_complete(on_first()) == "first again"
    first.close()
    second.close()


def test_signals_reach_the_outer_loop_after_another_one_has_run() -> None:
    outer, inner = whorl.EventLoop(), whorl.EventLoop()
    whorl.allow_nested_runs(inner)

    async def main() -> Any:
        arrived = outer.create_future()
        await asyncio.sleep(0.001)  # The pipe is armed before the first sleep.
        inner.run_until_complete(asyncio.sleep(0.001))
        outer.add_signal_handler(signal.SIGUSR1, arrived.set_result, "arrived")
        outer.call_later(0.001, signal.raise_signal, signal.SIGUSR1)
        try:
            assert outer._host.signals.main_loop() is outer
            return await arrived
        finally:
            outer.remove_signal_handler(signal.SIGUSR1)

    assert outer.run_until_complete(main()) == "arrived"
    outer.close()
    inner.close()


# Connections.


class Nesting(asyncio.Protocol):
    """A protocol that runs the loop when its first data arrives."""

    def __init__(self, loop: whorl.EventLoop) -> None:
        self.loop = loop
        self.calls: list[Any] = []

    def data_received(self, data: bytes) -> None:
        self.calls.append(data)
        if len(self.calls) == 1:
            self.inside()
            self.calls.append("goes on")

    def inside(self) -> None:
        """Send more from the other end, and let the loop see that."""


async def test_data_for_a_protocol_that_runs_the_loop_waits_for_its_end(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    whorl.allow_nested_runs(loop)
    protocol = Nesting(loop)
    connection = await connect("tcp", protocol)

    def inside() -> None:
        connection.peer.send(b"second")
        loop.run_until_complete(asyncio.sleep(0.005))

    protocol.inside = inside  # type: ignore[method-assign]
    connection.peer.send(b"first")
    while len(protocol.calls) < 3:
        await asyncio.sleep(0)
    assert protocol.calls == [b"first", "goes on", b"second"]


async def test_descriptor_whose_callback_runs_the_loop_is_called_again_later(
    loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    whorl.allow_nested_runs(loop)
    ours, theirs = socket_pair("unix")
    calls: list[str] = []
    ended = loop.create_future()

    def readable() -> None:
        calls.append("begins")
        ours.recv(1)
        if len(calls) == 1:
            theirs.send(b"y")
            loop.run_until_complete(asyncio.sleep(0.005))
        calls.append("ends")
        if len(calls) == 4:
            loop.remove_reader(ours)
            ended.set_result(None)

    loop.add_reader(ours, readable)
    theirs.send(b"x")
    await ended
    ours.close()
    theirs.close()
    assert calls == ["begins", "ends", "begins", "ends"]
    assert caplog.records == []  # The handler of errors cannot enter the context, either.


async def test_descriptor_that_was_read_after_the_nested_run_is_not_reported_again(
    loop: whorl.EventLoop,
) -> None:
    whorl.allow_nested_runs(loop)
    ours, theirs = socket_pair("unix")
    received: list[bytes] = []
    calls: list[None] = []

    def readable() -> None:
        calls.append(None)
        loop.run_until_complete(asyncio.sleep(0.002))  # It is still readable in these turns.
        received.append(ours.recv(10))

    ours.setblocking(False)
    loop.add_reader(ours, readable)
    for byte in (b"x", b"y"):
        theirs.send(byte)
        while byte not in received:
            await asyncio.sleep(0)
        await turns(5)
    loop.remove_reader(ours)
    ours.close()
    theirs.close()
    assert (received, len(calls)) == ([b"x", b"y"], 2)


async def test_timer_that_runs_the_loop_is_called_again_afterwards(loop: whorl.EventLoop) -> None:
    whorl.allow_nested_runs(loop)
    timer = Timer(loop)
    calls: list[str] = []
    ended = loop.create_future()

    def tick(timer: Timer) -> None:
        calls.append("begins")
        if len(calls) == 1:
            loop.run_until_complete(asyncio.sleep(0.005))
        calls.append("ends")
        if len(calls) == 4:
            timer.close()
            ended.set_result(None)

    timer.start(tick, timeout_ns=0, repeat_ns=1_000_000)
    await ended
    await turns(2)
    assert calls == ["begins", "ends", "begins", "ends"]


async def test_descriptor_is_written_while_its_reader_runs_the_loop(loop: whorl.EventLoop) -> None:
    whorl.allow_nested_runs(loop)
    ours, theirs = socket_pair("unix")
    ended = loop.create_future()

    async def send() -> str:
        writable = loop.create_future()
        loop.add_writer(ours, writable.set_result, None)
        await writable
        loop.remove_writer(ours)
        return "sent"

    def readable() -> None:
        ours.recv(1)
        ended.set_result(loop.run_until_complete(send()))

    loop.add_reader(ours, readable)
    theirs.send(b"x")
    assert await ended == "sent"
    loop.remove_reader(ours)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_connection_that_ends_inside_of_its_own_callback_is_lost_afterwards(
    loop: whorl.EventLoop, end: str
) -> None:
    whorl.allow_nested_runs(loop)
    order: list[str] = []
    lost = loop.create_future()

    class Ending(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            order.append("begins")
            loop.run_until_complete(inner(self.transport))
            order.append("ends")

        def connection_lost(self, error: Exception | None) -> None:
            order.append("lost")
            lost.set_result(None)

    async def inner(transport: Any) -> None:
        client.send(b"more")
        await asyncio.sleep(0.005)
        getattr(transport, end)()
        await asyncio.sleep(0.005)

    server = await loop.create_server(Ending, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.send(b"data")
        await lost
    server.close()
    await server.wait_closed()
    assert order == ["begins", "ends", "lost"]


async def test_pipe_calls_back_for_writes_after_its_own_nested_run(loop: whorl.EventLoop) -> None:
    whorl.allow_nested_runs(loop)
    ours, theirs = socket_pair("unix")
    pipe = Pipe(loop)
    pipe.open(ours.detach())
    order: list[str] = []

    def received(pipe: Any, data: bytes, error: OSError | None) -> None:
        order.append("begins")
        if len(order) == 1:
            loop.run_until_complete(inner())
        order.append("ends")

    async def inner() -> None:
        theirs.send(b"more")
        pipe.write(b"data", lambda *_: order.append("written"))
        await asyncio.sleep(0.005)

    pipe.read_start(received)
    theirs.send(b"data")
    while len(order) < 5:
        await asyncio.sleep(0)
    pipe.close()
    theirs.close()
    await turns(2)
    assert sorted(order) == ["begins", "begins", "ends", "ends", "written"]


class NotingKernel(Kernel):
    """The real kernel, which notes pushes and polls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def push(self, fd: int) -> int:
        self.calls.append("push")
        return super().push(fd)

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        self.calls.append("poll")
        return super().epoll_wait(epfd, timeout_ns, events)


def test_pieces_that_a_callback_wrote_leave_before_it_runs_the_loop() -> None:
    kernel = NotingKernel()
    loop = whorl.EventLoop(kernel=kernel)
    whorl.allow_nested_runs(loop)
    answers: list[bytes] = []
    first_calls: list[str] = []

    class Server(asyncio.Protocol):
        transport: Any

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            for piece in (b"a", b"b", b"c"):
                self.transport.write(piece)
            kernel.calls.clear()
            answers.append(loop.run_until_complete(receiving[0]))
            first_calls.append(kernel.calls[0])
            for piece in (b"d", b"e", b"f", b"g"):
                self.transport.write(piece)

    async def main() -> None:
        server = await loop.create_server(Server, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            client.setblocking(False)
            for _ in range(3):  # From the second answer on, it is known that answers have pieces.
                receiving[:] = [loop.create_task(receive(client, 3))]
                await turns(2)
                await loop.sock_sendall(client, b"?")
                assert await receiving[0] == b"abc"
                assert await receive(client, 4) == b"defg"
        server.close()
        await server.wait_closed()
        await turns(3)

    receiving: list[Any] = []
    loop.run_until_complete(main())
    loop.close()
    assert answers == [b"abc"] * 3
    assert first_calls == ["push"] * 3


def test_pieces_that_a_callback_wrote_leave_before_it_runs_another_loop() -> None:
    loop, other = whorl.EventLoop(), whorl.EventLoop()
    whorl.allow_nested_runs(other)
    arrived: list[bytes] = []

    class Server(asyncio.Protocol):
        transport: Any

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            for piece in (b"a", b"b", b"c") if data == b"?" else (b"d", b"e"):
                self.transport.write(piece)
            if data == b"!":
                arrived.append(other.run_until_complete(look()))

    async def look() -> bytes:
        await turns(3)
        return clients[0].recv(3)

    async def main() -> None:
        server = await loop.create_server(Server, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            clients.append(client)
            client.setblocking(False)
            for question in (b"?", b"?", b"!"):  # The first teaches that answers have pieces.
                await loop.sock_sendall(client, question)
                if question == b"?":
                    assert await receive(client, 3) == b"abc"
            while not arrived:
                await asyncio.sleep(0)
        server.close()
        await server.wait_closed()
        await turns(3)

    clients: list[socket.socket] = []
    loop.run_until_complete(main())
    loop.close()
    other.close()
    assert arrived == [b"de"]


# Figures.


def test_slow_callback_in_debug_mode_takes_its_nested_run_with_it(caplog: pytest.LogCaptureFixture) -> None:
    kernel = JumpingClock()
    loop = whorl.EventLoop(kernel=kernel)
    whorl.allow_nested_runs(loop)
    loop.set_debug(True)

    def jump() -> None:
        kernel.jumped += 200_000_000

    def outer() -> None:
        loop.call_soon(jump)
        loop.run_until_complete(give(None))

    loop.call_soon(outer)
    loop.run_until_complete(give(None, 1))
    loop.close()
    slow = [record.getMessage() for record in caplog.records if "took 0.2" in record.getMessage()]
    assert len(slow) == 2
    assert "jump" in slow[0]
    assert "outer" in slow[1]


def test_probe_sees_the_callbacks_inside(nesting: whorl.EventLoop) -> None:
    ran: list[Any] = []

    class Notes(Probe):
        def callback_ran(self, entry: Any, duration_ns: int) -> None:
            ran.append(getattr(entry, "_callback", None))

    def first() -> None:
        nesting.run_until_complete(give(None))

    def second() -> None:
        """Do nothing."""

    nesting.set_probe(Notes())
    nesting.call_soon(first)
    nesting.call_soon(second)
    nesting.run_until_complete(give(None, 1))
    nesting.set_probe(None)
    assert ran.index(second) < ran.index(first)
    assert ran.count(second) == ran.count(first) == 1
