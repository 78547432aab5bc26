"""Errors that no code caught, and debug mode's log of callbacks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import re
import signal
import socket
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import JumpingClock, socket_pair, turns

pytestmark = pytest.mark.usefixtures("no_leak")

Reported = list[dict[str, Any]]


def fail(*args: object) -> None:
    raise ZeroDivisionError("for the test")


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Return the one record that asyncio's logger got."""
    (record,) = [record for record in caplog.records if record.name == "asyncio"]
    assert record.exc_info is None or record.levelno == logging.ERROR
    return record.getMessage()


# Where errors go.


async def test_an_error_in_a_callback_is_reported_with_its_handle(
    loop: whorl.EventLoop, reported: Reported
) -> None:
    handle = loop.call_soon(fail, 1)
    await turns(1)
    context = reported.pop()
    assert type(context["exception"]) is ZeroDivisionError
    assert context["handle"] is handle
    assert context["message"].startswith("Exception in callback fail(")
    assert context["message"].endswith(f"test_exception_handler.py:{fail.__code__.co_firstlineno}")


async def test_an_error_in_a_timer_is_reported(loop: whorl.EventLoop, reported: Reported) -> None:
    handle = loop.call_later(0, fail)
    await asyncio.sleep(0)
    await turns(2)
    assert reported.pop()["handle"] is handle


async def test_a_cancelled_error_out_of_a_callback_is_reported(
    loop: whorl.EventLoop, reported: Reported
) -> None:
    def cancel() -> None:
        raise asyncio.CancelledError

    loop.call_soon(cancel)
    await turns(1)
    assert type(reported.pop()["exception"]) is asyncio.CancelledError


async def test_a_callback_that_cancels_itself_and_fails_is_reported(
    loop: whorl.EventLoop, reported: Reported
) -> None:
    def cancel_and_fail() -> None:
        handle.cancel()
        fail()

    handle = loop.call_soon(cancel_and_fail)
    await turns(1)
    assert reported.pop()["handle"] is handle


async def test_a_callback_after_one_that_failed_runs_in_the_same_turn(
    loop: whorl.EventLoop, reported: Reported
) -> None:
    ran: list[int] = []
    loop.call_soon(fail)
    loop.call_soon(ran.append, 1)
    await turns(1)
    assert ran == [1]
    reported.pop()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_handler_may_end_the_program(kind: type[BaseException]) -> None:
    def handler(loop: object, context: object) -> None:
        raise kind

    def run(loop: Any) -> None:
        loop.set_exception_handler(handler)
        loop.call_soon(fail)
        loop.run_until_complete(turns(2))

    assert error_as_in_asyncio(run)[0] is kind


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_soon_threadsafe", "task", "future"])
def test_a_handler_runs_in_the_context_of_what_failed(schedule: str) -> None:
    name = contextvars.ContextVar("name", default="outside")

    async def fail_later() -> None:
        fail()

    def start(loop: Any) -> object:
        name.set("inside")
        if schedule == "call_later":
            return loop.call_later(0, fail)
        if schedule == "task":
            return loop.create_task(fail_later())
        if schedule == "future":
            return loop.create_task(fail_later()).add_done_callback(fail)
        return getattr(loop, schedule)(fail)

    def run(loop: Any) -> list[str]:
        seen: list[str] = []
        loop.set_exception_handler(lambda loop, context: seen.append(name.get()))
        contextvars.copy_context().run(start, loop)
        loop.run_until_complete(turns(4))
        gc.collect()  # An error of a task that nobody refers to is reported when the task is destroyed.
        return seen

    seen = is_as_in_asyncio(run)
    assert seen
    assert set(seen) == {"inside" if sys.version_info >= (3, 12) else "outside"}


@pytest.mark.parametrize("wrong", [1, "handler"])
def test_a_handler_that_cannot_be_called_is_refused(wrong: Any) -> None:
    assert error_as_in_asyncio(lambda loop: loop.set_exception_handler(wrong))[0] is TypeError


def test_the_handler_can_be_asked_for_and_taken_away(loop: whorl.EventLoop) -> None:
    def handler(loop: object, context: object) -> None:
        pass

    loop.set_exception_handler(handler)
    assert loop.get_exception_handler() is handler
    loop.set_exception_handler(None)
    assert loop.get_exception_handler() is None


# The log.


async def never() -> None:
    raise AssertionError("this coroutine is only looked at")


CONTEXTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a message": {"message": "out of cheese"},
    "an exception": {"message": "out of cheese", "exception": ZeroDivisionError("x")},
    "other keys": {"zebra": 1, "message": "m", "ant": [1, 2]},
    "a source": {"message": "m", "source_traceback": [("file.py", 3, "function", "the line")]},
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_an_error_is_logged_as_asyncio_does(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def log(loop: Any) -> tuple[str, bool]:
        caplog.clear()
        loop.call_exception_handler(dict(CONTEXTS[name]))
        return logged(caplog), bool(caplog.records[0].exc_info)

    is_as_in_asyncio(log)


def test_a_handler_that_fails_is_logged_with_what_it_was_given(caplog: pytest.LogCaptureFixture) -> None:
    def log(loop: Any) -> str:
        caplog.clear()
        loop.set_exception_handler(fail)
        loop.call_exception_handler({"message": "the first error"})
        return logged(caplog)

    assert "Unhandled error in exception handler" in is_as_in_asyncio(log)


@pytest.mark.parametrize("handler", [None, fail])
def test_a_default_handler_that_fails_is_logged(
    handler: Callable[..., object] | None, caplog: pytest.LogCaptureFixture
) -> None:
    def log(loop: Any) -> str:
        caplog.clear()
        loop.set_exception_handler(handler)
        loop.default_exception_handler = fail
        loop.call_exception_handler({"message": "the first error"})
        return logged(caplog)

    assert "Exception in default exception handler" in is_as_in_asyncio(log)


def test_a_subclass_may_replace_the_default_handler() -> None:
    seen: list[object] = []

    class Loop(whorl.EventLoop):
        def default_exception_handler(self, context: Any) -> None:  # type: ignore[override]
            seen.append(context["message"])

    loop = Loop()  # type: ignore[abstract]
    loop.call_exception_handler({"message": "m"})
    loop.close()
    assert seen == ["m"]


async def test_debug_mode_shows_where_a_failed_callback_was_scheduled(
    loop: whorl.EventLoop, reported: Reported
) -> None:
    loop.set_debug(True)
    loop.call_soon(fail)
    await turns(1)
    last = reported.pop()["source_traceback"][-1]
    assert (last.filename, last.line) == (__file__, "loop.call_soon(fail)")


async def test_debug_mode_logs_the_callback_in_which_an_error_was_reported(
    loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_debug(True)
    loop.set_exception_handler(None)
    loop.call_soon(loop.call_exception_handler, {"message": "m"})
    await turns(1)
    text = caplog.messages[-1]
    assert text.startswith("m\nhandle_traceback: Handle created at (most recent call last):\n")
    assert 'loop.call_soon(loop.call_exception_handler, {"message": "m"})' in text


# Callbacks, as asyncio's handles.


def test_callbacks_are_handles_to_isinstance(loop: whorl.EventLoop) -> None:
    soon, later = loop.call_soon(print), loop.call_later(1, print)
    assert isinstance(soon, asyncio.Handle)
    assert not isinstance(soon, asyncio.TimerHandle)
    assert isinstance(later, asyncio.TimerHandle)
    soon.cancel()
    later.cancel()


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("method", ["call_soon", "call_at"])
def test_callbacks_are_shown_as_asyncio_shows_handles(method: str, cancel: bool, debug: bool) -> None:
    def show(loop: Any) -> str:
        loop.set_debug(debug)
        if method == "call_soon":
            handle = loop.call_soon(fail, 1, "two")
        else:
            handle = loop.call_at(12.5, fail, 1, "two")
        if cancel:
            handle.cancel()
        return repr(handle)

    is_as_in_asyncio(show)


def test_handles_give_their_context(loop: whorl.EventLoop) -> None:
    context = contextvars.copy_context()
    handle = loop.call_soon(print, context=context)
    assert handle.get_context() is context
    handle.cancel()


# Debug mode.


async def coroutine_function() -> None:
    pass


REFUSED: dict[str, Callable[[Any, Any], object]] = {
    "call_soon": lambda loop, callback: loop.call_soon(callback),
    "call_soon_threadsafe": lambda loop, callback: loop.call_soon_threadsafe(callback),
    "call_at": lambda loop, callback: loop.call_at(1, callback),
    "run_in_executor": lambda loop, callback: loop.run_in_executor(None, callback),
}


@pytest.mark.parametrize("callback", [1, coroutine_function])
@pytest.mark.parametrize("name", REFUSED)
def test_debug_mode_refuses_what_cannot_be_a_callback(
    loop: whorl.EventLoop, name: str, callback: object
) -> None:
    loop.set_debug(True)
    with pytest.raises(TypeError, match=rf" {name}\(\)"):
        REFUSED[name](loop, callback)


def test_debug_mode_refuses_a_coroutine_as_callback(loop: whorl.EventLoop) -> None:
    coroutine = coroutine_function()
    loop.set_debug(True)
    with pytest.raises(TypeError, match=r"coroutines cannot be used with call_soon\(\)"):
        loop.call_soon(coroutine)  # type: ignore[arg-type]
    coroutine.close()


async def test_debug_mode_refuses_calls_from_other_threads(loop: whorl.EventLoop) -> None:
    loop.set_debug(True)
    for call in (
        lambda: loop.call_soon(print),
        lambda: loop.call_later(1, print),
        lambda: loop.call_at(1, print),
    ):
        with pytest.raises(RuntimeError, match="Non-thread-safe operation invoked on an event loop"):
            await loop.run_in_executor(None, call)


def test_debug_mode_asks_the_thread_that_a_program_has_set(loop: whorl.EventLoop) -> None:
    def run_by_hand() -> None:
        """Do as nest_asyncio does, whose loops note their thread themselves."""
        loop._thread_id = threading.get_ident()
        try:
            called.append(loop.call_soon(print))
        finally:
            loop._thread_id = None

    called: list[asyncio.Handle] = []
    loop.set_debug(True)
    thread = threading.Thread(target=run_by_hand)
    thread.start()
    thread.join()
    called[0].cancel()


class TestSlowCallbacks:
    """Tests on a kernel whose clock goes on when a test says so."""

    @pytest.fixture
    def kernel(self) -> JumpingClock:
        return JumpingClock()

    @staticmethod
    def waste(kernel: JumpingClock) -> None:
        kernel.jumped += 200_000_000

    async def test_a_slow_callback_is_logged(
        self, loop: whorl.EventLoop, kernel: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop.set_debug(True)
        loop.call_soon(self.waste, kernel)
        await turns(1)
        assert caplog.messages[-1].startswith("Executing <Handle TestSlowCallbacks.waste(")
        assert " took 0.2" in caplog.messages[-1]

    async def test_slow_callback_is_timed_by_the_clock_of_the_loop(
        self, loop: whorl.EventLoop, kernel: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        now = [1000.0]
        loop.time = lambda: now[0]  # type: ignore[method-assign]
        loop.set_debug(True)
        loop.call_soon(self.waste, kernel)
        await turns(1)
        assert not [one for one in caplog.messages if one.startswith("Executing")]
        loop.call_soon(now.__setitem__, 0, 1005.0)
        await turns(1)
        assert " took 5.000 seconds" in caplog.messages[-1]

    async def test_a_slow_task_is_logged_with_its_name(
        self, loop: whorl.EventLoop, kernel: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def work() -> None:
            self.waste(kernel)

        loop.set_debug(True)
        await loop.create_task(work(), name="the slow one")
        assert "Executing <Task finished name='the slow one'" in caplog.text

    async def test_a_slow_reader_is_logged_once(
        self, loop: whorl.EventLoop, kernel: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        ours, peer = socket.socketpair()

        def read() -> None:
            loop.remove_reader(ours)
            self.waste(kernel)

        loop.set_debug(True)
        loop.add_reader(ours, read)
        peer.close()
        await turns(3)
        ours.close()
        (message,) = (message for message in caplog.messages if message.startswith("Executing"))
        assert message.startswith("Executing <Handle cancelled TestSlowCallbacks.")

    async def test_slow_callback_duration_can_be_set(
        self, loop: whorl.EventLoop, kernel: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop.set_debug(True)
        loop.slow_callback_duration = 1.0
        loop.call_soon(self.waste, kernel)
        await turns(1)
        assert "Executing" not in caplog.text

    async def test_slow_callback_is_not_logged_without_debug_mode(
        self, loop: whorl.EventLoop, kernel: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop.set_debug(False)
        loop.call_soon(self.waste, kernel)
        await turns(1)
        assert "Executing" not in caplog.text


# Objects that cannot be a callback, method by method, in asyncio's words.

SCHEDULING = {
    "call_soon": (),
    "call_soon_threadsafe": (),
    "call_later": (0,),
    "call_at": (0,),
    "run_in_executor": (None,),
    "add_signal_handler": (signal.SIGUSR1,),
}


@pytest.mark.parametrize("method", SCHEDULING)
@pytest.mark.parametrize("debug", [False, True])
def test_scheduling_of_a_non_callable_fails_as_on_asyncios_loop(method: str, debug: bool) -> None:
    async def work() -> None:
        pass

    async def schedule(loop: Any) -> Any:
        seen: list[Any] = []
        loop.set_exception_handler(lambda loop, context: seen.append(str(context["exception"])))
        loop.set_debug(debug)
        for wrong in (None, 1, "text", work):
            try:
                scheduled = getattr(loop, method)(*SCHEDULING[method], wrong)
                if method == "run_in_executor":
                    await scheduled
            except Exception as error:
                seen.append((type(error), str(error)))
        loop.set_debug(False)
        await asyncio.sleep(0.001)
        loop.remove_signal_handler(signal.SIGUSR1)
        return sorted(seen, key=str)  # asyncio's heap gives equal deadlines in any order

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what is never awaited
        assert is_as_in_asyncio(schedule)
        gc.collect()  # A coroutine that went through a thread may be in a cycle.


def test_handles_are_to_others_what_asyncios_are() -> None:
    def look(loop: Any) -> Any:
        first, later = loop.call_at(5, print), loop.call_at(6, print)
        equal, soon = loop.call_at(5, print), loop.call_soon(print)
        later.cancel()
        later.cancel()
        return (
            [first == equal, first == later, first == soon, first != later],
            [first < later, first <= equal, later > first, hash(first) == hash(equal)],
            [bool(weakref.ref(handle)()) for handle in (first, soon)],
            [handle.cancelled() for handle in (first, later)],
            [later._callback, later._args, repr(later)],
        )

    is_as_in_asyncio(look)


def test_the_default_handler_survives_what_cannot_be_shown(caplog: pytest.LogCaptureFixture) -> None:
    class Hidden:
        def __repr__(self) -> str:
            raise LookupError("hidden")

    def report(loop: Any) -> Any:
        caplog.clear()
        loop.call_exception_handler({"message": "a message", "what": Hidden()})
        loop.call_exception_handler({})
        return [record.getMessage() for record in caplog.records]

    assert is_as_in_asyncio(report) == [
        "Exception in default exception handler",
        "Unhandled exception in event loop",
    ]


async def _lose(transport: Any, peer: socket.socket) -> None:
    peer.close()
    await asyncio.sleep(0.01)
    transport.close()
    await asyncio.sleep(0.01)


def _failing(kind: type, call: str) -> Any:
    return type("Failing", (kind,), {call: fail})()


async def _of_connection(loop: Any, call: str) -> None:
    ours, peer = socket_pair("tcp")
    transport, _ = await loop.connect_accepted_socket(lambda: _failing(asyncio.Protocol, call), ours)
    await _lose(transport, peer)


async def _of_datagrams(loop: Any, call: str) -> None:
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _failing(asyncio.DatagramProtocol, call), local_addr=("127.0.0.1", 0)
    )
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.sendto(b"x", transport.get_extra_info("sockname"))
    await asyncio.sleep(0.01)
    await _lose(transport, peer)


async def _of_pipe(loop: Any, call: str) -> None:
    ours, peer = socket_pair("unix")
    transport, _ = await loop.connect_read_pipe(lambda: _failing(asyncio.Protocol, call), ours)
    peer.send(b"x")
    await asyncio.sleep(0.01)
    await _lose(transport, peer)


@pytest.mark.parametrize(
    ("connect", "call"),
    [
        (_of_connection, "connection_made"),
        (_of_connection, "connection_lost"),
        (_of_datagrams, "datagram_received"),
        (_of_datagrams, "connection_lost"),
        (_of_pipe, "data_received"),
        (_of_pipe, "connection_lost"),
    ],
)
def test_protocol_errors_are_reported_in_asyncios_words(connect: Any, call: str) -> None:
    def scenario(loop: Any) -> Any:
        reported: list[Any] = []

        def note(loop: Any, context: dict[str, Any]) -> None:
            handle = context["handle"]
            assert isinstance(handle, asyncio.Handle)
            owner = getattr(handle._callback, "__self__", None)
            words = [re.sub(r"0x\w+|fd=\d+", "", text) for text in (context["message"], repr(handle))]
            reported.append((*words, sorted(context), type(owner).__name__))

        loop.set_exception_handler(note)
        loop.run_until_complete(connect(loop, call))
        (context,) = reported
        return context

    assert is_as_in_asyncio(scenario)[0].startswith("Exception in callback ")
