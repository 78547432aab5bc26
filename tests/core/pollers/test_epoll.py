"""The set of an epoll poller that is made anew: for its hosts, and where the kernel has no room for it."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterator

import pytest

from tests.core.loop_fakes import Watcher, run_turns
from whorl.core import Event, Kernel, Loop
from whorl.core.limits import WATCH_RETRY_NS
from whorl.handles import Timer

ADD = 1

Pair = tuple[socket.socket, socket.socket]


class FullKernel(Kernel):
    """The real kernel, which may have no descriptor for a set, or no room for a watch."""

    def __init__(self) -> None:
        super().__init__()
        self.sets: list[int] = []  # the descriptors of the sets that were made
        self.no_set = 0  # an error number
        self.refused: dict[int, int] = {}  # error numbers for new watches of descriptors
        self.sleeps: list[int] = []

    def epoll_create(self) -> int:
        if self.no_set:
            return -self.no_set
        self.sets.append(super().epoll_create())
        return self.sets[-1]

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        if operation == ADD and fd in self.refused:
            return -self.refused[fd]
        return super().epoll_ctl(epfd, operation, fd, mask, generation)

    def epoll_wait(self, epfd: int, timeout_ns: int, events: object) -> int:
        self.sleeps.append(timeout_ns)
        return super().epoll_wait(epfd, 0, events)  # type: ignore[arg-type]


@pytest.fixture
def kernel() -> FullKernel:
    return FullKernel()


@pytest.fixture
def loop(kernel: FullKernel, no_leak: None) -> Iterator[Loop]:
    loop = Loop(poller="epoll", kernel=kernel)
    yield loop
    kernel.no_set = 0
    for handle in loop.walk():
        handle.close()
    loop.run()
    loop.close()


@pytest.fixture
def pairs(no_leak: None) -> Iterator[list[Pair]]:
    """Yield three pairs of connected sockets."""
    made = [socket.socketpair() for _ in range(3)]
    yield made
    for pair in made:
        for sock in pair:
            sock.close()


def make_set_anew(loop: Loop, kernel: FullKernel) -> None:
    """Close a watched descriptor whose file lives on, so that only a new set ends the watch."""
    before = len(kernel.sets)
    one, peer = socket.socketpair()
    watcher = Watcher(loop, one.fileno())
    with peer, one.dup():
        one.close()
        watcher.close()
        peer.send(b"x")
        run_turns(loop, 3)
    assert len(kernel.sets) > before


# Hosts that wait for the loop's descriptor.


def test_a_host_hears_of_events_after_the_set_was_made_anew(
    loop: Loop, kernel: FullKernel, pairs: list[Pair]
) -> None:
    one, other = (Watcher(loop, pair[0].fileno()) for pair in pairs[:2])
    with select.epoll() as host:
        host.register(loop.backend_fd(), select.EPOLLIN)
        for watcher, pair in ((one, pairs[0]), (other, pairs[1])):
            make_set_anew(loop, kernel)
            assert host.poll(0) == []
            pair[1].send(b"x")
            assert host.poll(0) == [(loop.backend_fd(), select.EPOLLIN)]
            pair[0].recv(10)
            assert host.poll(0) == []
            assert watcher.seen == []


def test_the_descriptor_for_hosts_stays_the_same(loop: Loop, kernel: FullKernel) -> None:
    before = loop.backend_fd()
    make_set_anew(loop, kernel)
    assert loop.backend_fd() == before


def test_hosts_are_not_woken_by_a_former_set_that_a_child_keeps_open(
    loop: Loop, kernel: FullKernel, pairs: list[Pair]
) -> None:
    """A duplicate of its descriptor stands for the child's."""
    kept = os.dup(kernel.sets[0])
    with select.epoll() as host:
        host.register(loop.backend_fd(), select.EPOLLIN)
        make_set_anew(loop, kernel)
        with select.epoll.fromfd(kept) as former:
            former.register(pairs[0][0], select.EPOLLIN)
            pairs[0][1].send(b"x")
            assert former.poll(0)
            assert host.poll(0) == []


def test_a_process_without_another_descriptor_has_none_for_hosts(loop: Loop, kernel: FullKernel) -> None:
    kernel.no_set = errno.EMFILE
    with pytest.raises(OSError, match="Too many open files"):
        loop.backend_fd()
    kernel.no_set = 0
    assert loop.backend_fd() >= 0


def lose_set(loop: Loop, kernel: FullKernel) -> None:
    """Let a set be needed while there is no descriptor for one."""
    kernel.no_set = errno.EMFILE
    with pytest.raises(OSError, match="Too many open files"):
        make_set_anew(loop, kernel)


def test_a_host_hears_of_events_after_the_set_was_lost(
    loop: Loop, kernel: FullKernel, pairs: list[Pair]
) -> None:
    Watcher(loop, pairs[0][0].fileno())
    with select.epoll() as host:
        host.register(loop.backend_fd(), select.EPOLLIN)
        lose_set(loop, kernel)
        assert loop._poller.hand_over() == WATCH_RETRY_NS
        kernel.no_set = 0
        assert loop._poller.hand_over() is None
        pairs[0][1].send(b"x")
        assert host.poll(0) == [(loop.backend_fd(), select.EPOLLIN)]


def test_a_host_asks_again_for_a_watch_that_the_new_set_had_no_room_for(
    loop: Loop, kernel: FullKernel, pairs: list[Pair]
) -> None:
    watcher = Watcher(loop, pairs[0][0].fileno())
    loop.backend_fd()
    kernel.refused[watcher.fileno()] = errno.ENOSPC
    make_set_anew(loop, kernel)
    timer = loop.call_later(WATCH_RETRY_NS / 2e9, list)
    assert 0 <= loop._prepare_external_poll() <= WATCH_RETRY_NS // 2
    timer.cancel()
    assert loop._prepare_external_poll() == WATCH_RETRY_NS
    kernel.refused.clear()
    assert loop._prepare_external_poll() == -1
    pairs[0][1].send(b"x")
    loop._step(False)
    assert watcher.seen == [Event.READABLE]


# Sets and watches that the kernel refuses.


def test_a_set_that_there_was_no_descriptor_for_is_made_later(
    loop: Loop, kernel: FullKernel, pairs: list[Pair]
) -> None:
    watcher = Watcher(loop, pairs[0][0].fileno())
    lose_set(loop, kernel)
    with pytest.raises(OSError, match="Too many open files"):
        run_turns(loop)
    with pytest.raises(OSError, match="Too many open files"):
        Watcher(loop, pairs[1][0].fileno())
    kernel.no_set = 0
    pairs[0][1].send(b"x")
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]


@pytest.mark.parametrize("later", ["add", "modify"])
def test_a_new_watch_brings_back_a_set_that_there_was_no_descriptor_for(
    loop: Loop, kernel: FullKernel, pairs: list[Pair], later: str
) -> None:
    watchers = [Watcher(loop, pair[0].fileno()) for pair in pairs[:2]]
    lose_set(loop, kernel)
    kernel.no_set = 0
    if later == "add":
        watchers.append(Watcher(loop, pairs[2][0].fileno()))
    else:
        watchers[0].watch_for(Event.READABLE | Event.DISCONNECT)
    for pair in pairs:
        pair[1].send(b"x")
    run_turns(loop)
    assert [watcher.seen for watcher in watchers] == [[Event.READABLE]] * len(watchers)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM])
def test_a_watch_that_the_new_set_had_no_room_for_is_asked_for_again(
    loop: Loop, kernel: FullKernel, pairs: list[Pair], code: int
) -> None:
    """The others go on, and meanwhile the loop sleeps for short times."""
    watchers = [Watcher(loop, pair[0].fileno()) for pair in pairs]
    refused = pairs[1][0].fileno()
    kernel.refused[refused] = code
    make_set_anew(loop, kernel)
    for pair in pairs:
        pair[1].send(b"x")
    run_turns(loop)
    assert [bool(watcher.seen) for watcher in watchers] == [True, False, True]
    for pair in (pairs[0], pairs[2]):
        pair[0].recv(10)
    timer = Timer(loop)
    timer.start(lambda timer: None, 1000 * WATCH_RETRY_NS)
    kernel.sleeps.clear()
    loop._poller.poll(-1, [])
    loop._poller.poll(WATCH_RETRY_NS // 2, [])
    assert kernel.sleeps == [WATCH_RETRY_NS, WATCH_RETRY_NS // 2]
    del kernel.refused[refused]
    run_turns(loop)
    assert watchers[1].seen == [Event.READABLE]
    pairs[1][0].recv(10)
    kernel.sleeps.clear()
    loop._poller.poll(-1, [])
    assert kernel.sleeps == [-1]


def test_a_handle_that_the_new_set_had_no_room_for_may_leave(
    loop: Loop, kernel: FullKernel, pairs: list[Pair]
) -> None:
    watcher = Watcher(loop, pairs[0][0].fileno())
    kernel.refused[pairs[0][0].fileno()] = errno.ENOSPC
    make_set_anew(loop, kernel)
    watcher.close()
    kernel.refused.clear()
    pairs[0][1].send(b"x")
    run_turns(loop, 2)
    assert watcher.seen == []
