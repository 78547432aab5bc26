"""The kernel's calls for datagrams, for every family: what they return, and that nothing makes them crash."""

from __future__ import annotations

import errno
import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whorl
from tests.core.loop_fakes import refuse_system_call
from whorl.core import Kernel
from whorl.core.kernel.datagrams import DatagramSocket
from whorl.core.limits import DATAGRAM_BLOCK, DATAGRAM_SIZE, READ_SIZE

LONGEST = 65_507  # a datagram over IPv4
FAMILIES = {"ipv4": (socket.AF_INET, ("127.0.0.1", 0)), "ipv6": (socket.AF_INET6, ("::1", 0))}


@pytest.fixture
def kernel(no_leak: None) -> Kernel:
    return Kernel()


@pytest.fixture(params=["ipv4", "ipv6", "path", "abstract"])
def ends(request: pytest.FixtureRequest, kernel: Kernel, tmp_path: Path) -> Iterator[list[DatagramSocket]]:
    """Yield two bound sockets of each family."""
    made = []
    for name in ("ours", "theirs"):
        if request.param in FAMILIES:
            family, address = FAMILIES[request.param]
        else:
            family = socket.AF_UNIX
            address = str(tmp_path / name)
            if request.param == "abstract":
                address = "\0" + address
        sock = kernel.open_socket(family, socket.SOCK_DGRAM, 0)
        assert kernel.bind(sock, address) == 0
        made.append(DatagramSocket(sock))
    yield made
    for end in made:
        end.sock.close()


def receive(kernel: Kernel, sock: DatagramSocket, limit: int = 100) -> list[tuple[bytes, Any]]:
    """Return all waiting datagrams."""
    found: list[Any] = []
    while (count := kernel.recv_datagrams(sock, found, limit)) > 0:
        assert count <= limit
    assert count == -errno.EAGAIN
    assert len(found) % 2 == 0
    return list(zip(found[::2], found[1::2], strict=True))


def test_datagrams_keep_their_bounds_and_their_senders(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    ours, theirs = ends
    sizes = [1, 0, 1000, 7]
    for size in sizes:
        assert kernel.send_datagram(ours, bytes(size), theirs.sock.getsockname()) == size
    expected = [(bytes(size), ours.sock.getsockname()) for size in sizes]
    assert receive(kernel, theirs) == expected


def test_a_connected_socket_needs_no_address(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    ours, theirs = ends
    assert kernel.connect(ours.sock, theirs.sock.getsockname()) == 0
    assert kernel.send_datagram(ours, b"", None) == 0
    assert kernel.send_datagram(ours, bytearray(b"abc"), None) == 3
    assert kernel.send_datagrams(ours, [(b"de", None), (b"f", None)], 0) == 2
    assert [data for data, _ in receive(kernel, theirs)] == [b"", b"abc", b"de", b"f"]


def test_the_longest_datagram_arrives_whole(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    ours, theirs = ends
    data = os.urandom(LONGEST)
    for view in (data, bytearray(data), memoryview(data)):
        assert kernel.send_datagram(ours, view, theirs.sock.getsockname()) == LONGEST
        assert receive(kernel, theirs) == [(data, ours.sock.getsockname())]


def test_a_datagram_over_a_unix_socket_may_be_longer_than_udps(kernel: Kernel) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        theirs.setblocking(False)
        data = os.urandom(150_000)
        assert kernel.send_datagram(DatagramSocket(ours), data, None) == len(data)
        assert receive(kernel, DatagramSocket(theirs)) == [(data, None)]


def test_a_sender_without_a_name_is_as_in_python(kernel: Kernel, tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "named")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as named,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unnamed,
    ):
        named.bind(path)
        named.setblocking(False)
        for _ in range(2):
            assert kernel.send_datagram(DatagramSocket(unnamed), b"x", path.encode()) == 1
        assert receive(kernel, DatagramSocket(named), 1) == [(b"x", None)] * 2
        unnamed.sendto(b"x", path)
        assert named.recvfrom(1) == (b"x", None)


def test_a_limit_is_kept_and_the_rest_stays(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    ours, theirs = ends
    numbers = [b"%d" % number for number in range(10)]
    for number in numbers:
        kernel.send_datagram(ours, number, theirs.sock.getsockname())
    found: list[Any] = ["what was there"]
    assert kernel.recv_datagrams(theirs, found, 1) == 1
    assert kernel.recv_datagrams(theirs, found, 2) == 2
    assert found[0] == "what was there"
    assert found[1::2] == numbers[:3]
    assert [data for data, _ in receive(kernel, theirs)] == numbers[3:]


@pytest.mark.gil("no memory of messages is used again")
@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, Python's own calls make each datagram")
def test_datagrams_take_the_memory_of_those_before(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    ours, theirs = ends
    places = []
    others = []
    for _ in range(3):
        for _ in range(5):
            kernel.send_datagram(ours, os.urandom(1000), theirs.sock.getsockname())
        places.append({id(data) for data, _ in receive(kernel, theirs)})
        others.append([bytes(1000) for _ in range(5)])  # would have taken memory that is given back
    assert places[0] == places[1] == places[2]
    assert len(places[0]) == 5


def test_a_datagram_that_is_kept_stays_as_it_was(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    ours, theirs = ends
    sent, kept = [], []
    for number in range(60):
        sent.append(os.urandom(480 + 100 * (number % 7)))
        kernel.send_datagram(ours, sent[-1], theirs.sock.getsockname())
        found = receive(kernel, theirs)
        if number % 3:
            kept.append((sent[-1], found[0][0]))
    assert all(data == arrived for data, arrived in kept)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_makes_no_sense_receives_nothing(
    kernel: Kernel, ends: list[DatagramSocket], limit: int
) -> None:
    found: list[Any] = []
    if whorl.compiled:
        assert kernel.recv_datagrams(ends[0], found, limit) == -errno.EINVAL
    else:
        assert kernel.recv_datagrams(ends[0], found, limit) == 0
    assert found == []


def test_a_queue_goes_out_in_order(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    ours, theirs = ends
    address = theirs.sock.getsockname()
    queue = [(b"%d" % number, address, "more") for number in range(100)]
    done = 3
    received = []
    while done < len(queue):
        sent = kernel.send_datagrams(ours, queue, done)
        if sent == -errno.EAGAIN:  # few datagrams of UNIX sockets wait at a time
            received += receive(kernel, theirs)
            continue
        assert sent > 0
        done += sent
    received += receive(kernel, theirs)
    assert [data for data, _ in received] == [data for data, _, _ in queue[3:]]


@pytest.mark.parametrize("first", [-1, 2, 2**31, 2**62])
def test_a_place_beyond_the_queue_is_refused(kernel: Kernel, ends: list[DatagramSocket], first: int) -> None:
    assert kernel.send_datagrams(ends[0], [(b"x", None)] * 2, first) == -errno.EINVAL


def test_an_error_is_that_of_the_first_datagram(kernel: Kernel) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs,
    ):
        theirs.bind(("127.0.0.1", 0))
        theirs.setblocking(False)
        address = theirs.getsockname()
        ends = DatagramSocket(ours)
        for wrong, code in ((bytes(100_000), errno.EMSGSIZE), (bytes(70_000), errno.EMSGSIZE)):
            queue: list[Any] = [(b"1", address), (b"2", address), (wrong, address), (b"3", address)]
            assert kernel.send_datagrams(ends, queue, 0) == 2
            assert kernel.send_datagrams(ends, queue, 2) == -code
            assert kernel.send_datagrams(ends, queue, 3) == 1
            assert [data for data, _ in receive(kernel, DatagramSocket(theirs))] == [b"1", b"2", b"3"]
        queue = [(b"1", address), (b"2", ("no such address",)), (b"3", address)]
        assert kernel.send_datagrams(ends, queue, 0) == 1
        with pytest.raises(TypeError):
            kernel.send_datagrams(ends, queue, 1)
        assert kernel.send_datagrams(ends, queue, 2) == 1


def test_a_port_nobody_listens_at_is_reported(kernel: Kernel) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs,
    ):
        theirs.bind(("127.0.0.1", 0))
        ours.connect(theirs.getsockname())
        ours.setblocking(False)
        theirs.close()
        end = DatagramSocket(ours)
        assert kernel.send_datagram(end, b"x", None) == 1
        assert kernel.recv_datagrams(end, [], 1) == -errno.ECONNREFUSED
        assert kernel.send_datagram(end, b"x", None) == 1
        assert kernel.recv_datagrams(end, [], 16) == -errno.ECONNREFUSED
        assert kernel.recv_datagrams(end, [], 16) == -errno.EAGAIN


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, None),
        (socket.AF_INET, ()),
        (socket.AF_INET, ("127.0.0.1",)),
        (socket.AF_INET, ("127.0.0.1", 9, 9)),
        (socket.AF_INET, ["127.0.0.1", 9]),
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, (1, 9)),
        (socket.AF_INET, ("127.0.0.1", "9")),
        (socket.AF_INET, ("127.0.0.1", 65536)),
        (socket.AF_INET, ("127.0.0.1", -1)),
        (socket.AF_INET, ("127.0.0.1", 2**64)),
        (socket.AF_INET, ("127.0.0.1", 9.0)),
        (socket.AF_INET, ("::1", 9)),
        (socket.AF_INET, ("127.0.0.1\0", 9)),
        (socket.AF_INET, ("x" * 100_000, 9)),
        (socket.AF_INET6, ("127.0.0.1",)),
        (socket.AF_INET6, ("::1", 9, 2**20)),
        (socket.AF_INET6, ("::1", 9, 0, -1)),
        (socket.AF_INET6, ("::1", 9, 0, 0, 0)),
        (socket.AF_UNIX, ("a", 1)),
        (socket.AF_UNIX, "x" * 108),
        (socket.AF_UNIX, b"\0" * 109),
        (socket.AF_UNIX, "/no/such/place"),
        (socket.AF_UNIX, "no\0place"),
        (socket.AF_UNIX, "\ud800"),
        (socket.AF_UNIX, 5),
    ],
)
def test_an_address_is_refused_as_python_refuses_it(kernel: Kernel, family: int, address: Any) -> None:
    def outcome(send: Any) -> Any:
        try:
            return send()
        except OSError as error:
            return -(error.errno or 0) if error.errno and error.errno > 0 else type(error)
        except Exception as error:
            return type(error), str(error)

    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        expected = outcome(lambda: sock.sendto(b"x", address))
        if address is not None:
            assert outcome(lambda: kernel.send_datagram(DatagramSocket(sock), b"x", address)) == expected
            assert outcome(lambda: kernel.send_datagrams(DatagramSocket(sock), [(b"x", address)], 0)) in (
                expected,
                1,
            )
        assert outcome(lambda: kernel.sendto(sock, b"x", address)) == expected


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    flow=st.integers(0, 2**20 - 1),
    kind=st.sampled_from([tuple, list]),
    extra=st.lists(st.one_of(st.integers(-1, 2**33), st.none(), st.text("x:1")), max_size=3),
)
def test_send_datagram_treats_addresses_as_python_does(
    kernel: Kernel, flow: int, kind: type, extra: list[Any]
) -> None:
    address = kind(["::1", 9, flow, *extra])
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as theirs,
    ):
        results = []
        for send in (
            lambda: theirs.sendto(b"", address),
            lambda: kernel.send_datagram(DatagramSocket(ours), b"", address),
        ):
            try:
                results.append(send())
            except OSError as error:
                results.append(-(error.errno or 0))
            except Exception as error:
                results.append(type(error))
        assert results[0] == results[1]


def test_ipv6_flow_information_and_scope_are_kept(kernel: Kernel) -> None:
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as theirs,
    ):
        for sock in (ours, theirs):
            sock.bind(("::1", 0))
            sock.setsockopt(socket.IPPROTO_IPV6, 33, 1)  # IPV6_FLOWINFO_SEND
        theirs.setsockopt(socket.IPPROTO_IPV6, 11, 1)  # IPV6_FLOWINFO
        theirs.setblocking(False)
        address = (*theirs.getsockname()[:2], 0x54321, 0)
        kernel.send_datagram(DatagramSocket(ours), b"x", address)
        found = receive(kernel, DatagramSocket(theirs))
        ours.sendto(b"x", address)
        assert found == [theirs.recvfrom(1)]


def test_send_datagram_leaves_other_families_to_python(kernel: Kernel) -> None:
    try:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    except OSError as error:
        pytest.skip(str(error))
    with sock:
        sock.bind((0, 0))
        sock.setblocking(False)
        end = DatagramSocket(sock)
        assert end.family == 0
        request = b"\x14\0\0\0\x12\0\x01\x03\x01\0\0\0\0\0\0\0\0\0\0\0"  # RTM_GETLINK for all
        assert kernel.send_datagram(end, request, (0, 0)) == len(request)
        assert kernel.send_datagrams(end, [(request, (0, 0))], 0) in (1, -errno.EBUSY)
        found = receive(kernel, end)
        assert found
        assert all(address == (0, 0) for _, address in found)


def test_a_buffer_is_released_after_the_call(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    data = bytearray(10)
    kernel.send_datagram(ends[0], data, ends[1].sock.getsockname())
    kernel.sendto(ends[0].sock, data, ends[1].sock.getsockname())
    ends[0].fd = -1
    if whorl.compiled:
        assert kernel.send_datagram(ends[0], data, None) == -errno.EBADF
    data.append(1)  # raises while the buffer is exported


@pytest.mark.parametrize("queue", [[None], [(None, None)], [("text", None)], [()], [(b"x",)], ["ab"]])
def test_a_queue_of_something_else_is_an_error(
    kernel: Kernel, ends: list[DatagramSocket], queue: list[Any]
) -> None:
    with pytest.raises((TypeError, IndexError)):
        kernel.send_datagrams(ends[0], queue, 0)


def test_the_block_holds_more_than_one_datagram_of_any_kind() -> None:
    assert DATAGRAM_BLOCK >= 2 * READ_SIZE >= 2 * DATAGRAM_SIZE > 2 * LONGEST


def test_calls_by_object_give_what_python_gives(kernel: Kernel, ends: list[DatagramSocket]) -> None:
    ours, theirs = ends[0].sock, ends[1].sock
    address = theirs.getsockname()
    assert kernel.recvfrom(theirs, 10) == -errno.EAGAIN
    assert kernel.recvfrom_into(theirs, bytearray(3), 3) == -errno.EAGAIN
    for _ in range(2):
        assert kernel.sendto(ours, b"hello", address) == 5
    assert kernel.recvfrom(theirs, 4) == (b"hell", ours.getsockname())  # the rest is lost, as ever
    buffer = bytearray(10)
    assert kernel.recvfrom_into(theirs, buffer, 10) == (5, ours.getsockname())
    assert buffer == b"hello\0\0\0\0\0"
    with pytest.raises(ValueError, match="nbytes"):
        kernel.recvfrom_into(theirs, buffer, 11)
    assert kernel.sendto(ours, bytes(10_000_000), address) in (-errno.EMSGSIZE, -errno.ENOBUFS)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
@pytest.mark.skipif(platform.machine() != "x86_64", reason="knows the numbers of system calls of x86_64 only")
def test_a_kernel_that_refuses_to_move_several_at_once_moves_them_one_by_one(code: int) -> None:
    recvmmsg, sendmmsg = 299, 307
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if refuse_system_call(recvmmsg, code) and refuse_system_call(sendmmsg, code):
                move_a_hundred()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def move_a_hundred() -> None:
    """Send and receive a hundred datagrams, as many at a time as the kernel takes."""
    kernel = Kernel()
    sock = kernel.open_socket(socket.AF_INET, socket.SOCK_DGRAM, 0)
    kernel.bind(sock, ("127.0.0.1", 0))
    end = DatagramSocket(sock)
    queue = [(b"%d" % number, sock.getsockname()) for number in range(100)]
    done = 0
    while done < len(queue):
        sent = kernel.send_datagrams(end, queue, done)
        assert sent > 0
        done += sent
    assert receive(kernel, end, 16) == queue
    assert not kernel.receives_many()
