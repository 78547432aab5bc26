"""The poller over io_uring, beyond what the tests of all pollers show; where it is refused, that."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import whorl
from tests.core.conftest import close_all
from tests.core.loop_fakes import Watcher, in_child, refuse_system_call, run_forever, run_turns
from whorl.core import Event, Kernel, Loop
from whorl.core.kernel.kernel import EventBatch

Pair = tuple[socket.socket, socket.socket]
SETUP, ENTER = 425, 426

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def probe() -> str:
    """Return the poller that a loop gets here if it asks for io_uring."""
    loop = Loop(poller="io_uring")
    try:
        return loop.poller_name()
    finally:
        loop.close()


NAME = probe()
on_rings = pytest.mark.skipif(NAME != "io_uring", reason=f"a loop gets {NAME}")


@pytest.fixture
def loop(no_leak: None) -> Iterator[Loop]:
    loop = Loop(poller="io_uring")
    yield loop
    close_all(loop)


@pytest.fixture
def pair(no_leak: None) -> Iterator[Pair]:
    pair = socket.socketpair()
    for sock in pair:
        sock.setblocking(False)
    yield pair
    for sock in pair:
        sock.close()


@pytest.fixture
def many_descriptors(no_leak: None) -> Iterator[int]:
    """Let this process open 2,500 descriptors, if it may."""
    count = 2500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        pytest.skip("this process may not open so many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    yield count
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Choosing it, and being refused.


@pytest.mark.skipif(whorl.compiled, reason="the compiled build has it")
def test_uncompiled_a_loop_says_why_it_uses_epoll() -> None:
    assert NAME == f"epoll (io_uring: {os.strerror(errno.ENOSYS)})"


def test_io_uring_falls_back_to_epoll_on_another_kernel(loop: Loop) -> None:
    class Counting(Kernel):
        waits = 0

        def epoll_wait(self, epfd: int, timeout_ns: int, events: EventBatch) -> int:
            self.waits += 1
            return super().epoll_wait(epfd, timeout_ns, events)

    kernel = Counting()
    other = Loop(poller="io_uring", kernel=kernel)
    run_turns(other, 3)
    assert kernel.waits == 3
    assert other.poller_name().startswith("epoll (io_uring: ")
    other.close()


@on_rings
@pytest.mark.parametrize(
    ("number", "code"), [(SETUP, errno.EPERM), (ENTER, errno.EACCES), (SETUP, errno.ENOSYS)]
)
def test_a_refusal_is_silent_lasting_and_told(number: int, code: int) -> None:
    def act() -> None:
        if not refuse_system_call(number, code):
            return
        before = os.listdir("/proc/self/fd")
        for _ in range(2):
            loop = whorl.EventLoop(poller="io_uring")
            assert loop.poller_name() == f"epoll (io_uring: {os.strerror(code)})"
            assert loop.run_until_complete(answer()) == 42
            loop.close()
        assert os.listdir("/proc/self/fd") == before

    async def answer() -> int:
        return 42

    assert in_child(act) == 0


@on_rings
def test_a_loop_can_be_told_to_use_it(loop: Loop) -> None:
    assert loop.poller_name() == "io_uring"
    assert not os.get_inheritable(loop.backend_fd())


def test_a_loop_on_epoll_says_so() -> None:
    loop = Loop(poller="epoll")
    assert loop.poller_name() == "epoll"
    loop.close()


# Events.


def test_io_uring_does_not_report_data_read_by_somebody_else(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)
    theirs.send(b"x")
    ours.recv(10)
    run_turns(loop, 3)
    assert watcher.seen == []
    theirs.send(b"y")
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]


def test_data_are_not_taken_for_urgent_data(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE | Event.PRIORITIZED, lambda watcher: loop.stop())
    other = threading.Timer(0.02, theirs.send, [b"x"])  # the loop sleeps by then, and an answer wakes it
    other.start()
    run_forever(loop)
    other.join()
    assert watcher.seen == [Event.READABLE]
    theirs.send(b"!", socket.MSG_OOB)
    run_forever(loop)
    assert watcher.seen[1] & Event.PRIORITIZED
    watcher.close()
    ours.close()
    theirs.close()


def test_an_answer_of_a_replaced_file_that_ends_the_sleep_is_not_told(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    new_ours, new_theirs = socket.socketpair()
    control, controlled = socket.socketpair()
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    end = Watcher(loop, controlled.fileno(), Event.READABLE, lambda watcher: loop.stop())
    run_turns(loop)
    os.dup2(new_ours.fileno(), ours.fileno())
    new_theirs.send(b"for the new one")

    def send() -> None:
        with contextlib.suppress(BrokenPipeError):  # Over epoll nobody holds the replaced file.
            theirs.send(b"for the old one")
        control.send(b"x")

    other = threading.Timer(0.02, send)  # the loop sleeps by then
    other.start()
    run_forever(loop)
    other.join()
    assert watcher.seen == []
    watcher.close()
    end.close()
    for sock in (new_ours, new_theirs, control, controlled):
        sock.close()


def test_a_removed_handle_holds_no_file(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
    watcher.close()
    ours.close()
    assert theirs.recv(1) == b""


def test_a_closed_loop_holds_no_file(pair: Pair) -> None:
    ours, theirs = pair
    loop = Loop(poller="io_uring")
    Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)
    loop._close_machine()
    ours.close()
    assert theirs.recv(1) == b""


@on_rings
def test_a_closed_loop_leaves_no_memory_mapped() -> None:
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("io_uring" in line for line in maps)

    before = mapped()
    loop = Loop(poller="io_uring")
    assert mapped() > before
    loop.close()
    assert mapped() == before


def test_a_file_that_cannot_be_waited_for_is_refused(loop: Loop) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    with pytest.raises(PermissionError):
        Watcher(loop, null, Event.READABLE)
    assert loop._poller.find(null) is None
    os.close(null)


def test_more_answers_than_there_is_room_for_are_all_told(
    loop: Loop, pair: Pair, many_descriptors: int
) -> None:
    ours, theirs = pair
    watchers = [Watcher(loop, os.dup(ours.fileno()), Event.READABLE) for _ in range(many_descriptors)]
    run_turns(loop)
    theirs.send(b"x")  # All of them are ready, and stay so.
    run_turns(loop, 3)  # A turn collects 1,024.
    assert min(len(watcher.seen) for watcher in watchers) >= 1
    run_turns(loop, 3)
    assert min(len(watcher.seen) for watcher in watchers) >= 2
    for watcher in watchers:
        fd = watcher.fileno()
        watcher.close()
        os.close(fd)
    assert all(watcher.seen.count(Event.READABLE) == len(watcher.seen) for watcher in watchers)


@on_rings
def test_a_turn_that_nothing_happens_in_makes_no_system_call(loop: Loop, pair: Pair) -> None:
    watcher = Watcher(loop, pair[0].fileno(), Event.READABLE)
    run_turns(loop, 2)

    def act() -> None:
        if not refuse_system_call(ENTER, errno.EPERM):
            return
        for _ in range(100):
            loop.call_soon(int)
            run_turns(loop)
        pair[1].send(b"x")  # This has an answer, which is asked for again: now there is a call.
        with pytest.raises(PermissionError):
            run_turns(loop)

    def go_on() -> None:
        loop.fork()
        run_turns(loop, 2)
        act()

    assert in_child(go_on) == 0
    assert watcher.seen == []


# Threads and processes.


def in_thread(act: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert errors == []


def test_a_loop_may_be_run_by_several_threads_one_after_the_other(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    watcher = Watcher(loop, ours.fileno(), Event.READABLE, lambda watcher: (ours.recv(9), loop.stop()))

    def one_message() -> None:
        later = threading.Timer(0.01, theirs.send, [b"x"])
        later.start()
        run_forever(loop)  # hangs if nobody is told
        later.join()

    one_message()
    in_thread(one_message)
    in_thread(one_message)
    one_message()
    assert watcher.seen == [Event.READABLE] * 4


def test_io_uring_keeps_the_watches_of_a_thread_that_has_ended(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    watchers: list[Watcher] = []
    in_thread(lambda: (watchers.append(Watcher(loop, ours.fileno())), run_turns(loop)))
    theirs.send(b"x")
    run_turns(loop, 2)
    assert watchers[0].seen[0] == Event.READABLE


def test_a_thread_that_computes_delays_nobody(loop: Loop, pair: Pair) -> None:
    """The kernel answers with the help of the thread that asked, and that is the one that runs the loop."""
    ours, theirs = pair
    watcher = Watcher(loop, ours.fileno(), Event.READABLE, lambda watcher: (ours.recv(9), loop.stop()))
    run_turns(loop)  # asked by this thread
    done = threading.Event()
    thread = threading.Thread(target=lambda: (run_forever(loop), done.set()))
    thread.start()
    time.sleep(0)
    theirs.send(b"x")
    assert done.wait(10)
    thread.join()
    assert watcher.seen == [Event.READABLE]


@on_rings
def test_a_child_that_closes_its_copies_takes_nothing_from_its_parent(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)

    def act() -> None:
        loop._poller.remove(watcher)
        loop._close_machine()

    assert in_child(act) == 0
    theirs.send(b"x")
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]


def test_parent_and_child_wait_by_rings_of_their_own(loop: Loop, pair: Pair) -> None:
    ours, theirs = pair
    watcher = Watcher(loop, ours.fileno(), Event.READABLE)
    run_turns(loop)

    def act() -> None:
        loop.fork()
        theirs.send(b"x")
        run_turns(loop)
        assert watcher.seen == [Event.READABLE]
        ours.recv(1)
        run_turns(loop)
        assert len(watcher.seen) == 1

    assert in_child(act) == 0
    run_turns(loop)
    assert watcher.seen == []  # The child has read it.
    theirs.send(b"y")
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]


@on_rings
def test_a_ring_closed_underneath_is_an_error_and_no_spin(loop: Loop) -> None:
    os.dup2(0, loop.backend_fd())
    loop.call_later(3600, int)
    with pytest.raises(OSError, match="not supported"):
        loop.run()
    loop._close_machine()  # It cannot make another turn.


# asyncio's face.


def test_streams_work_over_it() -> None:
    import asyncio

    async def main() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100_000):
                writer.write(data)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(message)
        writer.write_eof()
        data = await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        return data

    message = os.urandom(3_000_000)
    loop = whorl.EventLoop(poller="io_uring")
    try:
        assert loop.run_until_complete(main()) == message
    finally:
        loop.close()


def test_a_transport_gets_no_data_of_the_file_that_has_its_number_now() -> None:
    import asyncio

    class Noting(asyncio.Protocol):
        def __init__(self) -> None:
            self.received = b""
            self.arrived: asyncio.Future[None] | None = None

        def data_received(self, data: bytes) -> None:
            self.received += data
            if self.arrived is not None:
                self.arrived.set_result(None)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        transport, noting = await loop.create_connection(Noting, sock=ours)
        noting.arrived = loop.create_future()
        theirs.send(b"first")
        await noting.arrived
        noting.arrived = None
        new_ours, new_theirs = socket.socketpair()
        fd = transport.get_extra_info("socket").fileno()
        os.dup2(new_ours.fileno(), fd)  # as a program does that closes what is not its own
        new_theirs.send(b"for the new one")
        with contextlib.suppress(BrokenPipeError):
            theirs.send(b"for the old one")
        for _ in range(5):
            await asyncio.sleep(0)
        assert noting.received == b"first"
        assert new_ours.recv(100) == b"for the new one"
        transport.abort()
        for sock in (theirs, new_ours, new_theirs):
            sock.close()
        await asyncio.sleep(0)

    loop = whorl.EventLoop(poller="io_uring")
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
