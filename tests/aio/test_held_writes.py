"""Small writes of one callback leave together; the first at once, unless the loop collects it too."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import whorl
from tests.aio.conftest import Connect
from tests.aio.peers import receive, receive_all, socket_pair
from whorl.core import Kernel
from whorl.core.limits import (
    LONGEST_COLLECTED_TICKS,
    LONGEST_HELD_TICKS,
    MOST_HELD,
    SMALL_WRITE,
    WRITE_VECTORS,
)


class CountingKernel(Kernel):
    """The real kernel, whose ticks only tests move; notes how many bytes each call has sent."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 10**12
        self.sent: list[int] = []
        self.room: list[int] = []  # how many bytes each of the next sends takes; 0: it finds no room

    def ticks(self) -> int:
        return self.clock

    def send(self, fd: int, data: Any, offset: int) -> int:
        if self.room:
            size = self.room.pop(0)
            if not size:
                return -errno.EAGAIN
            data, offset = data[offset : offset + size], 0
        self.sent.append(super().send(fd, data, offset))
        return self.sent[-1]

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        self.sent.append(super().send_many(fd, chunks, first, offset))
        return self.sent[-1]


@pytest.fixture(params=["edges", "levels"])
def kernel(request: pytest.FixtureRequest) -> CountingKernel:
    """A kernel for each of the ways in which TCP sockets are watched."""
    kernel = CountingKernel()
    kernel.keeps_edges = request.param == "edges"
    return kernel


def arrived(peer: socket.socket) -> bytes:
    """What has arrived at the peer by now."""
    data = b""
    try:
        while block := peer.recv(1_000_000):
            data += block
    except BlockingIOError:
        pass
    return data


def write_two(transport: asyncio.Transport) -> None:
    """Two small writes, of which the second one is held back."""
    transport.write(b"one ")
    transport.write(b"two")


# When they leave.


async def test_the_first_write_of_a_callback_leaves_at_once(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    seen: list[bytes] = []

    def write() -> None:
        transport.write(b"one")
        seen.append(arrived(peer))

    for _ in range(3):  # in one turn
        loop.call_soon(write)
    await asyncio.sleep(0)
    assert seen == [b"one"] * 3


async def test_all_but_the_first_leave_together_when_the_callback_ends(
    kernel: CountingKernel, connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    for number in range(10):
        transport.write(b"%d" % number)
    assert kernel.sent == [1]
    assert arrived(peer) == b"0"
    await asyncio.sleep(0)
    assert kernel.sent == [1, 9]
    assert arrived(peer) == b"123456789"
    assert transport.get_write_buffer_size() == 0


@pytest.mark.parametrize("later", [2, 2**31, 2**32 - 3, 2**32 + 1, -5])
async def test_ticks_may_be_any_number(kernel: CountingKernel, connect: Connect, later: int) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    kernel.clock = 2**32 - 1
    transport.write(b"one ")
    transport.write(b"two ")
    kernel.clock += later
    transport.write(b"three ")
    transport.write(b"four")
    await asyncio.sleep(0)
    assert arrived(peer) == b"one two three four"


async def test_each_callback_has_its_own(kernel: CountingKernel, connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    for count in range(1, 4):
        write_two(transport)
        await asyncio.sleep(0)
        assert kernel.sent == [4, 3] * count
    assert arrived(peer) == b"one two" * 3


async def test_they_wait_where_there_is_no_room(kernel: CountingKernel, connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    write_two(transport)
    kernel.room = [0]
    assert transport.get_write_buffer_size() == 3
    assert arrived(peer) == b"one "
    assert await receive(peer, 3) == b"two"
    assert transport.get_write_buffer_size() == 0


async def test_what_leaves_in_part_goes_on_where_it_ended(
    kernel: CountingKernel, connect: Connect, kind: str
) -> None:
    class Protocol(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            if data == b"write":
                write_two(transport)
            received.set_result(None)

    transport, peer = await connect(kind, Protocol())
    kernel.room = [4, 1, 0]
    for data in (b"write", b"?", b"?"):  # Each is an event, with which the socket is found writable.
        received = asyncio.get_running_loop().create_future()
        peer.send(data)
        await received
    assert kernel.room == []
    assert await receive(peer, 7) == b"one two"
    await asyncio.sleep(0)
    assert arrived(peer) == b""


async def test_nobody_watches_for_room_for_what_is_held_back(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    write_two(transport)
    transport.pause_reading()
    await asyncio.sleep(0)
    events = loop.metrics().events
    for _ in range(3):
        await asyncio.sleep(0)
    assert loop.metrics().events == events
    assert arrived(peer) == b"one two"


async def test_they_leave_before_the_next_callback(loop: whorl.EventLoop, connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    seen: list[bytes] = []
    loop.call_soon(write_two, transport)
    loop.call_soon(lambda: seen.append(arrived(peer)))
    await asyncio.sleep(0)
    assert seen == [b"one two"]


async def test_they_leave_when_what_has_received_data_returns(connect: Connect, kind: str) -> None:
    class Protocol(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            write_two(transport)
            done.set_result(None)

    done = asyncio.get_running_loop().create_future()
    transport, peer = await connect(kind, Protocol())
    peer.send(b"?")
    await done
    assert arrived(peer) == b"one two"


async def test_they_leave_in_debug_mode(loop: whorl.EventLoop, connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    loop.set_debug(True)
    await asyncio.sleep(0)
    loop.call_soon(write_two, transport)
    await asyncio.sleep(0)
    loop.set_debug(False)
    assert arrived(peer) == b"one two"


async def test_they_leave_when_the_callback_raises_before_that_is_reported(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    seen: list[bytes] = []

    def write() -> None:
        write_two(transport)
        raise ValueError("on purpose")

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        seen.append(arrived(peer))
        write_two(transport)
        seen.append(arrived(peer))

    loop.set_exception_handler(report)
    loop.call_soon(write)
    await asyncio.sleep(0)
    assert seen == [b"one two", b"one two"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_they_leave_when_the_loop_is_left(
    loop: whorl.EventLoop, connect: Connect, error: type[BaseException]
) -> None:
    transport, peer = loop.run_until_complete(connect("tcp", asyncio.Protocol()))

    def write() -> None:
        write_two(transport)
        raise error

    loop.call_soon(write)
    with pytest.raises(error):
        loop.run_forever()
    assert arrived(peer) == b"one two"


def test_they_leave_when_the_loop_is_stopped(loop: whorl.EventLoop, connect: Connect) -> None:
    transport, peer = loop.run_until_complete(connect("tcp", asyncio.Protocol()))

    def write() -> None:
        write_two(transport)
        loop.stop()

    loop.call_soon(write)
    loop.run_forever()
    assert arrived(peer) == b"one two"


async def test_they_leave_when_nobody_keeps_the_transport(
    loop: whorl.EventLoop, connect: Connect, unwarned: None
) -> None:
    ours, peer = socket_pair("unix")
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    transport.pause_reading()  # so that the poller does not keep it
    write_two(transport)
    del transport, ours, _
    assert await receive_all(peer) == b"one two"
    peer.close()


# Who looks.


def fork(transport: Any) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


ACTS: dict[str, Callable[[Any], Any]] = {
    "close": lambda transport: transport.close(),
    "abort": lambda transport: transport.abort(),
    "write_eof": lambda transport: transport.write_eof(),
    "get_extra_info": lambda transport: transport.get_extra_info("socket"),
    "get_write_buffer_size": lambda transport: transport.get_write_buffer_size(),
    "is_closing": lambda transport: transport.is_closing(),
    "set_write_buffer_limits": lambda transport: transport.set_write_buffer_limits(high=0),
    "set_protocol": lambda transport: transport.set_protocol(asyncio.Protocol()),
    "repr": repr,
    "fork": fork,
    "sendfile": lambda transport: transport._make_empty_waiter() and transport._reset_empty_waiter(),
}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("act", ACTS)
async def test_they_leave_before_anybody_could_tell(connect: Connect, kind: str, act: str) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    write_two(transport)
    assert arrived(peer) == b"one "
    ACTS[act](transport)
    assert arrived(peer) == b"two"
    await asyncio.sleep(0)
    assert arrived(peer) == b""


async def test_they_leave_before_a_program_starts(loop: whorl.EventLoop, connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    seen: list[bytes] = []

    class Protocol(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.exited = loop.create_future()

        def process_exited(self) -> None:
            self.exited.set_result(None)

    def spawn(*args: Any, **options: Any) -> Any:
        seen.append(arrived(peer))
        return real(*args, **options)

    real, loop._host.spawn = loop._host.spawn, spawn  # type: ignore[method-assign]
    write_two(transport)
    program, protocol = await loop.subprocess_exec(Protocol, sys.executable, "-c", "")
    assert seen == [b"one two"]
    await protocol.exited
    program.close()


async def test_they_leave_before_lines(connect: Connect, kernel: CountingKernel) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    write_two(transport)
    transport.writelines([b"three ", b"four"])
    assert arrived(peer) == b"one twothree four"
    assert kernel.sent == [4, 3, 10]


async def test_drain_sends_them(connect: Connect, kernel: CountingKernel) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    for _ in range(3):
        writer.write(b"one ")
        writer.write(b"two ")
        writer.write(b"three ")
        await writer.drain()
        assert arrived(peer) == b"one two three "
    assert kernel.sent == [4, 10, 14, 14]
    writer.close()


async def test_a_failure_is_known_to_whoever_asks(connect: Connect, loop: whorl.EventLoop) -> None:
    lost: asyncio.Future[BaseException | None] = loop.create_future()

    class Protocol(asyncio.Protocol):
        def connection_lost(self, error: BaseException | None) -> None:
            lost.set_result(error)

    transport, peer = await connect("unix", Protocol())
    transport.write(b"one")
    peer.close()
    transport.write(b"two")
    assert transport.is_closing()
    transport.close()
    transport.abort()
    assert isinstance(await lost, BrokenPipeError)


async def test_a_failure_ends_the_connection_once(connect: Connect, loop: whorl.EventLoop) -> None:
    lost: list[BaseException | None] = []

    class Protocol(asyncio.Protocol):
        def connection_lost(self, error: BaseException | None) -> None:
            lost.append(error)

    transport, peer = await connect("unix", Protocol())
    transport.write(b"one")
    peer.close()
    transport.write(b"two")
    transport.abort()
    for _ in range(3):
        await asyncio.sleep(0)
    assert [type(error) for error in lost] == [BrokenPipeError]


# What is not held back.


async def test_a_callback_that_takes_its_time_sends_at_once(kernel: CountingKernel, connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    transport.write(b"one")
    kernel.clock += LONGEST_HELD_TICKS + 1
    transport.write(b"two")
    assert arrived(peer) == b"onetwo"
    transport.write(b"three")
    assert arrived(peer) == b""
    kernel.clock += LONGEST_HELD_TICKS + 1
    transport.write(b"four")
    assert arrived(peer) == b"threefour"
    assert kernel.sent == [3, 3, 9]


async def test_no_more_is_held_back_than_leaves_at_once(kernel: CountingKernel, connect: Connect) -> None:
    transport, _ = await connect("tcp", asyncio.Protocol())
    block = bytes(SMALL_WRITE)
    for _ in range(1 + MOST_HELD // SMALL_WRITE):
        transport.write(block)
    assert kernel.sent == [SMALL_WRITE]
    transport.write(b"x")
    assert kernel.sent == [SMALL_WRITE, MOST_HELD + 1]
    for _ in range(WRITE_VECTORS):
        transport.write(b"x")
    assert kernel.sent == [SMALL_WRITE, MOST_HELD + 1, WRITE_VECTORS]


async def test_a_large_write_after_a_failure_is_dropped(kernel: CountingKernel, connect: Connect) -> None:
    transport, peer = await connect("unix", asyncio.Protocol())
    write_two(transport)
    peer.close()
    transport.write(bytearray(SMALL_WRITE + 1))
    assert kernel.sent == [4, -errno.EPIPE]
    assert transport.is_closing()


@pytest.mark.parametrize("make", [bytes, bytearray, lambda size: memoryview(bytes(size))])
async def test_a_large_write_takes_them_along(
    kernel: CountingKernel, connect: Connect, make: Callable[[int], Any]
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    write_two(transport)
    transport.write(make(SMALL_WRITE + 1))
    assert sum(kernel.sent) == 7 + SMALL_WRITE + 1
    assert arrived(peer) == b"one two" + bytes(SMALL_WRITE + 1)


async def test_nothing_is_held_back_that_would_pause_the_protocol(connect: Connect) -> None:
    class Protocol(asyncio.Protocol):
        paused = False

        def pause_writing(self) -> None:
            self.paused = True

    protocol = Protocol()
    transport, peer = await connect("tcp", protocol)
    transport.set_write_buffer_limits(high=4)
    for data in (b"one", b"two", b"three", b"four!"):
        transport.write(data)
    assert arrived(peer) == b"onetwothreefour!"
    assert not protocol.paused


async def test_what_is_changed_afterwards_leaves_as_it_was(connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    transport.write(b"one")
    data = bytearray(b"two")
    transport.write(data)
    data[:] = b"XXX"
    await asyncio.sleep(0)
    assert arrived(peer) == b"onetwo"


def test_outside_of_callbacks_nothing_is_held_back(loop: whorl.EventLoop, connect: Connect) -> None:
    transport, peer = loop.run_until_complete(connect("tcp", asyncio.Protocol()))
    write_two(transport)
    assert arrived(peer) == b"one two"


async def test_what_another_thread_writes_is_not_held_back(connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    transport.write(b"zero ")
    thread = threading.Thread(target=write_two, args=[transport])
    thread.start()
    thread.join()
    assert arrived(peer) == b"zero one two"


# A loop that collects the first one, too.


@pytest.fixture(params=[True, "turn"])
def collecting(loop: whorl.EventLoop, request: pytest.FixtureRequest) -> Any:
    loop.configure(collect_writes=request.param)
    return request.param


@pytest.mark.usefixtures("collecting")
async def test_all_small_writes_of_a_callback_are_collected(
    kernel: CountingKernel, connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    for count in range(1, 4):
        for number in range(10):
            transport.write(b"%d" % number)
        assert kernel.sent == [10] * (count - 1)
        await asyncio.sleep(0)
        assert kernel.sent == [10] * count
    assert arrived(peer) == b"0123456789" * 3


@pytest.mark.usefixtures("collecting")
async def test_a_reply_is_collected_while_data_is_received(kernel: CountingKernel, connect: Connect) -> None:
    class Protocol(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            write_two(transport)
            done.set_result(list(kernel.sent))

    done = asyncio.get_running_loop().create_future()
    transport, peer = await connect("tcp", Protocol())
    peer.send(b"?")
    assert await done == []
    assert kernel.sent == [7]
    assert arrived(peer) == b"one two"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("act", ACTS)
async def test_collected_ones_leave_before_anybody_could_tell(
    connect: Connect, kind: str, act: str, collecting: Any
) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    transport.write(b"one")
    assert arrived(peer) == b""
    ACTS[act](transport)
    waits = act == "is_closing" and collecting == "turn"  # `drain` asks this
    assert arrived(peer) == (b"" if waits else b"one")


@pytest.mark.usefixtures("collecting")
async def test_collected_writes_leave_before_a_failure_is_reported(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    seen: list[bytes] = []

    def write() -> None:
        transport.write(b"one")
        raise ValueError("on purpose")

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        seen.append(arrived(peer))
        transport.write(b"two")
        seen.append(arrived(peer))

    loop.set_exception_handler(report)
    loop.call_soon(write)
    await asyncio.sleep(0)
    assert seen == [b"one", b"two"]


@pytest.mark.usefixtures("collecting")
async def test_a_callback_that_takes_its_time_sends_what_was_collected(
    kernel: CountingKernel, connect: Connect
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    transport.write(b"one")
    kernel.clock += LONGEST_HELD_TICKS + 1
    transport.write(b"two")
    assert arrived(peer) == b"onetwo"


@pytest.mark.usefixtures("collecting")
async def test_a_large_write_is_not_collected(kernel: CountingKernel, connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    transport.write(bytes(SMALL_WRITE + 1))
    assert kernel.sent == [SMALL_WRITE + 1]
    transport.set_write_buffer_limits(high=4)
    transport.write(b"large")
    assert arrived(peer) == bytes(SMALL_WRITE + 1) + b"large"


@pytest.mark.usefixtures("collecting")
async def test_what_another_thread_writes_is_not_collected(connect: Connect) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    thread = threading.Thread(target=transport.write, args=[b"one"])
    thread.start()
    thread.join()
    assert arrived(peer) == b"one"


@pytest.mark.usefixtures("collecting")
def test_outside_of_callbacks_nothing_is_collected(loop: whorl.EventLoop, connect: Connect) -> None:
    transport, peer = loop.run_until_complete(connect("tcp", asyncio.Protocol()))
    transport.write(b"one")
    assert arrived(peer) == b"one"


@pytest.mark.usefixtures("collecting")
async def test_collected_writes_are_lost_with_the_connection(
    kernel: CountingKernel, connect: Connect, loop: whorl.EventLoop
) -> None:
    class Protocol(asyncio.Protocol):
        def connection_lost(self, error: BaseException | None) -> None:
            lost.set_result(error)

    lost: asyncio.Future[BaseException | None] = loop.create_future()
    transport, peer = await connect("unix", Protocol())
    peer.close()
    write_two(transport)
    assert kernel.sent == []
    assert isinstance(await lost, BrokenPipeError)
    assert kernel.sent == [-errno.EPIPE]


async def test_collecting_can_be_ended(loop: whorl.EventLoop, connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    for collects in (True, False):
        loop.configure(collect_writes=collects)
        loop.configure()
        transport.write(b"one")
        assert arrived(peer) == (b"" if collects else b"one")
        await asyncio.sleep(0)
        assert arrived(peer) == (b"one" if collects else b"")


@pytest.mark.parametrize("collects", ["callback", 2, None, "", b"turn"])
def test_what_else_collecting_might_be_is_refused(loop: whorl.EventLoop, collects: Any) -> None:
    with pytest.raises(ValueError, match="collect_writes is True, False or 'turn'"):
        loop.configure(collect_writes=collects)


# A loop that collects until all callbacks of a turn have run.


@pytest.fixture
def by_turn(loop: whorl.EventLoop) -> None:
    loop.configure(collect_writes="turn")


@pytest.mark.usefixtures("by_turn")
async def test_the_writes_of_all_callbacks_of_a_turn_leave_after_the_last_of_them(
    kernel: CountingKernel, loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    connections = [await connect(kind, asyncio.Protocol()) for _ in range(3)]
    seen: list[bytes] = []

    def write(number: int) -> None:
        connections[number][0].write(b"x" * (number + 1))
        seen.extend(arrived(peer) for _, peer in connections)

    for number in (2, 0, 1):
        loop.call_soon(write, number)
    await asyncio.sleep(0)
    assert seen == [b""] * 9
    await asyncio.sleep(0)
    assert kernel.sent == [3, 1, 2]
    assert [arrived(peer) for _, peer in connections] == [b"x", b"xx", b"xxx"]


@pytest.mark.usefixtures("by_turn")
async def test_what_callbacks_of_a_turn_write_to_one_connection_leaves_in_one_call(
    kernel: CountingKernel, loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    for number in range(10):
        loop.call_soon(transport.write, b"%d" % number)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert kernel.sent == [10]
    assert arrived(peer) == b"0123456789"


@pytest.mark.usefixtures("by_turn")
async def test_answers_leave_when_all_of_the_turn_have_been_received(
    kernel: CountingKernel, connect: Connect, kind: str
) -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            received.append(list(kernel.sent))
            self.transport.write(data)

    received: list[list[int]] = []
    connections = [await connect(kind, Echo()) for _ in range(3)]
    for _, peer in connections:
        peer.send(b"x")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert received == [[]] * 3
    assert [arrived(peer) for _, peer in connections] == [b"x"] * 3


@pytest.mark.usefixtures("by_turn")
async def test_streams_that_drain_are_collected_too(
    kernel: CountingKernel, loop: whorl.EventLoop, connect: Connect
) -> None:
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, peer = await connect("tcp", protocol)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    for _ in range(3):
        writer.write(b"x")
        await writer.drain()
    assert kernel.sent == []
    await asyncio.sleep(0)
    assert kernel.sent == [3]
    assert arrived(peer) == b"xxx"
    writer.close()


@pytest.mark.usefixtures("by_turn")
@pytest.mark.parametrize("later", [LONGEST_COLLECTED_TICKS + 1, -1])
async def test_a_turn_that_takes_its_time_sends_what_was_collected(
    kernel: CountingKernel, loop: whorl.EventLoop, connect: Connect, later: int
) -> None:
    connections = [await connect("tcp", asyncio.Protocol()) for _ in range(3)]
    seen: list[bytes] = []

    def write(number: int, later: int) -> None:
        seen.append(arrived(connections[0][1]))
        connections[number][0].write(b"x")
        kernel.clock += later

    loop.call_soon(write, 0, LONGEST_COLLECTED_TICKS if later > 0 else 0)
    loop.call_soon(write, 1, 1 if later > 0 else later)
    loop.call_soon(write, 2, 0)
    await asyncio.sleep(0)
    assert seen == [b"", b"", b"x"]
    assert kernel.sent == [1, 1]
    await asyncio.sleep(0)
    assert kernel.sent == [1, 1, 1]


@pytest.mark.usefixtures("by_turn")
async def test_the_time_counts_from_the_first_of_what_is_collected(
    kernel: CountingKernel, loop: whorl.EventLoop, connect: Connect
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    seen: list[bytes] = []

    def write() -> None:
        kernel.clock += LONGEST_COLLECTED_TICKS + 1  # before anything is written
        transport.write(b"x")

    for _ in range(2):
        loop.call_soon(write)
        loop.call_soon(lambda: seen.append(arrived(peer)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert seen == [b"", b"x"]
    assert kernel.sent == [1, 1]


@pytest.mark.usefixtures("by_turn")
async def test_a_failure_in_the_turn_is_reported_after_what_was_collected_has_left(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    seen: list[bytes] = []

    def fail() -> None:
        raise ValueError("on purpose")

    loop.set_exception_handler(lambda loop, context: seen.append(arrived(peer)))
    loop.call_soon(transport.write, b"one")
    loop.call_soon(fail)
    await asyncio.sleep(0)
    assert seen == [b"one"]


@pytest.mark.usefixtures("by_turn")
def test_an_interrupt_in_the_turn_lets_what_was_collected_leave(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    transport, peer = loop.run_until_complete(connect("tcp", asyncio.Protocol()))

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop.call_soon(transport.write, b"one")
    loop.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert arrived(peer) == b"one"


@pytest.mark.usefixtures("by_turn")
async def test_who_stops_collecting_in_a_turn_has_it_leave_with_the_callback(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    seen: list[bytes] = []

    def stop() -> None:
        loop.configure(collect_writes=False)
        seen.append(arrived(peer))

    loop.call_soon(transport.write, b"one")
    loop.call_soon(stop)
    loop.call_soon(lambda: seen.append(arrived(peer)))
    await asyncio.sleep(0)
    assert seen == [b"", b"one"]


@pytest.mark.usefixtures("by_turn")
async def test_a_connection_that_another_callback_closes_sends_what_was_collected(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    seen: list[bytes] = []
    loop.call_soon(transport.write, b"one")
    loop.call_soon(transport.close)
    loop.call_soon(lambda: seen.append(arrived(peer)))
    await asyncio.sleep(0)
    assert seen == [b"one"]
    assert transport.is_closing()
