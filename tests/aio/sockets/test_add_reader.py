"""add_reader and add_writer."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import gc
import os
import pty
import select
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import Recorder, fill, turns, turns_while_idle

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair(no_leak: None) -> Iterator[Pair]:
    """Yield two connected sockets."""
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    with one, other:
        yield one, other


def called(loop: whorl.EventLoop, register: Callable[..., None], fd: Any) -> asyncio.Future[None]:
    """Return a future that is done when the callback that this registers is called."""
    done = loop.create_future()
    register(fd, lambda: done.done() or done.set_result(None))
    return done


@pytest.mark.parametrize("spelled", ["socket object", "int"])
async def test_a_reader_is_called_while_there_is_something_to_read(
    spelled: str, loop: whorl.EventLoop, pair: Pair
) -> None:
    one, other = pair
    fd = one if spelled == "int" else one.fileno()
    calls: list[bytes] = []
    loop.add_reader(fd, lambda: calls.append(one.recv(1)))
    await turns(3)
    assert calls == []
    other.send(b"abc")
    await called(loop, loop.add_writer, other)
    await turns(5)
    assert calls == [b"a", b"b", b"c"]
    assert loop.remove_reader(fd)
    assert loop.remove_writer(other)
    other.send(b"d")
    await turns(3)
    assert len(calls) == 3


async def test_a_writer_is_called_while_there_is_room(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    fill(one, bytes(10_000_000))
    calls: list[int] = []
    loop.add_writer(one, calls.append, 1)
    await turns(3)
    assert calls == []
    while True:
        try:
            other.recv(1_000_000)
        except BlockingIOError:
            break
    await turns(5)
    assert len(calls) >= 3
    assert loop.remove_writer(one)
    count = len(calls)
    await turns(3)
    assert len(calls) == count


async def test_arguments_and_context(loop: whorl.EventLoop, pair: Pair) -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place")
    place.set("where it was added")
    done = loop.create_future()

    def write(*args: object) -> None:
        loop.remove_writer(pair[0])
        done.set_result((place.get(), args))

    loop.add_writer(pair[0], write, 1, "two")
    place.set("elsewhere")
    assert await done == ("where it was added", (1, "two"))


async def test_adding_again_replaces(loop: whorl.EventLoop, pair: Pair) -> None:
    calls: list[str] = []
    loop.add_writer(pair[0], calls.append, "first")
    await turns(2)
    loop.add_writer(pair[0].fileno(), calls.append, "second")
    calls.clear()
    await turns(3)
    assert set(calls) == {"second"}
    loop.remove_writer(pair[0])


async def test_removing_tells_whether_there_was_something(loop: whorl.EventLoop, pair: Pair) -> None:
    one, _ = pair
    assert loop.remove_reader(one) is False
    assert loop.remove_writer(one) is False
    assert loop.add_reader(one, print) is None
    assert loop.remove_writer(one) is False
    assert loop.remove_reader(one) is True
    assert loop.remove_reader(one) is False
    loop.add_reader(one, print)
    loop.add_writer(one, print)
    assert loop.remove_reader(one) is True
    assert loop.remove_writer(one) is True
    assert loop.remove_writer(one) is False


async def test_a_reader_may_remove_itself(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    calls: list[int] = []

    def read() -> None:
        calls.append(1)
        assert loop.remove_reader(one)
        assert not loop.remove_reader(one)

    loop.add_reader(one, read)
    other.send(b"x")
    await turns(5)
    assert calls == [1]


async def test_a_reader_may_remove_the_writer_before_it_is_called(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    calls: list[str] = []

    def read() -> None:
        calls.append("read")
        loop.remove_writer(one)
        loop.remove_reader(one)

    loop.add_reader(one, read)
    other.send(b"x")
    loop.add_writer(one, calls.append, "written")
    await turns(3)
    assert calls == ["read"]


async def test_a_reader_may_remove_that_of_another_descriptor(loop: whorl.EventLoop, pair: Pair) -> None:
    # Both are ready in the same turn, so whichever comes first removes the other.
    calls: list[int] = []

    def remove_other(index: int) -> None:
        calls.append(index)
        loop.remove_writer(pair[1 - index])

    loop.add_writer(pair[0], remove_other, 0)
    loop.add_writer(pair[1], remove_other, 1)
    await turns(4)
    assert len(set(calls)) == 1
    loop.remove_writer(pair[calls[0]])


async def test_a_reader_may_replace_itself(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    calls: list[str] = []
    loop.add_reader(one, lambda: (calls.append("first"), loop.add_reader(one, calls.append, "second")))
    other.send(b"x")
    await turns(4)
    assert calls[0] == "first"
    assert set(calls[1:]) == {"second"}
    loop.remove_reader(one)


async def test_a_descriptor_may_be_closed_and_used_again_by_a_callback(loop: whorl.EventLoop) -> None:
    calls: list[str] = []
    one, other = socket.socketpair()
    fd = one.fileno()
    other.send(b"x")
    done = loop.create_future()

    def read() -> None:
        loop.remove_reader(one)
        one.close()
        again, again_other = socket.socketpair()
        assert fd in (again.fileno(), again_other.fileno())
        loop.add_writer(fd, calls.append, "new")
        done.set_result((again, again_other))

    loop.add_reader(one, read)
    again = await done
    await turns(3)
    assert set(calls) == {"new"}
    loop.remove_writer(fd)
    for sock in (other, *again):
        sock.close()


async def test_a_cancelled_callback_is_removed(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    reader = loop._add_reader(one, print, "never")
    writer = loop._add_writer(other, print, "never")
    reader.cancel()
    writer.cancel()
    other.send(b"x")
    await turns(3)
    assert loop.remove_reader(one) is False
    assert loop.remove_writer(other) is False
    assert await turns_while_idle() <= 1


async def test_an_error_of_a_callback_is_reported(
    loop: whorl.EventLoop, pair: Pair, reported: list[dict[str, Any]]
) -> None:
    one, other = pair
    calls: list[int] = []

    def fail() -> None:
        loop.remove_reader(one)
        raise ZeroDivisionError

    loop.add_reader(one, fail)
    loop.add_writer(one, calls.append, 1)
    other.send(b"x")
    await turns(3)
    assert calls, "an error of the reader cost the writer its call"
    loop.remove_writer(one)
    report = reported.pop()
    assert isinstance(report["exception"], ZeroDivisionError)
    assert isinstance(report["handle"], asyncio.Handle)
    assert report["message"].startswith("Exception in callback")


def test_an_interrupt_out_of_a_reader_costs_nothing(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    calls: list[str] = []

    def interrupt() -> None:
        loop.remove_reader(one)
        raise KeyboardInterrupt

    loop.add_reader(one, interrupt)
    loop.add_writer(one, lambda: (calls.append("write"), loop.remove_writer(one)))
    loop.add_writer(other, lambda: (calls.append("write other"), loop.remove_writer(other)))
    other.send(b"x")
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(turns(3))
    loop.run_until_complete(turns(3))
    assert sorted(calls) == ["write", "write other"]


async def test_the_end_of_the_peer_is_readable(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    readable = called(loop, loop.add_reader, one)
    other.close()
    await readable
    assert one.recv(1) == b""
    assert loop.remove_reader(one)


async def test_a_writer_alone_learns_that_its_peer_is_gone(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    fill(one, bytes(10_000_000))
    writable = called(loop, loop.add_writer, one)
    await turns(2)
    assert not writable.done()
    other.close()
    await writable
    assert loop.remove_writer(one)


# Other objects with a descriptor.


async def test_a_fifo(loop: whorl.EventLoop, tmp_path: Any) -> None:
    os.mkfifo(tmp_path / "fifo")
    reading = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)
    readable = called(loop, loop.add_reader, reading)
    await called(loop, loop.add_writer, writing)
    loop.remove_writer(writing)
    assert not readable.done()
    os.write(writing, b"x")
    await readable
    loop.remove_reader(reading)
    os.close(reading)
    os.close(writing)


async def test_a_terminal(loop: whorl.EventLoop) -> None:
    outer, inner = pty.openpty()
    readable = called(loop, loop.add_reader, outer)
    await turns(3)
    assert not readable.done()
    os.write(inner, b"x")
    await readable
    assert loop.remove_reader(outer)
    os.close(inner)
    os.close(outer)


async def test_an_epoll(loop: whorl.EventLoop, pair: Pair) -> None:
    one, other = pair
    with select.epoll() as epoll:
        epoll.register(one, select.EPOLLIN)
        readable = called(loop, loop.add_reader, epoll)
        await turns(3)
        assert not readable.done()
        other.send(b"x")
        await readable
        assert loop.remove_reader(epoll)


@pytest.mark.skipif(not hasattr(os, "timerfd_create"), reason="timers as files are new in Python 3.13")
async def test_a_timer_that_is_a_file(loop: whorl.EventLoop) -> None:
    timer = os.timerfd_create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
    readable = called(loop, loop.add_reader, timer)
    await turns(3)
    assert not readable.done()
    os.timerfd_settime(timer, initial=0.001)
    await readable
    assert int.from_bytes(os.read(timer, 8), sys.byteorder) == 1
    assert loop.remove_reader(timer)
    os.close(timer)


async def test_an_eventfd(loop: whorl.EventLoop) -> None:
    event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    readable = called(loop, loop.add_reader, event)
    await turns(3)
    assert not readable.done()
    os.eventfd_write(event, 7)
    await readable
    assert os.eventfd_read(event) == 7
    assert loop.remove_reader(event)
    os.close(event)


async def test_standard_file_objects(loop: whorl.EventLoop) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        readable = called(loop, loop.add_reader, reader)
        writer.write(b"x")
        await readable
        assert loop.remove_reader(reader)


# Refusals.


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
async def test_a_regular_file_is_refused(method: str, loop: whorl.EventLoop) -> None:
    with tempfile.TemporaryFile() as file:
        for spelled in (file, file.fileno()):
            with pytest.raises(PermissionError):
                getattr(loop, method)(spelled, print)
        assert loop.remove_reader(file) is False
    await turns(2)


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
async def test_a_closed_descriptor_is_refused(method: str, loop: whorl.EventLoop) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError) as caught:  # noqa: PT011 (the number is looked at below)
        getattr(loop, method)(reading, print)
    assert caught.value.errno == errno.EBADF
    sock = socket.socket()
    sock.close()
    with pytest.raises(ValueError, match="-1"):
        getattr(loop, method)(sock, print)


@pytest.mark.parametrize("direction", ["reader", "writer"])
async def test_remove_reader_and_remove_writer_accept_a_closed_socket(
    direction: str, loop: whorl.EventLoop
) -> None:
    sock, other = socket.socketpair()
    with other:
        getattr(loop, f"add_{direction}")(sock, print)
        sock.close()
        assert getattr(loop, f"remove_{direction}")(sock)
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            getattr(loop, f"remove_{direction}")(sock)


async def test_a_socket_with_a_reader_lives_although_nobody_else_refers_to_it(loop: whorl.EventLoop) -> None:
    sock, other = socket.socketpair()
    with other:
        known = weakref.ref(sock)
        arrived = called(loop, loop.add_reader, sock)
        del sock
        gc.collect()
        other.send(b"x")
        await arrived
        kept = known()
        assert kept is not None
        loop.remove_reader(kept)
        kept.close()


@pytest.mark.parametrize("method", ["add_reader", "add_writer", "remove_reader", "remove_writer"])
@pytest.mark.parametrize("what", [-1, 1.5, None, "1", object()])
async def test_reader_and_writer_methods_refuse_an_invalid_descriptor(
    method: str, what: object, loop: whorl.EventLoop
) -> None:
    arguments = (print,) if method.startswith("add") else ()
    with pytest.raises(ValueError, match="Invalid file"):
        getattr(loop, method)(what, *arguments)


@pytest.mark.parametrize("number", [1 << 31, 1 << 40, 1 << 70])
def test_a_number_beyond_all_descriptors_is_what_it_is_in_asyncio(number: int) -> None:
    def use(loop: Any, method: str) -> Any:
        try:
            return getattr(loop, method)(number, *((print,) if method.startswith("add") else ()))
        except OverflowError as error:
            return type(error), str(error)

    for method in ("add_reader", "add_writer"):
        assert is_as_in_asyncio(lambda loop, method=method: use(loop, method))[0] is OverflowError
    for method in ("remove_reader", "remove_writer"):
        assert is_as_in_asyncio(lambda loop, method=method: use(loop, method)) is False


@pytest.mark.parametrize("method", ["add_reader", "add_writer", "remove_reader", "remove_writer"])
async def test_the_descriptor_of_a_transport_is_refused(
    method: str, loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    transport, _ = await connect(kind, Recorder())
    arguments = (print,) if method.startswith("add") else ()
    for spelled in (transport.get_extra_info("socket"), transport._sock_fd):
        with pytest.raises(RuntimeError, match="is used by transport"):
            getattr(loop, method)(spelled, *arguments)


async def test_the_descriptor_of_a_closed_transport_may_be_used_again(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    protocol = Recorder()
    transport, _ = await connect(kind, protocol)
    fd = transport._sock_fd
    transport.close()
    assert loop.remove_reader(fd) is False
    await protocol.until_lost()
    one, other = socket.socketpair()
    duplicate = fd if fd in (one.fileno(), other.fileno()) else os.dup2(one.fileno(), fd)
    await called(loop, loop.add_writer, fd)
    assert loop.remove_writer(fd)
    one.close()
    other.close()
    if os.path.exists(f"/proc/self/fd/{duplicate}"):
        os.close(duplicate)


async def test_a_server_keeps_its_descriptor(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    with pytest.raises(RuntimeError, match="is used by"):
        loop.add_reader(server.sockets[0], print)
    server.close()
    await server.wait_closed()


def test_a_closed_loop(pair: Pair) -> None:
    loop = whorl.EventLoop()
    loop.add_reader(pair[0], print)
    loop.close()
    for method in (loop.add_reader, loop.add_writer):
        with pytest.raises(RuntimeError, match="closed"):
            method(pair[0], print)
    assert loop.remove_reader(pair[0]) is False
    assert loop.remove_writer(pair[0]) is False


# Descriptors that are closed underneath.


@pytest.mark.parametrize("duplicated", [False, True])
async def test_a_descriptor_closed_underneath_does_not_spin_once_removed(
    duplicated: bool, loop: whorl.EventLoop
) -> None:
    one, other = socket.socketpair()
    duplicate = one.dup() if duplicated else None
    other.send(b"x")
    fd = one.fileno()
    loop.add_reader(one, lambda: None)
    one.close()
    await turns(2)
    assert loop.remove_reader(fd)
    assert await turns_while_idle() <= 2
    other.close()
    if duplicate is not None:
        duplicate.close()


async def test_a_number_that_means_another_file_by_now(loop: whorl.EventLoop) -> None:
    one, other = socket.socketpair()
    duplicate, fd = one.dup(), one.fileno()
    calls: list[str] = []
    loop.add_reader(fd, calls.append, "old")
    reading, writing = os.pipe()
    os.dup2(reading, one.detach())
    loop.remove_reader(fd)
    loop.add_reader(fd, calls.append, "new")
    other.send(b"for the old one")
    await turns(5)
    assert calls == []
    os.write(writing, b"x")
    await turns(5)
    assert set(calls) == {"new"}
    loop.remove_reader(fd)
    for number in (fd, reading, writing):
        os.close(number)
    duplicate.close()
    other.close()


@pytest.mark.parametrize("sleeps", [False, True])
@pytest.mark.parametrize("added", ["reader", "writer"])
async def test_a_descriptor_that_was_removed_may_be_added_for_another_direction(
    loop: whorl.EventLoop, pair: Pair, added: str, sleeps: bool
) -> None:
    fd = pair[0].fileno()
    removed = "writer" if added == "reader" else "reader"
    calls: list[str] = []
    for _ in range(3):
        getattr(loop, f"add_{removed}")(fd, calls.append, removed)
        assert getattr(loop, f"remove_{removed}")(fd)
        if sleeps:
            await asyncio.sleep(0.001)
        getattr(loop, f"add_{added}")(fd, calls.append, added)
        pair[1].send(b"x")
        await turns(3)
        assert set(calls) == {added}
        calls.clear()
        assert getattr(loop, f"remove_{added}")(fd)
        assert not getattr(loop, f"remove_{removed}")(fd)


async def test_a_number_that_is_closed_and_used_again_after_its_reader_was_removed(
    loop: whorl.EventLoop,
) -> None:
    calls: list[int] = []
    for number in range(5):
        one, other = socket.socketpair()
        loop.add_reader(one.fileno(), calls.append, number)
        other.send(b"x")
        await turns(2)
        assert set(calls) == {number}
        calls.clear()
        assert loop.remove_reader(one.fileno())
        one.close()
        other.close()
    await turns(3)
    assert calls == []


async def test_a_transport_takes_a_descriptor_whose_reader_was_removed(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    calls: list[int] = []
    loop.add_reader(pair[0].fileno(), calls.append, 1)
    loop.remove_reader(pair[0].fileno())
    transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
    pair[1].send(b"data")
    assert await protocol.until_received(4) == b"data"
    assert calls == []
    transport.close()


async def test_other_descriptors_survive_one_that_became_a_regular_file(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    # A closed descriptor may live on as a duplicate. Only making the set of all watches anew ends its watch.
    # By then another number may mean a file that cannot be watched.
    victim, victim_peer = socket.socketpair()
    stale, stale_peer = socket.socketpair()
    duplicate, victim_fd, stale_fd = stale.dup(), victim.fileno(), stale.fileno()
    calls: list[str] = []
    loop.add_reader(victim_fd, calls.append, "victim")
    loop.add_reader(stale_fd, calls.append, "stale")
    loop.add_reader(pair[0], lambda: calls.append(pair[0].recv(9).decode()))
    victim.detach()
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), victim_fd)
    os.close(stale.detach())
    loop.remove_reader(stale_fd)
    stale_peer.send(b"x")
    await turns(3)
    pair[1].send(b"alive")
    await turns(3)
    assert calls == ["alive"]
    assert await turns_while_idle() <= 2
    assert loop.remove_reader(victim_fd)
    assert loop.remove_reader(pair[0])
    os.close(victim_fd)
    for sock in (victim_peer, stale_peer, duplicate):
        sock.close()


# Nothing is left.


async def test_removed_reader_and_writer_callbacks_are_freed(loop: whorl.EventLoop, pair: Pair) -> None:
    class Callbacks:
        def read(self) -> None: ...

    callbacks = Callbacks()
    forgotten = weakref.ref(callbacks)
    loop.add_reader(pair[0], callbacks.read)
    loop.add_writer(pair[0], callbacks.read)
    await turns(2)
    loop.remove_reader(pair[0])
    loop.remove_writer(pair[0])
    await turns(2)
    del callbacks
    gc.collect()
    assert forgotten() is None
    assert loop.metrics().active_handles == 0


async def test_a_descriptor_gets_no_event_of_the_one_that_was_watched_before(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    one, other = pair
    calls: list[str] = []
    left, right = socket.socketpair()
    with left, right:
        loop.add_reader(one.fileno(), calls.append, "former")
        other.send(b"x")
        await turns(2)
        loop.remove_reader(one.fileno())
        calls.clear()
        loop.add_reader(left.fileno(), calls.append, "next")
        await turns(3)
        assert calls == []
        right.send(b"x")
        await turns(3)
        assert set(calls) == {"next"}
        assert not loop.remove_reader(one.fileno())
        assert loop.remove_reader(left.fileno())
    assert loop.metrics().active_handles == 0


async def test_a_descriptor_gets_no_event_that_another_was_queued_for(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    calls: list[str] = []
    left, right = socket.socketpair()
    with left, right:

        def read(name: str, sock: socket.socket, sibling: socket.socket) -> None:
            calls.append(name)
            sock.recv(1)
            assert loop.remove_reader(sibling.fileno())
            loop.add_reader(left.fileno(), calls.append, "next")

        for name, sock, sibling in (("one", *pair), ("other", *reversed(pair))):
            sibling.send(b"x")
            loop.add_reader(sock.fileno(), read, name, sock, sibling)
        await turns(3)
        assert calls in (["one"], ["other"])
        for sock in (*pair, left):
            loop.remove_reader(sock.fileno())


@pytest.mark.parametrize("direction", ["reader", "writer"])
async def test_a_new_callback_for_a_number_that_was_closed_and_used_again_is_called(
    loop: whorl.EventLoop, direction: str
) -> None:
    # The kernel forgot the number when its file was closed, and nobody told the loop.
    old, old_peer = socket.socketpair()
    fd = old.fileno()
    called = loop.create_future()
    getattr(loop, f"add_{direction}")(fd, called.set_exception, AssertionError("the old one"))
    old.close()
    new, new_peer = socket.socketpair()
    assert new.fileno() == fd
    getattr(loop, f"add_{direction}")(fd, lambda: called.done() or called.set_result("new"))
    new_peer.send(b"x")
    assert await called == "new"
    getattr(loop, f"remove_{direction}")(fd)
    for sock in (old_peer, new, new_peer):
        sock.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_writer_that_was_ready_runs_before_a_reader_that_ended_the_run(error: type[BaseException]) -> None:
    def both_ready(loop: Any) -> Any:
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        calls: list[str] = []

        def read() -> None:
            calls.append("reader")
            if len(calls) == 1:
                raise error

        with ours, peer:
            loop.add_reader(ours, read)
            loop.add_writer(ours, calls.append, "writer")
            peer.send(b"x")
            with pytest.raises(error):
                loop.run_forever()
            seen = list(calls)
            loop.call_soon(loop.stop)
            loop.run_forever()
            loop.remove_reader(ours)
            loop.remove_writer(ours)
        return seen, calls

    assert is_as_in_asyncio(both_ready) == (["reader"], ["reader", "writer", "reader", "writer"])


@pytest.mark.parametrize("hung_up", [False, True])
@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_callback_that_is_new_in_a_turn_is_not_called_for_what_that_turn_has_seen(
    kind: str, hung_up: bool
) -> None:
    """Events requested before it come before it: it waits for the next poll."""

    async def scenario(loop: Any) -> Any:
        order: list[str] = []
        ours, peer = socket.socketpair()
        with ours, peer:
            if hung_up:
                peer.close()
            else:
                peer.send(b"data")
            register, remove = getattr(loop, f"add_{kind}"), getattr(loop, f"remove_{kind}")

            def replace() -> None:
                loop.call_soon(order.append, "soon")
                register(ours, order.append, "second")

            for _ in range(2):  # where there is a callback already, and where there was one
                loop.call_soon(replace)
                register(ours, order.append, "first")
                await turns(3)
                remove(ours)
                order.append("and")
        return order

    assert is_as_in_asyncio(scenario)[:2] == ["soon", "second"]
