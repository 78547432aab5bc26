"""A loop in a Python without the GIL: what a wrong thread does enters as a post."""

from __future__ import annotations

import gc
import sysconfig
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whorl
from whorl.core import Callback, Loop

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


def spare_callbacks() -> list[Any]:
    """Return the callbacks that no loop has, as the collector shows them."""
    return [found for found in gc.get_objects() if type(found) is Callback and found._loop is None]


def in_thread(call: Callable[[], Any]) -> Any:
    """Call a function in another thread, while the calling callback waits for it."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_callbacks_that_have_run_serve_again_until_their_run_ends(loop: whorl.EventLoop) -> None:
    found: list[int] = []
    gc.collect()
    before = len(spare_callbacks())  # of other tests' threads
    for _ in range(100):
        loop.call_soon(int)
    loop.call_soon(loop.call_soon, lambda: (found.append(len(spare_callbacks())), loop.stop()))
    loop.run_forever()
    assert found[0] >= 100 > before
    assert len(spare_callbacks()) <= before


def test_a_loop_inside_of_another_one_leaves_the_callbacks_of_its_thread(loop: whorl.EventLoop) -> None:
    def look() -> None:
        inner = Loop()
        inner.call_soon(int)
        inner.run()
        inner.close()
        found.append(len(spare_callbacks()))
        loop.stop()

    found: list[int] = []
    for _ in range(100):
        loop.call_soon(int)
    loop.call_soon(loop.call_soon, look)
    loop.run_forever()
    assert found[0] >= 100


@pytest.mark.parametrize("look", [spare_callbacks, lambda: in_thread(spare_callbacks)])
def test_a_spare_callback_that_somebody_has_found_is_nobody_elses(
    loop: whorl.EventLoop, look: Callable[[], list[Any]]
) -> None:
    def look_and_cancel() -> None:
        found = look()
        assert len(found) >= 100
        for number in range(200):
            loop.call_soon(called.append, number)
        for callback in found:
            callback.cancel()
        loop.call_soon(loop.stop)

    called: list[int] = []
    for _ in range(100):
        loop.call_soon(int)
    loop.call_soon(loop.call_soon, look_and_cancel)
    loop.run_forever()
    assert called == list(range(200))


def test_a_callback_that_another_thread_keeps_is_not_used_again(loop: whorl.EventLoop) -> None:
    kept: list[Any] = []

    def keep(callback: Any) -> None:
        in_thread(lambda: kept.append(callback))

    called: list[int] = []
    keep(loop.call_soon(called.append, -1))
    loop.call_soon(lambda: [loop.call_soon(called.append, number) for number in range(10)])
    loop.call_soon(loop.call_soon, kept[0].cancel)
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert called == [-1, *range(10)]
