"""A future of the loop that follows one of a thread's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import pytest

import whorl
from whorl.aio.threads import future_chain

pytestmark = pytest.mark.usefixtures("no_leak")

ThreadFuture = concurrent.futures.Future
Change = Callable[["ThreadFuture[Any]"], object]


def end_by_cancelling(source: ThreadFuture[Any]) -> None:
    source.cancel()
    source.set_running_or_notify_cancel()


ENDS: dict[str, Change] = {
    "a result": lambda source: source.set_result(7),
    "an error": lambda source: source.set_exception(ZeroDivisionError("no")),
    "a cancellation": end_by_cancelling,
    "a cancellation as an error": lambda source: source.set_exception(concurrent.futures.CancelledError()),
    "a refused state": lambda source: source.set_exception(concurrent.futures.InvalidStateError("why")),
}


async def outcome_of(future: asyncio.Future[Any]) -> str:
    try:
        return repr(await future)
    except BaseException as error:
        return repr(error)


async def outcomes(
    wrap: Callable[..., Any], end: Change, in_thread: bool, early: bool
) -> tuple[str, bool, int]:
    """Return the end of a future that follows, whether it was done at once, and the number of turns."""
    loop = asyncio.get_running_loop()
    source: ThreadFuture[Any] = ThreadFuture()
    if early:
        end(source)
    future = wrap(loop, source)
    if not early and in_thread:
        thread = threading.Thread(target=end, args=(source,))
        thread.start()
        thread.join()
    elif not early:
        end(source)
    at_once = future.done()
    turns = 0
    while not future.done():
        turns += 1
        await asyncio.sleep(0)
    return await outcome_of(future), at_once, turns


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("end", ENDS)
async def test_wrapped_future_ends_as_that_of_asyncios_wrap_future_does(
    end: str, in_thread: bool, early: bool
) -> None:
    ours = await outcomes(future_chain.wrap_future, ENDS[end], in_thread, early)
    theirs = await outcomes(
        lambda loop, source: asyncio.wrap_future(source, loop=loop), ENDS[end], in_thread, early
    )
    assert ours == theirs


async def test_an_error_has_no_other_traceback_than_the_thread_gave_it(loop: whorl.EventLoop) -> None:
    source: ThreadFuture[Any] = ThreadFuture()
    future = future_chain.wrap_future(loop, source)
    error = ZeroDivisionError()
    source.set_exception(error)
    await asyncio.wait([future])
    assert error.__traceback__ is None
    assert future.exception() is error


async def test_cancelling_it_cancels_what_has_not_begun(loop: whorl.EventLoop) -> None:
    source: ThreadFuture[Any] = ThreadFuture()
    future = future_chain.wrap_future(loop, source)
    future.cancel()
    await asyncio.sleep(0)
    assert source.cancelled()
    await asyncio.sleep(0)
    assert future.cancelled()


async def test_cancelled_wrapped_future_drops_a_later_result(loop: whorl.EventLoop) -> None:
    source: ThreadFuture[Any] = ThreadFuture()
    source.set_running_or_notify_cancel()
    future = future_chain.wrap_future(loop, source)
    future.cancel()
    await asyncio.sleep(0)
    assert not source.cancelled()
    source.set_result(1)
    await asyncio.sleep(0)
    assert future.cancelled()


async def test_wrapped_future_ended_by_its_user_is_reported_as_an_error(loop: whorl.EventLoop) -> None:
    reports: list[Any] = []
    loop.set_exception_handler(lambda _, report: reports.append(report))
    source: ThreadFuture[Any] = ThreadFuture()
    future = future_chain.wrap_future(loop, source)
    future.set_result("mine")
    source.set_running_or_notify_cancel()
    threading.Thread(target=source.set_result, args=("theirs",)).start()
    while not reports:
        await asyncio.sleep(0)
    assert isinstance(reports[0]["exception"], AssertionError)
    assert future.result() == "mine"


def test_a_result_for_a_closed_loop_is_dropped() -> None:
    loop = whorl.new_event_loop()
    source: ThreadFuture[Any] = ThreadFuture()
    future = future_chain.wrap_future(loop, source)
    loop.close()
    source.set_result(1)
    assert not future.done()


async def test_other_futures_are_wrapped_by_asyncio(loop: whorl.EventLoop) -> None:
    class OtherFuture(ThreadFuture[Any]):
        pass

    source = OtherFuture()
    future = future_chain.wrap_future(loop, source)
    source.set_result(3)
    assert await future == 3
    assert future_chain.wrap_future(loop, future) is future
    with pytest.raises(AssertionError):
        future_chain.wrap_future(loop, 3)
