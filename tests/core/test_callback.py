"""Callbacks: cancelling, contexts, what they show of themselves."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.loop_fakes import run_turns
from whorl.core import Callback, Loop
from whorl.core.callback import GuardedCallback, call_in_context, drop_callback, new_callback
from whorl.core.handle import Request


def test_cancelling_forgets_the_function_and_its_arguments_at_once(loop: Loop) -> None:
    class Thing:
        def use(self, argument: Thing) -> None:
            raise AssertionError("it ran")

    thing, argument = Thing(), Thing()
    refs = [weakref.ref(thing), weakref.ref(argument)]
    callback = loop.call_soon(thing.use, argument)
    timer = loop.call_later(100, thing.use, argument)
    callback.cancel()
    timer.cancel()
    del thing, argument
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_cancelling_is_seen_and_may_be_repeated(loop: Loop) -> None:
    callback = loop.call_soon(list)
    assert callback.cancelled() is False
    for _ in range(3):
        callback.cancel()
        assert callback.cancelled() is True


def test_a_dropped_callback_is_cancelled_for_those_who_have_it(loop: Loop) -> None:
    calls: list[int] = []
    known = loop.call_soon(calls.append, 1)
    drop_callback(known)
    assert known.cancelled()
    drop_callback(known)
    loop.call_soon(calls.append, 2)
    loop.run()
    assert calls == [2]
    assert known.cancelled()


def test_a_dropped_callback_keeps_nothing_alive(loop: Loop) -> None:
    class Argument: ...

    argument = Argument()
    forgotten = weakref.ref(argument)
    drop_callback(new_callback(loop, print, (argument,), None))
    del argument
    assert forgotten() is None


def test_cancelling_from_another_thread(loop: Loop) -> None:
    ran: list[int] = []
    callback = loop.call_soon_threadsafe(ran.append, 1)
    thread = threading.Thread(target=callback.cancel)
    thread.start()
    thread.join()
    loop.run()
    assert ran == []


def test_guarded_callback_makes_every_cancel_wait_until_it_has_run(loop: Loop) -> None:
    began, order = threading.Event(), []

    def run() -> None:
        began.set()
        while not callback._cancelled:
            time.sleep(0)
        for _ in range(100):  # so that somebody who did not wait would come first
            time.sleep(0)
        order.append("ran")

    def cancel() -> None:
        assert began.wait(10)
        callback.cancel()
        order.append("cancelled")

    callback = GuardedCallback(loop, run, ())
    threads = [threading.Thread(target=cancel) for _ in range(4)]
    for thread in threads:
        thread.start()
    callback._run()
    for thread in threads:
        thread.join()
    assert order == ["ran"] + 4 * ["cancelled"]


def test_guarded_callback_makes_cancelled_wait_until_it_has_run(loop: Loop) -> None:
    began, order = threading.Event(), []

    def run() -> None:
        began.set()
        for _ in range(1000):
            time.sleep(0)
        callback.cancel()  # by the thread that runs it: nobody waits
        order.append("ran")

    def ask() -> None:
        assert began.wait(10)
        assert callback.cancelled()
        order.append("asked")

    callback = GuardedCallback(loop, run, ())
    asker = threading.Thread(target=ask)
    asker.start()
    callback._run()
    asker.join()
    assert order == ["ran", "asked"]


def test_a_guarded_callback_that_fails_keeps_nobody_waiting(loop: Loop) -> None:
    began = threading.Event()

    def run() -> None:
        began.set()
        while not callback._cancelled:
            time.sleep(0)
        raise ZeroDivisionError

    def cancel() -> None:
        assert began.wait(10)
        callback.cancel()

    callback = GuardedCallback(loop, run, ())
    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(ZeroDivisionError):
        callback._run()
    canceller.join(10)
    assert not canceller.is_alive()


def test_a_callback_may_cancel_itself_while_it_runs(loop: Loop) -> None:
    ran: list[int] = []

    def run() -> None:
        callback.cancel()
        ran.append(1)

    callback = loop.call_soon(run)
    loop.run()
    assert ran == [1]
    assert callback.cancelled()


def test_the_context_is_a_copy_unless_it_is_given(loop: Loop) -> None:
    context = contextvars.copy_context()
    assert loop.call_soon(list, context=context).get_context() is context
    copied = loop.call_soon(list).get_context()
    assert isinstance(copied, contextvars.Context)
    assert copied is not context


def test_context_keeps_the_variables_that_its_callback_sets(loop: Loop) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="unset")
    context = contextvars.copy_context()
    loop.call_soon(name.set, "set", context=context)
    loop.run()
    assert name.get() == "unset"
    assert context[name] == "set"


def test_calls_made_in_an_empty_context_have_each_one_of_their_own(loop: Loop) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="unset")
    seen: list[str] = []

    def schedule() -> None:
        for call in (loop.call_soon, loop.call_soon_threadsafe, functools.partial(loop.call_later, 0)):
            call(name.set, "set")
            call(lambda: seen.append(name.get()))

    contextvars.Context().run(schedule)
    loop.run()
    assert seen == ["unset"] * 3
    assert name.get() == "unset"


@pytest.mark.parametrize("method", ["call_soon", "call_soon_threadsafe"])
@pytest.mark.parametrize("asks_first", [True, False])
def test_a_call_made_in_an_empty_context_runs_in_the_one_that_it_shows(
    loop: Loop, method: str, asks_first: bool
) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="unset")
    shown: list[contextvars.Context] = []

    def show() -> None:
        name.set("set")
        shown.append(callback.get_context())

    callback = contextvars.Context().run(getattr(loop, method), show)
    if asks_first:
        shown.append(callback._context)
    loop.run()
    assert {id(context) for context in shown} == {id(callback.get_context())}
    assert callback.get_context()[name] == "set"


def test_an_empty_context_that_somebody_knows_is_nobody_elses(loop: Loop) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="unset")
    known: list[Any] = []
    seen: list[str] = []

    def note(how: Callable[[contextvars.Context], Any], number: int) -> None:
        seen.append(name.get())
        known.append(how(callbacks[number].get_context()))

    def set_and_reset(context: contextvars.Context) -> Any:
        token = name.set("set")
        name.reset(token)
        return token

    ways = [lambda context: context, weakref.ref, set_and_reset, lambda context: None] * 2
    callbacks = [contextvars.Context().run(loop.call_soon, note, how, at) for at, how in enumerate(ways)]
    loop.run()
    assert seen == ["unset"] * 8
    assert len({id(callback.get_context()) for callback in callbacks}) == 8
    for at in (0, 4):
        assert known[at] is callbacks[at].get_context()
        assert known[at + 1]() is callbacks[at + 1].get_context()
    for callback in callbacks:
        assert len(callback.get_context()) == 0
    callbacks[0].get_context().run(name.set, "set")
    contextvars.Context().run(loop.call_soon, lambda: seen.append(name.get()))
    loop.run()
    assert seen[-1] == "unset"


def test_empty_context_is_empty_again_for_the_next_callback(loop: Loop) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="unset")
    seen: list[str] = []

    def fail() -> None:
        name.set("failed")
        raise ZeroDivisionError

    def nest() -> None:
        other = Loop()
        contextvars.Context().run(other.call_soon, name.set, "inside")
        other.run()
        other.close()
        seen.append(name.get())

    for callback in (fail, nest, nest):
        contextvars.Context().run(loop.call_soon, callback)
        contextvars.Context().run(loop.call_soon, lambda: seen.append(name.get()))
    with pytest.raises(ZeroDivisionError):
        loop.run()
    loop.run()
    assert seen == ["unset"] * 5


def test_a_call_is_made_in_the_context_as_it_was_when_it_was_scheduled(loop: Loop) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="unset")
    seen: list[str] = []

    def schedule() -> None:
        loop.call_soon(lambda: seen.append(name.get()))
        name.set("set")
        loop.call_soon(lambda: seen.append(name.get()))

    contextvars.Context().run(schedule)
    loop.run()
    assert seen == ["unset", "set"]


@pytest.mark.parametrize("context", [{}, "context", 1])
def test_invalid_context_is_an_error_of_the_run(loop: Loop, context: object) -> None:
    loop.call_soon(list, context=context)
    with pytest.raises((TypeError, AttributeError)):
        run_turns(loop)
    run_turns(loop)  # it is not tried again
    assert loop.metrics().ready == 0


def test_a_context_that_is_entered_already_is_an_error_of_the_run(loop: Loop) -> None:
    context = contextvars.copy_context()

    def run_inside() -> None:
        loop.call_soon(list, context=context)
        with pytest.raises(RuntimeError, match="already entered"):
            run_turns(loop)

    context.run(run_inside)
    assert loop.metrics().ready == 0


def test_context_stand_in_runs_the_callback(loop: Loop) -> None:
    class Noting:
        def run(self, callback: Any, *args: Any) -> None:
            ran.append((callback, args))

    ran: list[Any] = []
    loop.call_soon(print, "x", 5, context=Noting())  # type: ignore[arg-type]
    loop.call_later(0, print, context=Noting())  # type: ignore[arg-type]
    run_turns(loop)
    assert ran == [(print, ("x", 5)), (print, ())]


def test_a_callback_names_its_function(loop: Loop) -> None:
    def greet() -> None:
        """Do nothing."""

    callback = loop.call_soon(greet)
    assert "greet" in repr(callback)
    callback.cancel()
    assert "greet" not in repr(callback)
    assert "cancelled" in repr(callback)


def test_debug_mode_remembers_the_name_of_what_was_cancelled(loop: Loop) -> None:
    def greet() -> None:
        """Do nothing."""

    loop.set_debug(True)
    assert loop.get_debug() is True
    callback = loop.call_soon(greet)
    callback.cancel()
    assert "greet" in repr(callback)


def test_debug_mode_refuses_what_cannot_be_called(loop: Loop) -> None:
    loop.set_debug(True)
    for schedule in (
        lambda: loop.call_soon(1),
        lambda: loop.call_soon_threadsafe(1),
        lambda: loop.call_later(0, 1),
        lambda: loop.call_at(0, 1),
    ):
        with pytest.raises(TypeError, match="callable"):
            schedule()
    assert not loop.alive()


def test_debug_mode_refuses_calls_from_another_thread(loop: Loop) -> None:
    loop.set_debug(True)
    errors: list[str] = []

    def intrude() -> None:
        for schedule in (
            lambda: loop.call_soon(list),
            lambda: loop.call_later(0, list),
            lambda: loop.call_at(0, list),
        ):
            try:
                schedule()
            except RuntimeError as error:
                errors.append(str(error))
        loop.call_soon_threadsafe(list)

    def wait_for_intruder() -> None:
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()

    loop.call_soon(wait_for_intruder)
    loop.run()
    assert len(errors) == 3
    assert "Non-thread-safe operation" in errors[0]


def test_a_callback_can_be_made_by_itself(loop: Loop) -> None:
    ran: list[int] = []
    callback = Callback(loop, ran.append, (1,))
    assert not callback.cancelled()
    assert isinstance(callback, Callback)
    callback.cancel()
    assert ran == []


def test_an_error_of_a_callback_keeps_its_traceback(loop: Loop) -> None:
    def inner() -> None:
        raise LookupError("on purpose")

    loop.call_soon(inner)
    with pytest.raises(LookupError) as caught:
        loop.run()
    assert [entry.name for entry in caught.traceback][-1] == "inner"


def test_arguments_that_are_no_tuple_are_refused() -> None:
    with pytest.raises(TypeError):
        call_in_context(contextvars.copy_context(), print, None)  # type: ignore[arg-type]


SCHEDULING: list[tuple[str, tuple[int, ...]]] = [
    ("call_soon", ()), ("call_soon_threadsafe", ()), ("call_at", (0,)), ("call_later", (0,))
]  # fmt: skip


@pytest.mark.parametrize(("method", "when"), SCHEDULING)
def test_the_name_of_the_context_need_not_be_interned(loop: Loop, method: str, when: tuple[int, ...]) -> None:
    seen: list[object] = []
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    context = contextvars.copy_context()
    context.run(variable.set, 3)
    name = "".join(["con", "text"])
    schedule: Any = getattr(loop, method)
    schedule(*when, lambda: seen.append(variable.get()), **{name: context})
    schedule(*when, lambda more, most: seen.append(variable.get() + more + most), 1, 2, **{name: context})
    loop.run()
    assert seen == [3, 6]


@pytest.mark.parametrize(("method", "when"), SCHEDULING)
def test_scheduling_methods_refuse_invalid_arguments(loop: Loop, method: str, when: tuple[int, ...]) -> None:
    schedule: Any = getattr(loop, method)
    unbound: Any = getattr(Loop, method)
    for wrong in (
        lambda: schedule(),
        lambda: schedule(*when),
        lambda: schedule(*when, print, contexts=None),
        lambda: schedule(*when, print, contexT=None),
        lambda: schedule(*when, print, context=None, more=1),
        lambda: schedule(*when, context=None),
        lambda: unbound(*when, print),
        lambda: unbound(),
    ):
        with pytest.raises(TypeError):
            wrong()
    for other in (3, None, object()):
        with pytest.raises((TypeError, AttributeError)):
            unbound(other, *when, print)
    assert not loop._ready_queue
    unbound(loop, *when, print, 1, context=None).cancel()
    schedule(*when, callback=print).cancel()
    loop.run()


def test_a_posted_callback_that_somebody_keeps_is_not_used_again(loop: Loop) -> None:
    loop._guards_posts = True
    ran: list[int] = []
    kept = loop.call_soon_threadsafe(ran.append, 1)
    weakly = weakref.ref(loop.call_soon_threadsafe(ran.append, 2))
    observed = weakly()
    loop.call_soon_threadsafe(ran.append, 3)
    loop.run()
    more = [loop.call_soon_threadsafe(ran.append, 4) for _ in range(4)]
    assert len({id(callback) for callback in [kept, observed, *more]}) == 6
    assert kept._args == (1,)
    kept.cancel()
    loop.run()
    assert ran == [1, 2, 3] + 4 * [4]
    assert not any(callback._cancelled for callback in more)


def test_a_posted_callback_that_failed_or_was_cancelled_leaves_nothing_behind(loop: Loop) -> None:
    loop._guards_posts = True
    ran: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    loop.call_soon_threadsafe(fail)
    with pytest.raises(ZeroDivisionError):
        loop.run()
    loop.call_soon_threadsafe(ran.append, 1).cancel()
    for number in range(3):
        loop.call_soon_threadsafe(ran.append, number)
    loop.run()
    assert ran == [0, 1, 2]


@pytest.mark.parametrize("method", ["call_soon", "call_soon_threadsafe"])
def test_callbacks_scheduled_by_a_destructor_are_not_lost(loop: Loop, method: str) -> None:
    loop._guards_posts = True
    schedule: Any = getattr(loop, method)
    ran: list[str] = []

    class Function:
        def __call__(self) -> None:
            ran.append("called")

        def __del__(self) -> None:
            schedule(ran.append, "dropped")

    def schedule_more() -> None:
        for number in range(3):
            schedule(ran.append, f"more {number}")

    for _ in range(8):  # so that there are some to be used again
        schedule(list)
    loop.run()
    schedule(Function())
    schedule(schedule_more)
    loop.run()
    assert ran == ["called", "dropped", "more 0", "more 1", "more 2"]


def test_a_class_with_another_base_before_the_loop_schedules_as_the_loop_does() -> None:
    class Mixin:
        pass

    class Mixed(Mixin, Loop):
        pass

    loop = Mixed()
    ran: list[int] = []
    loop.call_soon(ran.append, 1)
    loop.call_soon_threadsafe(ran.append, 2)
    loop.run()
    loop.close()
    assert ran == [1, 2]


@pytest.mark.parametrize("is_alone", [True, False])
def test_an_error_is_being_handled_while_it_is_reported(is_alone: bool) -> None:
    seen: list[object] = []

    class Reporting(Loop):
        def _callback_failed(self, entry: object, error: BaseException) -> None:
            seen.append(sys.exc_info()[1] is error)

    def fail() -> None:
        raise ValueError("on purpose")

    loop = Reporting()
    loop.call_soon(fail)
    if not is_alone:
        loop.call_soon(list)
    loop.run()
    loop.close()
    assert seen == [True]
    assert sys.exc_info() == (None, None, None)


def everything_of_ours() -> list[Any]:
    """Return the callbacks and requests that the collector tracks, also spare ones."""
    gc.collect()  # Tracebacks may keep callbacks of other tests.
    return [found for found in gc.get_objects() if issubclass(type(found), Callback | Request)]


def cancel_everything() -> None:
    """Cancel all that, and keep none of it."""
    for found in everything_of_ours():
        found.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [False, True])
def test_callbacks_that_the_collector_shows_answer_all_questions(loop: Loop, guarded: bool) -> None:
    loop._guards_posts = guarded
    for _ in range(10):
        loop.call_soon(int)
        loop.call_soon_threadsafe(int)
    loop.run()
    waiting = loop.call_soon(int)
    found = [each for each in everything_of_ours() if isinstance(each, Callback)]
    assert waiting in found
    for each in found:
        assert isinstance(repr(each), str)
        assert isinstance(str(each), str)
        assert isinstance(each.__class__, type)
        assert isinstance(each.get_context(), contextvars.Context)
        assert isinstance(each._context, contextvars.Context)
        assert each.cancelled() in (False, True)
        assert hash(each) == hash(each)
        for name in dir(type(each)):  # The class that it shows may have other names.
            if not name.startswith("__"):
                getattr(each, name)
        if each is not waiting:
            each._run()


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("method", ["call_soon", "call_soon_threadsafe"])
def test_cancelling_what_the_collector_shows_cancels_no_later_call(
    loop: Loop, method: str, guarded: bool, debug: bool
) -> None:
    loop._guards_posts = guarded
    schedule: Any = getattr(loop, method)
    for _ in range(10):
        schedule(int)
    loop.run()
    cancel_everything()
    loop.set_debug(debug)
    ran: list[int] = []
    for number in range(12):
        schedule(ran.append, number)
    loop.run()
    assert ran == list(range(12))


@pytest.mark.parametrize("keep", [list, lambda found: [weakref.ref(each) for each in found]])
def test_a_callback_that_was_found_by_the_collector_is_nobody_elses(
    loop: Loop, keep: Callable[[Any], Any]
) -> None:
    for _ in range(10):
        loop.call_soon(int)
    loop.run()
    kept = keep(everything_of_ours())
    ran: list[int] = []
    for number in range(12):
        loop.call_soon(ran.append, number)
    for found in kept:
        each = found() if isinstance(found, weakref.ref) else found
        if each is not None:
            each.cancel()
    loop.run()
    assert ran == list(range(12))


def test_a_callback_that_is_found_while_it_is_dropped_is_nobody_elses(loop: Loop) -> None:
    kept: list[Any] = []

    class Function:
        def __call__(self) -> None:
            """Do nothing."""

        def __del__(self) -> None:
            kept.extend(everything_of_ours())

    loop.call_soon(Function())
    loop.run()
    ran: list[int] = []
    for number in range(12):
        loop.call_soon(ran.append, number)
    for each in kept:
        each.cancel()
    loop.run()
    assert ran == list(range(12))


def test_empty_context_found_through_gc_is_not_used_again(loop: Loop) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="unset")
    seen: list[str] = []
    contextvars.Context().run(loop.call_soon, int)
    loop.run()
    for context in gc.get_objects():
        if type(context) is contextvars.Context and not len(context):
            with contextlib.suppress(RuntimeError):  # of one that another thread has entered
                context.run(name.set, "set")
    contextvars.Context().run(loop.call_soon, lambda: seen.append(name.get()))
    loop.run()
    assert seen == ["unset"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_context_that_is_kept_after_its_call_is_collected_with_what_it_holds(
    loop: Loop, fails: bool
) -> None:
    name: contextvars.ContextVar[Any] = contextvars.ContextVar("name")

    class Thing:
        """Refers to the context that holds it."""

    def fill() -> None:
        thing = Thing()
        thing.context = callbacks[0].get_context()  # type: ignore[attr-defined]
        things.append(weakref.ref(thing))
        name.set(thing)
        if fails:
            raise ZeroDivisionError

    things: list[Any] = []
    callbacks = [contextvars.Context().run(loop.call_soon, fill)]
    try:
        loop.run()
    except ZeroDivisionError:
        assert fails
    callbacks.clear()
    gc.collect()
    assert things[0]() is None
