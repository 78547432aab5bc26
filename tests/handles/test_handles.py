"""The rules for every handle: two-step closing, references, and the loop's knowledge of it."""

from __future__ import annotations

import errno
import gc
import os
import pty
import signal
import socket
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.conftest import MakeLoop, open_descriptors
from tests.core.loop_fakes import run_turns
from whorl import handles
from whorl.core import Event, Handle, Loop, RunMode
from whorl.handles import (
    TCP,
    TTY,
    UDP,
    Async,
    Check,
    FsEvent,
    FsPoll,
    Idle,
    Pipe,
    Poll,
    Prepare,
    Process,
    Signal,
    Stdio,
    Timer,
)

HOUR = 3600 * 1_000_000_000


def started_poll(loop: Loop) -> Poll:
    ours, theirs = socket.socketpair()
    poll = Poll(loop, ours)
    poll.data = ours, theirs  # they live as long as the handle
    poll.start(Event.READABLE, lambda handle, events, error: None)
    return poll


def started_timer(loop: Loop) -> Timer:
    timer = Timer(loop)
    timer.start(lambda handle: None, HOUR)
    return timer


def started_watcher(kind: type[Idle] | type[Prepare] | type[Check]) -> Callable[[Loop], Handle]:
    def start(loop: Loop) -> Handle:
        handle = kind(loop)
        handle.start(lambda handle: None)
        return handle

    return start


def listening_tcp(loop: Loop) -> TCP:
    server = TCP(loop)
    server.listen(1, lambda server, error: None)
    return server


def listening_pipe(loop: Loop) -> Pipe:
    server = Pipe(loop)
    server.bind(b"\0whorl-handles-%d" % os.getpid())
    server.listen(1, lambda server, error: None)
    return server


def reading_pipe(loop: Loop) -> Pipe:
    reader, writer = os.pipe()
    pipe = Pipe(loop)
    pipe.open(reader)
    pipe.data = open(writer, "wb")  # closed with the handle
    pipe.read_start(lambda stream, data, error: None)
    return pipe


def receiving_udp(loop: Loop) -> UDP:
    udp = UDP(loop)
    udp.recv_start(lambda udp, data, address, error: None)
    return udp


def running_process(loop: Loop) -> Process:
    reader, writer = os.pipe()
    process = Process(loop)
    process.spawn(["cat"], stdio=[Stdio.inherit_fd(reader)])
    os.close(reader)
    process.data = open(writer, "wb")  # what ends the program
    return process


def watching_fs_event(loop: Loop) -> FsEvent:
    handle = FsEvent(loop)
    handle.start("/", lambda handle, name, changes, error: None)
    return handle


def polling_fs_poll(loop: Loop) -> FsPoll:
    handle = FsPoll(loop)
    handle.start("/", HOUR, lambda handle, error, previous, current: None)
    return handle


def started_signal(loop: Loop) -> Signal:
    handle = Signal(loop)
    handle.start(signal.SIGUSR1, lambda handle, number: None)
    return handle


def reading_tty(loop: Loop) -> TTY:
    master, slave = pty.openpty()
    tty = TTY(loop)
    tty.open(slave)
    os.close(slave)
    tty.data = open(master, "wb", buffering=0)  # closed with the handle
    tty.read_start(lambda stream, data, error: None)
    return tty


STARTED: dict[str, Callable[[Loop], Any]] = {
    "Async": Async,
    "Check": started_watcher(Check),
    "FsEvent": watching_fs_event,
    "FsPoll": polling_fs_poll,
    "Idle": started_watcher(Idle),
    "Pipe listening": listening_pipe,
    "Pipe reading": reading_pipe,
    "Poll": started_poll,
    "Prepare": started_watcher(Prepare),
    "Process": running_process,
    "Signal": started_signal,
    "TCP": listening_tcp,
    "TTY": reading_tty,
    "Timer": started_timer,
    "UDP": receiving_udp,
}

#: The other names of the package.
NO_HANDLES = {
    "Connect",
    "FsRequest",
    "HandleKind",
    "Random",
    "Shutdown",
    "Stdio",
    "StdioKind",
    "StreamHandle",
    "TTYMode",
    "ThreadPool",
    "UdpSend",
    "Work",
    "Write",
    "fs",
    "getaddrinfo",
    "getnameinfo",
    "guess_handle",
    "kill",
    "reset_mode",
    "thread_pool",
}

KINDS = (Async, Check, FsEvent, FsPoll, Idle, Pipe, Prepare, Process, Signal, TCP, TTY, Timer, UDP)
OF_EACH_KIND = pytest.mark.parametrize("kind", KINDS)
EACH = pytest.mark.parametrize("start", STARTED.values(), ids=STARTED)
IN_BOTH_ORDERS = pytest.mark.parametrize(
    "run_once", [lambda loop: loop.run(RunMode.NOWAIT), run_turns], ids=["machine", "asyncio"]
)


@pytest.fixture
def started(start: Callable[[Loop], Any], loop: Loop) -> Any:
    """Return an active handle."""
    handle = start(loop)
    yield handle
    for thing in handle.data if isinstance(handle.data, tuple) else [handle.data]:
        if hasattr(thing, "close"):
            thing.close()


def test_every_kind_of_handle_is_tested_here() -> None:
    assert {name.split()[0] for name in STARTED} == set(handles.__all__) - NO_HANDLES


@EACH
def test_a_started_handle_keeps_the_loop_alive_until_it_is_closed(loop: Loop, started: Handle) -> None:
    assert started.is_active()
    assert loop.alive()
    started.close()
    assert not started.is_active()
    assert started.is_closing()
    assert not loop.run()


@EACH
def test_references_are_flags_not_counts(loop: Loop, started: Handle) -> None:
    assert started.has_ref()
    started.ref()
    started.unref()
    started.unref()
    assert not started.has_ref()
    if isinstance(started, FsPoll):
        loop.run(RunMode.ONCE)  # its first look is a request in flight
    assert started.is_active()
    assert not loop.alive()
    assert not loop.run()
    started.ref()
    assert loop.alive()


@EACH
@IN_BOTH_ORDERS
def test_the_close_callback_comes_later_and_once(
    loop: Loop, started: Handle, run_once: Callable[[Loop], None]
) -> None:
    seen: list[Handle] = []
    started.close(seen.append)
    started.close(seen.append)
    assert seen == []
    run_once(loop)
    run_once(loop)
    assert seen == [started]


@EACH
def test_an_unreferenced_handle_is_closed_too(loop: Loop, started: Handle) -> None:
    seen: list[Handle] = []
    started.unref()
    started.close(seen.append)
    assert loop.alive()
    loop.run()
    assert seen == [started]


@EACH
def test_a_handle_closed_in_a_close_callback_is_closed_in_the_next_turn(loop: Loop, started: Handle) -> None:
    turns: list[int] = []
    first = Timer(loop)
    first.close(lambda handle: started.close(lambda handle: turns.append(loop.metrics().turns)))
    loop.run()
    assert turns == [2]


@EACH
def test_the_loop_knows_its_open_handles(loop: Loop, started: Handle) -> None:
    assert loop.walk() == [started]
    assert started.loop is loop
    started.close()
    loop.run()
    assert loop.walk() == []


@EACH
def test_a_loop_with_an_open_handle_cannot_be_closed(loop: Loop, started: Handle) -> None:
    with pytest.raises(OSError, match="handles are open") as caught:
        loop.close()
    assert caught.value.errno == errno.EBUSY


@EACH
def test_a_handle_says_what_it_is(loop: Loop, started: Handle) -> None:
    assert repr(started) == f"<{type(started).__name__} open active>"
    started.close()
    assert repr(started) == f"<{type(started).__name__} closing>"
    loop.run()
    assert repr(started) == f"<{type(started).__name__} closed>"


@pytest.mark.parametrize(
    "kind", [Async, Check, FsEvent, Idle, Pipe, Prepare, Process, Signal, TCP, Timer, UDP]
)
def test_a_closed_loop_takes_no_handles(kind: type[Handle]) -> None:
    loop = Loop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        kind(loop)


@pytest.mark.parametrize(
    "kind", [Async, Check, FsEvent, Idle, Pipe, Prepare, Process, Signal, TCP, Timer, UDP]
)
def test_handles_refuse_an_invalid_loop(kind: Any) -> None:
    for thing in (None, 5):
        with pytest.raises((TypeError, AttributeError)):
            kind(thing)


@pytest.mark.parametrize(
    "kind", [Async, Check, FsEvent, Idle, Pipe, Prepare, Process, Signal, TCP, Timer, UDP]
)
def test_a_handle_that_was_never_started_can_be_closed(loop: Loop, kind: type[Handle]) -> None:
    seen: list[Handle] = []
    handle = kind(loop)
    handle.close(seen.append)
    loop.run()
    assert seen == [handle]


@pytest.mark.parametrize(
    "kind", [Async, Check, FsEvent, Idle, Pipe, Prepare, Process, Signal, TCP, Timer, UDP]
)
def test_a_kind_may_be_derived_from(loop: Loop, kind: Any) -> None:
    class Derived(kind):
        def __init__(self, loop: Loop) -> None:
            super().__init__(loop)
            self.more = "more"

    handle = Derived(loop)
    assert handle.more == "more"
    assert repr(handle).startswith("<Derived open")


@EACH
def test_a_closed_handle_is_collected(make_loop: MakeLoop, start: Callable[[Loop], Any]) -> None:
    loop = make_loop()
    handle = start(loop)
    for thing in handle.data if isinstance(handle.data, tuple) else [handle.data]:
        if hasattr(thing, "close"):
            loop.call_soon(thing.close)
    watched = weakref.ref(handle)
    handle.close(lambda handle: None)
    loop.run()
    del handle, thing
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("name", ["Async", "Check", "Idle", "Prepare", "Timer"])
def test_a_loop_forgotten_with_handles_in_it_is_collected(name: str) -> None:
    before = open_descriptors()
    loop = Loop()
    handle = STARTED[name](loop)
    watched = weakref.ref(handle), weakref.ref(loop)
    del handle, loop
    with pytest.warns(ResourceWarning, match="unclosed loop"):
        gc.collect()
    gc.collect()  # what had a finalizer may be left to a second pass (3.15)
    assert [ref() for ref in watched] == [None, None]
    assert open_descriptors() == before
