"""asyncio's private `_ready`, and what else puts handles of the user's into the queue of a turn."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio

pytestmark = pytest.mark.usefixtures("no_leak")


def run_once(loop: Any) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


def handle(loop: Any, *call: Any) -> asyncio.Handle:
    """Return a handle of asyncio's own class."""
    return asyncio.Handle(call[0], call[1:], loop)


def test_the_queue_has_the_handles_that_wait() -> None:
    def scenario(loop: Any) -> Any:
        first, second = loop.call_soon(int), loop.call_soon(print, "not printed")
        found = len(loop._ready), bool(loop._ready), loop._ready[0] is first, loop._ready[-1]._args
        assert list(loop._ready) == [first, second]
        loop._ready.clear()
        run_once(loop)
        return found, len(loop._ready)

    is_as_in_asyncio(scenario)


def test_private_ready_is_changed_as_a_deque_is() -> None:
    def scenario(loop: Any) -> list[int]:
        ran: list[int] = []
        for number in range(6):
            loop.call_soon(ran.append, number)
        queue = loop._ready
        last, first = queue.pop(), queue.popleft()
        queue.appendleft(last)
        queue.append(first)
        queue.extendleft([queue[2], queue[3]])
        queue.extend([queue[0]])
        queue.remove(queue[1])
        queue.insert(1, handle(loop, ran.append, 7))
        del queue[2]
        queue.reverse()
        queue[0] = handle(loop, ran.append, 8)
        run_once(loop)
        return ran

    assert is_as_in_asyncio(scenario)[0] == 8


def test_private_ready_may_be_replaced_by_another_queue() -> None:
    def scenario(loop: Any) -> list[int]:
        ran: list[int] = []
        loop.call_soon(ran.append, 1)
        loop._ready = deque([loop.call_soon(ran.append, 2), handle(loop, ran.append, 3)])
        run_once(loop)
        return ran

    assert is_as_in_asyncio(scenario) == [2, 3]


def test_a_handle_of_asyncios_own_class_runs_in_its_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="the loop's")

    def scenario(loop: Any) -> list[str]:
        ran: list[str] = []
        context = contextvars.copy_context()
        context.run(variable.set, "the handle's")
        loop._ready.append(asyncio.Handle(lambda: ran.append(variable.get()), (), loop, context))
        cancelled = handle(loop, ran.append, "cancelled")
        loop._ready.append(cancelled)
        cancelled.cancel()
        run_once(loop)
        return ran

    assert is_as_in_asyncio(scenario) == ["the handle's"]


def test_the_error_of_a_handle_of_asyncios_own_class_is_reported() -> None:
    def scenario(loop: Any) -> list[str]:
        reported: list[str] = []
        loop.set_exception_handler(lambda loop, context: reported.append(repr(context["exception"])))
        loop._ready.append(handle(loop, int, "no number"))
        run_once(loop)
        return reported

    assert len(is_as_in_asyncio(scenario)) == 1


def test_a_handle_of_asyncios_own_class_is_found_again() -> None:
    def scenario(loop: Any) -> Any:
        one, other = handle(loop, int), handle(loop, int)
        loop._add_callback(one)
        loop._add_callback(other)
        found = one in loop._ready, loop._ready.index(other), handle(loop, int) in loop._ready
        assert list(loop._ready) == [one, other]
        assert loop._ready.pop() is other
        run_once(loop)
        return found

    assert is_as_in_asyncio(scenario) == (True, 1, False)


def test_private_ready_refuses_other_objects_than_handles(loop: whorl.EventLoop) -> None:
    for thing in (int, None, "text"):
        with pytest.raises(TypeError, match="a handle was expected"):
            loop._ready.append(thing)
    with pytest.raises(IndexError):
        loop._ready.popleft()
    run_once(loop)


def test_handles_are_added_by_the_methods_of_asyncios_loop() -> None:
    def scenario(loop: Any) -> list[int]:
        ran: list[int] = []
        loop._add_callback(handle(loop, ran.append, 1))
        loop._add_callback(loop.call_soon(ran.append, 2))
        cancelled = handle(loop, ran.append, 3)
        cancelled.cancel()
        loop._add_callback(cancelled)
        loop._add_callback_signalsafe(cancelled)
        run_once(loop)
        return ran

    assert is_as_in_asyncio(scenario) == [1, 2, 2]


def test_a_call_is_queued_by_asyncios_private_name() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=1)

    def scenario(loop: Any) -> Any:
        ran: list[Any] = []
        context = contextvars.copy_context()
        context.run(variable.set, 2)
        loop.set_debug(True)
        called = loop._call_soon(lambda name: ran.append((name, variable.get())), ("name",), context)
        loop._call_soon(ran.append, (3,), None)
        assert isinstance(called, asyncio.Handle)
        origin = called._source_traceback[-1].name
        run_once(loop)
        return ran, origin

    assert is_as_in_asyncio(scenario)[0] == [("name", 2), 3]


def test_a_handle_that_another_thread_adds_ends_the_sleep(loop: whorl.EventLoop) -> None:
    added = handle(loop, loop.stop)
    loop.call_soon(threading.Thread(target=loop._add_callback_signalsafe, args=(added,)).start)
    loop.run_forever()


def test_the_loop_is_woken_by_asyncios_private_name(loop: whorl.EventLoop) -> None:
    def wake() -> None:
        turns = loop.metrics().turns
        loop._write_to_self()
        while loop.metrics().turns == turns:
            pass
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=wake)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()


def test_a_closed_loop_is_not_woken() -> None:
    def scenario(loop: Any) -> Any:
        loop.close()
        return loop._write_to_self()

    assert is_as_in_asyncio(scenario) is None
