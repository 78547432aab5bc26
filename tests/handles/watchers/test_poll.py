"""Poll: its reports, stopping at once, and refused descriptors."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import os
import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.core.conftest import MakeLoop
from tests.core.loop_fakes import run_turns
from whorl.core import Event, Loop, RunMode
from whorl.handles import Poll

Pair = tuple[socket.socket, socket.socket]


def run_machine(loop: Loop) -> None:
    """Make one turn in libuv's order."""
    loop.run(RunMode.NOWAIT)


IN_BOTH_ORDERS = pytest.mark.parametrize("run_once", [run_machine, run_turns], ids=["machine", "asyncio"])


@pytest.fixture
def make_pair(no_leak: None) -> Iterator[Callable[[], Pair]]:
    """Yield a function that makes pairs of connected sockets, and close them in the end."""
    with contextlib.ExitStack() as stack:

        def make() -> Pair:
            ours, theirs = socket.socketpair()
            return stack.enter_context(ours), stack.enter_context(theirs)

        yield make


@pytest.fixture
def pair(make_pair: Callable[[], Pair]) -> Pair:
    """Return two connected sockets."""
    return make_pair()


@pytest.fixture
def tcp_pair(no_leak: None) -> Iterator[Pair]:
    """Yield two sockets connected by TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


class Notes:
    """The reports of a Poll handle."""

    def __init__(self) -> None:
        self.seen: list[tuple[Event, OSError | None]] = []

    def __call__(self, handle: Poll, events: Event, error: OSError | None) -> None:
        self.seen.append((events, error))

    def events(self) -> list[Event]:
        assert [error for _, error in self.seen if error] == []
        return [events for events, _ in self.seen]


@IN_BOTH_ORDERS
def test_poll_reports_a_readable_descriptor(
    make_loop: MakeLoop, pair: Pair, run_once: Callable[[Loop], None]
) -> None:
    loop = make_loop()
    ours, theirs = pair
    notes = Notes()
    Poll(loop, ours).start(Event.READABLE, notes)
    run_once(loop)
    assert notes.seen == []
    theirs.send(b"x")
    run_once(loop)
    assert notes.events() == [Event.READABLE]


def test_readiness_is_reported_until_it_is_used(make_loop: MakeLoop, pair: Pair) -> None:
    loop = make_loop()
    ours, theirs = pair
    notes = Notes()
    Poll(loop, ours).start(Event.READABLE, notes)
    theirs.send(b"x")
    for _ in range(3):
        loop.run(RunMode.NOWAIT)
    ours.recv(1)
    loop.run(RunMode.NOWAIT)
    assert notes.events() == [Event.READABLE] * 3


def test_poll_reports_only_the_requested_events(make_loop: MakeLoop, pair: Pair) -> None:
    loop = make_loop()
    ours, theirs = pair
    theirs.send(b"x")
    notes = Notes()
    poll = Poll(loop, ours)
    poll.start(Event.WRITABLE, notes)
    loop.run(RunMode.NOWAIT)
    poll.start(Event.READABLE, notes)
    loop.run(RunMode.NOWAIT)
    poll.start(Event.READABLE | Event.WRITABLE, notes)
    loop.run(RunMode.NOWAIT)
    assert notes.events() == [Event.WRITABLE, Event.READABLE, Event.READABLE | Event.WRITABLE]


def test_a_peer_that_writes_no_more_is_reported(loop: Loop, tcp_pair: Pair) -> None:
    ours, theirs = tcp_pair
    notes = Notes()
    Poll(loop, ours).start(Event.DISCONNECT, notes)
    loop.run(RunMode.NOWAIT)
    assert notes.seen == []
    theirs.shutdown(socket.SHUT_WR)
    loop.run(RunMode.ONCE)
    assert notes.events() == [Event.DISCONNECT]


def test_urgent_data_is_reported(loop: Loop, tcp_pair: Pair) -> None:
    ours, theirs = tcp_pair
    notes = Notes()
    Poll(loop, ours).start(Event.PRIORITIZED, notes)
    theirs.send(b"x", socket.MSG_OOB)
    loop.run(RunMode.ONCE)
    assert notes.events() == [Event.PRIORITIZED]


def test_a_hang_up_counts_as_what_is_waited_for(loop: Loop, no_leak: None) -> None:
    reader, writer = os.pipe()
    notes = Notes()
    poll = Poll(loop, reader)
    poll.start(Event.READABLE, notes)
    os.close(writer)
    loop.run(RunMode.ONCE)
    assert notes.events() == [Event.READABLE]
    poll.close()
    os.close(reader)


def test_an_error_stops_the_handle_and_is_reported(loop: Loop, no_leak: None) -> None:
    reader, writer = os.pipe()
    notes = Notes()
    poll = Poll(loop, writer)
    os.close(reader)
    poll.start(Event.WRITABLE, notes)
    loop.run()  # ends, because the handle is no longer active
    ((events, error),) = notes.seen
    assert events == 0
    assert error is not None
    assert error.errno == errno.EBADF
    assert not poll.is_active()
    os.close(writer)


@IN_BOTH_ORDERS
def test_a_handle_stopped_in_the_same_batch_gets_nothing(
    make_loop: MakeLoop, make_pair: Callable[[], Pair], run_once: Callable[[Loop], None]
) -> None:
    loop = make_loop()
    pairs = [make_pair() for _ in range(5)]
    polls = [Poll(loop, ours) for ours, _ in pairs]
    seen: list[Poll] = []

    def stop_the_others(handle: Poll, events: Event, error: OSError | None) -> None:
        seen.append(handle)
        for poll in polls:
            if poll is not handle:
                poll.stop()

    for poll, (_, theirs) in zip(polls, pairs, strict=True):
        poll.start(Event.READABLE, stop_the_others)
        theirs.send(b"x")
    run_once(loop)
    run_once(loop)
    assert len(seen) == 2
    assert seen[0] is seen[1]


def test_a_handle_started_anew_in_the_same_batch_is_asked_again(
    make_loop: MakeLoop, make_pair: Callable[[], Pair]
) -> None:
    loop = make_loop()
    pairs = [make_pair() for _ in range(2)]
    polls = [Poll(loop, ours) for ours, _ in pairs]
    seen: list[tuple[str, int]] = []

    def restart_the_other(handle: Poll, events: Event, error: OSError | None) -> None:
        seen.append(("first", loop.metrics().turns))
        handle.stop()
        other = polls[1 - polls.index(handle)]
        other.start(Event.READABLE, lambda handle, events, error: seen.append(("anew", loop.metrics().turns)))

    for poll, (_, theirs) in zip(polls, pairs, strict=True):
        poll.start(Event.READABLE, restart_the_other)
        theirs.send(b"x")
    loop.run(RunMode.NOWAIT)
    loop.run(RunMode.NOWAIT)
    assert seen == [("first", 1), ("anew", 2)]


@IN_BOTH_ORDERS
def test_a_descriptor_used_again_in_the_same_batch_gets_no_old_event(
    make_loop: MakeLoop, make_pair: Callable[[], Pair], run_once: Callable[[Loop], None]
) -> None:
    loop = make_loop()
    pairs = [make_pair() for _ in range(2)]
    polls = [Poll(loop, ours) for ours, _ in pairs]
    notes = Notes()
    fresh: list[socket.socket] = []

    def replace_the_other(handle: Poll, events: Event, error: OSError | None) -> None:
        handle.stop()
        number = 1 - polls.index(handle)
        fd = pairs[number][0].fileno()
        polls[number].close()
        pairs[number][0].close()
        fresh.extend(make_pair())
        assert fresh[0].fileno() == fd
        Poll(loop, fresh[0]).start(Event.READABLE, notes)

    for poll, (_, theirs) in zip(polls, pairs, strict=True):
        poll.start(Event.READABLE, replace_the_other)
        theirs.send(b"x")
    run_once(loop)
    run_once(loop)
    assert notes.seen == []
    fresh[1].send(b"y")
    run_once(loop)
    assert notes.events() == [Event.READABLE]


def test_a_descriptor_is_watched_by_one_handle_only(make_loop: MakeLoop, pair: Pair) -> None:
    loop = make_loop()
    ours, _ = pair
    first, second = Poll(loop, ours), Poll(loop, ours)
    first.start(Event.READABLE, Notes())
    with pytest.raises(FileExistsError):
        second.start(Event.READABLE, Notes())
    with pytest.raises(FileExistsError):
        Poll(loop, ours)
    assert loop.walk() == [first, second]
    first.stop()
    second.start(Event.READABLE, Notes())
    assert second.is_active()


def test_a_regular_file_is_refused(loop: Loop, tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file, pytest.raises(PermissionError):
        Poll(loop, file)
    assert loop.walk() == []
    assert not loop.alive()


@pytest.mark.parametrize("fd", [-1, 1_000_000])
def test_poll_refuses_an_invalid_descriptor(loop: Loop, fd: int) -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        Poll(loop, fd)
    assert caught.value.errno == errno.EBADF
    assert loop.walk() == []


def test_poll_refuses_an_object_without_a_descriptor(loop: Loop) -> None:
    with pytest.raises(AttributeError):
        Poll(loop, object())  # type: ignore[arg-type]
    assert loop.walk() == []


def test_starting_for_nothing_stops(loop: Loop, pair: Pair) -> None:
    poll = Poll(loop, pair[0])
    poll.start(Event.WRITABLE, Notes())
    poll.start(Event(0), Notes())
    assert not poll.is_active()
    assert not loop.run()


@pytest.mark.parametrize("events", [Event.ERROR, Event.HANGUP | Event.READABLE, 64])
def test_poll_start_refuses_invalid_arguments(loop: Loop, pair: Pair, events: int) -> None:
    poll = Poll(loop, pair[0])
    with pytest.raises(ValueError, match="cannot watch"):
        poll.start(events, Notes())
    with pytest.raises(TypeError, match="callable"):
        poll.start(Event.READABLE, None)  # type: ignore[arg-type]
    assert not poll.is_active()


def test_the_descriptor_becomes_non_blocking_and_stays_open(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    poll = Poll(loop, ours.fileno())
    assert not os.get_blocking(ours.fileno())
    poll.start(Event.READABLE, Notes())
    poll.close()
    loop.run()
    theirs.send(b"x")
    assert ours.recv(1) == b"x"


def test_a_started_handle_keeps_the_loop_alive_unless_unreferenced(loop: Loop, pair: Pair) -> None:
    poll = Poll(loop, pair[0])
    assert not loop.alive()
    poll.start(Event.READABLE, Notes())
    assert loop.alive()
    poll.unref()
    assert not loop.alive()
    assert poll.is_active()


def test_a_handle_closed_in_its_callback_is_called_no_more(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    seen: list[str] = []
    theirs.send(b"x")
    Poll(loop, ours).start(
        Event.READABLE,
        lambda handle, events, error: (
            seen.append("event"),
            handle.close(lambda handle: seen.append("closed")),
        ),
    )
    loop.run()
    assert seen == ["event", "closed"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_other_events(
    make_loop: MakeLoop, make_pair: Callable[[], Pair], error: type[BaseException]
) -> None:
    loop = make_loop()
    pairs = [make_pair() for _ in range(10)]
    received: list[bytes] = []

    def read(handle: Poll, events: Event, problem: OSError | None) -> None:
        received.append(os.read(handle.fileno(), 10))
        if len(received) == 3:
            raise error("on purpose")

    for number, (ours, theirs) in enumerate(pairs):
        Poll(loop, ours).start(Event.READABLE, read)
        theirs.send(b"%d" % number)
    with pytest.raises(error, match="on purpose"):
        loop.run(RunMode.NOWAIT)
    assert len(received) == 3
    loop.run(RunMode.NOWAIT)
    assert sorted(received) == [b"%d" % number for number in range(10)]


def test_the_callback_runs_in_the_context_of_the_start(loop: Loop, pair: Pair) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[str] = []
    poll = Poll(loop, pair[0])

    def start() -> None:
        variable.set("start")
        poll.start(Event.WRITABLE, lambda handle, events, error: seen.append(variable.get()))

    contextvars.copy_context().run(start)
    loop.run(RunMode.NOWAIT)
    assert seen == ["start"]


def test_an_epoll_can_be_watched(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    notes = Notes()
    with selectors.EpollSelector() as inner:
        inner.register(ours, selectors.EVENT_READ)
        poll = Poll(loop, inner)
        poll.start(Event.READABLE, notes)
        loop.run(RunMode.NOWAIT)
        assert notes.seen == []
        theirs.send(b"x")
        loop.run(RunMode.NOWAIT)
        poll.close()
    assert notes.events() == [Event.READABLE]
