"""UDP: datagrams, requests, addresses, options, groups."""

from __future__ import annotations

import contextvars
import errno
import gc
import itertools
import os
import socket
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from tests.handles.streams.test_tcp import NEEDS_IPV6
from whorl.core import Event, Kernel, Loop, RunMode
from whorl.handles import UDP, Idle, Poll, Timer, UdpSend

LOCAL = ("127.0.0.1", 0)
LOCAL6 = ("::1", 0)
LONGEST = 65_507
GROUP = "239.255.77.77"
GROUP6 = "ff01::77"


class Receiver:
    """A receiver that notes datagrams, and closes handles when it has enough."""

    def __init__(self, enough: int, *handles: UDP) -> None:
        self.enough = enough
        self.handles = handles
        self.received: list[tuple[bytes, Any]] = []
        self.errors: list[tuple[int | None, Any]] = []

    def __call__(self, udp: UDP, data: bytes, address: Any, error: OSError | None) -> None:
        if error is None:
            self.received.append((data, address))
        else:
            assert data == b""
            self.errors.append((error.errno, address))
        if len(self.received) + len(self.errors) == self.enough:
            for handle in (udp, *self.handles):
                handle.close()

    @property
    def data(self) -> list[bytes]:
        return [data for data, _ in self.received]


class Sent:
    """A note of the ends of sends."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def __call__(self, request: UdpSend, error: OSError | None) -> None:
        assert not request.is_pending()
        self.ended.append(0 if error is None else error.errno or -1)


class StubbornKernel(Kernel):
    """A kernel that answers to sends as it is told, before it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[int] = []

    def send_datagram(self, sock: Any, data: Any, address: Any) -> int:
        return self.answers.pop(0) if self.answers else super().send_datagram(sock, data, address)

    def send_datagrams(self, sock: Any, queue: list[Any], first: int) -> int:
        return self.answers.pop(0) if self.answers else super().send_datagrams(sock, queue, first)


def bound(loop: Loop, address: tuple[Any, ...] = LOCAL, **options: bool) -> UDP:
    udp = UDP(loop)
    udp.bind(address, **options)
    return udp


def option(udp: UDP, level: int, name: int) -> int:
    """Return a socket option of a handle."""
    with socket.socket(fileno=os.dup(udp.fileno())) as sock:
        return sock.getsockopt(level, name)


@pytest.fixture
def stubborn() -> StubbornKernel:
    return StubbornKernel()


@pytest.fixture
def stubborn_loop(stubborn: StubbornKernel) -> Iterator[Loop]:
    loop = Loop(kernel=stubborn)
    yield loop
    for handle in loop.walk():
        handle.close()
    loop.run(RunMode.NOWAIT)
    loop.close()


# Sending and receiving.


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not connected"])
@pytest.mark.parametrize("address", [LOCAL, pytest.param(LOCAL6, marks=NEEDS_IPV6)], ids=["ipv4", "ipv6"])
def test_datagrams_keep_their_bounds_and_their_senders(
    loop: Loop, address: tuple[str, int], connected: bool
) -> None:
    server, client, sent = bound(loop, address), bound(loop, address), Sent()
    sizes = [1, 0, 1000, LONGEST, 7]
    receiver = Receiver(len(sizes), client)
    server.recv_start(receiver)
    target = server.getsockname()
    if connected:
        client.connect(target)
        target = None
    name = client.getsockname()
    for size in sizes:
        client.send(bytes(size), target, sent)
    assert sent.ended == []
    loop.run()
    assert sent.ended == [0] * len(sizes)
    assert receiver.received == [(bytes(size), name) for size in sizes]


def test_a_handle_without_an_address_finds_a_port(loop: Loop) -> None:
    server, client = UDP(loop), UDP(loop)
    receiver = Receiver(1, client)
    server.recv_start(receiver)
    host, port = server.getsockname()
    assert (host, port > 0) == ("0.0.0.0", True)
    client.send(b"x", ("127.0.0.1", port))
    loop.run()
    assert receiver.data == [b"x"]


def test_any_kind_of_bytes_is_sent(loop: Loop) -> None:
    server, client = bound(loop), UDP(loop)
    receiver = Receiver(5, client)
    server.recv_start(receiver)
    numbers = memoryview(b"abcdefgh")
    for data in (b"ab", bytearray(b"ab"), numbers, numbers.cast("I"), numbers[::2]):
        client.send(data, server.getsockname())
    with pytest.raises(TypeError):
        client.send("text", server.getsockname())  # type: ignore[arg-type]
    assert client.send_queue_count == 5
    loop.run()
    assert receiver.data == [b"ab", b"ab", b"abcdefgh", b"abcdefgh", b"aceg"]


@pytest.mark.parametrize("recvmmsg", [True, False])
def test_a_flood_is_received_some_at_a_time(loop: Loop, recvmmsg: bool) -> None:
    server, client = UDP(loop, recvmmsg=recvmmsg), UDP(loop)
    server.bind(LOCAL)
    receiver = Receiver(100, client)
    server.recv_start(receiver)
    assert server.using_recvmmsg() is (recvmmsg and whorl.compiled)
    for number in range(100):
        assert client.try_send(b"%d" % number, server.getsockname())
    bursts = [0]
    while loop.run(RunMode.NOWAIT):
        bursts.append(len(receiver.received))
    steps = [after - before for before, after in itertools.pairwise(bursts)]
    assert max(steps) == (16 if recvmmsg else 1)
    assert receiver.data == [b"%d" % number for number in range(100)]


def test_recv_stop_keeps_the_rest_for_later(loop: Loop) -> None:
    server, client = bound(loop), UDP(loop)
    receiver = Receiver(10, client)

    def choosy(udp: UDP, data: bytes, address: Any, error: OSError | None) -> None:
        receiver(udp, data, address, error)
        if data == b"2":
            udp.recv_stop()
            udp.recv_stop()
            assert not udp.is_active()

    server.recv_start(choosy)
    for number in range(10):
        client.send(b"%d" % number, server.getsockname())
    loop.run()
    assert receiver.data == [b"0", b"1", b"2"]
    server.recv_start(receiver)
    loop.run()
    assert receiver.data == [b"%d" % number for number in range(10)]


def test_receiving_twice_is_refused(loop: Loop) -> None:
    udp = bound(loop)
    udp.recv_start(Receiver(1))
    with pytest.raises(OSError, match="already"):
        udp.recv_start(Receiver(1))
    with pytest.raises(TypeError):
        UDP(loop).recv_start(5)  # type: ignore[arg-type]


def test_callbacks_run_in_the_context_of_who_asked(loop: Loop) -> None:
    variable = contextvars.ContextVar("variable", default="outside")
    seen: list[str] = []
    server, client = bound(loop), UDP(loop)

    def ask() -> None:
        variable.set("inside")
        server.recv_start(lambda udp, data, address, error: (seen.append(variable.get()), udp.close()))
        client.send(b"x", server.getsockname(), lambda request, error: seen.append(variable.get()))

    contextvars.copy_context().run(ask)
    loop.run()
    assert seen == ["inside"] * 2


def test_an_error_out_of_a_callback_ends_the_run_and_costs_no_datagram(loop: Loop) -> None:
    server, client = bound(loop), UDP(loop)
    receiver = Receiver(4, client)

    def fail(udp: UDP, data: bytes, address: Any, error: OSError | None) -> None:
        receiver(udp, data, address, error)
        raise RuntimeError(data.decode())

    server.recv_start(fail)
    for number in range(4):
        client.send(b"%d" % number, server.getsockname())
    for number in range(4):
        with pytest.raises(RuntimeError, match=str(number)):
            loop.run()
    loop.run()
    assert receiver.data == [b"0", b"1", b"2", b"3"]


def test_udp_receives_nothing_after_close(loop: Loop) -> None:
    server, client = bound(loop), UDP(loop)
    receiver = Receiver(1)
    server.recv_start(receiver)
    for _ in range(10):
        client.send(b"x", server.getsockname())
    loop.run()
    assert len(receiver.received) == 1


def test_a_number_used_again_gets_nothing_of_the_old_handle(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        old, receiver = bound(loop), Receiver(1)
        old.recv_start(receiver)
        new = UDP(loop)

        def replace(handle: Idle) -> None:
            handle.close()
            peer.sendto(b"old", old.getsockname())
            fd = old.fileno()
            old.close()
            new.bind(LOCAL)
            assert new.fileno() == fd
            new.recv_start(receiver)
            peer.sendto(b"new", new.getsockname())

        Idle(loop).start(replace)
        loop.run()
    assert receiver.data == [b"new"]


# Errors.


def test_a_port_nobody_listens_at_is_told_to_who_is_connected(loop: Loop) -> None:
    server, client = bound(loop), UDP(loop)
    client.connect(server.getsockname())
    server.close()
    receiver = Receiver(2)

    def again(udp: UDP, data: bytes, address: Any, error: OSError | None) -> None:
        receiver(udp, data, address, error)
        if not udp.is_closing():
            udp.send(b"x")

    client.recv_start(again)
    client.send(b"x")
    loop.run()
    assert receiver.errors == [(errno.ECONNREFUSED, None)] * 2


@pytest.mark.parametrize("address", [LOCAL, pytest.param(LOCAL6, marks=NEEDS_IPV6)], ids=["ipv4", "ipv6"])
def test_lost_datagrams_are_reported_with_their_addresses(loop: Loop, address: tuple[str, int]) -> None:
    gone = bound(loop, address)
    target = gone.getsockname()
    gone.close()
    client = bound(loop, address, recverr=True)
    receiver = Receiver(3)
    client.recv_start(receiver)
    for _ in range(3):
        client.send(b"x", target)
        loop.run(RunMode.NOWAIT)
    loop.run()
    assert len(receiver.errors) == 3
    assert receiver.errors[0] == (errno.ECONNREFUSED, target)
    assert {code for code, _ in receiver.errors} == {errno.ECONNREFUSED}


def test_reports_do_not_keep_the_loop_busy(loop: Loop) -> None:
    gone = bound(loop)
    target = gone.getsockname()
    gone.close()
    client = bound(loop, recverr=True)
    receiver = Receiver(100)
    client.recv_start(receiver)
    client.try_send(b"x", target)
    Timer(loop).start(lambda timer: timer.close(), timeout_ns=50_000_000)
    client.unref()
    before = loop.metrics().turns
    loop.run()
    assert loop.metrics().turns - before < 10
    assert receiver.errors == [(errno.ECONNREFUSED, target)]


def test_a_refused_datagram_is_told_to_its_request_only(loop: Loop) -> None:
    server, client, sent = bound(loop), UDP(loop), Sent()
    receiver = Receiver(2, client)
    server.recv_start(receiver)
    for data in (b"1", bytes(LONGEST + 1), b"2"):
        client.send(data, server.getsockname(), sent)
    loop.run()
    assert sent.ended == [0, errno.EMSGSIZE, 0]
    assert receiver.data == [b"1", b"2"]


def refusals(loop: Loop) -> dict[str, tuple[int, Any]]:
    connected = bound(loop)
    connected.connect(("127.0.0.1", 9))
    closed = UDP(loop)
    closed.close()
    return {
        "no address": (errno.EDESTADDRREQ, lambda: UDP(loop).send(b"x")),
        "no address at once": (errno.EDESTADDRREQ, lambda: UDP(loop).try_send(b"x")),
        "no address for several": (errno.EDESTADDRREQ, lambda: UDP(loop).try_send2([(b"x", None)])),
        "an address too many": (errno.EISCONN, lambda: connected.send(b"x", ("127.0.0.1", 9))),
        "connecting twice": (errno.EISCONN, lambda: connected.connect(("127.0.0.1", 9))),
        "disconnecting nothing": (errno.ENOTCONN, lambda: UDP(loop).disconnect()),
        "the peer of nothing": (errno.ENOTCONN, lambda: bound(loop).getpeername()),
        "the name of nothing": (errno.EBADF, lambda: UDP(loop).getsockname()),
        "a name": (errno.EINVAL, lambda: UDP(loop).send(b"x", ("localhost", 9))),
        "another family": (errno.EAFNOSUPPORT, lambda: bound(loop).send(b"x", ("::1", 9))),
        "a family that is none": (errno.EINVAL, lambda: UDP(loop, socket.AF_UNIX)),
        "binding twice": (errno.EINVAL, lambda: bound(loop).bind(LOCAL)),
        "an address in use": (errno.EADDRINUSE, lambda: bound(loop, connected.getsockname())),
        "only IPv6 for IPv4": (errno.EINVAL, lambda: bound(loop, ipv6only=True)),
        "sending after close": (errno.EBADF, lambda: closed.send(b"x", ("127.0.0.1", 9))),
        "trying after close": (errno.EBADF, lambda: closed.try_send(b"x", ("127.0.0.1", 9))),
        "receiving after close": (errno.EINVAL, lambda: closed.recv_start(Receiver(1))),
        "opening twice": (errno.EBUSY, lambda: connected.open(connected.fileno())),
        "opening what another handle has": (errno.EEXIST, lambda: UDP(loop).open(watched(loop))),
        "an option of nothing": (errno.EBADF, lambda: UDP(loop).set_broadcast(True)),
        "a buffer of nothing": (errno.EBADF, lambda: UDP(loop).send_buffer_size()),
        "no hops": (errno.EINVAL, lambda: connected.set_ttl(0)),
        "too many hops": (errno.EINVAL, lambda: connected.set_multicast_ttl(256)),
        "a group that is none": (errno.EINVAL, lambda: connected.set_membership("127.0.0.1")),
        "a group by name": (errno.EINVAL, lambda: connected.set_membership("group")),
        "an interface that there is not": (
            errno.ENODEV,
            lambda: connected.set_membership(GROUP, "192.0.2.1"),
        ),
        "an interface of another family": (errno.EINVAL, lambda: connected.set_membership(GROUP, "::1")),
        "a source of another family": (
            errno.EINVAL,
            lambda: connected.set_source_membership(GROUP, None, "::1"),
        ),
        "leaving what was not joined": (
            errno.EADDRNOTAVAIL,
            lambda: connected.set_membership(GROUP, "127.0.0.1", join=False),
        ),
        "an interface by name": (errno.EINVAL, lambda: connected.set_multicast_interface("lo")),
    }


def watched(loop: Loop) -> int:
    other = bound(loop)
    other.recv_start(Receiver(1))
    return other.fileno()


def error_number(attempt: Any) -> int | None:
    """Return the number of the error that a call raises."""
    try:
        attempt()
    except OSError as error:
        return error.errno
    return None


def test_udp_refuses_misuse_with_the_right_error(loop: Loop) -> None:
    expected = refusals(loop)
    found = {name: error_number(attempt) for name, (_, attempt) in expected.items()}
    assert found == {name: code for name, (code, _) in expected.items()}


@pytest.mark.parametrize(
    "address", [5, "127.0.0.1", ("127.0.0.1",), (1, 2), ("127.0.0.1", "9"), ("127.0.0.1", -1)]
)
def test_udp_send_and_bind_refuse_an_invalid_address(loop: Loop, address: Any) -> None:
    for use in (lambda: UDP(loop).send(b"x", address), lambda: UDP(loop).bind(address)):
        with pytest.raises((TypeError, OverflowError)):
            use()
    client = bound(loop)
    with pytest.raises((TypeError, OverflowError)):
        client.send(b"x", address)
    assert client.send_queue_count == 0


# Requests.


def test_udp_send_queues_datagrams_that_the_kernel_refuses(
    stubborn_loop: Loop, stubborn: StubbornKernel
) -> None:
    server, client, sent = bound(stubborn_loop), UDP(stubborn_loop), Sent()
    receiver = Receiver(4, client)
    server.recv_start(receiver)
    mutable = bytearray(b"two")
    stubborn.answers = [-errno.EAGAIN, -errno.EINTR, -errno.ENOBUFS]
    requests = [client.send(data, server.getsockname(), sent) for data in (b"one", mutable, b"", b"four")]
    mutable[:] = b"xxx"
    assert (client.send_queue_count, client.send_queue_size) == (4, 10)
    assert all(request.is_pending() for request in requests)
    for attempt in (
        lambda: client.try_send(b"x", server.getsockname()),
        lambda: client.try_send2([(b"x", server.getsockname())]),
    ):
        with pytest.raises(BlockingIOError):
            attempt()
    stubborn_loop.run()
    assert sent.ended == [0] * 4
    assert receiver.data == [b"one", b"two", b"", b"four"]
    assert (client.send_queue_count, client.send_queue_size) == (0, 0)
    assert requests[0].handle is client


@pytest.mark.parametrize("code", [errno.EINTR, errno.ENOBUFS])
def test_a_first_send_that_is_refused_for_now_waits(
    stubborn_loop: Loop, stubborn: StubbornKernel, code: int
) -> None:
    server, client, sent = bound(stubborn_loop), UDP(stubborn_loop), Sent()
    receiver = Receiver(1, client)
    server.recv_start(receiver)
    stubborn.answers = [-code]
    client.send(b"x", server.getsockname(), sent)
    stubborn_loop.run()
    assert (sent.ended, receiver.data) == ([0], [b"x"])


def test_a_refusal_of_what_waited_is_told_to_its_request(
    stubborn_loop: Loop, stubborn: StubbornKernel
) -> None:
    server, client, sent = bound(stubborn_loop), UDP(stubborn_loop), Sent()
    receiver = Receiver(3, client)
    server.recv_start(receiver)
    stubborn.answers = [-errno.EAGAIN, -errno.EPERM]
    for number in range(4):
        client.send(b"%d" % number, server.getsockname(), sent)
    stubborn_loop.run()
    assert sent.ended == [errno.EPERM, 0, 0, 0]
    assert receiver.data == [b"1", b"2", b"3"]


def test_sends_in_flight_end_before_the_handle_is_closed(
    stubborn_loop: Loop, stubborn: StubbornKernel
) -> None:
    client = bound(stubborn_loop)
    seen: list[Any] = []
    stubborn.answers = [1, -errno.EAGAIN]
    for number in range(3):
        client.send(
            b"x",
            ("127.0.0.1", 9),
            lambda request, error, number=number: seen.append((number, error and error.errno)),
        )
    client.close(lambda handle: seen.append("closed"))
    assert seen == []
    stubborn_loop.run()
    assert seen == [(0, None), (1, errno.ECANCELED), (2, errno.ECANCELED), "closed"]
    assert client.send_queue_count == 0


def test_an_error_out_of_a_callback_of_a_send_costs_the_others_nothing(loop: Loop) -> None:
    client = bound(loop)
    seen: list[int] = []

    def fail(request: UdpSend, error: OSError | None) -> None:
        seen.append(request.data)
        raise RuntimeError("I refuse")

    for number in range(3):
        client.send(b"x", client.getsockname(), fail).data = number
    client.close(lambda handle: seen.append(99))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="I refuse"):
            loop.run()
    loop.run()
    assert seen == [0, 1, 2, 99]


def test_a_callback_of_a_send_may_close_the_handle(loop: Loop) -> None:
    client, seen = bound(loop), []

    def close(request: UdpSend, error: OSError | None) -> None:
        seen.append(error)
        client.close()

    for _ in range(3):
        client.send(b"x", client.getsockname(), close)
    loop.run()
    assert seen == [None] * 3


def test_a_send_alone_keeps_the_loop_alive(loop: Loop) -> None:
    client, sent = UDP(loop), Sent()
    client.send(b"x", ("127.0.0.1", 9), sent)
    assert loop.alive()
    assert not client.is_active()
    loop.run()
    assert sent.ended == [0]
    assert not loop.alive()


def test_try_send2_sends_many_datagrams_at_once(loop: Loop) -> None:
    server, client = bound(loop), UDP(loop)
    receiver = Receiver(100, client)
    server.recv_start(receiver)
    address = server.getsockname()
    assert client.try_send2([(b"%d" % number, address) for number in range(100)]) == 100
    loop.run()
    assert receiver.data == [b"%d" % number for number in range(100)]


def test_try_send2_returns_the_number_sent_before_a_refusal(loop: Loop) -> None:
    client = bound(loop)
    address = client.getsockname()
    wrong = bytes(LONGEST + 1)
    assert client.try_send2([(b"1", address), (b"2", address), (wrong, address), (b"3", address)]) == 2
    with pytest.raises(OSError, match="too long"):
        client.try_send2([(wrong, address), (b"1", address)])
    assert client.try_send2([]) == 0


def test_a_closed_handle_is_forgotten(loop: Loop) -> None:
    client, sent = bound(loop), Sent()
    client.recv_start(lambda udp, data, address, error: udp.close())
    reference = weakref.ref(client)
    client.send(b"x", client.getsockname(), sent)
    del client
    loop.run()
    gc.collect()
    assert reference() is None
    assert sent.ended == [0]


# Connections.


def test_connecting_and_disconnecting(loop: Loop) -> None:
    first, second, client = bound(loop), bound(loop), bound(loop)
    receiver = Receiver(2, first, client)
    first.recv_start(receiver)
    second.recv_start(receiver)
    client.connect(first.getsockname())
    assert client.getpeername() == first.getsockname()
    client.try_send(b"1")
    client.disconnect()
    with pytest.raises(OSError, match="not connected"):
        client.getpeername()
    client.try_send(b"2", second.getsockname())
    client.connect(second.getsockname())
    client.disconnect()
    loop.run()
    second.close()
    loop.run()
    assert sorted(receiver.data) == [b"1", b"2"]


def test_connected_udp_handle_receives_only_from_its_peer(loop: Loop) -> None:
    peer, stranger, client = bound(loop), bound(loop), bound(loop)
    receiver = Receiver(1, peer, stranger)
    client.connect(peer.getsockname())
    client.recv_start(receiver)
    stranger.try_send(b"psst", client.getsockname())
    peer.try_send(b"hello", client.getsockname())
    loop.run()
    assert receiver.data == [b"hello"]


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("by_number", [True, False])
def test_a_socket_made_elsewhere(loop: Loop, by_number: bool, connected: bool) -> None:
    server = bound(loop)
    receiver = Receiver(1)
    server.recv_start(receiver)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if connected:
        sock.connect(server.getsockname())
    client = UDP(loop)
    client.open(sock.detach() if by_number else sock)
    assert sock.fileno() == -1
    client.send(b"x", None if connected else server.getsockname(), lambda request, error: client.close())
    loop.run()
    assert receiver.data == [b"x"]


def test_a_unix_socket_made_elsewhere(loop: Loop) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs:
        udp, receiver = UDP(loop), Receiver(1)
        udp.open(ours)
        udp.recv_start(receiver)
        udp.send(b"x")
        theirs.send(b"y")
        loop.run()
        assert theirs.recv(10) == b"x"
        assert receiver.received == [(b"y", None)]


def test_udp_open_refuses_a_non_socket(loop: Loop) -> None:
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="socket"):
        UDP(loop).open(reader)
    os.close(reader)
    os.close(writer)


def test_a_poll_and_a_handle_do_not_share_a_descriptor(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        poll = Poll(loop, sock)
        poll.start(Event.READABLE, lambda handle, events, error: None)
        with pytest.raises(FileExistsError):
            UDP(loop).open(sock)
        poll.close()
        loop.run()


# Options and groups.


def test_options_reach_the_socket(loop: Loop) -> None:
    udp = bound(loop, reuseaddr=True, reuseport=True)
    assert option(udp, socket.SOL_SOCKET, socket.SO_REUSEADDR)
    assert option(udp, socket.SOL_SOCKET, socket.SO_REUSEPORT)
    udp.set_broadcast(True)
    assert option(udp, socket.SOL_SOCKET, socket.SO_BROADCAST)
    udp.set_broadcast(False)
    assert not option(udp, socket.SOL_SOCKET, socket.SO_BROADCAST)
    udp.set_ttl(7)
    assert option(udp, socket.IPPROTO_IP, socket.IP_TTL) == 7
    udp.set_multicast_ttl(9)
    assert option(udp, socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 9
    udp.set_multicast_loop(False)
    assert not option(udp, socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP)
    assert udp.send_buffer_size(20_000) >= 20_000
    assert udp.receive_buffer_size(20_000) >= 20_000
    assert udp.receive_buffer_size() >= 20_000


@NEEDS_IPV6
def test_options_reach_an_ipv6_socket(loop: Loop) -> None:
    udp = UDP(loop, socket.AF_INET6)
    udp.bind(LOCAL6, ipv6only=True)
    assert option(udp, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    udp.set_ttl(7)
    assert option(udp, socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS) == 7
    udp.set_multicast_ttl(9)
    assert option(udp, socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS) == 9
    udp.set_multicast_loop(False)
    assert not option(udp, socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP)
    udp.set_multicast_interface("::%lo")
    assert option(udp, socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF) == socket.if_nametoindex("lo")
    udp.set_multicast_interface(None)
    with pytest.raises(OSError, match="No such device"):
        udp.set_multicast_interface("::%none")


def test_udp_port_is_shared_only_with_reuseport(loop: Loop) -> None:
    first = bound(loop, reuseport=True)
    bound(loop, first.getsockname(), reuseport=True)
    with pytest.raises(OSError, match="in use"):
        bound(loop, first.getsockname())


def test_broadcasting_needs_leave(loop: Loop) -> None:
    client, sent = bound(loop), Sent()
    client.send(b"x", ("255.255.255.255", 9), sent)
    loop.run()
    assert sent.ended == [errno.EACCES]


@pytest.mark.parametrize("source", [None, "127.0.0.1"], ids=["anybody", "one source"])
def test_a_group_is_heard_while_it_is_joined(loop: Loop, source: str | None) -> None:
    server, client = UDP(loop), bound(loop)
    receiver = Receiver(2, client)

    def member(join: bool) -> None:
        if source is None:
            server.set_membership(GROUP, "127.0.0.1", join=join)
        else:
            server.set_source_membership(GROUP, "127.0.0.1", source, join=join)

    member(True)
    server.recv_start(receiver)
    client.set_multicast_interface("127.0.0.1")
    port = server.getsockname()[1]
    client.try_send(b"1", (GROUP, port))
    loop.run(RunMode.ONCE)
    member(False)
    client.try_send(b"2", (GROUP, port))
    client.try_send(b"3", ("127.0.0.1", port))
    loop.run()
    assert receiver.data == [b"1", b"3"]


@NEEDS_IPV6
@pytest.mark.parametrize("table", ["igmp6", "mcfilter6"])
def test_an_ipv6_group_is_joined_and_left(loop: Loop, table: str) -> None:
    udp = UDP(loop)

    def memberships() -> int:
        with open(f"/proc/net/{table}") as lines:
            return sum("ff010000000000000000000000000077" in line for line in lines)

    def member(join: bool) -> None:
        if table == "igmp6":
            udp.set_membership(GROUP6, "::%lo", join=join)
        else:
            udp.set_source_membership(GROUP6, "::%lo", "::1", join=join)

    before = memberships()
    member(True)
    assert udp.getsockname()[0] == "::"
    assert memberships() == before + 1
    member(False)
    assert memberships() == before


# Over a kernel that refuses.


@pytest.mark.parametrize("seed", range(3))
def test_every_send_ends_and_every_datagram_arrives_or_is_refused(seed: int) -> None:
    kernel = FaultKernel(seed, FaultRates(again=0.3, refused=0.05))
    loop = Loop(kernel=kernel)
    server, client, sent = bound(loop), bound(loop), Sent()
    heard: list[bytes] = []
    errors: list[int | None] = []

    def receive(udp: UDP, data: bytes, address: Any, error: OSError | None) -> None:
        if error is None:
            heard.append(data)
        else:
            errors.append(error.errno)

    def go_on(idle: Idle) -> None:
        count = len(sent.ended) + client.send_queue_count
        if count < 300 and client.send_queue_count < 5:
            client.send(b"%d" % count, server.getsockname(), sent)
        elif len(sent.ended) == 300 and len(heard) == sent.ended.count(0):
            for handle in loop.walk():
                handle.close()

    server.recv_start(receive)
    Idle(loop).start(go_on)
    loop.run()
    loop.close()
    refused = [number for number, code in enumerate(sent.ended) if code]
    assert heard == [b"%d" % number for number in range(300) if number not in refused]
    assert set(sent.ended) <= {0, errno.ECONNREFUSED}
    assert set(errors) <= {errno.ECONNREFUSED}
