"""A loop in a Python without the GIL: what a wrong thread does enters as a post."""

from __future__ import annotations

import sysconfig
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whorl

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED") or not whorl.compiled,
    reason="elsewhere each step on a queue is one for all threads",
)


@pytest.fixture
def loop() -> Iterator[whorl.EventLoop]:
    """Give a loop that nothing else wakes."""
    loop = whorl.new_event_loop()
    yield loop
    loop.close()


def run_beside(loop: whorl.EventLoop, work: Callable[[], Any]) -> None:
    """Run the loop until it is stopped, and `work` in another thread meanwhile."""
    begun = threading.Event()
    loop.call_soon(begun.set)

    def wait_and_work() -> None:
        begun.wait()
        work()

    thread = threading.Thread(target=wait_and_work)
    thread.start()
    loop.run_forever()
    thread.join()


def test_call_soon_of_another_thread_ends_the_sleep(loop: whorl.EventLoop) -> None:
    run_beside(loop, lambda: loop.call_soon(loop.stop))


def test_call_later_of_another_thread_ends_the_sleep(loop: whorl.EventLoop) -> None:
    run_beside(loop, lambda: loop.call_later(0.001, loop.stop))


def test_a_timer_that_another_thread_cancels_is_not_called(loop: whorl.EventLoop) -> None:
    called: list[int] = []
    timers = [loop.call_later(0.05 + number / 10_000, called.append, number) for number in range(300)]

    def cancel() -> None:
        for timer in timers[::2]:
            timer.cancel()
        loop.call_later(0.1, loop.stop)

    run_beside(loop, cancel)
    assert called == list(range(1, 300, 2))
    assert not loop._scheduled


def test_a_timer_that_is_cancelled_on_its_way_is_not_called(loop: whorl.EventLoop) -> None:
    called: list[int] = []

    def schedule_and_cancel() -> None:
        for number in range(1_000):
            timer = loop.call_later(0, called.append, number)
            if number % 2:
                timer.cancel()
        loop.call_later(0.01, loop.stop)

    run_beside(loop, schedule_and_cancel)
    assert {number for number in called if number % 2 == 0} == set(range(0, 1_000, 2))


def test_all_calls_of_several_wrong_threads_are_made(loop: whorl.EventLoop) -> None:
    called: list[tuple[int, int]] = []

    def call(thread: int) -> None:
        for number in range(2_000):
            loop.call_soon(called.append, (thread, number))

    def work() -> None:
        threads = [threading.Thread(target=call, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        loop.call_soon(loop.stop)

    run_beside(loop, work)
    for thread in range(4):
        assert [number for owner, number in called if owner == thread] == list(range(2_000))
