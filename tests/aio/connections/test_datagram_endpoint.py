"""Datagram endpoints: how they are made, what they send and receive, and how they end."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import gc
import itertools
import logging
import os
import socket
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import Watched, turns
from whorl.core import Kernel
from whorl.core.limits import DATAGRAMS_PER_EVENT

pytestmark = pytest.mark.usefixtures("no_leak")

LONGEST = 65_507  # a datagram over IPv4
HEADER = 8 if sys.version_info >= (3, 13) else 0  # what asyncio counts for each one that waits

HOSTS = {"ipv4": (socket.AF_INET, "127.0.0.1"), "ipv6": (socket.AF_INET6, "::1")}
FAMILIES = ["ipv4", "ipv6", "unix", "abstract"]


class Recorder(Watched, asyncio.DatagramProtocol):
    """Notes every call."""

    def __init__(self) -> None:
        super().__init__()
        self.transport: Any = None
        self.calls: list[str] = []
        self.received: list[tuple[bytes, Any]] = []
        self.errors: list[BaseException] = []
        self.error: BaseException | None = None

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.changed()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.note("connection_made")

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert type(data) is bytes
        self.received.append((data, addr))
        self.note("datagram_received")

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)
        self.note("error_received")

    def pause_writing(self) -> None:
        self.note("pause_writing")

    def resume_writing(self) -> None:
        self.note("resume_writing")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.note("connection_lost")

    @property
    def is_lost(self) -> bool:
        assert self.calls.count("connection_lost") <= 1
        return "connection_lost" in self.calls

    async def until_received(self, count: int) -> list[bytes]:
        await self.until(lambda: len(self.received) >= count)
        return [data for data, _ in self.received]

    async def until_lost(self) -> BaseException | None:
        await self.until(lambda: self.is_lost)
        return self.error


class StubbornKernel(Kernel):
    """A kernel that answers to sends as it is told, before it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[int] = []

    def send_datagram(self, sock: Any, data: Any, address: Any) -> int:
        return self.answers.pop(0) if self.answers else super().send_datagram(sock, data, address)

    def send_datagrams(self, sock: Any, queue: list[Any], first: int) -> int:
        return self.answers.pop(0) if self.answers else super().send_datagrams(sock, queue, first)


class Ends:
    """Makes endpoints, and ends them after the test."""

    def __init__(self, loop: Any, folder: Path) -> None:
        self.loop = loop
        self.folder = folder
        self.made: list[Recorder] = []

    async def endpoint(self, protocol: Recorder | None = None, **options: Any) -> Recorder:
        protocol = Recorder() if protocol is None else protocol
        await self.loop.create_datagram_endpoint(lambda: protocol, **options)
        self.made.append(protocol)
        return protocol

    def address(self, family: str) -> dict[str, Any]:
        """Return the arguments for an endpoint of this family."""
        if family in HOSTS:
            return {"local_addr": (HOSTS[family][1], 0)}
        path = os.fspath(self.folder / str(len(self.made)))
        return {"local_addr": path if family == "unix" else "\0" + path, "family": socket.AF_UNIX}

    async def pair(self, family: str = "ipv4", connected: bool = True) -> tuple[Recorder, Recorder]:
        """Return two endpoints; the first is connected to the second on request."""
        theirs = await self.endpoint(**self.address(family))
        options = self.address(family)
        if connected:
            name = theirs.transport.get_extra_info("sockname")
            if isinstance(name, bytes):
                name = name.decode()
            options["remote_addr"] = name[:2] if isinstance(name, tuple) else name
        return await self.endpoint(**options), theirs

    async def close(self) -> None:
        for protocol in self.made:
            protocol.transport.abort()
            await protocol.until_lost()


@pytest.fixture
def ends(loop: whorl.EventLoop, tmp_path: Path) -> Iterator[Ends]:
    ends = Ends(loop, tmp_path)
    yield ends
    loop.run_until_complete(ends.close())


@pytest.fixture
def stubborn() -> StubbornKernel:
    return StubbornKernel()


@pytest.fixture
def kernel(request: pytest.FixtureRequest, kernel: Any) -> Any:
    """Return a kernel that refuses on demand, for the tests that ask for it."""
    return request.getfixturevalue("stubborn") if "stubborn" in request.fixturenames else kernel


async def nothing() -> None:
    """Do nothing."""


# Sending and receiving.


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not connected"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_datagrams_go_both_ways(ends: Ends, family: str, connected: bool) -> None:
    ours, theirs = await ends.pair(family, connected)
    address = theirs.transport.get_extra_info("sockname")
    ours.transport.sendto(b"to you", None if connected else address)
    assert await theirs.until_received(1) == [b"to you"]
    assert theirs.received[0][1] == ours.transport.get_extra_info("sockname")
    theirs.transport.sendto(bytearray(b"to me"), theirs.received[0][1])
    assert await ours.until_received(1) == [b"to me"]
    assert ours.received[0][1] == address
    peer = ours.transport.get_extra_info("peername")
    assert peer == (address if connected else None)


@pytest.mark.parametrize("family", FAMILIES)
async def test_datagrams_keep_their_bounds_and_their_order(ends: Ends, family: str) -> None:
    ours, theirs = await ends.pair(family)
    sizes = [1, 1000, LONGEST, 2, 60_000, 3]
    for size in sizes:
        ours.transport.sendto(bytes(size))
        await theirs.until_received(len(theirs.received) + 1)
    for number in range(100):
        ours.transport.sendto(b"%d" % number)
    received = await theirs.until_received(len(sizes) + 100)
    assert [len(data) for data in received[: len(sizes)]] == sizes
    assert received[len(sizes) :] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not connected"])
async def test_an_empty_datagram_is_one_where_asyncio_says_so(ends: Ends, connected: bool) -> None:
    ours, theirs = await ends.pair(connected=connected)
    address = None if connected else theirs.transport.get_extra_info("sockname")
    for data in (b"", bytearray(), memoryview(b""), b"end"):
        ours.transport.sendto(data, address)
    expected = [b""] * 3 if sys.version_info >= (3, 13) else []
    assert await theirs.until_received(len(expected) + 1) == [*expected, b"end"]


async def test_any_kind_of_bytes_is_sent(ends: Ends) -> None:
    ours, theirs = await ends.pair()
    numbers = memoryview(b"abcdefgh")
    kinds = [b"ab", bytearray(b"ab"), numbers, numbers.cast("I"), numbers[::2]]
    for data in kinds:
        ours.transport.sendto(data)
    assert await theirs.until_received(5) == [b"ab", b"ab", b"abcdefgh", b"abcdefgh", b"aceg"]


async def test_a_datagram_of_a_unix_socket_may_be_longer_than_udps(ends: Ends) -> None:
    ours, theirs = await ends.pair("unix")
    data = os.urandom(150_000)
    ours.transport.sendto(data)
    assert await theirs.until_received(1) == [data]


async def test_a_pair_of_unix_sockets_without_names(loop: whorl.EventLoop, ends: Ends) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    first = await ends.endpoint(sock=ours)
    second = await ends.endpoint(sock=theirs)
    first.transport.sendto(b"x")
    assert await second.until_received(1) == [b"x"]
    assert second.received == [(b"x", None)]


async def test_an_address_of_a_connected_socket_of_the_users_is_not_looked_at(ends: Ends) -> None:
    theirs = await ends.endpoint(local_addr=("127.0.0.1", 0))
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(theirs.transport.get_extra_info("sockname"))
    ours = await ends.endpoint(sock=sock)
    ours.transport.sendto(b"x", ("nowhere", "at all"))
    assert await theirs.until_received(1) == [b"x"]


async def test_the_peer_of_a_connected_socket_may_be_told_by_asyncios_private_name(ends: Ends) -> None:
    theirs = await ends.endpoint(local_addr=("127.0.0.1", 0))
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(theirs.transport.get_extra_info("sockname"))
    ours = await ends.endpoint(sock=sock)
    ours.transport._address = ours.transport.get_extra_info("peername")
    with pytest.raises(ValueError, match="Invalid address: must be None or"):
        ours.transport.sendto(b"x", ("127.0.0.1", 9))
    ours.transport.sendto(b"x")
    assert await theirs.until_received(1) == [b"x"]


async def test_a_name_is_resolved_as_python_does(ends: Ends) -> None:
    ours, theirs = await ends.pair(connected=False)
    ours.transport.sendto(b"x", ("localhost", theirs.transport.get_extra_info("sockname")[1]))
    assert await theirs.until_received(1) == [b"x"]


async def test_a_family_that_only_python_knows(loop: whorl.EventLoop, ends: Ends) -> None:
    try:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 0)
    except OSError as error:
        pytest.skip(str(error))
    sock.bind((0, 0))
    ours = await ends.endpoint(sock=sock)
    request = b"\x14\0\0\0\x12\0\x01\x03\x01\0\0\0\0\0\0\0\0\0\0\0"  # RTM_GETLINK for all
    ours.transport.sendto(request, (0, 0))
    await ours.until_received(1)
    assert ours.received[0][1] == (0, 0)
    assert len(ours.received[0][0]) > 20


async def test_a_flood_is_received_some_at_a_time(loop: whorl.EventLoop, ends: Ends) -> None:
    ours, theirs = await ends.pair()
    theirs.transport.pause_reading()
    for number in range(5 * DATAGRAMS_PER_EVENT):
        ours.transport.sendto(b"%d" % number)
    bursts = []

    def look() -> None:
        bursts.append(len(theirs.received))
        if bursts[-1] < 5 * DATAGRAMS_PER_EVENT:
            loop.call_soon(look)
        else:
            theirs.changed()

    theirs.transport.resume_reading()
    loop.call_soon(look)
    await theirs.until(lambda: bursts and bursts[-1] == 5 * DATAGRAMS_PER_EVENT)
    steps = [after - before for before, after in itertools.pairwise(bursts)]
    assert max(steps) <= DATAGRAMS_PER_EVENT
    assert [int(data) for data, _ in theirs.received] == list(range(5 * DATAGRAMS_PER_EVENT))


@pytest.mark.exact("says how much waits")
async def test_a_slow_reader_takes_no_memory(loop: whorl.EventLoop, ends: Ends) -> None:
    ours, theirs = await ends.pair()
    theirs.transport.pause_reading()
    for _ in range(1000):
        ours.transport.sendto(bytes(10_000))  # the kernel drops what its buffer does not hold
    await turns(5)
    assert theirs.received == []
    assert ours.transport.get_write_buffer_size() == 0


async def test_reading_stops_in_the_middle_of_a_batch_and_goes_on(ends: Ends) -> None:
    class Choosy(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"2":
                self.transport.pause_reading()

    theirs = await ends.endpoint(Choosy(), local_addr=("127.0.0.1", 0))
    ours = await ends.endpoint(remote_addr=theirs.transport.get_extra_info("sockname"))
    for number in range(10):
        ours.transport.sendto(b"%d" % number)
    await theirs.until(lambda: not theirs.transport.is_reading())
    await turns(5)
    assert len(theirs.received) == 3
    theirs.transport.resume_reading()
    received = await theirs.until_received(10)
    assert received == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_datagram_received_is_not_called_after_close_or_abort(ends: Ends, end: str) -> None:
    class Impatient(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            getattr(self.transport, end)()

    theirs = await ends.endpoint(Impatient(), local_addr=("127.0.0.1", 0))
    ours = await ends.endpoint(remote_addr=theirs.transport.get_extra_info("sockname"))
    for _ in range(10):
        ours.transport.sendto(b"x")
    assert await theirs.until_lost() is None
    assert theirs.calls == ["connection_made", "datagram_received", "connection_lost"]


async def test_a_protocol_is_replaced_in_the_middle_of_a_batch(ends: Ends) -> None:
    second = Recorder()

    class First(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.transport.set_protocol(second)

    theirs = await ends.endpoint(First(), local_addr=("127.0.0.1", 0))
    ours = await ends.endpoint(remote_addr=theirs.transport.get_extra_info("sockname"))
    for _ in range(5):
        ours.transport.sendto(b"x")
    await second.until_received(4)
    assert len(theirs.received) == 1
    assert theirs.transport.get_protocol() is second
    theirs.transport.set_protocol(theirs)


# Errors.


async def test_a_port_nobody_listens_at_is_told_and_ends_nothing(ends: Ends) -> None:
    ours, theirs = await ends.pair()
    theirs.transport.close()
    await theirs.until_lost()
    for _ in range(2):
        ours.transport.sendto(b"x")
        before = len(ours.errors)
        await ours.until(lambda: len(ours.errors) > before)  # noqa: B023
        assert isinstance(ours.errors[-1], ConnectionRefusedError)
    assert not ours.transport.is_closing()


@pytest.mark.exact("looks at once for what was said")
async def test_a_datagram_that_is_too_long_is_told_at_once(ends: Ends) -> None:
    ours, _ = await ends.pair()
    ours.transport.sendto(bytes(LONGEST + 1))
    assert [error.errno for error in ours.errors if isinstance(error, OSError)] == [errno.EMSGSIZE]
    assert not ours.transport.is_closing()


@pytest.mark.exact("looks at once for what was said")
async def test_a_name_that_cannot_be_resolved_is_told(ends: Ends) -> None:
    ours, _ = await ends.pair(connected=False)
    ours.transport.sendto(b"x", ("::1", 9))
    assert [type(error) for error in ours.errors] == [socket.gaierror]
    assert not ours.transport.is_closing()


@pytest.mark.parametrize("address", [5, ("127.0.0.1",), ("127.0.0.1", "9"), ("127.0.0.1", -1), None])
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "later"])
async def test_an_address_that_is_none_ends_the_endpoint(
    ends: Ends, reported: list[dict[str, Any]], stubborn: StubbornKernel, address: Any, waits: bool
) -> None:
    ours, theirs = await ends.pair(connected=False)
    if waits:
        stubborn.answers = [-errno.EAGAIN]
        ours.transport.sendto(b"x", theirs.transport.get_extra_info("sockname"))
    ours.transport.sendto(b"x", address)
    assert isinstance(await ours.until_lost(), TypeError | OverflowError)
    (context,) = reported
    reported.clear()
    assert context["message"] == "Fatal write error on datagram transport"
    assert context["exception"] is ours.error
    assert context["transport"] is ours.transport
    assert context["protocol"] is ours


@pytest.mark.exact("looks at once for what was said")
@pytest.mark.parametrize("call", ["datagram_received", "error_received"])
async def test_an_error_out_of_a_protocol_is_reported_and_ends_nothing(
    ends: Ends, reported: list[dict[str, Any]], call: str
) -> None:
    class Faulty(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"fail":
                raise RuntimeError("I refuse")

        def error_received(self, exc: Exception) -> None:
            super().error_received(exc)
            raise RuntimeError("I refuse")

    ours = await ends.endpoint(Faulty(), local_addr=("127.0.0.1", 0))
    address = ours.transport.get_extra_info("sockname")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.connect(address)
        if call == "error_received":
            with pytest.raises(RuntimeError, match="I refuse"):
                ours.transport.sendto(bytes(LONGEST + 1), address)
        else:
            for data in (b"1", b"fail", b"2", b"fail", b"3"):
                peer.send(data)
            assert await ours.until_received(5) == [b"1", b"fail", b"2", b"fail", b"3"]
            assert len(reported) == 2
            assert {str(context["exception"]) for context in reported} == {"I refuse"}
            reported.clear()
    assert not ours.transport.is_closing()


async def test_an_error_out_of_error_received_for_a_lost_peer_is_reported(
    ends: Ends, reported: list[dict[str, Any]]
) -> None:
    class Faulty(Recorder):
        def error_received(self, exc: Exception) -> None:
            super().error_received(exc)
            raise RuntimeError("I refuse")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        address = peer.getsockname()
    ours = await ends.endpoint(Faulty(), remote_addr=address)
    ours.transport.sendto(b"x")
    await ours.until(lambda: reported)
    assert str(reported.pop()["exception"]) == "I refuse"
    assert not ours.transport.is_closing()


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_exit_raised_by_a_datagram_protocol_loses_no_datagram(
    loop: whorl.EventLoop, tmp_path: Path, leaving: type[BaseException]
) -> None:
    class Leaving(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"1":
                raise leaving

    ends = Ends(loop, tmp_path)
    theirs = loop.run_until_complete(ends.endpoint(Leaving(), local_addr=("127.0.0.1", 0)))
    ours = loop.run_until_complete(ends.endpoint(remote_addr=theirs.transport.get_extra_info("sockname")))
    for number in range(5):
        ours.transport.sendto(b"%d" % number)
    with pytest.raises(leaving):
        loop.run_until_complete(asyncio.sleep(5))
    assert len(theirs.received) == 2
    received = loop.run_until_complete(theirs.until_received(5))
    assert received == [b"%d" % number for number in range(5)]
    loop.run_until_complete(ends.close())


async def test_an_error_out_of_the_first_and_the_last_call_is_reported(
    loop: whorl.EventLoop, reported: list[dict[str, Any]]
) -> None:
    class Faulty(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            raise RuntimeError("first")

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            raise RuntimeError("last")

    protocol = Faulty()
    transport, _ = await loop.create_datagram_endpoint(lambda: protocol, ("127.0.0.1", 0))
    transport.close()
    await protocol.until_lost()
    await turns(1)
    assert [str(context["exception"]) for context in reported] == ["first", "last"]
    reported.clear()
    assert transport.get_extra_info("socket").fileno() == -1


# Flow control.


async def test_sendto_buffers_datagrams_that_the_kernel_refuses(ends: Ends, stubborn: StubbornKernel) -> None:
    ours, theirs = await ends.pair()
    mutable = bytearray(b"two")
    stubborn.answers = [-errno.EAGAIN]
    for data in (b"one", mutable, memoryview(b"three")):
        ours.transport.sendto(data)
    mutable[:] = b"xxx"
    assert ours.transport.get_write_buffer_size() == 11 + 3 * HEADER
    assert await theirs.until_received(3) == [b"one", b"two", b"three"]
    await turns(2)
    assert ours.transport.get_write_buffer_size() == 0


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EINTR])
async def test_buffered_datagrams_are_sent_in_order(ends: Ends, stubborn: StubbornKernel, code: int) -> None:
    ours, theirs = await ends.pair("unix")
    stubborn.answers = [-code] * 5
    for number in range(100):
        ours.transport.sendto(b"%d" % number)
    received = await theirs.until_received(100)
    assert received == [b"%d" % number for number in range(100)]


async def test_a_protocol_is_paused_and_resumed_at_the_watermarks(
    ends: Ends, stubborn: StubbornKernel
) -> None:
    ours, theirs = await ends.pair()
    ours.transport.set_write_buffer_limits(high=20)
    assert ours.transport.get_write_buffer_limits() == (5, 20)
    stubborn.answers = [-errno.EAGAIN]
    ours.transport.sendto(bytes(20 - HEADER))
    assert ours.calls == ["connection_made"]
    ours.transport.sendto(b"x")
    assert ours.calls == ["connection_made", "pause_writing"]
    ours.transport.sendto(b"x")
    assert ours.calls == ["connection_made", "pause_writing"]
    await theirs.until_received(3)
    await ours.until(lambda: "resume_writing" in ours.calls)
    assert ours.calls == ["connection_made", "pause_writing", "resume_writing"]


async def test_the_size_of_what_waits_comes_back_to_nothing(ends: Ends, stubborn: StubbornKernel) -> None:
    ours, theirs = await ends.pair()
    for _ in range(3):
        stubborn.answers = [-errno.EAGAIN, -errno.EAGAIN, 1, -errno.EAGAIN]
        for _ in range(5):
            ours.transport.sendto(b"abc")
        # The kernel said once that it took one, and did not.
        await ours.until(lambda: True)
        while ours.transport.get_write_buffer_size():
            await asyncio.sleep(0)
    assert len(await theirs.until_received(12)) == 12


async def test_a_refusal_of_what_waited_is_told_and_the_rest_goes_out(
    ends: Ends, stubborn: StubbornKernel
) -> None:
    ours, theirs = await ends.pair()
    stubborn.answers = [-errno.EAGAIN, 1, -errno.ENOBUFS, 1]
    for number in range(6):
        ours.transport.sendto(b"%d" % number)
    assert await theirs.until_received(3) == [b"3", b"4", b"5"]
    assert [error.errno for error in ours.errors if isinstance(error, OSError)] == [errno.ENOBUFS]


async def test_an_error_of_flow_control_is_only_reported(
    ends: Ends, reported: list[dict[str, Any]], stubborn: StubbornKernel
) -> None:
    class Faulty(Recorder):
        def pause_writing(self) -> None:
            super().pause_writing()
            raise RuntimeError("pause")

        def resume_writing(self) -> None:
            super().resume_writing()
            raise RuntimeError("resume")

    theirs = await ends.endpoint(local_addr=("127.0.0.1", 0))
    ours = await ends.endpoint(Faulty(), remote_addr=theirs.transport.get_extra_info("sockname"))
    ours.transport.set_write_buffer_limits(high=0)
    stubborn.answers = [-errno.EAGAIN]
    ours.transport.sendto(b"x")
    await ours.until(lambda: "resume_writing" in ours.calls)
    await theirs.until_received(1)
    assert [context["message"] for context in reported] == [
        "protocol.pause_writing() failed",
        "protocol.resume_writing() failed",
    ]
    reported.clear()


async def test_datagrams_that_resume_writing_sends_go_out(ends: Ends, stubborn: StubbornKernel) -> None:
    class Eager(Recorder):
        def resume_writing(self) -> None:
            super().resume_writing()
            stubborn.answers = [-errno.EAGAIN]
            self.transport.sendto(b"more")

    theirs = await ends.endpoint(local_addr=("127.0.0.1", 0))
    ours = await ends.endpoint(Eager(), remote_addr=theirs.transport.get_extra_info("sockname"))
    ours.transport.set_write_buffer_limits(high=HEADER + 4)
    stubborn.answers = [-errno.EAGAIN]
    ours.transport.sendto(b"12345")
    assert await theirs.until_received(2) == [b"12345", b"more"]


def test_watermarks_that_make_no_sense_are_refused() -> None:
    async def use(loop: Any) -> None:
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
        try:
            transport.set_write_buffer_limits(high=1, low=2)
        finally:
            transport.close()
            await asyncio.sleep(0)

    assert error_as_in_asyncio(use)[0] is ValueError


# The end.


async def test_close_sends_what_waits(ends: Ends, stubborn: StubbornKernel) -> None:
    ours, theirs = await ends.pair()
    stubborn.answers = [-errno.EAGAIN] * 3
    for number in range(50):
        ours.transport.sendto(b"%d" % number)
    ours.transport.close()
    ours.transport.close()
    assert ours.transport.is_closing()
    assert not ours.is_lost
    assert await ours.until_lost() is None
    assert await theirs.until_received(50) == [b"%d" % number for number in range(50)]


async def test_abort_drops_what_waits(ends: Ends, stubborn: StubbornKernel) -> None:
    ours, theirs = await ends.pair()
    stubborn.answers = [-errno.EAGAIN]
    ours.transport.sendto(b"x")
    ours.transport.close()
    ours.transport.abort()
    ours.transport.abort()
    assert await ours.until_lost() is None
    await turns(5)
    assert theirs.received == []
    assert ours.transport.get_write_buffer_size() == 0


async def test_resume_writing_is_not_called_after_abort(ends: Ends, stubborn: StubbornKernel) -> None:
    ours, _ = await ends.pair()
    ours.transport.set_write_buffer_limits(high=0)
    stubborn.answers = [-errno.EAGAIN]
    ours.transport.sendto(b"x")
    ours.transport.abort()
    await ours.until_lost()
    await turns(5)
    assert ours.calls == ["connection_made", "pause_writing", "connection_lost"]


async def test_a_closed_endpoint_can_still_be_asked(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = await ends.pair()
    name = ours.transport.get_extra_info("sockname")
    ours.transport.close()
    await ours.until_lost()
    assert ours.calls == ["connection_made", "connection_lost"]
    assert ours.transport.get_extra_info("sockname") == name
    assert ours.transport.get_extra_info("nothing", 5) == 5
    assert ours.transport.get_protocol() is None
    assert "closed" in repr(ours.transport)
    for call in ("close", "abort", "pause_reading", "resume_reading"):
        getattr(ours.transport, call)()
    assert not ours.transport.is_reading()
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            ours.transport.sendto(b"x")
    assert {record.message for record in caplog.records} == {"socket.send() raised exception."}
    await turns(2)
    assert theirs.received == []


def test_warnings_about_datagrams_to_nobody_come_as_in_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    async def use(loop: Any) -> list[int]:
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("127.0.0.1", 9)
        )
        transport.close()
        counts = []
        for turn in range(10):
            caplog.clear()
            transport.sendto(b"x")
            counts.append(len(caplog.records))
            if turn == 2:
                await asyncio.sleep(0)
        return counts

    assert is_as_in_asyncio(use)


@pytest.mark.exact("what the kernel refuses is not sent")
async def test_a_datagram_sent_before_connection_lost_still_goes_out(ends: Ends) -> None:
    ours, theirs = await ends.pair(connected=False)
    ours.transport.close()
    ours.transport.sendto(b"x", theirs.transport.get_extra_info("sockname"))
    assert await theirs.until_received(1) == [b"x"]


async def test_an_endpoint_may_be_closed_in_connection_made(ends: Ends) -> None:
    class Hasty(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.close()

    ours = await ends.endpoint(Hasty(), local_addr=("127.0.0.1", 0))
    await ours.until_lost()
    assert ours.calls == ["connection_made", "connection_lost"]


async def test_a_number_used_again_gets_nothing_of_the_old_endpoint(
    loop: whorl.EventLoop, ends: Ends
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        for _ in range(20):
            ours = await ends.endpoint(local_addr=("127.0.0.1", 0))
            peer.sendto(b"old", ours.transport.get_extra_info("sockname"))
            fd = ours.transport.get_extra_info("socket").fileno()
            ours.transport.abort()
            await ours.until_lost()
            new = await ends.endpoint(local_addr=("127.0.0.1", 0))
            assert new.transport.get_extra_info("socket").fileno() == fd
            await turns(2)
            assert new.received == []
            new.transport.abort()
            await new.until_lost()


async def test_endpoints_close_each_other_in_their_callbacks(ends: Ends) -> None:
    class Jealous(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            for other in everybody:
                if other is not self:
                    other.transport.abort()

    everybody = [await ends.endpoint(Jealous(), local_addr=("127.0.0.1", 0)) for _ in range(5)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        for one in everybody:
            peer.sendto(b"x", one.transport.get_extra_info("sockname"))
    while not any(one.received for one in everybody):
        await turns(1)
    for one in everybody:
        if not one.received:
            await one.until_lost()
    assert sum(bool(one.received) for one in everybody) == 1


def test_an_endpoint_that_nobody_closed_complains(plain_loop: whorl.EventLoop) -> None:
    transport, _ = plain_loop.run_until_complete(
        plain_loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    )
    transport.pause_reading()
    kept = [transport]
    del transport
    with pytest.warns(ResourceWarning, match=r"unclosed transport <_SelectorDatagramTransport fd=\d+ read"):
        kept.clear()


def test_a_loop_dropped_with_its_endpoints_is_collected() -> None:
    loop = whorl.EventLoop()
    transport, _ = loop.run_until_complete(
        loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    )
    fd = transport.get_extra_info("socket").fileno()
    reference = weakref.ref(loop)
    del loop, transport
    with pytest.warns(ResourceWarning):
        gc.collect()
    gc.collect()
    assert reference() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.fixture
def plain_loop() -> Iterator[whorl.EventLoop]:
    loop = whorl.EventLoop()
    yield loop
    loop.close()


async def test_closed_endpoint_and_its_protocol_are_freed(loop: whorl.EventLoop, tmp_path: Path) -> None:
    transport, protocol = await loop.create_datagram_endpoint(Recorder, ("127.0.0.1", 0))
    transport.sendto(b"x", transport.get_extra_info("sockname"))
    await protocol.until_received(1)
    transport.close()
    await protocol.until_lost()
    await turns(2)
    references = [weakref.ref(transport), weakref.ref(protocol)]
    del transport, protocol
    gc.collect()
    assert [reference() for reference in references] == [None, None]


# Attributes.


async def test_a_transport_is_asyncios(ends: Ends) -> None:
    ours = await ends.endpoint(local_addr=("127.0.0.1", 0))
    transport = ours.transport
    assert isinstance(transport, asyncio.DatagramTransport)
    assert isinstance(transport, asyncio.BaseTransport)
    assert isinstance(transport, asyncio.Transport)  # so it is in asyncio, too
    assert not isinstance(transport, asyncio.SubprocessTransport)
    assert isinstance(transport.get_extra_info("socket"), asyncio.trsock.TransportSocket)
    assert transport.get_extra_info("sockname") == transport.get_extra_info("socket").getsockname()
    assert transport.get_extra_info("peername") is None
    assert transport.is_reading()
    assert transport.get_write_buffer_limits() == (16384, 65536)
    fd = transport.get_extra_info("socket").fileno()
    assert repr(transport) == f"<_SelectorDatagramTransport fd={fd} read=polling write=<idle, bufsize=0>>"


async def test_methods_can_be_replaced(ends: Ends) -> None:
    ours, theirs = await ends.pair()
    sent: list[Any] = []
    ours.transport.sendto = lambda *args: sent.append(args)
    ours.transport.sendto(b"x", 5)
    assert sent == [(b"x", 5)]
    del ours.transport.sendto
    seen: list[Any] = []
    theirs.datagram_received = lambda data, addr: seen.append(data)  # type: ignore[method-assign]
    ours.transport.sendto(b"y")
    while not seen:
        await asyncio.sleep(0)
    assert seen == [b"y"]


async def test_callbacks_run_in_the_context_of_the_endpoint(loop: whorl.EventLoop, ends: Ends) -> None:
    variable = contextvars.ContextVar("variable", default="outside")
    seen: list[str] = []

    class Contextual(Recorder):
        def note(self, call: str) -> None:
            seen.append(variable.get())
            super().note(call)

    async def make() -> Recorder:
        variable.set("inside")
        return await ends.endpoint(Contextual(), local_addr=("127.0.0.1", 0))

    ours = await asyncio.create_task(make())
    ours.transport.sendto(b"x", ours.transport.get_extra_info("sockname"))
    await ours.until_received(1)
    ours.transport.close()
    await ours.until_lost()
    assert seen == ["inside"] * 3


# Making endpoints.


REFUSED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a family and no address, twice": {"family": socket.AF_INET, "local_addr": ("127.0.0.1",)},
    "text": {"local_addr": "127.0.0.1"},
    "a list": {"local_addr": ["127.0.0.1", 0]},
    "three parts": {"remote_addr": ("127.0.0.1", 0, 0)},
    "families that do not go together": {"local_addr": ("127.0.0.1", 0), "remote_addr": ("::1", 9)},
    "another family": {"local_addr": ("127.0.0.1", 0), "family": socket.AF_INET6},
    "a port that is none": {"local_addr": ("127.0.0.1", 70_000)},
    "a port that is below none": {"local_addr": ("127.0.0.1", -1)},
    "an address of somebody else": {"local_addr": ("192.0.2.1", 0)},
    "bytes for a path": {"local_addr": b"/tmp/x", "family": socket.AF_UNIX},
    "a pair for a path": {"remote_addr": ("a", 1), "family": socket.AF_UNIX},
    "a path that is too long": {"local_addr": "x" * 200, "family": socket.AF_UNIX},
    "a path that is not there": {"local_addr": "/no/such/place", "family": socket.AF_UNIX},
    "a peer that is not there": {"remote_addr": "/no/such/place", "family": socket.AF_UNIX},
    "a path with a NUL in it": {"local_addr": "a\0b", "family": socket.AF_UNIX},
    "a protocol of another kind": {"local_addr": ("127.0.0.1", 0), "proto": socket.IPPROTO_TCP},
    "a family that there is not": {"family": 12345},
    "broadcast without leave": {"remote_addr": ("255.255.255.255", 9)},
    "an argument that is gone": {"local_addr": ("127.0.0.1", 0), "reuse_address": True},
    "a name that there is not": {"local_addr": ("name.invalid", 0), "flags": socket.AI_NUMERICHOST},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_error_asyncio_gives(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def use(loop: Any) -> Any:
        try:
            transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, **REFUSED[name])
        except TypeError as error:
            return TypeError, str(error).rpartition(".")[2]
        except Exception as error:
            return type(error), str(error), getattr(error, "errno", None)
        transport.close()
        await asyncio.sleep(0)
        return "not refused"

    is_as_in_asyncio(use)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (socket.SOCK_STREAM, {}),
        (socket.SOCK_SEQPACKET, {}),
        (socket.SOCK_DGRAM, {"local_addr": ("127.0.0.1", 0)}),
        (socket.SOCK_DGRAM, {"remote_addr": ("127.0.0.1", 0), "family": 1, "proto": 1, "flags": 1}),
        (socket.SOCK_DGRAM, {"reuse_port": True, "allow_broadcast": True}),
        (socket.SOCK_DGRAM, {"reuse_port": False}),
    ],
)
def test_a_socket_is_refused_with_the_error_asyncio_gives(kind: int, options: dict[str, Any]) -> None:
    async def use(loop: Any) -> Any:
        with socket.socket(socket.AF_UNIX, kind) as sock:
            fd = str(sock.fileno())
            try:
                transport, _ = await loop.create_datagram_endpoint(
                    asyncio.DatagramProtocol, sock=sock, **options
                )
            except Exception as error:
                return type(error), str(error).replace(f"fd={fd}", "fd=N")
            transport.close()
            await asyncio.sleep(0)
            return "not refused"

    is_as_in_asyncio(use)


async def test_an_unbound_endpoint_of_a_family(ends: Ends) -> None:
    theirs = await ends.endpoint(local_addr=("127.0.0.1", 0))
    ours = await ends.endpoint(family=socket.AF_INET)
    ours.transport.sendto(b"x", theirs.transport.get_extra_info("sockname"))
    assert await theirs.until_received(1) == [b"x"]


async def test_broadcasting_may_be_allowed(ends: Ends) -> None:
    ours = await ends.endpoint(remote_addr=("127.255.255.255", 9), allow_broadcast=True)
    sock = ours.transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
    assert ours.transport.get_extra_info("peername") is None  # It is not connected ...
    ours.transport.sendto(b"x")
    with pytest.raises(ValueError, match="Invalid address: must be None or"):
        ours.transport.sendto(b"x", ("127.0.0.1", 9))  # ... and sends to this address only.


async def test_a_port_may_be_shared(ends: Ends) -> None:
    first = await ends.endpoint(local_addr=("127.0.0.1", 0), reuse_port=True)
    address = first.transport.get_extra_info("sockname")
    await ends.endpoint(local_addr=address, reuse_port=True)
    with pytest.raises(OSError, match="in use"):
        await ends.endpoint(local_addr=address)


async def test_multicast_on_the_loopback(ends: Ends) -> None:
    group = "239.255.77.88"
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("", 0))
    membership = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    theirs = await ends.endpoint(sock=sock)
    ours = await ends.endpoint(local_addr=("127.0.0.1", 0))
    our_socket = ours.transport.get_extra_info("socket")
    our_socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    our_socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    ours.transport.sendto(b"x", (group, sock.getsockname()[1]))
    assert await theirs.until_received(1) == [b"x"]


async def test_sendto_refuses_another_address_than_the_peers(ends: Ends) -> None:
    ours, theirs = await ends.pair()
    address = theirs.transport.get_extra_info("sockname")
    with pytest.raises(ValueError, match="Invalid address: must be None or"):
        ours.transport.sendto(b"x", ("127.0.0.1", 9))
    ours.transport.sendto(b"x", tuple(address))
    assert await theirs.until_received(1) == [b"x"]


@pytest.mark.parametrize("data", ["text", 5, None, [1]])
async def test_only_bytes_are_sent(ends: Ends, data: Any) -> None:
    ours, _ = await ends.pair()
    with pytest.raises(
        TypeError, match=f"data argument must be a bytes-like object, not {type(data).__name__!r}"
    ):
        ours.transport.sendto(data)


async def test_a_stale_unix_socket_makes_room(ends: Ends, tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as former:
        former.bind(path)
    ours = await ends.endpoint(local_addr=path, family=socket.AF_UNIX)
    assert ours.transport.get_extra_info("sockname") == path


async def test_a_file_does_not_make_room(loop: whorl.EventLoop, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(OSError, match="in use"):
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, os.fspath(path), family=socket.AF_UNIX)
    assert path.read_text() == "precious"


async def test_a_factory_that_fails_leaves_nothing(loop: whorl.EventLoop, tmp_path: Path) -> None:
    def refuse() -> asyncio.DatagramProtocol:
        raise RuntimeError("no protocol")

    with pytest.raises(RuntimeError, match="no protocol"):
        await loop.create_datagram_endpoint(refuse, ("127.0.0.1", 0))


async def test_cancelling_leaves_nothing(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    task = loop.create_task(loop.create_datagram_endpoint(lambda: protocol, ("127.0.0.1", 0)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await protocol.until_lost()
    assert protocol.calls == ["connection_made", "connection_lost"]


async def test_the_next_address_is_tried(
    loop: whorl.EventLoop, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [
        (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("192.0.2.1", 0)),
        (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("::1", 0, 0, 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *question: infos)
    ours = await ends.endpoint(local_addr=("example.com", 0))
    assert ours.transport.get_extra_info("sockname")[0] == "::1"


async def test_debug_mode_says_what_was_made(
    loop: whorl.EventLoop, ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_debug(True)
    with caplog.at_level(logging.DEBUG):
        ours = await ends.endpoint(local_addr=("127.0.0.1", 0))
        await ends.endpoint(remote_addr=ours.transport.get_extra_info("sockname"))
    shown = [record.message for record in caplog.records if "Datagram endpoint" in record.message]
    assert len(shown) == 2
    assert shown[0].startswith("Datagram endpoint local_addr=('127.0.0.1', 0) remote_addr=None created: (<")
    assert shown[1].startswith("Datagram endpoint remote_addr=('127.0.0.1', ")


async def test_a_descriptor_in_use_is_refused(loop: whorl.EventLoop, ends: Ends) -> None:
    ours = await ends.endpoint(local_addr=("127.0.0.1", 0))
    fd = ours.transport.get_extra_info("socket").fileno()
    with pytest.raises(RuntimeError, match="is used by transport"):
        loop.add_reader(fd, nothing)


def test_the_calls_of_a_protocol_are_asyncios(tmp_path: Path) -> None:
    def conversation(count: int) -> Callable[[Any], Any]:
        async def use(loop: Any) -> Any:
            theirs, ours = Recorder(), Recorder()
            there, _ = await loop.create_datagram_endpoint(lambda: theirs, ("127.0.0.1", 0))
            address = there.get_extra_info("sockname")
            here, _ = await loop.create_datagram_endpoint(lambda: ours, remote_addr=address)
            for number in range(count):
                here.sendto(b"%d" % number)
            await theirs.until_received(count)
            there.close()
            await theirs.until_lost()
            here.sendto(b"x")
            here.sendto(b"x")
            await ours.until(lambda: ours.errors)
            here.close()
            await ours.until_lost()
            return theirs.calls, ours.calls[:1], ours.calls[-1], [type(error) for error in ours.errors[:1]]

        return use

    for count in (1, 3, 40):
        is_as_in_asyncio(conversation(count))


def test_an_endpoint_refuses_to_be_written_to_as_a_stream() -> None:
    async def write(loop: Any) -> Any:
        transport, _ = await loop.create_datagram_endpoint(Recorder, local_addr=("127.0.0.1", 0))
        answers = {}
        for name, arguments in {
            "write": (b"x",),
            "writelines": ([b"x"],),
            "write_eof": (),
            "can_write_eof": (),
        }.items():
            with pytest.raises(NotImplementedError) as caught:
                getattr(transport, name)(*arguments)
            answers[name] = caught.type
        transport.close()
        await turns(2)
        return answers

    is_as_in_asyncio(write)
