"""The loop: run modes, stopping, staying alive, closing, errors out of callbacks."""

from __future__ import annotations

import contextvars
import errno
import gc
import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable

import pytest

from tests.core.conftest import MakeLoop, open_descriptors
from tests.core.loop_fakes import (
    SECOND,
    Deadlock,
    Inert,
    ObedientClock,
    Watcher,
    in_child,
    run_forever,
    run_turns,
)
from whorl.core import Event, Loop, Probe, RunMode
from whorl.core.loop import lifecycle
from whorl.core.loop.lifecycle import running_loops

MAY_FORK = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def run_machine(loop: Loop) -> None:
    """Make one turn in libuv's order."""
    loop.run(RunMode.NOWAIT)


IN_BOTH_ORDERS = pytest.mark.parametrize("run_once", [run_machine, run_turns], ids=["machine", "asyncio"])


# Ready entries.


@IN_BOTH_ORDERS
def test_callbacks_run_in_the_order_in_which_they_were_made(
    make_loop: MakeLoop, run_once: Callable[[Loop], None]
) -> None:
    loop = make_loop()
    seen: list[int] = []
    for number in range(1000):
        loop.call_soon(seen.append, number)
    run_once(loop)
    assert seen == list(range(1000))


@IN_BOTH_ORDERS
def test_callback_scheduled_by_a_callback_waits_for_the_next_turn(
    loop: Loop, run_once: Callable[[Loop], None]
) -> None:
    seen = []

    def again(number: int) -> None:
        seen.append((number, loop.metrics().turns))
        if number < 3:
            loop.call_soon(again, number + 1)

    loop.call_soon(again, 0)
    for _ in range(4):
        run_once(loop)
    assert seen == [(0, 1), (1, 2), (2, 3), (3, 4)]


@IN_BOTH_ORDERS
def test_a_cancelled_callback_does_not_run(loop: Loop, run_once: Callable[[Loop], None]) -> None:
    seen: list[int] = []
    second = loop.call_soon(lambda: third.cancel())
    third = loop.call_soon(seen.append, 3)
    fourth = loop.call_soon(seen.append, 4)
    fourth.cancel()
    run_once(loop)
    assert seen == []
    assert not second.cancelled()


def test_a_callback_runs_in_the_context_it_was_scheduled_in(loop: Loop) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    seen = []
    name.set("here")
    other = contextvars.copy_context()
    other.run(name.set, "there")
    loop.call_soon(lambda: seen.append(name.get()))
    loop.call_soon(lambda: seen.append(name.get()), context=other)
    loop.call_at(0, lambda: seen.append(name.get()), context=other)
    name.set("later")
    run_turns(loop)
    assert seen == ["here", "there", "there"]
    assert name.get() == "later"


def test_arguments_arrive(loop: Loop) -> None:
    seen: list[tuple[object, ...]] = []
    loop.call_soon(lambda *args: seen.append(args))
    loop.call_soon(lambda *args: seen.append(args), 1, None, "x")
    loop.call_soon_threadsafe(lambda *args: seen.append(args), [])
    loop.run()
    assert seen == [(), (1, None, "x"), ([],)]


# Run modes.


def test_a_run_with_nothing_alive_returns_without_a_turn(make_loop: MakeLoop) -> None:
    loop = make_loop()
    for mode in RunMode:
        assert loop.run(mode) is False
    assert loop.metrics().turns == 0


def test_default_runs_until_nothing_is_alive() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    seen: list[int] = []
    loop.call_later(3600, seen.append, 2)
    loop.call_later(1, lambda: loop.call_soon(seen.append, 1))
    assert loop.run() is False
    assert seen == [1, 2]
    assert clock.now() == (1000 + 3600) * SECOND
    loop.close()


def test_nowait_does_not_sleep() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    seen: list[int] = []
    loop.call_later(1, seen.append, 1)
    assert loop.run(RunMode.NOWAIT) is True
    assert (seen, clock.sleeps, loop.metrics().turns) == ([], [], 1)
    loop.close()


def test_once_sleeps_until_something_happens() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    seen: list[int] = []
    loop.call_later(5, seen.append, 1)
    loop.call_later(7, seen.append, 2)
    assert loop.run(RunMode.ONCE) is True
    assert (seen, clock.sleeps) == ([1], [5 * SECOND])
    assert loop.run(RunMode.ONCE) is False
    assert seen == [1, 2]
    loop.close()


def test_once_does_not_sleep_if_something_was_ready() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    seen: list[int] = []
    loop.call_later(5, seen.append, 2)
    loop.call_soon(seen.append, 1)
    assert loop.run(RunMode.ONCE) is True
    assert (seen, clock.sleeps) == ([1], [])
    loop.close()


@pytest.mark.parametrize("mode", [7, -1, "ONCE", None])
def test_an_unknown_mode_is_refused(loop: Loop, mode: object) -> None:
    loop.call_soon(list)
    with pytest.raises((ValueError, TypeError)):
        loop.run(mode)
    assert not loop.is_running()
    assert loop.run() is False


def test_due_timers_run_before_the_first_turn_of_a_default_run_only() -> None:
    seen = []
    for mode in RunMode:
        clock = ObedientClock()
        loop = Loop(kernel=clock)
        loop.call_later(1, seen.append, f"timer {mode.name}")
        loop.call_soon(seen.append, f"ready {mode.name}")
        clock.clock += 2 * SECOND
        loop.run(mode)
        loop.close()
    assert seen == [
        "timer DEFAULT", "ready DEFAULT", "ready ONCE", "timer ONCE", "ready NOWAIT", "timer NOWAIT",
    ]  # fmt: skip


def test_asyncio_runs_what_was_left_over_then_events_then_timers(make_loop: MakeLoop) -> None:
    loop = make_loop()
    seen: list[str] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Watcher(loop, ours.fileno(), Event.READABLE, lambda watcher: seen.append("event"))
        theirs.send(b"x")
        loop.call_at(0, seen.append, "timer")
        loop.call_soon(seen.append, "left over")
        run_turns(loop)
    assert seen == ["left over", "event", "timer"]


def test_time_stands_still_while_timers_run() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    seen = []

    def tick() -> None:
        clock.clock += SECOND
        seen.append(loop.now())

    for delay in (1, 1, 2):
        loop.call_later(delay, tick)
    loop.run(RunMode.ONCE)
    assert seen == [1001 * SECOND] * 2  # the third fell due meanwhile, and waits for the next turn
    loop.run(RunMode.ONCE)
    assert seen == [1001 * SECOND] * 2 + [1003 * SECOND]
    loop.close()


def test_now_is_read_again_on_request_only() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    clock.clock += SECOND
    assert loop.now() == 1000 * SECOND
    assert loop.time() == 1001
    loop.update_time()
    assert loop.now() == 1001 * SECOND
    loop.close()


# How long the loop may sleep.


def test_the_backend_timeout_follows_what_there_is_to_do() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    assert loop.backend_timeout() == 0  # nothing is alive
    timer = loop.call_later(2, list)
    assert loop.backend_timeout() == 2 * SECOND
    clock.clock += SECOND
    assert loop.backend_timeout() == SECOND
    clock.clock += 5 * SECOND
    assert loop.backend_timeout() == 0
    timer.cancel()
    assert loop.backend_timeout() == 0
    loop.call_later(float("inf"), list)
    assert loop.backend_timeout() == -1
    loop.call_soon(list)
    assert loop.backend_timeout() == 0
    loop.run(RunMode.NOWAIT)
    assert loop.backend_timeout() == -1
    loop.stop()
    assert loop.backend_timeout() == 0
    loop.close()


def test_a_cancelled_timer_leaves_nothing_to_sleep_for() -> None:
    loop = Loop(kernel=ObedientClock())
    timer = loop.call_later(10, list)
    loop.call_soon(timer.cancel)
    assert loop.run() is False  # a loop that slept now would never wake up
    loop.close()


def test_the_longest_sleep_is_bounded() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    loop.call_later(40 * 24 * 3600, loop.stop)
    loop.run()
    assert max(clock.sleeps) == 24 * 3600 * SECOND
    assert len(clock.sleeps) == 40
    loop.close()


def test_a_loop_with_an_endless_wait_sleeps_without_a_deadline() -> None:
    loop = Loop(kernel=ObedientClock())
    with pytest.raises(Deadlock):
        run_forever(loop)
    loop.close()


@pytest.mark.slow
def test_a_quiet_second_takes_at_most_two_turns(make_loop: MakeLoop) -> None:
    loop = make_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Watcher(loop, ours.fileno(), Event.READABLE)
        loop.call_later(1, loop.stop)
        run_forever(loop)
    metrics = loop.metrics()
    assert metrics.turns <= 2
    assert metrics.events == 0
    assert SECOND // 2 < metrics.idle_ns < 30 * SECOND  # A busy machine begins to sleep late.


# Stopping.


def test_stop_lets_the_callbacks_of_this_turn_finish(loop: Loop) -> None:
    seen: list[int] = []
    loop.call_soon(seen.append, 1)
    loop.call_soon(loop.stop)
    loop.call_soon(lambda: (seen.append(2), loop.call_soon(seen.append, 3)))
    run_forever(loop)
    assert seen == [1, 2]
    run_turns(loop)
    assert seen == [1, 2, 3]


def test_stop_before_a_run_of_asyncio_makes_one_turn_that_does_not_sleep() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    seen: list[int] = []
    loop.call_later(1, seen.append, 2)
    loop.call_soon(seen.append, 1)
    loop.stop()
    run_forever(loop)
    assert (seen, clock.sleeps, loop.metrics().turns) == ([1], [], 1)
    loop.close()


def test_stop_before_a_run_of_the_machine_makes_no_turn(loop: Loop) -> None:
    seen: list[int] = []
    loop.call_soon(seen.append, 1)
    loop.stop()
    assert loop.run() is True
    assert (seen, loop.metrics().turns) == ([], 0)
    assert loop.run() is False  # the wish to stop is spent
    assert seen == [1]


def test_stop_ends_a_run_of_the_machine_after_the_turn(loop: Loop) -> None:
    turns = []

    def tick() -> None:
        turns.append(loop.metrics().turns)
        if len(turns) < 5:
            loop.call_soon(tick)
        if len(turns) == 3:
            loop.stop()

    loop.call_soon(tick)
    assert loop.run() is True
    assert turns == [1, 2, 3]


def test_stop_keeps_the_poll_after_it_from_sleeping() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    loop.call_later(50, list)
    loop.call_soon(loop.stop)
    assert loop.run() is True
    assert clock.sleeps == []
    loop.close()


# Staying alive.


def test_loop_is_alive_with_callbacks_timers_or_closing_handles(loop: Loop) -> None:
    assert not loop.alive()
    callback = loop.call_soon(list)
    assert loop.alive()
    callback.cancel()
    loop.run()
    assert not loop.alive()
    timer = loop.call_later(100, list)
    assert loop.alive()
    timer.cancel()
    assert not loop.alive()
    handle = Inert(loop)
    assert not loop.alive()  # it is open, but not active
    handle.close()
    assert loop.alive()  # its end is still to come
    loop.run()
    assert not loop.alive()


def test_a_call_from_another_thread_keeps_a_loop_alive(loop: Loop) -> None:
    seen: list[int] = []
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(seen.append, 1))
    thread.start()
    thread.join()
    assert loop.alive()
    assert loop.run() is False
    assert seen == [1]


# A loop runs once at a time, in one thread, and in one process.


@pytest.mark.parametrize("outer", [Loop.run, run_forever], ids=["machine", "asyncio"])
@pytest.mark.parametrize("inner", [Loop.run, run_forever], ids=["machine", "asyncio"])
def test_a_run_inside_a_run_is_refused(
    loop: Loop, outer: Callable[[Loop], object], inner: Callable[[Loop], object]
) -> None:
    seen: list[object] = []

    def run_again() -> None:
        with pytest.raises(RuntimeError, match="already running"):
            inner(loop)
        seen.append(loop.is_running())
        loop.stop()

    loop.call_soon(run_again)
    loop.call_soon(seen.append, "the rest")
    outer(loop)
    assert seen == [True, "the rest"]
    assert not loop.is_running()


def test_a_run_from_another_thread_is_refused_while_the_loop_runs(loop: Loop) -> None:
    errors: list[str] = []

    def intrude() -> None:
        try:
            loop.run()
        except RuntimeError as error:
            errors.append(str(error))

    def wait_for_intruder() -> None:
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()

    loop.call_soon(wait_for_intruder)
    loop.run()
    assert errors == ["This event loop is already running"]


def test_loops_run_in_many_threads() -> None:
    totals: list[int] = []

    def count() -> None:
        loop = Loop()
        seen: list[int] = []

        def tick(number: int) -> None:
            seen.append(number)
            if number < 2000:
                loop.call_soon(tick, number + 1)

        loop.call_soon(tick, 1)
        loop.call_later(0.001, seen.append, 0)
        loop.run()
        loop.close()
        totals.append(sum(seen))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [2001000] * 8


@MAY_FORK
def test_a_loop_made_before_a_fork_does_not_run_in_the_child(make_loop: MakeLoop) -> None:
    loop = make_loop()
    loop.call_soon(list)

    def child() -> None:
        with pytest.raises(RuntimeError, match="fork"):
            loop.run()
        with pytest.raises(RuntimeError, match="fork"):
            run_forever(loop)
        assert not loop.is_running()

    assert in_child(child) == 0
    assert loop.run() is False


@MAY_FORK
def test_closing_an_inherited_loop_leaves_the_parent_alone(make_loop: MakeLoop) -> None:
    loop = make_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watcher = Watcher(loop, ours.fileno(), Event.READABLE)

        def child() -> None:
            loop._close_machine()
            assert loop.is_closed()
            other = Loop()
            other.call_later(0, other.stop)
            other.run()
            other.close()

        assert in_child(child) == 0
        assert watcher.seen == []
        theirs.send(b"x")
        run_turns(loop)
        assert watcher.seen == [Event.READABLE]
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
        loop.call_soon(thread.start)
        run_forever(loop)  # ends only if the wakeup still works
        thread.join()


# Closing.


def test_close_is_refused_while_a_handle_is_open(loop: Loop) -> None:
    handle = Inert(loop)
    with pytest.raises(OSError, match="handles are open") as caught:
        loop.close()
    assert caught.value.errno == errno.EBUSY
    handle.close()
    with pytest.raises(OSError, match="handles are open"):  # its callback is still to come
        loop.close()
    loop.run()
    loop.close()
    assert loop.is_closed()
    loop.close()


def test_close_is_refused_while_the_loop_runs(loop: Loop) -> None:
    errors: list[RuntimeError] = []

    def close() -> None:
        try:
            loop.close()
        except RuntimeError as error:
            errors.append(error)

    loop.call_soon(close)
    loop.run()
    assert len(errors) == 1
    assert not loop.is_closed()


def test_a_closed_loop_refuses_everything() -> None:
    loop = Loop()
    loop.close()
    for refused in (
        lambda: loop.call_soon(list),
        lambda: loop.call_soon_threadsafe(list),
        lambda: loop.call_later(0, list),
        lambda: loop.call_at(0, list),
        lambda: loop.run(),
        lambda: run_forever(loop),
        lambda: Inert(loop),
    ):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            refused()
    assert not loop.alive()
    assert loop.metrics().timers == 0


def test_a_closed_loop_forgets_its_callbacks(loop: Loop) -> None:
    class Precious:
        def use(self) -> None:
            raise AssertionError("it ran")

    precious = Precious()
    loop.call_soon(precious.use)
    loop.call_later(100, precious.use)
    loop.call_soon_threadsafe(precious.use)
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(precious.use,))
    thread.start()
    thread.join()
    del thread
    alive = weakref.ref(precious)
    loop.close()
    del precious
    gc.collect()
    assert alive() is None


def test_cancelling_a_timer_of_a_closed_loop_does_nothing() -> None:
    loop = Loop()
    timers = [loop.call_later(100, list) for _ in range(1000)]
    loop.close()
    for timer in timers:
        timer.cancel()
    assert loop.metrics().timers == 0


def test_a_loop_that_nobody_closed_is_collected() -> None:
    class Owner:
        pass

    before = open_descriptors()
    owner = Owner()
    owner.loop = loop = Loop()
    loop.call_soon(setattr, owner, "ran", loop)
    loop.call_later(100, setattr, owner, "ran", loop)
    loop.call_soon_threadsafe(setattr, owner, "ran", loop)
    Inert(loop).data = owner
    dropped = [weakref.ref(owner), weakref.ref(loop), weakref.ref(loop.call_soon(list))]
    del owner, loop
    with pytest.warns(ResourceWarning, match="unclosed loop"):
        gc.collect()
    gc.collect()  # what had a finalizer may be left to a second pass (3.15)
    assert [ref() for ref in dropped] == [None] * 3
    assert open_descriptors() == before


def test_loops_that_come_and_go_leave_no_descriptor(make_loop: MakeLoop) -> None:
    make_loop().close()
    before = open_descriptors()
    for _ in range(100):
        loop = make_loop()
        loop.call_soon_threadsafe(loop.stop)
        run_forever(loop)
        loop.close()
    del loop
    assert open_descriptors() == before


def test_a_loop_that_cannot_be_made_leaves_no_descriptor() -> None:
    class Refusing(ObedientClock):
        def eventfd(self) -> int:
            return -errno.EMFILE

        def socket_pair(self) -> int:
            return -errno.EMFILE

    class WithoutEpoll(ObedientClock):
        def epoll_create(self) -> int:
            return -errno.ENFILE

    class WithoutWatches(ObedientClock):
        def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
            return -errno.ENOSPC

    before = open_descriptors()
    for kernel, code in (
        (Refusing(), errno.EMFILE),
        (WithoutEpoll(), errno.ENFILE),
        (WithoutWatches(), errno.ENOSPC),
    ):
        with pytest.raises(OSError) as caught:  # noqa: PT011 -- the number is looked at below
            Loop(kernel=kernel)
        assert caught.value.errno == code
        assert open_descriptors() == before


# Errors out of callbacks: the machine lets them end the run, and keeps what was not run.


def fail(error: type[BaseException]) -> None:
    raise error("on purpose")


ERRORS = pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])


@ERRORS
@IN_BOTH_ORDERS
def test_an_error_out_of_a_callback_keeps_the_rest(
    make_loop: MakeLoop, run_once: Callable[[Loop], None], error: type[BaseException]
) -> None:
    loop = make_loop()
    seen: list[int] = []
    for number in range(10):
        if number == 2:
            loop.call_soon(fail, error)
        loop.call_soon(seen.append, number)
    with pytest.raises(error, match="on purpose"):
        run_once(loop)
    assert seen == [0, 1]
    assert not loop.is_running()
    loop.call_soon(seen.append, 10)
    run_once(loop)
    assert seen == list(range(11))
    assert loop.metrics().callbacks == 12


@ERRORS
@IN_BOTH_ORDERS
def test_an_error_out_of_the_only_callback_keeps_what_that_has_scheduled(
    make_loop: MakeLoop, run_once: Callable[[Loop], None], error: type[BaseException]
) -> None:
    loop = make_loop()
    seen: list[int] = []

    def schedule_and_fail() -> None:
        loop.call_soon(seen.append, 1)
        fail(error)

    loop.call_soon(schedule_and_fail)
    with pytest.raises(error, match="on purpose") as raised:
        run_once(loop)
    names = [entry.name for entry in raised.traceback]
    assert names[-2:] == ["schedule_and_fail", "fail"]
    assert (seen, loop.is_running()) == ([], False)
    run_once(loop)
    assert seen == [1]
    assert loop.metrics().callbacks == 2


@ERRORS
@IN_BOTH_ORDERS
def test_an_error_out_of_an_event_keeps_the_other_events(
    make_loop: MakeLoop, run_once: Callable[[Loop], None], error: type[BaseException]
) -> None:
    loop = make_loop()
    pairs = [socket.socketpair() for _ in range(10)]
    received: list[bytes] = []
    calls = 0

    def read(watcher: Watcher) -> None:
        nonlocal calls
        calls += 1
        received.append(os.read(watcher.fileno(), 10))
        if calls == 3:
            raise error("on purpose")

    try:
        for number, (ours, theirs) in enumerate(pairs):
            Watcher(loop, ours.fileno(), Event.READABLE, read)
            theirs.send(b"%d" % number)
        loop.call_soon(list)
        with pytest.raises(error, match="on purpose"):
            run_once(loop)
        assert len(received) == 3
        loop.call_soon(list)
        run_once(loop)
        assert sorted(received) == [b"%d" % number for number in range(10)]
    finally:
        for pair in pairs:
            for sock in pair:
                sock.close()


@ERRORS
@IN_BOTH_ORDERS
def test_an_error_out_of_a_timer_keeps_the_other_timers(
    run_once: Callable[[Loop], None], error: type[BaseException]
) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    seen: list[int] = []
    for number in range(10):
        loop.call_later(1, seen.append, number)
        if number == 4:
            loop.call_later(1, fail, error)
    late = loop.call_later(1, seen.append, 10)
    clock.clock += SECOND
    with pytest.raises(error, match="on purpose"):
        run_once(loop)
    assert seen == [0, 1, 2, 3, 4]
    late.cancel()  # due, but not run yet
    run_once(loop)
    assert seen == list(range(10))
    assert not loop.alive()
    loop.close()


@ERRORS
@IN_BOTH_ORDERS
def test_an_error_out_of_a_close_callback_keeps_the_others(
    loop: Loop, run_once: Callable[[Loop], None], error: type[BaseException]
) -> None:
    handles = [Inert(loop) for _ in range(5)]
    closed: list[int] = []

    def note(handle: Inert) -> None:
        closed.append(handles.index(handle))
        if len(closed) == 2:
            raise error("on purpose")

    for handle in handles:
        handle.close(note)
    with pytest.raises(error, match="on purpose"):
        run_once(loop)
    assert closed == [4, 3]
    run_once(loop)
    assert closed == [4, 3, 2, 1, 0]
    assert loop.walk() == []


@ERRORS
@IN_BOTH_ORDERS
@pytest.mark.parametrize("edge", [False, True], ids=["level", "edge"])
def test_an_error_out_of_the_sleep_loses_no_event(
    run_once: Callable[[Loop], None], error: type[BaseException], edge: bool
) -> None:
    """A signal handler may raise when the kernel has already handed its events over."""

    class Interrupted(ObedientClock):
        interrupt = True

        def epoll_wait(self, epfd: int, timeout_ns: int, events: object) -> int:
            found = super().epoll_wait(epfd, timeout_ns, events)
            if found and self.interrupt:
                self.interrupt = False
                fail(error)
            return found

    loop = Loop(kernel=Interrupted())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watcher = Watcher(loop, ours.fileno(), Event.READABLE, edge=edge)
        theirs.send(b"x")
        loop.call_soon(list)
        loop.call_soon(list)
        with pytest.raises(error, match="on purpose"):
            run_once(loop)
        loop.call_soon(list)
        run_once(loop)
        loop.call_soon(list)
        run_once(loop)
        assert Event.READABLE in watcher.seen[0]
        watcher.close()
        loop.run()
        loop.close()


def test_a_run_that_could_not_begin_can_be_tried_again(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        raise OSError(errno.EBADF, "refused")

    loop.call_soon(list)
    with monkeypatch.context() as patch:
        patch.setattr(loop._host, "is_main_thread", refuse)
        with pytest.raises(OSError, match="refused"):
            loop.run()
    assert not loop.is_running()
    assert loop.run() is False


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer keeps frames alive")
def test_a_callback_that_ran_is_forgotten(loop: Loop) -> None:
    class Argument:
        pass

    argument = Argument()
    alive = weakref.ref(argument)
    loop.call_soon(lambda it: None, argument)
    loop.call_later(0, lambda it: None, argument)
    loop.call_soon(list)
    loop.run()
    del argument
    assert alive() is None


def test_a_loop_is_initialized_once(loop: Loop) -> None:
    # Running code keeps the poller and the kernel that the loop had when it began.
    with pytest.raises(RuntimeError, match="initialized already"):
        loop.__init__()  # type: ignore[misc]


def test_an_interrupt_out_of_a_probe_loses_no_callback() -> None:
    class Interrupting(Probe):
        def turn_began(self, number: int, entries: int) -> None:
            raise KeyboardInterrupt

    loop = Loop()
    ran: list[str] = []
    loop.call_soon(ran.append, "first")
    loop.set_probe(Interrupting())
    with pytest.raises(KeyboardInterrupt):
        loop.run(RunMode.NOWAIT)
    loop.set_probe(None)
    loop.run()
    assert ran == ["first"]
    loop.close()


def test_the_loops_that_run_are_known_on_all_threads(make_loop: MakeLoop) -> None:
    outer, inner, idle = make_loop(), make_loop(), make_loop()
    seen: list[set[Loop]] = []

    def look() -> None:
        seen.append({loop for loop in running_loops() if loop in (outer, inner, idle)})

    def run_another() -> None:
        inner.call_soon(look)
        thread = threading.Thread(target=inner.run)
        thread.start()
        thread.join()
        look()

    outer.call_soon(run_another)
    outer.run()
    look()
    assert seen == [{outer, inner}, {outer}, set()]


def test_a_loop_that_is_gone_leaves_no_reference() -> None:
    gc.collect()
    before = set(lifecycle._loops)
    loop = Loop()
    [number] = set(lifecycle._loops) - before
    assert lifecycle._loops[number]() is loop
    loop.close()
    del loop
    gc.collect()
    assert set(lifecycle._loops) <= before
