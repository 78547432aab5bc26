"""Signals as events of the loop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import turns

pytestmark = pytest.mark.usefixtures("no_leak")

USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2


@pytest.fixture(autouse=True)
def no_wakeup_fd_left(no_hang: None) -> Iterator[None]:
    """Check that a test leaves no descriptor for signals."""
    yield
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(USR1) is signal.SIG_DFL


async def test_a_handler_is_called_with_its_arguments(loop: whorl.EventLoop) -> None:
    seen = loop.create_future()
    loop.add_signal_handler(USR1, seen.set_result, "arrived")
    os.kill(os.getpid(), USR1)
    assert await seen == "arrived"
    assert loop.remove_signal_handler(USR1)


async def test_a_signal_ends_the_sleep(loop: whorl.EventLoop) -> None:
    seen = loop.create_future()
    loop.add_signal_handler(USR1, seen.set_result, None)
    main = threading.get_ident()
    thread = threading.Thread(target=signal.pthread_kill, args=(main, USR1))
    loop.call_soon(thread.start)
    await seen
    thread.join()
    loop.remove_signal_handler(USR1)


async def test_a_handler_runs_in_a_turn_of_the_loop_and_not_in_between(loop: whorl.EventLoop) -> None:
    ran: list[str] = []
    loop.add_signal_handler(USR1, ran.append, "handler")
    signal.raise_signal(USR1)
    ran.append("after the signal")
    while len(ran) < 2:
        await turns(1)
    assert ran == ["after the signal", "handler"]
    loop.remove_signal_handler(USR1)


async def test_a_new_handler_replaces_the_old_one(loop: whorl.EventLoop) -> None:
    seen = loop.create_future()
    loop.add_signal_handler(USR1, seen.set_result, "old")
    loop.add_signal_handler(USR1, seen.set_result, "new")
    signal.raise_signal(USR1)
    assert await seen == "new"
    loop.remove_signal_handler(USR1)


async def test_several_signals_have_their_own_handlers(loop: whorl.EventLoop) -> None:
    seen: list[int] = []
    done = loop.create_future()

    def note(number: int) -> None:
        seen.append(number)
        if len(seen) == 2:
            done.set_result(None)

    for number in (USR1, USR2):
        loop.add_signal_handler(number, note, number)
    signal.raise_signal(USR2)
    signal.raise_signal(USR1)
    await done
    assert sorted(seen) == sorted([USR1, USR2])
    for number in (USR1, USR2):
        loop.remove_signal_handler(number)


@pytest.mark.parametrize("first", [True, False], ids=["before the storm", "after the storm"])
async def test_a_signal_in_a_storm_of_others_is_handled_once(loop: whorl.EventLoop, first: bool) -> None:
    storm: list[int] = []
    seen: list[int] = []
    loop.add_signal_handler(USR1, storm.append, USR1)
    loop.add_signal_handler(USR2, seen.append, USR2)
    for _ in range(2):
        if first:
            signal.raise_signal(USR2)
        for _ in range(2_000):
            signal.raise_signal(USR1)
        if not first:
            signal.raise_signal(USR2)
        while not storm:
            await turns(1)
        await turns(3)
        assert 200 < len(storm) <= 2_000
        assert seen == [USR2]
        storm.clear()
        seen.clear()
    assert loop.remove_signal_handler(USR1)
    assert loop.remove_signal_handler(USR2)


async def test_signals_after_a_storm_are_counted_one_by_one(loop: whorl.EventLoop) -> None:
    seen: list[int] = []
    loop.add_signal_handler(USR1, seen.append, USR1)
    for count in (2_000, 1, 20, 1):
        seen.clear()
        for _ in range(count):
            signal.raise_signal(USR1)
        while not seen:
            await turns(1)
        await turns(3)
        assert len(seen) == count or len(seen) > 200
    assert loop.remove_signal_handler(USR1)


def test_a_handler_does_not_keep_a_loop() -> None:
    loop = whorl.EventLoop()
    loop.add_signal_handler(USR1, print)
    handler = signal.getsignal(USR1)
    loop.close()
    gone = weakref.ref(loop)
    del loop
    gc.collect()
    assert gone() is None
    assert callable(handler)


def test_a_signal_between_two_runs_is_handled_in_the_next(loop: whorl.EventLoop) -> None:
    seen = loop.create_future()
    loop.add_signal_handler(USR1, seen.set_result, "kept")
    loop.run_until_complete(turns(1))
    signal.raise_signal(USR1)
    assert loop.run_until_complete(seen) == "kept"
    loop.remove_signal_handler(USR1)


async def test_an_error_in_a_handler_is_reported(
    loop: whorl.EventLoop, reported: list[dict[str, Any]]
) -> None:
    loop.add_signal_handler(USR1, divmod, 1, 0)
    signal.raise_signal(USR1)
    while not reported:
        await turns(1)
    assert type(reported.pop()["exception"]) is ZeroDivisionError
    loop.remove_signal_handler(USR1)


def test_closing_removes_the_handlers() -> None:
    loop = whorl.EventLoop()
    loop.add_signal_handler(USR1, print)
    loop.add_signal_handler(USR2, print)
    loop.close()
    assert signal.getsignal(USR1) is signal.SIG_DFL
    assert signal.getsignal(USR2) is signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_removing_brings_pythons_default_back(number: int) -> None:
    def add_and_remove(loop: Any) -> Any:
        before = signal.getsignal(number)
        loop.add_signal_handler(number, print)
        assert signal.getsignal(number) is not before
        removed = loop.remove_signal_handler(number)
        return removed, signal.getsignal(number)

    expected = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    assert is_as_in_asyncio(add_and_remove) == (True, expected)


def test_removing_what_is_not_there_says_so(loop: whorl.EventLoop) -> None:
    assert loop.remove_signal_handler(USR1) is False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, -1, 0, 1000, "USR1", 2.5, None])
@pytest.mark.parametrize("method", ["add_signal_handler", "remove_signal_handler"])
def test_signal_handler_methods_refuse_invalid_signals_as_in_asyncio(method: str, number: Any) -> None:
    def use(loop: Any) -> Any:
        return getattr(loop, method)(number, *([print] if method == "add_signal_handler" else []))

    is_as_in_asyncio(use)


async def coroutine_function() -> None:
    pass


def test_coroutine_functions_are_refused() -> None:
    def add(loop: Any) -> None:
        loop.add_signal_handler(USR1, coroutine_function)

    assert error_as_in_asyncio(add)[0] is TypeError


def test_only_the_main_thread_handles_signals() -> None:
    def add(loop: Any) -> Any:
        caught: list[tuple[type, str]] = []

        def try_to_add() -> None:
            try:
                loop.add_signal_handler(USR1, print)
            except Exception as error:
                caught.append((type(error), str(error)))

        thread = threading.Thread(target=try_to_add)
        thread.start()
        thread.join()
        return caught

    assert is_as_in_asyncio(add)[0][0] is RuntimeError


async def test_only_the_main_thread_handles_signals_also_while_the_loop_runs_there(
    loop: whorl.EventLoop,
) -> None:
    with pytest.raises(RuntimeError, match="main thread"):
        await loop.run_in_executor(None, loop.add_signal_handler, USR1, print)


def test_a_loop_in_another_thread_leaves_signals_alone() -> None:
    thread = threading.Thread(target=whorl.run, args=(turns(2),))
    thread.start()
    thread.join()
    assert signal.set_wakeup_fd(-1) == -1


def test_ctrl_c_leaves_the_run() -> None:
    loop = whorl.EventLoop()
    loop.call_soon(signal.raise_signal, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert loop.run_until_complete(asyncio.sleep(0, "again")) == "again"
    loop.close()


def test_ctrl_c_ends_a_sleep_without_a_deadline() -> None:
    loop = whorl.EventLoop()
    main = threading.get_ident()
    thread = threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT))
    loop.call_soon(thread.start)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    thread.join()
    loop.close()


def test_a_handler_of_pythons_runs_while_the_loop_sleeps() -> None:
    loop = whorl.EventLoop()
    ran: list[int] = []

    def handler(number: int, frame: object) -> None:
        ran.append(number)
        loop.stop()

    signal.signal(USR1, handler)
    main = threading.get_ident()
    thread = threading.Thread(target=signal.pthread_kill, args=(main, USR1))
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    loop.close()
    signal.signal(USR1, signal.SIG_DFL)
    assert ran == [USR1]


def test_two_loops_with_handlers_may_be_closed_in_any_order() -> None:
    first, second = whorl.EventLoop(), whorl.EventLoop()
    first.add_signal_handler(USR1, print)
    second.add_signal_handler(USR2, print)
    first.close()
    second.close()
    assert signal.set_wakeup_fd(-1) == -1


def test_a_wakeup_fd_of_the_users_is_restored() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    loop = whorl.EventLoop()
    loop.add_signal_handler(USR1, print)
    loop.run_until_complete(turns(1))
    loop.close()
    assert signal.set_wakeup_fd(-1) == writing
    os.close(reading)
    os.close(writing)


def test_a_new_handler_has_the_signals_come_back_whoever_took_them() -> None:
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(USR1, seen.append, "first")
        signal.set_wakeup_fd(-1)
        loop.add_signal_handler(USR2, seen.append, "second")
        signal.raise_signal(USR1)
        signal.raise_signal(USR2)
        async with asyncio.timeout(10):
            while len(seen) < 2:
                await asyncio.sleep(0)

    whorl.run(main())
    assert seen == ["first", "second"]


def test_two_loops_may_take_the_signals_from_each_other() -> None:
    first, second = whorl.EventLoop(), whorl.EventLoop()
    try:
        for each in (first, second, first):
            each.add_signal_handler(USR1, lambda: None)
        assert second._signal_pipe()._former == -1
    finally:
        first.close()
        second.close()
    assert signal.set_wakeup_fd(-1) == -1


def test_a_loop_that_leaves_out_of_turn_is_not_given_signals_again() -> None:
    first, second = whorl.EventLoop(), whorl.EventLoop()
    try:
        first.add_signal_handler(USR1, lambda: None)
        second.add_signal_handler(USR2, lambda: None)  # its pipe stands before the first loop's
    finally:
        first.close()
        second.close()  # would give the place back to a descriptor that is closed, or another's by now
    assert signal.set_wakeup_fd(-1) == -1
