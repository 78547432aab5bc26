"""Handles: their life from open to closed, and what keeps a loop alive."""

from __future__ import annotations

import errno
import gc
import os
import socket
import weakref

import pytest

from tests.core.loop_fakes import Inert, Watcher, run_turns
from whorl.core import Event, Handle, HandleState, Loop, Request, RunMode
from whorl.core.kernel.errors import os_error


def test_a_handle_is_open_inactive_and_referenced_at_first(loop: Loop) -> None:
    handle = Inert(loop)
    assert handle.loop is loop
    assert handle.data is None
    assert not handle.is_active()
    assert not handle.is_closing()
    assert handle.has_ref()
    assert loop.walk() == [handle]


def test_closing_takes_until_the_closing_phase(loop: Loop) -> None:
    handle = Inert(loop)
    told: list[Handle] = []
    handle.close(told.append)
    assert handle.is_closing()
    assert told == []
    assert loop.walk() == [handle]
    loop.run(RunMode.NOWAIT)
    assert told == [handle]
    assert handle.is_closing()
    assert handle._handle_state == HandleState.CLOSED
    assert loop.walk() == []


def test_closing_again_does_nothing(loop: Loop) -> None:
    handle = Inert(loop)
    told: list[str] = []
    handle.close(lambda handle: told.append("first"))
    handle.close(lambda handle: told.append("second"))
    loop.run()
    handle.close(lambda handle: told.append("third"))
    loop.run()
    assert told == ["first"]


def test_close_refuses_a_non_callable(loop: Loop) -> None:
    handle = Inert(loop)
    with pytest.raises(TypeError, match="callable"):
        handle.close(3)  # type: ignore[arg-type]
    assert not handle.is_closing()


def test_the_handle_that_was_closed_last_is_called_first(loop: Loop) -> None:
    handles = [Inert(loop) for _ in range(100)]
    told: list[Handle] = []
    for handle in handles:
        handle.close(told.append)
    loop.run()
    assert told == handles[::-1]


def test_a_handle_closed_by_a_close_callback_is_closed_too(loop: Loop) -> None:
    first, second = Inert(loop), Inert(loop)
    told: list[Handle] = []
    first.close(lambda handle: second.close(told.append))
    assert loop.run() is False
    assert told == [second]


def test_ref_and_unref_are_flags(loop: Loop) -> None:
    handle = Inert(loop)
    for _ in range(3):
        handle.unref()
        assert not handle.has_ref()
    for _ in range(2):
        handle.ref()
        assert handle.has_ref()
    assert loop.metrics().active_handles == 0


def test_walk_gives_the_oldest_first(loop: Loop) -> None:
    handles = [Inert(loop) for _ in range(20)]
    handles.pop(7).close()
    loop.run()
    assert loop.walk() == handles


def test_a_closed_handle_is_forgotten_by_its_loop(loop: Loop) -> None:
    handle = Inert(loop)
    alive = weakref.ref(handle)
    handle.close()
    del handle
    gc.collect()
    assert alive() is not None  # the loop still owes it its end
    loop.run()
    gc.collect()
    assert alive() is None


def test_the_identity_of_a_collected_handle_may_return(loop: Loop) -> None:
    for _ in range(1000):
        handle = Inert(loop)
        handle.close()
        loop.run(RunMode.NOWAIT)
        assert loop.walk() == []
        del handle
    kept = Inert(loop)
    assert loop.walk() == [kept]


def test_a_handle_says_what_it_is(loop: Loop) -> None:
    handle = Inert(loop)
    assert repr(handle) == "<Inert open>"
    handle.close()
    assert repr(handle) == "<Inert closing>"
    loop.run()
    assert repr(handle) == "<Inert closed>"


def test_resources_go_at_the_first_step_also_when_that_fails(loop: Loop) -> None:
    class Stubborn(Handle):
        def _release(self) -> None:
            raise OSError(errno.EIO, "on purpose")

    handle = Stubborn(loop)
    with pytest.raises(OSError, match="on purpose"):
        handle.close()
    assert handle.is_closing()
    assert loop.run() is False
    assert loop.walk() == []


def test_a_handle_closed_in_the_same_batch_gets_no_event(loop: Loop) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    watchers: list[Watcher] = []

    def close_the_other(watcher: Watcher) -> None:
        watchers[1 - watchers.index(watcher)].close()

    try:
        for ours, theirs in pairs:
            watchers.append(Watcher(loop, ours.fileno(), Event.READABLE, close_the_other))
            theirs.send(b"x")
        run_turns(loop)
        assert sum(len(watcher.seen) for watcher in watchers) == 1
        run_turns(loop)
        assert loop.metrics().events == 3
    finally:
        for pair in pairs:
            for sock in pair:
                sock.close()


def test_a_request_is_not_pending_until_it_begins(loop: Loop) -> None:
    request = Request(loop)
    assert not request.is_pending()
    assert request.cancel() is False
    assert request.loop is loop
    assert loop.metrics().active_requests == 0


def test_an_error_number_makes_the_exception_python_has_for_it() -> None:
    assert isinstance(os_error(-errno.ECONNRESET), ConnectionResetError)
    assert isinstance(os_error(errno.EAGAIN), BlockingIOError)
    assert os_error(-errno.EPIPE).errno == errno.EPIPE
    assert os_error(-errno.EMFILE).strerror == os.strerror(errno.EMFILE)


def test_a_long_chain_of_handles_is_freed(loop: Loop) -> None:
    # Each dropped object is freed by the one before it. Without a limit to that recursion, the stack of the
    # thread ends first.
    first = handle = Handle(loop)
    for _ in range(60_000):
        handle.data = Handle(loop)
        handle.close()
        handle = handle.data
    handle.close()
    loop.run(RunMode.NOWAIT)
    del first, handle
