"""Flow control through TLS: watermarks, sizes, pauses."""

from __future__ import annotations

from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import BufferedRecorder, Recorder, digest, noise, turns
from tests.aio.tls_contexts import manual_connection, tls_pair

pytestmark = pytest.mark.usefixtures("no_leak")


def limits_as_asyncio(loop: Any) -> Any:
    async def ask() -> list[Any]:
        seen: list[Any] = []
        async with tls_pair(loop) as (client, _):
            transport = client.transport
            for kind in ("write", "read"):
                get, set_ = (getattr(transport, f"{verb}_{kind}_buffer_limits") for verb in ("get", "set"))
                seen.append(get())
                for high, low in ((1000, None), (None, 10), (7, 3), (None, None), (1, 1)):
                    set_(high, low)
                    seen.append(get())
                for high, low in ((1, 2), (-1, None), (None, -1)):
                    with pytest.raises(ValueError, match="must be >=") as caught:
                        set_(high=high, low=low)
                    seen.append(str(caught.value))
            seen.append((transport.get_write_buffer_size(), transport.get_read_buffer_size()))
        return seen

    return ask()


def test_limits_are_asyncios() -> None:
    assert is_as_in_asyncio(limits_as_asyncio)[0] == (128 * 1024, 512 * 1024)


async def test_a_high_watermark_pauses_and_a_low_one_resumes(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind, small=True) as (transport, peer):
        transport.set_write_buffer_limits(high=100_000, low=20_000)
        written = 0
        while "pause_writing" not in protocol.calls:
            transport.write(noise(1000))
            written += 1000
        assert transport.get_write_buffer_size() >= 100_000
        received = 0
        while "resume_writing" not in protocol.calls:
            received += len(await peer.step(peer.tls.read, 8192))
        assert transport.get_write_buffer_size() <= 20_000
        await peer.receive(written - received)
        assert protocol.calls == ["connection_made", "pause_writing", "resume_writing"]


@pytest.mark.exact("says how much of a write waits")
async def test_a_high_watermark_of_zero_pauses_when_something_is_unsent(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, small=True) as (transport, peer):
        transport.set_write_buffer_limits(high=0)
        transport.write(b"small")
        assert await peer.receive(5) == b"small"
        assert protocol.calls == ["connection_made"]
        data = noise(1_000_000)
        transport.write(data)
        assert protocol.calls[-1] == "pause_writing"
        assert digest(await peer.receive(len(data))) == digest(data)
        await turns(2)
        assert protocol.calls[1:] == ["pause_writing", "resume_writing"]
        assert transport.get_write_buffer_size() == 0


async def test_the_size_counts_all_that_was_not_given_to_the_kernel(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind, small=True) as (transport, peer):
        underneath = transport._ssl_protocol._transport
        total = 0
        for size in (1, 300, 20_000, 700_000):
            transport.write(noise(size))
            total += size
            sent = underneath._sent_total
            # Ciphertext is a little longer than what it encrypts; the handshake was sent before.
            assert total - sent <= transport.get_write_buffer_size() <= total + total // 100 + 10_000
        assert transport.get_write_buffer_size() > 600_000
        assert underneath.get_write_buffer_size() < 200_000
        await peer.receive(total)
        assert transport.get_write_buffer_size() == 0


async def test_tls_data_is_not_encrypted_while_it_cannot_be_sent(loop: whorl.EventLoop) -> None:
    async with manual_connection(loop, Recorder(), small=True) as (transport, _):
        before = transport.get_write_buffer_size()
        data = noise(5_000_000)
        for _ in range(10):
            transport.write(data)  # the same object, which is not copied
        assert transport.get_write_buffer_size() - before > 45_000_000
        assert transport._ssl_protocol._outgoing.pending == 0


async def test_a_paused_protocol_hears_nothing(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind) as (transport, peer):
        assert transport.is_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        await peer.send(b"wait")
        await turns(20)
        assert protocol.calls == ["connection_made"]
        transport.pause_reading()
        transport.resume_reading()
        transport.resume_reading()
        assert protocol.calls == ["connection_made"]  # not from inside the call
        assert await protocol.until_received(4) == b"wait"


async def test_a_paused_connection_does_not_grow(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    data = noise(8_000_000)
    async with manual_connection(loop, protocol, kind) as (transport, peer):
        transport.pause_reading()
        sending = loop.create_task(peer.send(data))
        for _ in range(300):
            await turns(1)
        assert not sending.done()
        assert 256 * 1024 <= transport.get_read_buffer_size() <= 512 * 1024
        transport.resume_reading()
        assert digest(await protocol.until_received(len(data))) == digest(data)
        await sending


@pytest.mark.exact("whole messages")
async def test_the_read_limits_say_when_the_socket_is_left_alone(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (transport, peer):
        transport.set_read_buffer_limits(high=1000)
        transport.pause_reading()
        await peer.send(noise(900))
        while not transport.get_read_buffer_size():
            await turns(1)
        assert transport._ssl_protocol._transport.is_reading()
        await peer.send(noise(900))
        while transport.get_read_buffer_size() < 1000:
            await turns(1)
        assert not transport._ssl_protocol._transport.is_reading()
        await peer.send(noise(900))
        await turns(20)
        assert transport.get_read_buffer_size() < 2000
        transport.resume_reading()
        await protocol.until_received(2700)
        assert transport._ssl_protocol._transport.is_reading()


async def test_reading_may_be_paused_in_every_callback(loop: whorl.EventLoop) -> None:
    class Hesitant(BufferedRecorder):
        def note(self, call: str) -> None:
            super().note(call)
            if call in ("connection_made", "buffer_updated"):
                self.transport.pause_reading()
                loop.call_soon(self.transport.resume_reading)

    data = noise(100_000)
    async with tls_pair(loop, client=lambda: Hesitant(1000)) as (client, server):
        server.transport.write(data)
        assert digest(await client.protocol.until_received(len(data))) == digest(data)
        server.transport.close()
        assert await client.protocol.until_lost() is None


async def test_a_handshake_is_finished_for_a_protocol_that_pauses_at_once(loop: whorl.EventLoop) -> None:
    # The last words of the handshake must go out although nothing is read.
    class Pausing(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()

    async with tls_pair(loop, client=Pausing) as (client, server):
        assert server.protocol.calls == ["connection_made"]
        server.transport.write(b"now")
        client.transport.resume_reading()
        assert await client.protocol.until_received(3) == b"now"


async def test_writing_in_resume_writing_keeps_the_order(loop: whorl.EventLoop) -> None:
    pieces = [noise(60_000, seed) for seed in range(40)]

    class Pump(Recorder):
        def pump(self) -> None:
            while pieces and self.calls.count("pause_writing") == self.calls.count("resume_writing"):
                self.transport.write(pieces.pop(0))

        def note(self, call: str) -> None:
            super().note(call)
            if call == "resume_writing":
                self.pump()

    expected = b"".join(pieces)
    protocol = Pump()
    async with manual_connection(loop, protocol, small=True) as (transport, peer):
        transport.set_write_buffer_limits(high=50_000)
        protocol.pump()
        assert digest(await peer.receive(len(expected))) == digest(expected)


async def test_a_busy_writer_leaves_turns_to_others(loop: whorl.EventLoop) -> None:
    async with tls_pair(loop) as (client, server):
        data = noise(20_000_000)
        client.transport.write(data)
        before = loop.metrics().turns
        await server.protocol.until_received(len(data))
        assert loop.metrics().turns - before > 8
