"""A watch whose end the kernel learns before the next sleep: over epoll."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from tests.core.loop_fakes import Watcher, in_child, quiet_fork, run_forever, run_turns
from whorl import compiled
from whorl.core import Event, Kernel, Loop

ADD, DEL, MOD = 1, 2, 3

Pair = tuple[socket.socket, socket.socket]


class RecordingKernel(Kernel):
    """Records what the poller asks of the kernel, and how many sets of watches it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.keeps_edges = self.may_skip_polls = True
        self.changes: list[tuple[int, int]] = []
        self.sets = 0

    def epoll_create(self) -> int:
        self.sets += 1
        return super().epoll_create()

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        self.changes.append((operation, fd))
        return super().epoll_ctl(epfd, operation, fd, mask, generation)

    def of(self, fd: int) -> list[int]:
        """Return the operations on a descriptor."""
        return [operation for operation, number in self.changes if number == fd]


@pytest.fixture
def kernel() -> RecordingKernel:
    return RecordingKernel()


@pytest.fixture
def loop(kernel: RecordingKernel, no_leak: None) -> Iterator[Loop]:
    loop = Loop(poller="epoll", kernel=kernel)
    kernel.changes.clear()
    yield loop
    for handle in loop.walk():
        handle.close()
    loop.run()
    loop.close()


@pytest.fixture
def pair(no_leak: None) -> Iterator[Pair]:
    """Return two connected sockets."""
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        yield one, other


def sleep(loop: Loop) -> int:
    """Run the loop for a moment, in which it may sleep; return the number of turns."""
    before = loop.metrics().turns
    loop.call_later(0.05, loop.stop)
    run_forever(loop)
    return loop.metrics().turns - before


def test_a_descriptor_that_is_added_again_costs_one_change(
    loop: Loop, kernel: RecordingKernel, pair: Pair
) -> None:
    fd = pair[0].fileno()
    watcher = Watcher(loop, fd)
    for _ in range(3):
        loop._poller.remove_later(watcher)
        assert loop._poller.find(fd) is None
        run_turns(loop)
        loop._poller.add(watcher, int(Event.READABLE))
    assert kernel.of(fd) == [ADD, MOD, MOD, MOD]
    pair[1].send(b"x")
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]


def test_the_watch_ends_before_the_loop_sleeps(loop: Loop, kernel: RecordingKernel, pair: Pair) -> None:
    fd = pair[0].fileno()
    watcher = Watcher(loop, fd)
    loop._poller.remove_later(watcher)
    loop._poller.remove_later(watcher)
    run_turns(loop)
    assert kernel.of(fd) == [ADD]
    sleep(loop)
    assert kernel.of(fd) == [ADD, DEL]
    pair[1].send(b"x")
    assert sleep(loop) <= 3
    assert watcher.seen == []


def test_one_watch_at_a_time_is_left_to_the_kernel(loop: Loop, kernel: RecordingKernel, pair: Pair) -> None:
    one, other = (sock.fileno() for sock in pair)
    for fd in (one, other):
        loop._poller.remove_later(Watcher(loop, fd))
    sleep(loop)
    assert kernel.of(one) == kernel.of(other) == [ADD, DEL]


def test_an_event_without_a_sleep_ends_the_watch(loop: Loop, kernel: RecordingKernel, pair: Pair) -> None:
    fd = pair[0].fileno()
    watcher = Watcher(loop, fd)
    loop._poller.remove_later(watcher)
    pair[1].send(b"x")
    run_turns(loop, 3)
    sleep(loop)
    assert kernel.of(fd) == [ADD, DEL]
    assert watcher.seen == []
    assert kernel.sets == 1


@pytest.mark.parametrize("edge", [False, True])
def test_another_handle_gets_its_own_events_only(
    loop: Loop, kernel: RecordingKernel, pair: Pair, edge: bool
) -> None:
    fd = pair[0].fileno()
    former = Watcher(loop, fd)
    pair[1].send(b"x")
    loop._poller.remove_later(former)
    other = Watcher(loop, fd, Event.WRITABLE, edge=edge)
    run_turns(loop, 2)
    assert former.seen == []
    assert set(other.seen) == {Event.WRITABLE}
    assert kernel.of(fd) == [ADD, MOD]


def test_a_handle_that_is_queued_already_is_not_called(loop: Loop, pair: Pair) -> None:
    watchers: list[Watcher] = []

    def remove_all(_: Watcher) -> None:
        for watcher in watchers:
            loop._poller.remove_later(watcher)

    for sock in pair:
        watchers.append(Watcher(loop, sock.fileno(), then=remove_all))
        sock.send(b"x")
    run_turns(loop, 3)
    seen = [event for watcher in watchers for event in watcher.seen]
    assert [event for event in seen if event] == [Event.READABLE]


@pytest.mark.parametrize("added", [False, True], ids=["left alone", "added again"])
@pytest.mark.parametrize("duplicated", [False, True], ids=["closed", "duplicate"])
def test_a_number_that_was_closed_and_used_again(
    loop: Loop, kernel: RecordingKernel, pair: Pair, duplicated: bool, added: bool
) -> None:
    old, old_peer = socket.socketpair()
    fd = old.fileno()
    duplicate = old.dup() if duplicated else None
    former = Watcher(loop, fd)
    loop._poller.remove_later(former)
    old.detach()
    os.dup2(pair[0].fileno(), fd)  # closes the old file
    later = Watcher(loop, fd) if added else None
    with contextlib.suppress(BrokenPipeError):
        old_peer.send(b"x")
    assert sleep(loop) <= 4
    assert later is None or later.seen == []
    pair[1].send(b"x")
    run_turns(loop, 3)
    assert former.seen == []
    assert later is None or Event.READABLE in later.seen
    assert kernel.sets == 1 + duplicated or not compiled  # uncompiled, it takes the new watch for an old one
    old_peer.close()
    if duplicate is not None:
        duplicate.close()
    if later is not None:
        loop._poller.remove(later)
    os.close(fd)


def test_a_descriptor_that_is_closed_while_a_duplicate_lives_does_not_spin(
    loop: Loop, kernel: RecordingKernel, pair: Pair
) -> None:
    one, other = socket.socketpair()
    bystander = Watcher(loop, pair[0].fileno())
    former = Watcher(loop, one.fileno())
    duplicate = one.dup()
    loop._poller.remove_later(former)
    one.close()
    other.send(b"x")
    assert sleep(loop) <= 4
    assert kernel.sets == 2
    assert former.seen == []
    pair[1].send(b"x")
    run_turns(loop)
    assert Event.READABLE in bystander.seen
    other.close()
    duplicate.close()


def test_a_descriptor_that_a_child_inherited_does_not_spin(
    loop: Loop, kernel: RecordingKernel, pair: Pair
) -> None:
    one, other = socket.socketpair()
    former = Watcher(loop, one.fileno())
    loop._poller.remove_later(former)

    reading, writing = os.pipe()
    pid = quiet_fork()
    if pid == 0:  # It has the only descriptor left of that file, and the parent's set.
        os.read(reading, 1)
        os._exit(0)
    one.close()
    other.send(b"x")
    assert sleep(loop) <= 4
    assert former.seen == []
    later = Watcher(loop, pair[0].fileno())
    pair[1].send(b"x")
    run_turns(loop)
    assert later.seen == [Event.READABLE]
    os.write(writing, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    for fd in (reading, writing):
        os.close(fd)
    other.close()


def test_a_forked_loop_leaves_the_watches_of_its_parent_alone(
    loop: Loop, kernel: RecordingKernel, pair: Pair
) -> None:
    watcher = Watcher(loop, pair[0].fileno())
    loop._poller.remove_later(watcher)

    def act() -> None:
        loop.fork()
        kernel.changes.clear()
        loop._poller.add(watcher, int(Event.READABLE))
        assert kernel.of(pair[0].fileno()) == [ADD]
        pair[1].send(b"x")
        sleep(loop)
        assert Event.READABLE in watcher.seen

    loop._poller.add(watcher, int(Event.READABLE))
    loop._poller.remove_later(watcher)
    assert in_child(act) == 0
    loop._poller.add(watcher, int(Event.READABLE))
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]


def test_a_loop_whose_descriptor_is_known_ends_every_watch_at_once(
    loop: Loop, kernel: RecordingKernel, pair: Pair
) -> None:
    fd = pair[0].fileno()
    watcher = Watcher(loop, fd)
    loop._poller.remove_later(watcher)
    assert loop.backend_fd() >= 0
    assert kernel.of(fd) == [ADD, DEL]
    loop._poller.add(watcher, int(Event.READABLE))
    loop._poller.remove_later(watcher)
    assert kernel.of(fd) == [ADD, DEL] * 2


def test_a_loop_may_close_before_it_sleeps(kernel: RecordingKernel, pair: Pair) -> None:
    loop = Loop(poller="epoll", kernel=kernel)
    watcher = Watcher(loop, pair[0].fileno())
    loop._poller.remove_later(watcher)
    watcher.close()
    loop.run()
    loop.close()
    again = Loop(poller="epoll")
    other = Watcher(again, pair[0].fileno())
    pair[1].send(b"x")
    run_turns(again)
    assert other.seen == [Event.READABLE]
    other.close()
    again.run()
    again.close()


def test_a_simulated_world_sees_every_change_at_once(pair: Pair, no_leak: None) -> None:
    kernel = RecordingKernel()
    kernel.may_skip_polls = False
    loop = Loop(poller="epoll", kernel=kernel)
    kernel.changes.clear()
    watcher = Watcher(loop, pair[0].fileno())
    loop._poller.remove_later(watcher)
    assert kernel.of(pair[0].fileno()) == [ADD, DEL]
    watcher.close()
    loop.run()
    loop.close()
