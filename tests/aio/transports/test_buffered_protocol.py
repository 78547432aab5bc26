"""Protocols that bring their own buffers."""

from __future__ import annotations

import array
import asyncio
import mmap
import socket
from typing import Any

import pytest

import whorl
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import (
    BufferedRecorder,
    Notes,
    Recorder,
    digest,
    noise,
    receive,
    socket_pair,
    turns,
)


class Filling(Notes, asyncio.BufferedProtocol):
    """Collects data in one buffer, in the part of it that is still free."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.buffer = memoryview(buffer).cast("B")
        self.filled = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.filled += nbytes
        self.note("buffer_updated")


@pytest.mark.parametrize("size", [1, 7, 4096, 65536, 1 << 20])
async def test_data_arrives_in_buffers_of_any_size(
    size: int, loop: whorl.EventLoop, kernel: Any, connect: Connect, kind: str
) -> None:
    protocol = BufferedRecorder(size)
    _, peer = await connect(kind, protocol)
    count = 2000 if kernel is None else 200  # for each of many seeds
    data = noise(min(3_000_000, count * size))
    sending = loop.create_task(loop.sock_sendall(peer, data))
    assert digest(await protocol.until_received(len(data))) == digest(data)
    await sending
    assert set(protocol.calls) == {"connection_made", "buffer_updated"}


async def test_get_buffer_is_called_for_instances_of_asyncios_class_only(connect: Connect, kind: str) -> None:
    class Unrelated(Notes, asyncio.BaseProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            raise AssertionError("this is no BufferedProtocol")

        def data_received(self, data: bytes) -> None:
            self.received += data
            self.changed()

    protocol = Unrelated()
    _, peer = await connect(kind, protocol)
    peer.send(b"data")
    assert await protocol.until_received(4) == b"data"


@pytest.mark.parametrize("kind_of_buffer", ["bytearray", "memoryview", "array", "mmap"])
async def test_get_buffer_may_return_any_writable_buffer(
    kind_of_buffer: str, connect: Connect, kind: str
) -> None:
    buffer: Any = bytearray(4096)
    if kind_of_buffer == "memoryview":
        buffer = memoryview(buffer)
    elif kind_of_buffer == "array":
        buffer = array.array("I", bytes(4096))
    elif kind_of_buffer == "mmap":
        buffer = mmap.mmap(-1, 4096)
    protocol = Filling(buffer)
    _, peer = await connect(kind, protocol)
    for part in (b"first ", b"second ", b"third"):
        peer.send(part)
        await protocol.until(lambda: bytes(protocol.buffer[: protocol.filled]).endswith(part))  # noqa: B023
    assert protocol.buffer[: protocol.filled] == b"first second third"
    protocol.buffer.release()
    if kind_of_buffer == "mmap":
        buffer.close()


async def test_items_that_are_wider_than_a_byte_are_filled(connect: Connect, kind: str) -> None:
    class Wide(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> Any:
            return self.items

        def buffer_updated(self, nbytes: int) -> None:
            self.received += memoryview(self.items).cast("B")[:nbytes]
            self.changed()

    protocol = Wide()
    protocol.items = array.array("I", bytes(64))  # type: ignore[attr-defined]
    _, peer = await connect(kind, protocol)
    data = noise(1000)
    peer.send(data)
    assert await protocol.until_received(1000) == data


async def test_the_buffer_is_not_held(connect: Connect, kind: str) -> None:
    protocol = BufferedRecorder(16)
    _, peer = await connect(kind, protocol)
    for round_ in range(3):
        peer.send(b"x" * 10)
        await protocol.until_received(10 * (round_ + 1))
        protocol.buffer.extend(b"resized")  # A buffer that somebody holds cannot be resized.


async def test_half_closing(connect: Connect, kind: str) -> None:
    protocol = BufferedRecorder(keep_open=True)
    transport, peer = await connect(kind, protocol)
    peer.send(b"question")
    peer.shutdown(socket.SHUT_WR)
    await protocol.until(lambda: "eof_received" in protocol.calls)
    assert protocol.received == b"question"
    transport.write(b"answer")
    assert await receive(peer, 6) == b"answer"
    transport.close()
    assert await protocol.until_lost() is None


@pytest.mark.parametrize(
    ("buffer", "error"),
    [
        (bytearray(), RuntimeError),
        (b"read-only", (BufferError, TypeError)),
        ("text", TypeError),
        (None, TypeError),
        (memoryview(bytearray(20))[::2], (BufferError, ValueError, TypeError)),
    ],
    ids=["empty", "read-only", "text", "none", "not contiguous"],
)
async def test_get_buffer_with_an_invalid_result_ends_the_connection(
    buffer: Any, error: Any, connect: Connect, kind: str, reported: list[dict[str, Any]]
) -> None:
    class Wrong(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> Any:
            return buffer

    protocol = Wrong()
    transport, peer = await connect(kind, protocol)
    peer.send(b"x")
    assert isinstance(await protocol.until_lost(), error)
    report = reported.pop()
    assert report["exception"] is protocol.error
    assert report["transport"] is transport
    assert report["protocol"] is protocol


@pytest.mark.parametrize("call", ["get_buffer", "buffer_updated"])
async def test_an_error_of_a_reading_call_ends_the_connection(
    call: str, connect: Connect, kind: str, reported: list[dict[str, Any]]
) -> None:
    class Failing(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> bytearray:
            if call == "get_buffer":
                raise ZeroDivisionError
            return super().get_buffer(sizehint)

        def buffer_updated(self, nbytes: int) -> None:
            raise ZeroDivisionError

    protocol = Failing()
    _, peer = await connect(kind, protocol)
    peer.send(b"x")
    assert isinstance(await protocol.until_lost(), ZeroDivisionError)
    assert reported.pop()["message"] == f"Fatal error: protocol.{call}() call failed."


@pytest.mark.parametrize("call", ["get_buffer", "buffer_updated"])
@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_protocol_may_end_its_transport_in_a_reading_call(
    call: str, end: str, connect: Connect, kind: str
) -> None:
    class Ender(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> bytearray:
            if call == "get_buffer":
                getattr(self.transport, end)()
            return super().get_buffer(sizehint)

        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            getattr(self.transport, end)()

    protocol = Ender()
    _, peer = await connect(kind, protocol)
    peer.send(b"x")
    assert await protocol.until_lost() is None
    assert protocol.calls.count("buffer_updated") <= 1


@pytest.mark.exact("a read that is refused asks for a buffer, too")
async def test_a_buffer_is_filled_for_the_protocol_that_gave_it(connect: Connect, kind: str) -> None:
    class Leaving(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> bytearray:
            self.transport.set_protocol(heir)
            return self.buffer

    leaving, heir = Leaving(), Recorder()
    _, peer = await connect(kind, leaving)
    peer.send(b"a")
    assert await leaving.until_received(1) == b"a"
    peer.send(b"b")
    assert await heir.until_received(1) == b"b"


def test_an_interrupt_out_of_one_connection_costs_nothing(loop: whorl.EventLoop, kind: str) -> None:
    class Interrupted(BufferedRecorder):
        interrupts = 1

        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            if self.interrupts:
                self.interrupts = 0
                raise KeyboardInterrupt

    ours, peer = socket_pair(kind)
    protocol = Interrupted(size=10)
    loop.run_until_complete(loop.connect_accepted_socket(lambda: protocol, ours))
    peer.send(b"0123456789" * 5)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(protocol.until_received(50))
    assert loop.run_until_complete(protocol.until_received(50)) == b"0123456789" * 5
    protocol.transport.close()
    loop.run_until_complete(turns(2))
    peer.close()
