"""Async: sends from threads and signal handlers, and how they come together."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Callable

import pytest

from tests.core.conftest import MakeLoop
from tests.core.loop_fakes import run_turns
from whorl.core import Loop, RunMode
from whorl.handles import Async, Check, Prepare, Timer


def run_machine(loop: Loop) -> None:
    """Make one turn in libuv's order."""
    loop.run(RunMode.NOWAIT)


IN_BOTH_ORDERS = pytest.mark.parametrize("run_once", [run_machine, run_turns], ids=["machine", "asyncio"])


@IN_BOTH_ORDERS
def test_a_send_calls_the_callback(loop: Loop, run_once: Callable[[Loop], None]) -> None:
    seen: list[Async] = []
    handle = Async(loop, seen.append)
    run_once(loop)
    assert seen == []
    handle.send()
    run_once(loop)
    assert seen == [handle]


@IN_BOTH_ORDERS
def test_several_sends_are_one_call(loop: Loop, run_once: Callable[[Loop], None]) -> None:
    seen: list[Async] = []
    handle = Async(loop, seen.append)
    for _ in range(100):
        handle.send()
    run_once(loop)
    run_once(loop)
    assert seen == [handle]


def test_a_send_wakes_a_sleeping_loop(make_loop: MakeLoop) -> None:
    loop = make_loop()
    asleep = threading.Event()
    seen: list[str] = []
    Prepare(loop).start(lambda handle: asleep.set())
    handle = Async(loop, lambda handle: seen.append("called"))

    def send() -> None:
        asleep.wait()
        handle.send()

    thread = threading.Thread(target=send)
    thread.start()
    loop.run(RunMode.ONCE)
    thread.join()
    assert seen == ["called"]


def test_the_call_comes_after_the_poll_of_the_same_turn(loop: Loop) -> None:
    seen: list[str] = []
    handle = Async(loop, lambda handle: seen.append("async"))
    Prepare(loop).start(lambda watcher: (seen.append("prepare"), handle.send()))
    Check(loop).start(lambda watcher: seen.append("check"))
    loop.run(RunMode.ONCE)
    assert seen == ["prepare", "async", "check"]


def test_a_send_in_the_callback_causes_another_call(loop: Loop) -> None:
    turns: list[int] = []

    def again(handle: Async) -> None:
        turns.append(loop.metrics().turns)
        if len(turns) < 3:
            handle.send()
            handle.send()
        else:
            handle.close()

    Async(loop, again).send()
    loop.run()
    assert turns == [1, 2, 3]


def test_every_send_of_many_threads_is_seen(make_loop: MakeLoop) -> None:
    loop = make_loop()
    posted: list[int] = []
    taken: list[int] = []
    calls = 0
    threads = 4
    each = 2000

    def take(handle: Async) -> None:
        nonlocal calls
        calls += 1
        while posted:
            taken.append(posted.pop())
        if len(taken) == threads * each:
            handle.close()

    handle = Async(loop, take)

    def post(first: int) -> None:
        for number in range(first, first + each):
            posted.append(number)
            handle.send()

    workers = [threading.Thread(target=post, args=(index * each,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    loop.run()
    for worker in workers:
        worker.join()
    assert sorted(taken) == list(range(threads * each))
    assert calls <= len(taken)


def test_a_signal_handler_may_send(loop: Loop) -> None:
    seen: list[str] = []
    handle = Async(loop, lambda handle: (seen.append("called"), handle.close()))
    asleep = threading.Event()
    Prepare(loop).start(lambda watcher: (asleep.set(), watcher.unref()))
    main = threading.get_ident()

    def interrupt() -> None:
        asleep.wait()
        signal.pthread_kill(main, signal.SIGUSR1)

    former = signal.signal(signal.SIGUSR1, lambda number, frame: handle.send())
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        loop.run()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, former)
    assert seen == ["called"]


def test_async_handle_keeps_the_loop_alive_until_it_is_closed(loop: Loop) -> None:
    handle = Async(loop)
    assert handle.is_active()
    assert loop.alive()
    handle.close()
    assert not handle.is_active()
    assert not loop.run()


def test_an_unreferenced_one_does_not_keep_the_loop_alive(loop: Loop) -> None:
    handle = Async(loop)
    handle.unref()
    assert not loop.alive()


def test_an_unreferenced_one_that_was_sent_does_not_keep_the_loop_alive(loop: Loop) -> None:
    seen: list[str] = []
    handle = Async(loop, lambda handle: seen.append("called"))
    handle.unref()
    for send in (handle.send, lambda: post_from_a_thread(handle)):
        send()
        assert not loop.alive()
        assert not loop.run()
    assert not seen
    loop.call_soon(seen.append, "soon")
    loop.run()
    assert sorted(seen) == ["called", "soon"]
    handle.close()


def post_from_a_thread(handle: Async) -> None:
    thread = threading.Thread(target=handle.send)
    thread.start()
    thread.join()


def test_a_send_before_close_is_forgotten(loop: Loop) -> None:
    seen: list[str] = []
    handle = Async(loop, lambda handle: seen.append("called"))
    handle.send()
    handle.close(lambda handle: seen.append("closed"))
    loop.run()
    assert seen == ["closed"]


def test_a_send_after_close_does_nothing(loop: Loop) -> None:
    seen: list[str] = []
    handle = Async(loop, lambda handle: seen.append("called"))
    handle.close()
    handle.send()
    loop.run()
    handle.send()
    loop.run()
    loop.close()
    handle.send()
    assert seen == []


def test_async_handle_without_a_callback_only_wakes_the_loop(loop: Loop) -> None:
    handle = Async(loop)
    handle.send()
    Timer(loop).start(print, 1 << 62)
    loop.run(RunMode.ONCE)
    assert loop.metrics().turns == 1


def test_two_handles_are_called_once_each_in_the_order_in_which_they_were_made(loop: Loop) -> None:
    seen: list[str] = []
    first = Async(loop, lambda handle: seen.append("first"))
    second = Async(loop, lambda handle: seen.append("second"))
    second.send()
    first.send()
    second.send()
    loop.run(RunMode.NOWAIT)
    assert seen == ["first", "second"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_other_calls(loop: Loop, error: type[BaseException]) -> None:
    seen: list[int] = []

    def call(handle: Async) -> None:
        if handle.data == 3:
            raise error("on purpose")
        seen.append(handle.data)

    for number in range(10):
        handle = Async(loop, call)
        handle.data = number
        handle.send()
    with pytest.raises(error, match="on purpose"):
        loop.run(RunMode.NOWAIT)
    loop.run(RunMode.NOWAIT)
    assert seen == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_the_callback_runs_in_the_context_of_the_making(loop: Loop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[str] = []

    def make() -> Async:
        variable.set("made")
        return Async(loop, lambda handle: seen.append(variable.get()))

    contextvars.copy_context().run(make).send()
    loop.run(RunMode.NOWAIT)
    assert seen == ["made"]


def test_async_handle_refuses_a_non_callable(loop: Loop) -> None:
    with pytest.raises(TypeError, match="callable"):
        Async(loop, "callback")  # type: ignore[arg-type]
    assert loop.walk() == []


def test_a_quiet_handle_costs_no_turn(loop: Loop) -> None:
    Async(loop)
    timer = Timer(loop)
    timer.start(lambda handle: loop.stop(), 50_000_000)
    loop.run()
    assert loop.metrics().turns <= 4  # A sleep may end a little early.
