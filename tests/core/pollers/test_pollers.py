"""The pollers: the same tests over epoll and over `selectors`; what only edges can do, over epoll."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.core.conftest import MakeLoop, close_all
from tests.core.loop_fakes import SECOND, Watcher, run_turns
from whorl.core import Event, Kernel, Loop, RunMode
from whorl.core.kernel.kernel import EventBatch
from whorl.core.limits import LONGEST_POLL_NS
from whorl.core.pollers.epoll import EpollPoller
from whorl.core.pollers.selector import SelectorPoller

Pair = tuple[socket.socket, socket.socket]
MakePair = Callable[[], Pair]


@pytest.fixture
def make_pair(no_leak: None) -> Iterator[MakePair]:
    """Yield a function that makes connected pairs of non-blocking sockets."""
    made: list[socket.socket] = []

    def make() -> Pair:
        pair = socket.socketpair()
        for sock in pair:
            sock.setblocking(False)
        made.extend(pair)
        return pair

    yield make
    for sock in made:
        sock.close()


def fill(sock: socket.socket) -> int:
    """Send until the kernel takes no more."""
    total = 0
    try:
        while True:
            total += sock.send(b"x" * 65536)
    except BlockingIOError:
        return total


def drain(sock: socket.socket) -> int:
    """Receive all there is."""
    total = 0
    try:
        while data := sock.recv(65536):
            total += len(data)
    except BlockingIOError:
        pass
    return total


# Every poller.


def test_readable_is_seen_until_it_was_read(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)
    assert watcher.seen == []
    theirs.send(b"x")
    run_turns(loop, 3)
    assert watcher.seen == [Event.READABLE] * 3
    drain(ours)
    run_turns(loop, 2)
    assert len(watcher.seen) == 3


def test_writable_is_seen_while_there_is_room(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.WRITABLE)
    run_turns(loop)
    assert watcher.seen == [Event.WRITABLE]
    fill(ours)
    run_turns(loop, 2)
    assert len(watcher.seen) == 1
    drain(theirs)
    run_turns(loop)
    assert watcher.seen == [Event.WRITABLE] * 2


def test_readable_and_writable_come_as_one_event(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE | Event.WRITABLE)
    theirs.send(b"x")
    run_turns(loop)
    assert watcher.seen == [Event.READABLE | Event.WRITABLE]


def test_the_interest_can_be_changed(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    ours, theirs = make_pair()
    theirs.send(b"x")
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    for interest in (Event.WRITABLE, Event.READABLE | Event.WRITABLE, Event.READABLE):
        watcher.watch_for(interest)
        watcher.seen.clear()
        run_turns(loop)
        assert watcher.seen == [interest]
    watcher.watch_for(Event(0))
    watcher.seen.clear()
    run_turns(loop, 2)
    assert watcher.seen == []
    assert not watcher._interest
    watcher.watch_for(Event.READABLE)
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]


def test_adding_again_changes_the_interest(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    ours, _theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    loop._poller.add(watcher, int(Event.WRITABLE))
    run_turns(loop)
    assert watcher.seen == [Event.WRITABLE]


def test_removed_watcher_sees_no_events(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    theirs.send(b"x")
    for _ in range(2):  # the second time nothing is left to remove
        loop._poller.remove(watcher)
        run_turns(loop)
    assert watcher.seen == []
    assert loop._poller.find(ours.fileno()) is None


def test_the_end_of_the_peer_is_readable(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    theirs.close()
    run_turns(loop)
    assert Event.READABLE in watcher.seen[0]


def test_a_poller_knows_whom_it_watches(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    own = len(loop._poller.handles())
    watchers = [Watcher(loop, make_pair()[0].fileno(), Event.READABLE) for _ in range(5)]
    assert [loop._poller.find(watcher.fileno()) for watcher in watchers] == watchers
    assert len(loop._poller.handles()) == own + 5
    for fd in (-1, -(2**31), 2**31 - 1, 10**6):
        assert loop._poller.find(fd) is None
    for watcher in watchers:
        watcher.close()
    assert len(loop._poller.handles()) == own


def test_a_poller_knows_whom_it_watches_below_and_far_above_its_first_descriptor(
    make_loop: MakeLoop, make_pair: MakePair
) -> None:
    low = make_pair()[0].fileno()
    loop = make_loop()
    own = loop._poller.handles()
    assert all(low < handle.fileno() for handle in own)
    high = fcntl.fcntl(low, fcntl.F_DUPFD, 700)
    fds = [high, low, make_pair()[0].fileno()]
    watchers = [Watcher(loop, fd, Event.READABLE) for fd in fds]
    assert [loop._poller.find(fd) for fd in fds] == watchers
    handles = loop._poller.handles()
    assert [handle.fileno() for handle in handles] == sorted(handle.fileno() for handle in [*own, *watchers])
    assert loop._poller.find(low - 1) is None
    for watcher in watchers:
        watcher.close()
    os.close(high)
    assert loop._poller.handles() == own


@pytest.mark.parametrize("poller", ["epoll", selectors.EpollSelector])
def test_a_descriptor_that_is_not_open_is_refused(
    make_pair: MakePair, poller: str | type[selectors.BaseSelector]
) -> None:
    loop = Loop(poller=poller if isinstance(poller, str) else poller())
    ours, _theirs = make_pair()
    fd = ours.fileno()
    ours.close()
    for closed in (fd, 2**31 - 1):
        with pytest.raises(OSError) as caught:  # noqa: PT011 -- the number is looked at below
            Watcher(loop, closed, Event.READABLE)
        assert caught.value.errno == errno.EBADF
        assert loop._poller.find(closed) is None
    close_all(loop)


@pytest.mark.parametrize("interest", [Event.READABLE, Event.WRITABLE])
def test_a_regular_file_is_refused_by_epoll(loop: Loop, tmp_path: os.PathLike[str], interest: Event) -> None:
    with open(os.path.join(tmp_path, "file"), "w+b") as file:
        with pytest.raises(PermissionError):
            Watcher(loop, file.fileno(), interest)
        assert loop._poller.find(file.fileno()) is None


def test_hundreds_of_descriptors_in_one_turn(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    watchers = []
    for _ in range(200):
        ours, theirs = make_pair()
        watchers.append(Watcher(loop, ours.fileno(), Event.READABLE))
        theirs.send(b"x")
    run_turns(loop)
    assert [watcher.seen for watcher in watchers] == [[Event.READABLE]] * 200


def test_a_new_handle_on_a_reused_number_sees_only_its_own_events(
    make_loop: MakeLoop, make_pair: MakePair
) -> None:
    loop = make_loop()
    old: list[Watcher] = []
    new: list[Watcher] = []
    new_ours, new_theirs = make_pair()

    def replace_the_other(watcher: Watcher) -> None:
        if new:
            return
        other = old[1 - old.index(watcher)]
        other.close()
        os.dup2(new_ours.fileno(), other.fileno())  # closes the old file; the number means another one
        new.append(Watcher(loop, other.fileno(), Event.READABLE))

    for _ in range(2):
        ours, theirs = make_pair()
        old.append(Watcher(loop, ours.fileno(), Event.READABLE, replace_the_other))
        theirs.send(b"x")
    run_turns(loop, 2)
    assert sorted(len(watcher.seen) for watcher in old) == [0, 2]
    assert new[0].seen == []
    new_theirs.send(b"y")
    run_turns(loop)
    assert new[0].seen == [Event.READABLE]


def test_a_high_descriptor(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = min(1_000_000, hard if hard != resource.RLIM_INFINITY else 1_000_000) - 1
    if isinstance(loop._poller, SelectorPoller) and "Select" in type(loop._poller._selector).__name__:
        highest = 1023  # select knows no others
    ours, theirs = make_pair()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, highest + 1), hard))
    try:
        fd = os.dup2(ours.fileno(), highest)
        watcher = Watcher(loop, fd, Event.READABLE)
        theirs.send(b"x")
        run_turns(loop)
        assert watcher.seen == [Event.READABLE]
        watcher.close()
        os.close(fd)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_closed_poller_forgets_its_handles(make_loop: MakeLoop, make_pair: MakePair) -> None:
    loop = make_loop()
    poller = loop._poller
    watcher = Watcher(loop, make_pair()[0].fileno(), Event.READABLE)
    loop._close_machine()
    assert poller.handles() == []
    poller.remove(watcher)
    poller.close()


# A loop may be watched itself.


def test_the_loops_own_descriptor_is_readable_when_events_wait(make_pair: MakePair) -> None:
    loop = Loop()
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)
    fd = loop.backend_fd()
    assert select.select([fd], [], [], 0)[0] == []
    theirs.send(b"x")
    assert select.select([fd], [], [], 0)[0] == [fd]
    watcher.close()
    loop.run()
    loop.close()


# Edges.


def test_an_edge_is_seen_once(loop: Loop, make_pair: MakePair) -> None:
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE | Event.WRITABLE, edge=True)
    run_turns(loop, 3)
    assert watcher.seen == [Event.WRITABLE]
    theirs.send(b"x")
    run_turns(loop, 3)
    assert len(watcher.seen) == 2
    assert Event.READABLE in watcher.seen[-1]
    theirs.send(b"y")  # unread data do not hide a new edge
    run_turns(loop, 3)
    assert len(watcher.seen) == 3


def test_room_to_write_is_a_new_edge(loop: Loop, make_pair: MakePair) -> None:
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE | Event.WRITABLE, edge=True)
    fill(ours)
    run_turns(loop)
    watcher.seen.clear()
    run_turns(loop, 2)
    assert watcher.seen == []
    drain(theirs)
    run_turns(loop, 2)
    assert watcher.seen == [Event.WRITABLE]


@pytest.mark.parametrize("edge", [False, True], ids=["level", "edge"])
def test_the_hangup_is_seen_also_by_those_who_only_read(loop: Loop, make_pair: MakePair, edge: bool) -> None:
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE | Event.DISCONNECT, edge=edge)
    theirs.shutdown(socket.SHUT_WR)
    run_turns(loop)
    assert watcher.seen[0] == Event.READABLE | Event.DISCONNECT
    theirs.close()
    run_turns(loop)
    assert Event.HANGUP in watcher.seen[-1]


def test_an_error_is_seen(loop: Loop) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        watcher = Watcher(loop, ours.fileno(), Event.READABLE)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        theirs.close()  # with a reset
        run_turns(loop)
        assert Event.ERROR in watcher.seen[0]
        watcher.close()
        loop.run()
    listener.close()


# A descriptor closed underneath its handle.


def test_a_closed_descriptor_is_seen_no_more(loop: Loop, make_pair: MakePair) -> None:
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    ours.close()
    theirs.close()
    run_turns(loop, 2)
    assert watcher.seen == []
    watcher.close()
    assert loop.run() is False


class CountingKernel(Kernel):
    """Counts the sets of watches that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.sets = 0

    def epoll_create(self) -> int:
        self.sets += 1
        return super().epoll_create()


@pytest.mark.parametrize("edge", [False, True], ids=["level", "edge"])
def test_a_descriptor_closed_underneath_while_a_duplicate_lives_does_not_spin(
    make_pair: MakePair, edge: bool
) -> None:
    kernel = CountingKernel()
    loop = Loop(kernel=kernel)
    ours, theirs = make_pair()
    other_ours, other_theirs = make_pair()
    duplicate = ours.dup()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE, edge=edge)
    other = Watcher(loop, other_ours.fileno(), Event.READABLE, edge=edge)
    ours.close()
    watcher.close()  # too late: the watch can no longer be removed by that number
    loop.run()
    theirs.send(b"x")  # and now it reports events for ever
    turns = loop.metrics().turns
    loop.call_later(0.2, loop.stop)
    loop._begin_run()
    loop._run_turns()
    loop._stopping = False
    loop._end_run()
    assert loop.metrics().turns - turns <= 4
    assert kernel.sets == 2
    assert watcher.seen == []
    other_theirs.send(b"x")  # the others are still watched
    run_turns(loop)
    assert Event.READABLE in other.seen[0]
    duplicate.close()
    other.close()
    loop.run()
    loop.close()


@pytest.mark.parametrize("edge", [False, True])
def test_a_number_used_again_while_its_former_file_lives_does_not_spin(
    make_pair: MakePair, edge: bool
) -> None:
    kernel = CountingKernel()
    loop = Loop(kernel=kernel)
    ours, theirs = make_pair()
    other_ours, other_theirs = make_pair()
    duplicate = ours.dup()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE, edge=edge)
    os.dup2(other_ours.fileno(), ours.fileno())  # closes the file underneath the watch
    other = Watcher(loop, ours.fileno(), Event.READABLE, edge=edge)
    theirs.send(b"x")  # from now on the former watch reports events
    turns = loop.metrics().turns
    loop.call_later(0.1, loop.stop)
    loop._begin_run()
    loop._run_turns()
    loop._stopping = False
    loop._end_run()
    assert loop.metrics().turns - turns <= 4
    assert kernel.sets == 2
    other_theirs.send(b"x")
    run_turns(loop)
    assert Event.READABLE in other.seen[0]
    assert watcher.seen == []
    duplicate.close()
    watcher.close()
    other.close()
    loop.run()
    loop.close()


def test_a_number_used_again_while_its_old_file_lives_on(make_pair: MakePair) -> None:
    kernel = CountingKernel()
    loop = Loop(kernel=kernel)
    ours, theirs = make_pair()
    new_ours, new_theirs = make_pair()
    duplicate = ours.dup()
    fd = ours.fileno()
    old = Watcher(loop, fd, Event.READABLE)
    os.dup2(new_ours.fileno(), fd)
    old.close()
    loop.run()
    new = Watcher(loop, fd, Event.READABLE)
    theirs.send(b"x")
    run_turns(loop, 5)
    assert (old.seen, new.seen) == ([], [])
    assert kernel.sets == 2
    new_theirs.send(b"x")
    run_turns(loop)
    assert new.seen == [Event.READABLE]
    duplicate.close()
    new.close()
    loop.run()
    loop.close()


def test_a_handle_takes_the_number_of_one_whose_file_was_closed(loop: Loop, make_pair: MakePair) -> None:
    ours, _theirs = make_pair()
    new_ours, new_theirs = make_pair()
    fd = ours.fileno()
    old = Watcher(loop, fd, Event.READABLE)
    os.dup2(new_ours.fileno(), fd)
    new = Watcher(loop, fd, Event.READABLE)
    old.close()
    new_theirs.send(b"x")
    run_turns(loop)
    if not new.seen:  # Uncompiled, the first event only has the watches made anew.
        run_turns(loop)
    assert (old.seen, new.seen) == ([], [Event.READABLE])
    assert loop._poller.find(fd) is new


def test_an_event_of_a_replaced_file_is_not_told_as_one_of_its_successor(
    loop: Loop, make_pair: MakePair
) -> None:
    ours, theirs = make_pair()
    new_ours, new_theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)
    os.dup2(new_ours.fileno(), ours.fileno())
    new_theirs.send(b"for the new one")
    with pytest.raises(BrokenPipeError):  # Nobody holds the replaced file.
        theirs.send(b"for the old one")
    run_turns(loop, 3)
    assert watcher.seen == []
    theirs.close()
    run_turns(loop, 3)
    assert watcher.seen == []


@pytest.mark.parametrize("when", ["in its callback", "before the first turn"])
def test_a_file_in_the_place_of_a_watched_one_is_not_watched(
    loop: Loop, make_pair: MakePair, when: str
) -> None:
    ours, theirs = make_pair()
    new_ours, new_theirs = make_pair()
    fd = ours.fileno()

    def replace(watcher: Watcher) -> None:
        os.close(ours.detach())
        assert os.dup(new_ours.fileno()) == fd
        new_ours.close()

    watcher = Watcher(loop, fd, Event.READABLE, replace if when == "in its callback" else None)
    if when == "in its callback":
        theirs.send(b"for the old one")
        run_turns(loop)
    else:
        replace(watcher)
    told = list(watcher.seen)
    new_theirs.send(b"for the new one")
    run_turns(loop, 3)
    assert watcher.seen == told
    assert os.read(fd, 100) == b"for the new one"
    run_turns(loop)
    os.close(fd)
    assert new_theirs.recv(1) == b""  # No poller holds it open.


def test_changing_the_interest_in_a_replaced_file_watches_its_successor(
    loop: Loop, make_pair: MakePair
) -> None:
    ours, theirs = make_pair()
    new_ours, new_theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    theirs.send(b"x")
    run_turns(loop)
    os.dup2(new_ours.fileno(), ours.fileno())
    run_turns(loop)
    watcher.seen.clear()
    watcher.watch_for(Event.READABLE | Event.WRITABLE)
    run_turns(loop)
    if not watcher.seen:  # Uncompiled, the first event only has the watches made anew.
        run_turns(loop)
    assert watcher.seen == [Event.WRITABLE]
    new_theirs.send(b"x")
    run_turns(loop)
    assert watcher.seen[1] == Event.READABLE | Event.WRITABLE


def test_two_handles_on_one_open_file_are_refused(loop: Loop, make_pair: MakePair) -> None:
    ours, _theirs = make_pair()
    first = Watcher(loop, ours.fileno(), Event.READABLE)
    with pytest.raises(FileExistsError):
        Watcher(loop, ours.fileno(), Event.READABLE)
    assert loop._poller.find(ours.fileno()) is first


def test_an_interrupted_sleep_is_no_error() -> None:
    class Interrupted(Kernel):
        interruptions = 1

        def epoll_wait(self, epfd: int, timeout_ns: int, events: object) -> int:
            if self.interruptions:
                self.interruptions -= 1
                return -errno.EINTR
            return super().epoll_wait(epfd, timeout_ns, events)

    loop = Loop(kernel=Interrupted())
    ran: list[int] = []
    loop.call_later(0, ran.append, 1)
    loop.run()
    assert ran == [1]
    loop.close()


def test_a_sleep_that_the_kernel_refuses_is_an_error() -> None:
    class Refusing(Kernel):
        answer = -errno.EINVAL

        def epoll_wait(self, epfd: int, timeout_ns: int, events: object) -> int:
            return self.answer or super().epoll_wait(epfd, 0, events)

    kernel = Refusing()
    loop = Loop(kernel=kernel)
    loop.call_soon(list)
    with pytest.raises(OSError) as caught:  # noqa: PT011 -- the number is looked at below
        run_turns(loop)
    assert caught.value.errno == errno.EINVAL
    kernel.answer = 0
    run_turns(loop)
    assert loop.metrics().callbacks == 1
    loop.close()


# Choosing a poller.


def test_the_default_poller_is_epoll(loop: Loop) -> None:
    assert isinstance(loop._poller, EpollPoller)


@pytest.mark.parametrize(
    ("poller", "name"), [(None, "epoll"), ("epoll", "epoll"), (selectors.PollSelector, "PollSelector")]
)
def test_loop_names_its_poller(poller: str | type[selectors.BaseSelector] | None, name: str) -> None:
    loop = Loop(poller=poller() if isinstance(poller, type) else poller)
    assert loop.poller_name() == name
    loop.close()


def test_a_selector_is_taken_as_a_poller(make_loop: MakeLoop) -> None:
    loop = make_loop()
    if isinstance(loop._poller, SelectorPoller):
        assert not loop._poller.edge_triggered  # selectors know none
    assert isinstance(loop.backend_fd(), int)


def test_loop_refuses_an_invalid_poller() -> None:
    for wanted in (7, object(), b"epoll"):
        with pytest.raises(TypeError, match="a poller or a selector"):
            Loop(poller=wanted)
    for name in ("kqueue", "io_uring"):
        with pytest.raises(ValueError, match=f"'{name}'"):
            Loop(poller=name)


@pytest.mark.parametrize("timeout_ns", [LONGEST_POLL_NS, SECOND, 1, 0, -1])
def test_a_poll_collects_without_running_anything(loop: Loop, make_pair: MakePair, timeout_ns: int) -> None:
    ours, theirs = make_pair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)
    theirs.send(b"x")
    found: list[object] = []
    assert loop._poller.poll(timeout_ns, found) == 1
    assert found == [watcher]
    assert loop._poller.poll(timeout_ns, found) == 1
    assert found == [watcher]  # it is queued once
    assert watcher.seen == []


def test_a_kernel_that_counts_wrong_is_believed_as_far_as_it_went() -> None:
    class Exaggerating(Kernel):
        def epoll_wait(self, epfd: int, timeout_ns: int, events: EventBatch) -> int:
            super().epoll_wait(epfd, 0, events)
            return 100_000

    loop = Loop(kernel=Exaggerating())
    loop.call_soon(print)
    assert loop.run(RunMode.NOWAIT) is False
    loop.close()
