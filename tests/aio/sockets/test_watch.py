"""Sockets that stay watched between the waits of their tasks, and their next users."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, digest, noise, receive, socket_pair, turns
from whorl.aio.sockets import states
from whorl.aio.sockets.watch import kind_of
from whorl.core import Kernel
from whorl.core.limits import IDLE_EVENTS
from whorl.core.states import Event
from whorl.handles import Poll

pytestmark = pytest.mark.usefixtures("no_leak")

Pair = tuple[socket.socket, socket.socket]


class CountingKernel(Kernel):
    """The real kernel, with edges on every build; counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.keeps_edges = True
        self.receives = 0
        self.changes: list[int] = []

    def recv(self, fd: int, limit: int) -> bytes | int:
        self.receives += 1
        return super().recv(fd, limit)

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        self.changes.append(operation)
        return super().epoll_ctl(epfd, operation, fd, mask, generation)


@pytest.fixture
def kernel() -> CountingKernel:
    return CountingKernel()


@pytest.fixture
def pair(kind: str) -> Iterator[Pair]:
    """Yield two connected sockets."""
    pair = socket_pair(kind, small=True)
    yield pair
    for sock in pair:
        sock.close()


async def meet(loop: whorl.EventLoop, ours: socket.socket, peer: socket.socket, data: bytes = b"hi") -> None:
    """Receive something that is to come."""
    loop.call_soon(peer.send, data)
    assert await loop.sock_recv(ours, 100) == data


def arrived(sock: socket.socket) -> bool:
    """Return whether there is something to receive."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until the condition holds."""
    while not condition():
        await asyncio.sleep(0)


# Staying watched.


async def test_an_echo_makes_few_calls_for_each_message(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: Pair, kind: str
) -> None:
    """By TCP it makes one receive: it knows that there is nothing more. By a UNIX socket it makes two."""

    async def echo() -> None:
        while data := await loop.sock_recv(pair[0], 1000):
            await loop.sock_sendall(pair[0], data)

    echoing = loop.create_task(echo())
    for _ in range(3):
        pair[1].send(b"hello")
        await until(lambda: arrived(pair[1]))
        assert pair[1].recv(100) == b"hello"
    kernel.receives, kernel.changes[:] = 0, []
    for _ in range(10):
        pair[1].send(b"hello")
        await until(lambda: arrived(pair[1]))
        assert pair[1].recv(100) == b"hello"
    assert kernel.receives == (10 if kind == "tcp" else 20)
    assert kernel.changes == []
    pair[1].shutdown(socket.SHUT_WR)
    await echoing


async def test_urgent_data_hides_nothing_of_what_follows(loop: whorl.EventLoop) -> None:
    """A receive ends at it, before all was received that had arrived."""
    ours, peer = socket_pair("tcp")
    with ours, peer:
        await meet(loop, ours, peer)
        received = b""
        for expected in (b"beforeafter", b"beforeaftermore"):
            receiving = loop.create_task(loop.sock_recv(ours, 100))
            await turns(3)
            if not received:
                peer.send(b"before")
                peer.send(b"!", socket.MSG_OOB)
                peer.send(b"after")
            else:
                peer.send(b"more")
            received += await receiving
            while received != expected:
                received += await loop.sock_recv(ours, 100)


async def test_a_receive_that_ends_at_sent_descriptors_hides_nothing_of_what_follows(
    loop: whorl.EventLoop,
) -> None:
    """All messages come with one event."""
    ours, peer = socket_pair("unix")
    with ours, peer:
        await meet(loop, ours, peer)
        receiving = loop.create_task(loop.sock_recv(ours, 100))
        await turns(3)
        for text in (b"one", b"two"):
            socket.send_fds(peer, [text], [peer.fileno()])
            peer.send(b"more")
        assert await receiving == b"one"
        assert await loop.sock_recv(ours, 100) == b"moretwo"
        assert await loop.sock_recv(ours, 100) == b"more"
        await meet(loop, ours, peer)


async def test_a_receive_that_ends_at_another_writer_hides_nothing_of_what_follows(
    loop: whorl.EventLoop,
) -> None:
    """A receiver that asks for the names of writers gets the data of one at a time."""
    ours, peer = socket_pair("unix")
    with ours, peer:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        await meet(loop, ours, peer)
        receiving = loop.create_task(loop.sock_recv(ours, 100))
        await turns(3)
        peer.send(b"parent")
        child = f"import os; os.write({peer.fileno()}, b'child')"
        subprocess.run([sys.executable, "-c", child], pass_fds=[peer.fileno()], check=True)
        assert await receiving == b"parent"
        assert await loop.sock_recv(ours, 100) == b"child"
        await meet(loop, ours, peer)


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "expected"),
    [
        (socket.AF_INET, socket.SOCK_STREAM, 0, states.TCP),
        (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, states.TCP),
        (socket.AF_INET, socket.SOCK_STREAM, 262, states.TCP),  # MPTCP
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP, states.OTHER),
        (socket.AF_INET, socket.SOCK_DGRAM, 0, states.OTHER),
        (socket.AF_UNIX, socket.SOCK_STREAM, 0, states.LOCAL_STREAM),
        (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, states.OTHER),
        (socket.AF_VSOCK, socket.SOCK_STREAM, 0, states.OTHER),
    ],
)
def test_the_kind_of_a_socket_is_tcp_for_tcp_alone(
    family: int, kind: int, protocol: int, expected: int
) -> None:
    """Python believes the numbers that it is given beside a descriptor."""
    descriptor = socket.socket(socket.AF_UNIX).detach()
    with socket.socket(family, kind, protocol, fileno=descriptor) as sock:
        assert kind_of(sock) == expected


async def test_a_task_goes_on_in_the_turn_of_the_event(loop: whorl.EventLoop, pair: Pair) -> None:
    receiving = loop.create_task(loop.sock_recv(pair[0], 100))
    await turns(3)
    pair[1].send(b"hello")
    await until(lambda: arrived(pair[0]))
    await turns(2)
    assert receiving.done()
    assert receiving.result() == b"hello"


async def test_a_watch_that_nobody_waits_for_keeps_no_loop_alive(loop: whorl.EventLoop, pair: Pair) -> None:
    before = loop.metrics().active_handles
    await meet(loop, *pair)
    assert loop.metrics().active_handles == before
    assert loop.walk() == []


async def test_a_peer_that_sends_and_sends_costs_no_turns_for_ever(
    loop: whorl.EventLoop, kernel: CountingKernel, kind: str
) -> None:
    ours, peer = socket_pair(kind)
    with ours, peer:
        if kind == "tcp":
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await meet(loop, ours, peer)
        kernel.changes.clear()
        sent = 0
        while not kernel.changes:
            sent += peer.send(b"x")
            await turns(2)
        assert kernel.changes == [2]
        assert sent > IDLE_EVENTS
        before = loop.metrics().events
        sent += peer.send(b"x")
        await turns(5)
        assert loop.metrics().events == before
        assert await receive(ours, sent) == b"x" * sent
        await meet(loop, ours, peer)


async def test_a_reader_that_is_removed_and_added_again_costs_no_call(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: Pair
) -> None:
    seen: list[bytes] = []
    loop.add_reader(pair[0], seen.append, b"never called")
    loop.remove_reader(pair[0])
    kernel.changes.clear()
    for _ in range(3):
        loop.add_reader(pair[0], lambda: seen.append(pair[0].recv(100)))
        await turns(2)
        assert loop.remove_reader(pair[0])
        assert not loop.remove_reader(pair[0])
    loop.add_reader(pair[0], lambda: seen.append(pair[0].recv(100)))
    assert kernel.changes == []
    pair[1].send(b"data")
    await until(lambda: seen)
    assert seen == [b"data"]
    loop.remove_reader(pair[0])


async def test_data_for_a_reader_that_was_removed_costs_one_event(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: Pair
) -> None:
    loop.add_reader(pair[0], lambda: None)
    loop.remove_reader(pair[0])
    before = loop.metrics().events
    pair[1].send(b"data")
    await turns(5)
    assert loop.metrics().events == before + 1
    assert await loop.sock_recv(pair[0], 100) == b"data"


async def test_an_event_is_for_the_reader_that_there_was(loop: whorl.EventLoop, pair: Pair) -> None:
    """A reader set in the same turn, after the data was taken, is not called without data."""
    called: list[str] = []
    other = socket_pair("unix")

    def replace() -> None:
        for sock in (pair[0], other[0]):
            sock.recv(100)
            loop.remove_reader(sock)
            loop.add_reader(sock, called.append, "late")

    for sock in (pair[0], other[0]):
        loop.add_reader(sock, replace)
    pair[1].send(b"data")
    other[1].send(b"data")
    await until(lambda: arrived(pair[0]) and arrived(other[0]))
    await turns(5)
    assert called == []
    for sock in (pair[0], *other):
        loop.remove_reader(sock)
        sock.close()


async def test_socket_object_with_a_reused_descriptor_is_watched_afresh(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    loop.add_reader(pair[0], lambda: None)
    loop.remove_reader(pair[0])
    number = pair[0].detach()
    os.close(number)
    ours, peer = socket_pair("unix")
    first = ours.detach()
    if first != number:
        os.dup2(first, number)
        os.close(first)
    again = socket.socket(fileno=number)
    called: asyncio.Future[None] = loop.create_future()
    loop.add_reader(again, lambda: called.done() or called.set_result(None))
    peer.send(b"data")
    await called
    loop.remove_reader(again)
    again.close()
    peer.close()


async def test_watched_socket_returns_data_that_came_between_waits_at_once(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    await meet(loop, *pair)
    pair[1].send(b"hello")
    await turns(3)
    before = loop.metrics().turns
    assert await loop.sock_recv(pair[0], 100) == b"hello"
    assert loop.metrics().turns == before


async def test_watched_socket_needs_no_new_event_for_the_rest_of_data(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    loop.call_soon(pair[1].send, b"hello")
    assert await loop.sock_recv(pair[0], 2) == b"he"
    assert await loop.sock_recv(pair[0], 2) == b"ll"
    assert await loop.sock_recv(pair[0], 2) == b"o"
    await meet(loop, *pair)


async def test_data_and_the_end_may_come_together(loop: whorl.EventLoop, pair: Pair) -> None:
    await meet(loop, *pair)
    receiving = loop.create_task(loop.sock_recv(pair[0], 100))
    await turns(2)
    pair[1].send(b"bye")
    pair[1].shutdown(socket.SHUT_WR)
    assert await receiving == b"bye"
    assert await loop.sock_recv(pair[0], 100) == b""
    assert await loop.sock_recv(pair[0], 100) == b""


async def test_the_end_may_come_while_nobody_waits(loop: whorl.EventLoop, pair: Pair) -> None:
    await meet(loop, *pair)
    pair[1].send(b"bye")
    pair[1].close()
    await turns(3)
    assert await loop.sock_recv(pair[0], 100) == b"bye"
    assert await loop.sock_recv(pair[0], 100) == b""


async def test_one_event_may_stand_for_several_connections(loop: whorl.EventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        for _ in range(3):
            accepting = loop.create_task(loop.sock_accept(listener))
            await turns(2)
            clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
            accepted = [(await accepting)[0], *[(await loop.sock_accept(listener))[0] for _ in range(2)]]
            for sock in (*clients, *accepted):
                sock.close()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
async def test_one_event_may_stand_for_several_messages(loop: whorl.EventLoop, kind: int) -> None:
    ours, peer = socket.socketpair(socket.AF_UNIX, kind)
    with ours, peer:
        ours.setblocking(False)
        for _ in range(3):
            for text in (b"one", b"two", b"three"):
                loop.call_soon(peer.send, text)
            assert [await loop.sock_recv(ours, 100) for _ in range(3)] == [b"one", b"two", b"three"]


async def test_a_datagram_waits_for_a_receiver_that_is_full(loop: whorl.EventLoop, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.bind(str(tmp_path / "peer"))
            for sock in (ours, peer):
                sock.setblocking(False)
            sent = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent += ours.sendto(b"x", str(tmp_path / "peer"))
            sending = loop.create_task(loop.sock_sendto(ours, b"x", str(tmp_path / "peer")))
            await turns(3)
            for _ in range(sent + 1):
                assert await loop.sock_recv(peer, 10) == b"x"
            assert await sending == 1


async def test_watched_socket_waits_in_both_directions_at_once(loop: whorl.EventLoop, pair: Pair) -> None:
    await meet(loop, *pair)
    data = noise(300_000)
    sending = loop.create_task(loop.sock_sendall(pair[0], data))
    back = loop.create_task(receive(pair[0], len(data)))
    answering = loop.create_task(loop.sock_sendall(pair[1], data))
    assert digest(await receive(pair[1], len(data))) == digest(data)
    assert digest(await back) == digest(data)
    await sending
    await answering
    await meet(loop, *pair)


def test_exit_in_one_direction_loses_no_data_of_the_other(pair: Pair, no_leak: None) -> None:
    loop = whorl.EventLoop(kernel=CountingKernel())

    async def leave() -> None:
        await loop.sock_recv(pair[0], 100)
        raise SystemExit("enough")

    data = noise(100_000)

    async def both() -> None:
        leaving = loop.create_task(leave())
        sending = loop.create_task(loop.sock_sendall(pair[0], data))
        await turns(3)
        # Both directions become ready in one event.
        pair[1].send(b"now")
        received.extend(pair[1].recv(65536))
        await asyncio.wait([leaving, sending])

    async def go_on() -> None:
        received.extend(await receive(pair[1], len(data) - len(received)))

    received = bytearray()
    main = loop.create_task(both())
    with pytest.raises(SystemExit, match="enough"):
        loop.run_until_complete(main)
    loop.run_until_complete(go_on())
    loop.run_until_complete(main)
    loop.close()
    assert digest(received) == digest(data)


# Leaving.


async def test_a_cancelled_receive_loses_nothing(loop: whorl.EventLoop, pair: Pair) -> None:
    await meet(loop, *pair)
    receiving = loop.create_task(loop.sock_recv(pair[0], 100))
    await turns(2)
    pair[1].send(b"hello")
    receiving.cancel("because")
    with pytest.raises(asyncio.CancelledError, match="because"):
        await receiving
    assert await loop.sock_recv(pair[0], 100) == b"hello"


async def test_a_coroutine_that_is_closed_leaves_no_wait(loop: whorl.EventLoop, pair: Pair) -> None:
    await meet(loop, *pair)
    receiving = loop.sock_recv(pair[0], 100)
    receiving.send(None)
    receiving.close()
    pair[1].send(b"hello")
    await turns(2)
    assert await loop.sock_recv(pair[0], 100) == b"hello"


async def test_a_wait_that_is_over_keeps_nothing_alive(loop: whorl.EventLoop, pair: Pair) -> None:
    class Marked(bytearray):
        pass

    marked = Marked(10)
    reference = weakref.ref(marked)
    loop.call_soon(pair[1].send, b"hello")
    gc.disable()
    try:
        await loop.sock_recv_into(pair[0], marked)
        del marked
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("method", ["add_reader", "sock_recv"])
def test_later_reader_replaces_the_waiting_sock_recv_as_in_asyncio(method: str) -> None:
    async def use(loop: Any) -> Any:
        ours, peer = socket_pair("unix")
        with ours, peer:
            first = loop.create_task(loop.sock_recv(ours, 100))
            await turns(3)
            called: list[int] = []
            if method == "add_reader":
                loop.add_reader(ours, called.append, 1)
            second = loop.create_task(
                asyncio.sleep(1) if method == "add_reader" else loop.sock_recv(ours, 100)
            )
            await turns(3)
            peer.send(b"hello")
            for _ in range(5):
                await asyncio.sleep(0)
            outcome = first.done(), second.done(), bool(called)
            removed = loop.remove_reader(ours)
            first.cancel()
            second.cancel()
            await asyncio.wait([first, second])
            return outcome, removed, loop.remove_reader(ours)

    is_as_in_asyncio(use)


# A number that means another file.


def reopened(fd: int) -> Pair:
    """Return a new pair of sockets, the first with this number, which was just closed."""
    ours, peer = socket_pair("unix")
    if peer.fileno() == fd:
        ours, peer = peer, ours
    if ours.fileno() != fd:
        os.dup2(ours.fileno(), fd)
        ours.close()
        ours = socket.socket(fileno=fd)
        ours.setblocking(False)
    return ours, peer


@pytest.mark.parametrize("way", ["closed", "closed while waited for", "dropped", "detached", "duplicated"])
async def test_a_number_that_means_another_socket_by_now(loop: whorl.EventLoop, kind: str, way: str) -> None:
    former, former_peer = socket_pair(kind)
    await meet(loop, former, former_peer)
    fd = former.fileno()
    waiting = None
    others: list[socket.socket] = [former_peer]
    if way == "duplicated":
        others.append(former.dup())
    if way == "closed while waited for":
        waiting = loop.create_task(loop.sock_recv(former, 100))
        await turns(2)
    if way == "detached":
        ours, peer = socket.socket(fileno=former.detach()), former_peer
        assert ours.fileno() == fd
    else:
        former.close()
        if way == "dropped":
            del former
        ours, peer = reopened(fd)
    for _ in range(3):
        await meet(loop, ours, peer)
    if way == "duplicated":
        former_peer.send(b"to the former")
        await turns(3)
        await meet(loop, ours, peer)
    called: list[int] = []
    loop.add_reader(fd, called.append, 1)
    peer.send(b"x")
    await until(lambda: called)
    loop.remove_reader(fd)
    if waiting is not None:
        waiting.cancel()
        await asyncio.wait([waiting])
    for sock in (ours, peer, *others):
        sock.close()


async def test_a_number_that_means_a_pipe_by_now(loop: whorl.EventLoop, kind: str) -> None:
    former, former_peer = socket_pair(kind)
    await meet(loop, former, former_peer)
    fd = former.fileno()
    former.close()
    read_end, write_end = os.pipe()
    if read_end != fd:
        os.dup2(read_end, fd)
        os.close(read_end)
    called: list[int] = []
    loop.add_reader(fd, called.append, 1)
    os.write(write_end, b"x")
    await until(lambda: called)
    assert loop.remove_reader(fd)
    os.close(fd)
    os.close(write_end)
    former_peer.close()


async def test_two_objects_share_a_descriptor(loop: whorl.EventLoop, pair: Pair) -> None:
    await meet(loop, *pair)
    other = socket.socket(fileno=pair[0].fileno())
    try:
        for ours in (other, pair[0], other):
            receiving = loop.create_task(loop.sock_recv(ours, 100))
            await turns(2)
            pair[1].send(b"hello")
            assert await receiving == b"hello"
    finally:
        other.detach()


# Others who want the descriptor.


async def test_a_transport_takes_it_over(loop: whorl.EventLoop, kind: str) -> None:
    ours, peer = socket_pair(kind)
    await meet(loop, ours, peer)
    protocol = Recorder()
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
    peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    transport.close()
    await protocol.until_lost()
    peer.close()


async def test_a_transport_takes_it_from_one_who_waits(loop: whorl.EventLoop, kind: str) -> None:
    ours, peer = socket_pair(kind)
    waiting = loop.create_task(loop.sock_recv(ours, 100))
    await turns(2)
    loop.add_writer(ours, lambda: None)
    protocol = Recorder()
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
    peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    peer.send(b"hello")
    assert await protocol.until_received(10) == b"hellohello"
    transport.close()
    await protocol.until_lost()
    peer.close()


async def test_a_server_takes_over_a_listener(loop: whorl.EventLoop) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    accepting = loop.create_task(loop.sock_accept(listener))
    await turns(2)
    with socket.create_connection(listener.getsockname()):
        accepted, _ = await accepting
        accepted.close()
    made: list[Recorder] = []

    def make() -> Recorder:
        made.append(Recorder())
        return made[-1]

    server = await loop.create_server(make, sock=listener)
    transport, protocol = await loop.create_connection(Recorder, *listener.getsockname())
    while not made:
        await turns(1)
    transport.close()
    await protocol.until_lost()
    await made[0].until_lost()
    server.close()
    await server.wait_closed()


async def test_callbacks_and_tasks_take_turns(loop: whorl.EventLoop, pair: Pair) -> None:
    called: list[bytes] = []
    for _ in range(2):
        called.clear()
        await meet(loop, *pair)
        loop.add_reader(pair[0], lambda: called.append(pair[0].recv(100)))
        pair[1].send(b"to the callback")
        await until(lambda: called)
        assert called == [b"to the callback"]
        await loop.sock_sendall(pair[0], b"back")
        assert pair[1].recv(100) == b"back"
        assert loop.remove_reader(pair[0])


async def test_a_callback_reads_while_a_task_sends(loop: whorl.EventLoop, pair: Pair) -> None:
    await meet(loop, *pair)
    called: list[bytes] = []
    loop.add_reader(pair[0], lambda: called.append(pair[0].recv(100)))
    data = noise(300_000)
    sending = loop.create_task(loop.sock_sendall(pair[0], data))
    await turns(2)
    pair[1].send(b"hello")
    assert digest(await receive(pair[1], len(data))) == digest(data)
    await sending
    assert called == [b"hello"]
    pair[1].send(b"again")
    await until(lambda: len(called) > 1)
    assert called == [b"hello", b"again"]
    assert loop.remove_reader(pair[0])
    assert loop.remove_writer(pair[0]) is False


async def test_a_handle_of_the_machines_takes_it_over(loop: whorl.EventLoop, pair: Pair) -> None:
    await meet(loop, *pair)
    seen: list[Any] = []
    poll = Poll(loop, pair[0].fileno())
    poll.start(Event.READABLE, lambda *events: seen.append(events))
    pair[1].send(b"hello")
    await until(lambda: seen)
    poll.close()
    await turns(2)
    assert await loop.sock_recv(pair[0], 100) == b"hello"
    await meet(loop, *pair)


def test_watched_socket_can_be_used_by_another_loop_meanwhile(pair: Pair, no_leak: None) -> None:
    loops = [whorl.EventLoop(kernel=CountingKernel()) for _ in range(2)]
    for _ in range(2):
        for loop in loops:
            loop.run_until_complete(meet(loop, *pair))
    for loop in loops:
        loop.close()
