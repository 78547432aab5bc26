"""The ends of TLS connections: closed, aborted, left by the peer, broken; and errors of a protocol."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
import warnings
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import (
    BufferedRecorder,
    Recorder,
    digest,
    noise,
    reset,
    socket_pair,
    turns,
    turns_while_idle,
)
from tests.aio.tls_contexts import client_context, manual_connection, server_context, tls_pair

pytestmark = pytest.mark.usefixtures("no_leak")


# Closing.


async def test_tls_close_calls_both_protocols_in_order(loop: whorl.EventLoop, kind: str) -> None:
    async with tls_pair(loop, kind) as (client, server):
        client.transport.write(b"last words")
        client.transport.close()
        assert client.transport.is_closing()
        assert await server.protocol.until_lost() is None
        assert await client.protocol.until_lost() is None
        told = ["connection_made", "data_received", "eof_received", "connection_lost"]
        assert server.protocol.calls == told
        assert client.protocol.calls == ["connection_made", "eof_received", "connection_lost"]
        assert server.transport.is_closing()


async def test_close_sends_what_was_written_and_close_notify(loop: whorl.EventLoop, kind: str) -> None:
    data = noise(3_000_000)
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind, small=True) as (transport, peer):
        transport.write(data)
        transport.close()
        assert transport.get_write_buffer_size() > 2_000_000
        assert digest(await peer.receive_all()) == digest(data)
        assert not protocol.is_lost
        await peer.say_close_notify()
        assert await protocol.until_lost() is None
        assert await loop.sock_recv(peer.sock, 100) == b""


async def test_a_peer_that_goes_on_talking_does_not_disturb_the_end(loop: whorl.EventLoop) -> None:
    # Data that crosses Whorl's close_notify is discarded: unsent data must not be lost for it.
    data = noise(1_000_000)
    protocol = Recorder()
    async with manual_connection(loop, protocol, small=True) as (transport, peer):
        transport.write(data)
        transport.close()
        received = bytearray()
        while len(received) < len(data):
            peer.tls.write(b"not for you")
            await peer.flush()
            received += await peer.step(peer.tls.read, 65536)
        assert digest(received) == digest(data)
        assert await peer.receive_all() == b""
        await peer.send(b"not even this")
        await turns(3)
        assert not protocol.is_lost
        await peer.say_close_notify()
        assert await protocol.until_lost() is None
        assert not protocol.received


async def test_close_notify_is_not_lost_behind_what_is_unsent(loop: whorl.EventLoop, kind: str) -> None:
    # The peer's came first, so ours ends the conversation while the last bytes still wait underneath.
    data = noise(1_000_000)
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind, small=True) as (transport, peer):
        transport.write(data)
        await peer.say_close_notify()
        await turns(20)
        assert digest(await peer.receive_all()) == digest(data)
        assert await protocol.until_lost() is None


async def test_a_peer_that_does_not_answer_close_notify_is_given_up(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, ssl_shutdown_timeout=0.01) as (transport, peer):
        transport.close()
        error = await protocol.until_lost()
        assert isinstance(error, TimeoutError)
        assert str(error) == "SSL shutdown timed out"
        assert await peer.receive_all() == b""


async def test_a_peer_that_does_not_read_is_given_up(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, small=True, ssl_shutdown_timeout=0.01) as (transport, peer):
        transport.write(noise(1_000_000))
        await peer.say_close_notify()
        assert isinstance(await protocol.until_lost(), TimeoutError)


async def test_close_ends_a_connection_that_is_not_read(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (transport, peer):
        transport.pause_reading()
        data = noise(1_000_000)
        sending = loop.create_task(peer.send(data))
        while transport.get_read_buffer_size() < 256 * 1024:
            await turns(1)
        transport.close()
        await sending
        assert await peer.receive_all() == b""
        await peer.say_close_notify()
        assert await protocol.until_lost() is None
        assert not protocol.received


async def test_abort_forgets_what_was_written(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind, small=True) as (transport, peer):
        transport.write(noise(1_000_000))
        transport.abort()
        assert transport.is_closing()
        assert await protocol.until_lost() is None
        assert protocol.calls == ["connection_made", "pause_writing", "connection_lost"]
        with pytest.raises((EOFError, ConnectionResetError)):
            await peer.receive_all()


@pytest.mark.parametrize("ends", ["close", "abort"])
async def test_a_connection_may_end_in_connection_made(loop: whorl.EventLoop, ends: str) -> None:
    class Shy(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            getattr(transport, ends)()

    async with tls_pair(loop, server=Shy) as (client, server):
        await server.protocol.until_lost()
        await client.protocol.until_lost()
        assert server.protocol.error is None


@pytest.mark.parametrize("buffered", [False, True])
async def test_tls_data_is_not_delivered_after_close_in_data_received(
    loop: whorl.EventLoop, buffered: bool
) -> None:
    class Brief(BufferedRecorder if buffered else Recorder):  # type: ignore[misc]
        def note(self, call: str) -> None:
            super().note(call)
            if call in ("data_received", "buffer_updated"):
                self.transport.close()

    protocol = Brief()
    async with manual_connection(loop, protocol) as (_, peer):
        for _ in range(3):
            peer.tls.write(noise(1000))
        await peer.flush()
        await protocol.until_received(1)
        await peer.send(b"more")
        assert await peer.receive_all() == b""
        await peer.say_close_notify()
        assert await protocol.until_lost() is None
        assert len(protocol.calls) == 4  # connection_made, data, eof_received, connection_lost


async def test_writing_to_a_closed_connection_is_noted_after_a_while(
    loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_pair(loop) as (client, _):
        client.transport.close()
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                client.transport.write(b"to nobody")
            assert not caplog.records
            client.transport.writelines([b"to", b"nobody"])
        assert [record.getMessage() for record in caplog.records] == ["SSL connection is closed"]


async def test_lost_tls_transport_accepts_every_call(loop: whorl.EventLoop) -> None:
    async with tls_pair(loop) as (client, _):
        for _ in range(3):
            client.transport.close()
            client.transport.abort()
            client.transport.pause_reading()
            client.transport.resume_reading()
            client.transport.write(b"nothing")
            client.transport.writelines([])
            client.transport.set_write_buffer_limits(high=10)
            client.transport.set_read_buffer_limits(high=10)
            assert client.transport.get_write_buffer_size() == 0
            assert client.transport.get_extra_info("peername", "unknown") is not None
            assert client.transport.is_closing()
            repr(client.transport)
            await turns(20)
        assert client.transport.get_protocol() is None
        assert client.protocol.calls == ["connection_made", "connection_lost"]


# Left by the peer.


@pytest.mark.parametrize("ending", ["close_notify", "end of the socket"])
@pytest.mark.parametrize("buffered", [False, True])
async def test_the_peers_end_comes_after_its_data(
    loop: whorl.EventLoop, kind: str, ending: str, buffered: bool
) -> None:
    # A buffer that is smaller than what is left at the end must not cost the rest.
    data = noise(100_000)
    protocol: Any = BufferedRecorder(1000) if buffered else Recorder()
    async with manual_connection(loop, protocol, kind) as (transport, peer):
        peer.tls.write(data)
        if ending == "close_notify":
            await peer.say_close_notify()
        else:
            await peer.flush()
            peer.sock.shutdown(socket.SHUT_WR)
        assert await protocol.until_lost() is None
        assert digest(protocol.received) == digest(data)
        assert protocol.calls[-2:] == ["eof_received", "connection_lost"]
        assert transport.is_closing()
        if ending == "close_notify":
            assert await peer.receive_all() == b""  # The answer is close_notify too.


async def test_an_end_within_a_record_is_an_end(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind) as (_, peer):
        peer.tls.write(b"whole")
        peer.tls.write(b"the end of this is missing")
        data = peer.outgoing.read()
        await loop.sock_sendall(peer.sock, data[:-3])
        peer.sock.shutdown(socket.SHUT_WR)
        assert await protocol.until_lost() is None
        assert protocol.received == b"whole"
        assert protocol.calls == ["connection_made", "data_received", "eof_received", "connection_lost"]


async def test_the_end_waits_until_reading_is_resumed(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind) as (transport, peer):
        transport.pause_reading()
        await peer.send(b"data")
        peer.sock.shutdown(socket.SHUT_WR)
        await turns(40)
        assert protocol.calls == ["connection_made"]
        transport.resume_reading()
        assert await protocol.until_lost() is None
        assert protocol.received == b"data"


async def test_close_after_an_end_that_was_not_read_yet(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (transport, peer):
        transport.pause_reading()
        await peer.send(b"data")
        peer.sock.shutdown(socket.SHUT_WR)
        await turns(40)
        transport.close()
        assert await protocol.until_lost() is None
        assert not protocol.received


async def test_tls_data_is_sent_although_the_peer_has_shut_down_its_side(
    loop: whorl.EventLoop, kind: str
) -> None:
    data = noise(2_000_000)
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind, small=True) as (transport, peer):
        transport.write(data)
        peer.sock.shutdown(socket.SHUT_WR)
        await turns(20)
        assert digest(await peer.receive(len(data))) == digest(data)
        assert await protocol.until_lost() is None


@pytest.mark.exact("counts turns")
async def test_tls_transport_takes_no_turns_after_its_end(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind) as (transport, peer):
        transport.pause_reading()
        await peer.send(b"data")
        peer.sock.shutdown(socket.SHUT_WR)
        assert await turns_while_idle() <= 1
        transport.resume_reading()
        await protocol.until_lost()
        assert await turns_while_idle() <= 1


async def test_a_reset_is_told_once(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (_, peer):
        reset(peer.sock)
        assert isinstance(await protocol.until_lost(), ConnectionResetError)
        assert protocol.calls == ["connection_made", "connection_lost"]


async def test_a_reset_while_closing_is_told_once(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (transport, peer):
        transport.close()
        reset(peer.sock)
        assert isinstance(await protocol.until_lost(), ConnectionResetError)
        assert protocol.calls == ["connection_made", "connection_lost"]


async def test_tls_data_before_a_broken_record_is_delivered(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (_, peer):
        peer.tls.write(b"right")
        await loop.sock_sendall(peer.sock, peer.outgoing.read() + b"\x17\x03\x03\x00\x20" + bytes(32))
        assert isinstance(await protocol.until_lost(), ssl.SSLError)
        assert protocol.received == b"right"
        assert protocol.calls == ["connection_made", "data_received", "connection_lost"]


async def test_an_end_that_wants_to_be_kept_open_is_warned_of(
    loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with tls_pair(loop, server=lambda: Recorder(keep_open=True)) as (client, server):
            client.transport.close()
            assert await server.protocol.until_lost() is None
    assert "returning true from eof_received() has no effect when using ssl" in caplog.text


# Errors of a protocol's.


def ends_with(failing: str, error: type[BaseException]) -> Any:
    """Return the reports and calls after a call of a protocol's fails."""

    class Failing(Recorder):
        def note(self, call: str) -> None:
            super().note(call)
            if call == failing:
                raise error("out of order")

    async def scenario(loop: Any) -> Any:
        reported: list[tuple[Any, ...]] = []

        def handler(loop: Any, context: dict[str, Any]) -> None:
            reported.append((context["message"], str(context["exception"]), sorted(context)))

        loop.set_exception_handler(handler)
        protocols: list[Any] = []

        def serve() -> Any:
            protocols.append(Failing())
            return protocols[0]

        try:
            async with tls_pair(loop, client=Recorder, server=serve) as (client, server):
                server.transport.set_write_buffer_limits(high=1000)
                client.transport.pause_reading()
                client.transport.write(b"data")
                await server.protocol.until_received(4)
                if failing.endswith("writing"):
                    for _ in range(4):
                        server.transport.write(bytes(2_000_000))
                    client.transport.resume_reading()
                    await client.protocol.until_received(8_000_000)
                    await turns(3)
                client.transport.close()
                await server.protocol.until_lost()
                await turns(3)
        except (ValueError, ConnectionError) as caught:
            await turns(20)
            reported.append((type(caught), str(caught)))
        calls = [call for call in protocols[0].calls if call not in ("pause_writing", "resume_writing")]
        return reported, calls, type(protocols[0].error)

    return scenario


@pytest.mark.parametrize(
    "failing",
    ["data_received", "eof_received", "connection_lost", "pause_writing", "resume_writing"],
)
@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
def test_errors_of_a_protocol_are_treated_as_by_asyncio(failing: str, error: type[BaseException]) -> None:
    is_as_in_asyncio(ends_with(failing, error))


def test_an_error_in_connection_made_reaches_the_caller_as_in_asyncio() -> None:
    result = is_as_in_asyncio(ends_with("connection_made", ValueError))
    assert (ValueError, "out of order") in result[0]


@pytest.mark.parametrize("size", [0, 3])
async def test_a_buffer_that_cannot_be_used_ends_the_connection(
    loop: whorl.EventLoop, reported: list[dict[str, Any]], size: int
) -> None:
    class Wrong(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> Any:
            return bytes(size)

    async with tls_pair(loop, client=Wrong) as (client, server):
        server.transport.write(b"data")
        assert isinstance(await client.protocol.until_lost(), TypeError if size else RuntimeError)
        assert reported.pop()["message"] == "Fatal error on SSL protocol"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_out_of_a_protocol_ends_the_run(error: type[BaseException]) -> None:
    class Interrupting(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if data == b"stop":
                raise error

    loop = whorl.EventLoop()

    async def talk(words: bytes) -> None:
        client.transport.write(words)
        await server.protocol.until_received(len(words))

    pair = tls_pair(loop, server=Interrupting)
    client, server = loop.run_until_complete(pair.__aenter__())
    with pytest.raises(error):
        loop.run_until_complete(talk(b"stop"))
    loop.run_until_complete(talk(b"go on"))
    assert server.protocol.received == b"stopgo on"
    loop.run_until_complete(pair.__aexit__(None, None, None))
    loop.close()


# Nobody is left.


async def test_closed_tls_transport_keeps_no_context(loop: whorl.EventLoop) -> None:
    async with tls_pair(loop) as (client, _):
        client.transport.close()
        client.transport.close()
        await client.protocol.until_lost()
        assert client.transport._sslcontext is None
        assert client.transport.get_extra_info("ssl_object") is None


def test_a_connection_that_nobody_closed_is_warned_of() -> None:
    loop = whorl.EventLoop()

    async def connect(loop: whorl.EventLoop) -> None:
        ours, theirs = socket_pair("tcp")
        await asyncio.gather(
            loop.create_connection(
                asyncio.Protocol, sock=ours, ssl=client_context(), server_hostname="localhost"
            ),
            loop.connect_accepted_socket(asyncio.Protocol, theirs, ssl=server_context()),
        )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run_until_complete(connect(loop))
        loop.close()
        del loop
        gc.collect()
    unclosed = [str(warning.message) for warning in caught if warning.category is ResourceWarning]
    assert sum("unclosed transport <asyncio._SSLProtocolTransport object>" in text for text in unclosed) == 2
