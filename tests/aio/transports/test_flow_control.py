"""Flow control: watermarks on the way out, pausing on the way in."""

from __future__ import annotations

import asyncio
import math
import socket
import sys
from typing import Any

import pytest

import whorl
from tests import memory
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import (
    BufferedRecorder,
    Notes,
    Recorder,
    digest,
    fill,
    noise,
    receive,
    receive_all,
    turns,
    turns_while_idle,
)

READING_KINDS = pytest.mark.parametrize("recorder", [Recorder, BufferedRecorder])
MORE_THAN_SOCKETS_HOLD = 500_000  # bytes; the sockets of these tests are small


# Writing: watermarks.


async def test_the_watermarks_are_64_and_16_kib_at_first(connect: Connect, kind: str) -> None:
    transport, _ = await connect(kind, Recorder())
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)


@pytest.mark.parametrize(
    ("given", "watermarks"),
    [
        ({"high": 1000}, (250, 1000)),
        ({"low": 1000}, (1000, 4000)),
        ({"high": 1000, "low": 1000}, (1000, 1000)),
        ({"high": 0}, (0, 0)),
        ({"low": 0}, (0, 0)),
        ({}, (16 * 1024, 64 * 1024)),
    ],
)
async def test_setting_watermarks(
    given: dict[str, int], watermarks: tuple[int, int], connect: Connect, kind: str
) -> None:
    transport, _ = await connect(kind, Recorder())
    transport.set_write_buffer_limits(high=5, low=1)
    transport.set_write_buffer_limits(**given)
    assert transport.get_write_buffer_limits() == watermarks


@pytest.mark.parametrize("given", [{"high": 1, "low": 2}, {"high": -1}, {"low": -1}, {"high": 5, "low": -1}])
async def test_watermarks_that_make_no_sense_are_refused(
    given: dict[str, int], connect: Connect, kind: str
) -> None:
    transport, _ = await connect(kind, Recorder())
    transport.set_write_buffer_limits(high=6, low=3)
    with pytest.raises(ValueError, match=r"must be >= low .* must be >= 0"):
        transport.set_write_buffer_limits(**given)
    assert transport.get_write_buffer_limits() == (3, 6)


@pytest.mark.parametrize("method", ["write", "writelines"])
async def test_a_protocol_pauses_and_resumes_once(method: str, connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    data = noise(MORE_THAN_SOCKETS_HOLD)
    if method == "write":
        transport.write(data)
    else:
        transport.writelines([data[:100], data[100:]])
    assert protocol.calls == ["connection_made", "pause_writing"]
    transport.write(b"more")
    transport.writelines([b"and", b"more"])
    assert protocol.calls == ["connection_made", "pause_writing"]
    await receive(peer, len(data) + 11)
    await protocol.until(lambda: "resume_writing" in protocol.calls)
    await turns(3)
    assert protocol.calls == ["connection_made", "pause_writing", "resume_writing"]


@pytest.mark.parametrize("method", ["write", "writelines"])
async def test_exactly_the_high_watermark_does_not_pause(method: str, connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, _ = await connect(kind, protocol, small=True)
    transport.set_write_buffer_limits(high=10 * MORE_THAN_SOCKETS_HOLD)
    transport.write(bytes(MORE_THAN_SOCKETS_HOLD))
    waiting = transport.get_write_buffer_size()
    transport.set_write_buffer_limits(high=waiting + 10)
    write = transport.write if method == "write" else lambda data: transport.writelines([data])
    write(bytes(10))
    assert protocol.calls == ["connection_made"]
    write(b"1")
    assert protocol.calls == ["connection_made", "pause_writing"]


async def test_a_protocol_resumes_at_the_low_watermark(connect: Connect, kind: str) -> None:
    class Resumed(Recorder):
        left = -1

        def resume_writing(self) -> None:
            self.left = self.transport.get_write_buffer_size()
            super().resume_writing()

    protocol = Resumed()
    transport, peer = await connect(kind, protocol, small=True)
    transport.write(bytes(MORE_THAN_SOCKETS_HOLD))
    waiting = transport.get_write_buffer_size()
    transport.set_write_buffer_limits(high=waiting, low=waiting // 2)
    received = 0
    while "resume_writing" not in protocol.calls:
        received += len(await receive(peer, 1000))
        if transport.get_write_buffer_size() > waiting // 2:
            assert "resume_writing" not in protocol.calls
    assert 0 < protocol.left <= waiting // 2
    assert protocol.calls.count("resume_writing") == 1
    assert received < MORE_THAN_SOCKETS_HOLD


async def test_lower_watermarks_pause_at_once(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, _ = await connect(kind, protocol, small=True)
    transport.set_write_buffer_limits(high=10 * MORE_THAN_SOCKETS_HOLD)
    transport.write(bytes(MORE_THAN_SOCKETS_HOLD))
    assert "pause_writing" not in protocol.calls
    transport.set_write_buffer_limits(high=1)
    assert "pause_writing" in protocol.calls


@pytest.mark.exact("says how much of a write waits")
async def test_a_high_watermark_of_zero_pauses_whenever_something_waits(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    transport.set_write_buffer_limits(high=0)
    transport.write(b"this leaves at once")
    assert "pause_writing" not in protocol.calls
    for _ in range(3):
        transport.write(bytes(MORE_THAN_SOCKETS_HOLD))
        await receive(peer, MORE_THAN_SOCKETS_HOLD)
        await turns(2)
    assert protocol.calls == ["connection_made", *["pause_writing", "resume_writing"] * 3]


async def test_a_protocol_may_write_when_it_resumes(connect: Connect, kind: str) -> None:
    class Endless(Recorder):
        """Writes whenever it may, until it has written enough."""

        written = 0

        def resume_writing(self) -> None:
            super().resume_writing()
            while self.calls[-1] == "resume_writing" and self.written < 3_000_000:
                self.transport.write(noise(30_000, self.written))
                self.written += 30_000

    protocol = Endless()
    transport, peer = await connect(kind, protocol, small=True)
    protocol.resume_writing()
    received = await receive(peer, 3_000_000)
    assert received == b"".join(noise(30_000, seed) for seed in range(0, 3_000_000, 30_000))
    calls = [call for call in protocol.calls if call.endswith("_writing")]
    assert calls.count("pause_writing") > 5
    assert calls[::2] == ["resume_writing"] * len(calls[::2])
    assert calls[1::2] == ["pause_writing"] * len(calls[1::2])
    assert transport.get_write_buffer_size() == 0


async def test_a_protocol_may_write_while_it_is_paused(connect: Connect, kind: str) -> None:
    class Stubborn(Recorder):
        def pause_writing(self) -> None:
            super().pause_writing()
            self.transport.write(b"!")

    protocol = Stubborn()
    transport, peer = await connect(kind, protocol, small=True)
    transport.write(bytes(MORE_THAN_SOCKETS_HOLD))
    received = await receive(peer, MORE_THAN_SOCKETS_HOLD + 1)
    assert received.count(b"!") == 1
    assert received.endswith(b"!")


@pytest.mark.parametrize("call", ["pause_writing", "resume_writing"])
@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_transport_may_be_ended_by_flow_control(
    call: str, end: str, connect: Connect, kind: str
) -> None:
    class Ender(Recorder):
        def note(self, name: str) -> None:
            super().note(name)
            if name == call:
                getattr(self.transport, end)()

    protocol = Ender()
    transport, peer = await connect(kind, protocol, small=True)
    data = noise(MORE_THAN_SOCKETS_HOLD)
    transport.write(data)
    received = await receive_all(peer)
    assert await protocol.until_lost() is None
    if end == "close":
        assert digest(received) == digest(data)
    assert data.startswith(received)


async def test_the_size_of_the_buffer_counts_every_byte(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    transport.write(bytes(MORE_THAN_SOCKETS_HOLD))
    waiting = transport.get_write_buffer_size()
    transport.write(bytes(1000))
    transport.write(bytearray(1000))
    transport.writelines([bytes(10)] * 100)
    assert transport.get_write_buffer_size() == waiting + 3000
    received = await receive(peer, MORE_THAN_SOCKETS_HOLD + 3000 - 1)
    assert transport.get_write_buffer_size() == 0
    assert len(received + await receive(peer, 1)) == MORE_THAN_SOCKETS_HOLD + 3000


@pytest.mark.exact("counts turns")
async def test_a_peer_that_never_reads_does_not_spin(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    transport, _ = await connect(kind, Recorder(), small=True)
    transport.write(bytes(MORE_THAN_SOCKETS_HOLD))
    assert await turns_while_idle() <= 2


# Reading: pausing.


@READING_KINDS
async def test_a_paused_transport_delivers_nothing(
    recorder: type[Notes], connect: Connect, kind: str
) -> None:
    protocol = recorder()
    transport, peer = await connect(kind, protocol)
    transport.pause_reading()
    peer.send(b"later")
    await turns(5)
    assert not protocol.received
    transport.resume_reading()
    assert not protocol.received, "delivered inside resume_reading()"
    assert await protocol.until_received(5) == b"later"


@READING_KINDS
async def test_pausing_and_resuming_again_and_again_changes_nothing(
    recorder: type[Notes], connect: Connect, kind: str
) -> None:
    protocol = recorder()
    transport, peer = await connect(kind, protocol)
    for _ in range(3):
        transport.pause_reading()
    transport.resume_reading()
    peer.send(b"one resume is enough")
    await protocol.until_received(20)
    for _ in range(3):
        transport.resume_reading()
    transport.pause_reading()
    peer.send(b"one pause too")
    await turns(5)
    assert protocol.received == b"one resume is enough"
    assert not transport.is_reading()


@READING_KINDS
async def test_a_protocol_may_pause_in_every_reading_call(
    recorder: type[Notes], loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    class Sipping(recorder):  # type: ignore[misc,valid-type]
        """A protocol that takes one reading call a turn."""

        in_a_row = 0

        def note(self, call: str) -> None:
            super().note(call)
            if call in ("data_received", "buffer_updated"):
                assert self.transport.is_reading()
                self.transport.pause_reading()
                loop.call_soon(loop.call_soon, self.transport.resume_reading)

    protocol = Sipping()
    _, peer = await connect(kind, protocol)
    data = noise(2_000_000 if recorder is Recorder else 100_000)
    sending = loop.create_task(loop.sock_sendall(peer, data))
    assert digest(await protocol.until_received(len(data))) == digest(data)
    await sending


@READING_KINDS
async def test_the_end_waits_while_reading_is_paused(
    recorder: type[Notes], connect: Connect, kind: str
) -> None:
    protocol = recorder()
    transport, peer = await connect(kind, protocol)
    transport.pause_reading()
    peer.send(b"last")
    peer.close()
    await turns(5)
    assert protocol.calls == ["connection_made"]
    transport.resume_reading()
    assert await protocol.until_lost() is None
    assert protocol.received == b"last"
    assert protocol.calls[-2:] == ["eof_received", "connection_lost"]


@READING_KINDS
async def test_reading_may_be_paused_from_the_start(
    recorder: type[Notes], connect: Connect, kind: str
) -> None:
    class PausedAtFirst(recorder):  # type: ignore[misc,valid-type]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()

    protocol = PausedAtFirst()
    transport, peer = await connect(kind, protocol)
    assert not transport.is_reading()
    peer.send(b"early")
    await turns(5)
    assert not protocol.received
    transport.resume_reading()
    assert await protocol.until_received(5) == b"early"


async def test_resuming_in_the_call_that_paused_loses_nothing(connect: Connect, kind: str) -> None:
    class Wavering(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.pause_reading()
            self.transport.resume_reading()
            self.transport.pause_reading()
            super().data_received(data)
            self.transport.resume_reading()

    protocol = Wavering()
    _, peer = await connect(kind, protocol)
    data = noise(1_000_000)
    sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(peer, data))
    assert digest(await protocol.until_received(len(data))) == digest(data)
    await sending


async def test_pause_reading_really_stops_a_fast_sender(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol)
    data = noise(1 << 20)
    sent = fill(peer, data)
    await protocol.until_received(sent)
    transport.pause_reading()
    before = memory.in_use()
    took = 0
    for _ in range(2000):
        took += fill(peer, data)
        await asyncio.sleep(0)
    # The two sockets hold all of it, and this process no byte.
    assert took < 20 << 20
    assert len(protocol.received) == sent
    assert memory.in_use() - before < 20 << 20
    while await turns_while_idle() > 2:
        pass  # Data on its way still arrives.
    transport.resume_reading()
    await protocol.until_received(sent + took)
    assert len(protocol.received) == sent + took


async def test_a_paused_transport_still_writes(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    transport.pause_reading()
    data = noise(MORE_THAN_SOCKETS_HOLD)
    transport.write(data)
    peer.send(b"ignored")
    assert digest(await receive(peer, len(data))) == digest(data)


async def test_a_paused_transport_learns_of_errors_when_it_writes(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    transport.pause_reading()
    transport.write(bytes(MORE_THAN_SOCKETS_HOLD))
    peer.close()
    assert isinstance(await protocol.until_lost(), ConnectionError)


async def test_transport_sends_and_receives_at_once(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    protocol = Recorder(keep_open=True)
    transport, peer = await connect(kind, protocol, small=True)
    there, back = noise(1_000_000, 1), noise(1_000_000, 2)
    transport.write(there)
    transport.write_eof()

    async def send() -> None:
        await loop.sock_sendall(peer, back)
        peer.shutdown(socket.SHUT_WR)

    received, _ = await asyncio.gather(receive_all(peer), send())
    await protocol.until(lambda: "eof_received" in protocol.calls)
    assert digest(received) == digest(there)
    assert digest(protocol.received) == digest(back)


@pytest.mark.parametrize(
    ("high", "low", "watermarks"),
    [
        (10**30, 10, (10, sys.maxsize)),
        (10**30, 10**29, (sys.maxsize, sys.maxsize)),
        (math.inf, 0, (0, sys.maxsize)),
        (1000.5, 10.5, (10, 1000)),
        (True, False, (0, 1)),
    ],
)
async def test_watermarks_may_be_larger_than_memory(
    high: float, low: float, watermarks: tuple[int, int], connect: Connect
) -> None:
    transport, _ = await connect("unix", Recorder())
    transport.set_write_buffer_limits(high, low)
    assert transport.get_write_buffer_limits() == watermarks
