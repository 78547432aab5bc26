"""TLS connections: the handshake, what is known of the peer, data in both directions."""

from __future__ import annotations

import array
import asyncio
import asyncio.sslproto
import contextlib
import gc
import random
import socket
import ssl
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import (
    BufferedRecorder,
    Recorder,
    digest,
    noise,
    receive_all,
    reset,
    socket_pair,
    turns,
)
from tests.aio.tls_contexts import (
    CERTIFICATE,
    ManualPeer,
    client_context,
    distrustful_context,
    manual_connection,
    server_context,
    tls_pair,
)
from whorl.aio.transports.tls import TLSProtocol

pytestmark = pytest.mark.usefixtures("no_leak")


# The connection as its users see it.


async def test_tls_transports_send_data_in_both_directions(loop: whorl.EventLoop, kind: str) -> None:
    async with tls_pair(loop, kind) as (client, server):
        client.transport.write(b"question")
        assert await server.protocol.until_received(8) == b"question"
        server.transport.write(b"answer")
        assert await client.protocol.until_received(6) == b"answer"


@pytest.mark.parametrize("how", ["a class of the context's", "the class of all"])
async def test_methods_of_the_programs_own_read_and_write_the_records(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    seen = []

    class Observed(ssl.SSLObject):
        def read(self, size: int = 1024, buffer: Any = None) -> Any:
            seen.append("read")
            return super().read(size, buffer)

        def write(self, data: Any) -> int:
            seen.append("write")
            return super().write(data)

    contexts = client_context(), server_context()
    if how == "a class of the context's":
        contexts[0].sslobject_class = Observed
    else:
        read, write = ssl.SSLObject.read, ssl.SSLObject.write
        monkeypatch.setattr(
            ssl.SSLObject, "read", lambda self, *given: (seen.append("read"), read(self, *given))[1]
        )
        monkeypatch.setattr(
            ssl.SSLObject, "write", lambda self, data: (seen.append("write"), write(self, data))[1]
        )
    async with tls_pair(loop, contexts=contexts) as (client, server):
        client.transport.write(b"question")
        assert await server.protocol.until_received(8) == b"question"
        server.transport.write(b"answer")
        assert await client.protocol.until_received(6) == b"answer"
        assert {"read", "write"} <= set(seen)


async def test_a_protocol_underneath_with_buffers_of_its_own_is_asked_for_them(loop: whorl.EventLoop) -> None:
    asked = []

    class Asked(TLSProtocol):
        def get_buffer(self, sizehint: int) -> Any:
            asked.append(sizehint)
            return super().get_buffer(sizehint)

    ours, theirs = socket_pair("tcp")
    shaken, user = loop.create_future(), Recorder()
    layer = Asked(loop, user, client_context(), shaken, server_hostname="localhost")
    _, (transport, protocol) = await asyncio.gather(
        loop.create_connection(lambda: layer, sock=ours),
        loop.connect_accepted_socket(Recorder, theirs, ssl=server_context()),
    )
    await shaken
    asked.clear()
    transport.write(b"question")
    assert await user.until_received(8) == b"question"
    assert asked
    transport.close()
    await user.until_lost()
    await protocol.until_lost()


async def test_connection_made_comes_after_the_handshake(loop: whorl.EventLoop) -> None:
    class Curious(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            assert transport.get_extra_info("cipher") is not None
            transport.write(b"at once")

    async with tls_pair(loop, client=Curious) as (_, server):
        assert await server.protocol.until_received(7) == b"at once"


async def test_tls_transport_has_the_extra_info_of_its_connection(loop: whorl.EventLoop) -> None:
    contexts = client_context(), server_context()
    async with tls_pair(loop, contexts=contexts) as (client, server):
        known = client.transport.get_extra_info
        assert known("sslcontext") is contexts[0]
        assert isinstance(known("ssl_object"), ssl.SSLObject)
        assert known("cipher") == known("ssl_object").cipher()
        assert known("compression") is None
        assert known("peercert")["subject"] == ((("commonName", "localhost"),),)
        assert known("peername") == server.transport.get_extra_info("sockname")
        assert known("socket").fileno() > 0
        assert known("nothing", "of the kind") == "of the kind"
        assert server.transport.get_extra_info("peercert") is None
        # The names of asyncio that test helpers read.
        assert client.transport._ssl_protocol._sslcontext is contexts[0]
        assert client.transport._sslcontext is contexts[0]
        assert client.transport._ssl_protocol._app_protocol is client.protocol
        assert client.transport._ssl_protocol._transport.get_extra_info("socket") is known("socket")


async def test_tls_transport_is_an_asyncio_transport(loop: whorl.EventLoop) -> None:
    async with tls_pair(loop) as (client, server):
        assert isinstance(client.transport, asyncio.Transport)
        assert isinstance(client.transport, asyncio.sslproto._SSLProtocolTransport)
        assert isinstance(client.transport._ssl_protocol, asyncio.BufferedProtocol)
        assert not isinstance(client.transport, asyncio.DatagramTransport)
        shown = repr(client.transport)
        assert shown.startswith("<asyncio.sslproto._SSLProtocolTransport object at 0x")
        assert "open over" in shown
        write = client.transport.write
        client.transport.write = lambda data: write(data.upper())
        client.transport.write(b"shout")
        assert await server.protocol.until_received(5) == b"SHOUT"


async def test_half_closing_is_refused(loop: whorl.EventLoop) -> None:
    async with tls_pair(loop) as (client, _):
        assert not client.transport.can_write_eof()
        with pytest.raises(NotImplementedError):
            client.transport.write_eof()


async def test_the_protocol_can_be_replaced(loop: whorl.EventLoop) -> None:
    successor = BufferedRecorder(3)
    async with tls_pair(loop) as (client, server):
        assert client.transport.get_protocol() is client.protocol
        client.transport.set_protocol(successor)
        assert client.transport.get_protocol() is successor
        server.transport.write(b"for the second")
        assert await successor.until_received(14) == b"for the second"
        client.transport.set_protocol(client.protocol)
        server.transport.write(b"for the first")
        assert await client.protocol.until_received(13) == b"for the first"
        assert "connection_made" not in successor.calls


async def test_a_protocol_may_be_replaced_while_it_is_called(loop: whorl.EventLoop) -> None:
    second = BufferedRecorder()

    class First(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.set_protocol(second)

    async with tls_pair(loop, client=First) as (client, server):
        server.transport.write(b"one")
        await client.protocol.until_received(3)
        server.transport.write(b"two")
        assert await second.until_received(3) == b"two"


# Handshakes.


async def test_the_server_hears_the_name(loop: whorl.EventLoop) -> None:
    heard: list[str | None] = []
    context = server_context()
    context.sni_callback = lambda tls, name, context: heard.append(name)
    async with tls_pair(loop, contexts=(client_context(), context)):
        assert heard == ["localhost"]


async def test_alpn_selects_an_application_protocol_on_both_sides(loop: whorl.EventLoop) -> None:
    contexts = client_context(), server_context()
    contexts[0].set_alpn_protocols(["h2", "http/1.1"])
    contexts[1].set_alpn_protocols(["http/1.1"])
    async with tls_pair(loop, contexts=contexts) as sides:
        for side in sides:
            assert side.transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_a_client_can_be_asked_for_its_certificate(loop: whorl.EventLoop) -> None:
    contexts = client_context(), server_context()
    contexts[0].load_cert_chain(CERTIFICATE)
    contexts[1].verify_mode = ssl.CERT_REQUIRED
    contexts[1].load_verify_locations(CERTIFICATE)
    async with tls_pair(loop, contexts=contexts) as (_, server):
        assert server.transport.get_extra_info("peercert")["subject"] == ((("commonName", "localhost"),),)


@pytest.mark.exact("what is unread when the server gives up makes a reset of the end")
async def test_a_client_without_the_certificate_that_is_asked_for_is_refused(loop: whorl.EventLoop) -> None:
    context = server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(CERTIFICATE)
    ours, theirs = socket_pair("tcp")
    client = Recorder()
    results = await asyncio.gather(
        loop.create_connection(lambda: client, sock=ours, ssl=client_context(), server_hostname="localhost"),
        loop.connect_accepted_socket(Recorder, theirs, ssl=context),
        return_exceptions=True,
    )
    assert isinstance(results[1], ssl.SSLError)
    # In TLS 1.3 the client is done before the server has looked; the alert comes as data.
    error: Any = await client.until_lost()
    assert error.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert client.calls == ["connection_made", "connection_lost"]
    assert loop.metrics().handshakes_failed == 1


@pytest.mark.exact("an alert is tried once")
async def test_a_certificate_that_is_not_trusted_is_refused(loop: whorl.EventLoop) -> None:
    ours, theirs = socket_pair("tcp")
    server = Recorder()
    results = await asyncio.gather(
        loop.create_connection(Recorder, sock=ours, ssl=distrustful_context(), server_hostname="localhost"),
        loop.connect_accepted_socket(lambda: server, theirs, ssl=server_context()),
        return_exceptions=True,
    )
    assert isinstance(results[0], ssl.SSLCertVerificationError)
    assert isinstance(results[1], ssl.SSLError)
    assert results[1].reason == "TLSV1_ALERT_UNKNOWN_CA"
    assert server.calls == []
    assert loop.metrics().handshakes_failed == 2


async def test_a_connection_that_is_refused_is_in_no_cycle(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone with the last reference, not when the collector comes."""
    made: list[weakref.ref[Any]] = []
    attach = TLSProtocol.connection_made

    class Refused(Recorder):
        pass

    def remember(tls: Any, transport: Any) -> None:
        if isinstance(tls._app_protocol, Refused):
            made.extend((weakref.ref(tls), weakref.ref(transport)))
        attach(tls, transport)

    monkeypatch.setattr(TLSProtocol, "connection_made", remember)
    ours, theirs = socket_pair("tcp")

    async def connect() -> None:
        with contextlib.suppress(ssl.SSLCertVerificationError):
            await loop.create_connection(
                Refused, sock=ours, ssl=distrustful_context(), server_hostname="localhost"
            )

    async def accept() -> None:
        with contextlib.suppress(ConnectionResetError, ssl.SSLError):
            await loop.connect_accepted_socket(Recorder, theirs, ssl=server_context())

    gc.collect()
    gc.disable()
    try:
        await asyncio.gather(connect(), accept())
        await turns(5)
        assert [thing() for thing in made] == [None, None]
    finally:
        gc.enable()


async def distrust(loop: whorl.EventLoop, address: Any) -> None:
    with contextlib.suppress(OSError):
        await loop.create_connection(
            Recorder, *address, ssl=distrustful_context(), server_hostname="localhost"
        )


async def talk_in_the_clear(loop: whorl.EventLoop, address: Any) -> None:
    with socket.create_connection(address) as peer:
        peer.send(b"GET / HTTP/1.0\r\n\r\n")


async def say_nothing(loop: whorl.EventLoop, address: Any) -> None:
    with socket.create_connection(address) as peer:
        peer.setblocking(False)
        with contextlib.suppress(ConnectionResetError):
            await receive_all(peer)


async def leave(loop: whorl.EventLoop, address: Any) -> None:
    socket.create_connection(address).close()


async def break_off(loop: whorl.EventLoop, address: Any) -> None:
    reset(socket.create_connection(address))


@pytest.mark.parametrize("refuse", [distrust, talk_in_the_clear, say_nothing, leave, break_off])
async def test_a_server_keeps_nothing_of_a_handshake_that_failed(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch, refuse: Callable[..., Awaitable[None]]
) -> None:
    made: list[weakref.ref[Any]] = []

    def remember(tls: Any, transport: Any) -> None:
        if tls._app_protocol is not None and tls._extra["sslcontext"] is context:
            made.extend(weakref.ref(thing) for thing in (tls, transport, tls._app_protocol))
        attach(tls, transport)

    attach = TLSProtocol.connection_made
    monkeypatch.setattr(TLSProtocol, "connection_made", remember)
    loop.set_exception_handler(lambda loop, context: None)  # asyncio reports some of these, too
    gc.collect()
    gc.disable()
    try:
        context = server_context()
        server = await loop.create_server(
            Recorder, "127.0.0.1", 0, ssl=context, ssl_handshake_timeout=0.05 if refuse is say_nothing else 20
        )
        await refuse(loop, server.sockets[0].getsockname())
        async with asyncio.timeout(10):
            while len(made) < 3 or any(thing() for thing in made):
                await asyncio.sleep(0.001)
        server.close()
    finally:
        gc.enable()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
async def test_tls_versions_1_2_and_1_3_are_spoken(loop: whorl.EventLoop, version: ssl.TLSVersion) -> None:
    contexts = client_context(), server_context()
    contexts[0].maximum_version = contexts[0].minimum_version = version
    data = noise(300_000)
    async with tls_pair(loop, contexts=contexts) as (client, server):
        assert client.transport.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        client.transport.write(data)
        assert digest(await server.protocol.until_received(len(data))) == digest(data)
        client.transport.close()
        assert await server.protocol.until_lost() is None
        assert await client.protocol.until_lost() is None


async def test_a_client_can_be_asked_for_its_certificate_later(loop: whorl.EventLoop) -> None:
    peer_context = server_context()
    peer_context.verify_mode = ssl.CERT_REQUIRED
    peer_context.post_handshake_auth = True
    peer_context.verify_mode = ssl.CERT_OPTIONAL
    peer_context.load_verify_locations(CERTIFICATE)
    context = client_context()
    context.post_handshake_auth = True
    context.load_cert_chain(CERTIFICATE)
    protocol = Recorder()
    async with manual_connection(loop, protocol, context=context, peer_context=peer_context) as (_, peer):
        before = peer.tls.getpeercert()
        peer_context.verify_mode = ssl.CERT_REQUIRED
        peer.tls.verify_client_post_handshake()
        await peer.send(b"who are you?")
        await protocol.until_received(12)
        protocol.transport.write(b"me")
        assert await peer.receive(2) == b"me"
        assert (before, peer.tls.getpeercert()["subject"]) == (None, ((("commonName", "localhost"),),))


async def test_a_session_is_used_again(loop: whorl.EventLoop) -> None:
    # The tickets come after the handshake and are no data.
    context, peer_context = client_context(), server_context()
    protocol = Recorder()
    async with manual_connection(loop, protocol, context=context, peer_context=peer_context) as (_, peer):
        await peer.send(b"after the tickets")
        await protocol.until_received(17)
        session = protocol.transport.get_extra_info("ssl_object").session
        assert session.has_ticket
    assert protocol.calls.count("data_received") == 1


def hostnames_as_asyncio(loop: Any) -> Any:
    async def connect(**options: Any) -> str:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                await loop.create_connection(asyncio.Protocol, sock=ours, **options)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            finally:
                ours.close()
        return "connected"

    async def ask() -> list[str]:
        return [
            await connect(ssl=True),
            await connect(server_hostname="localhost"),
            await connect(ssl_handshake_timeout=1),
            await connect(ssl_shutdown_timeout=1),
            await connect(ssl=client_context(), server_hostname="localhost", ssl_handshake_timeout=0),
            await connect(ssl=client_context(), server_hostname="localhost", ssl_handshake_timeout=-1),
            await connect(ssl=client_context(), server_hostname="localhost", ssl_shutdown_timeout=-1.5),
            await connect(ssl=client_context(), server_hostname=".example"),
            await connect(ssl=object(), server_hostname="localhost"),
        ]

    return ask()


def test_invalid_tls_arguments_are_refused_as_by_asyncio() -> None:
    assert "connected" not in is_as_in_asyncio(hostnames_as_asyncio)


def test_a_server_needs_a_context() -> None:
    async def accept(loop: Any) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await loop.connect_accepted_socket(asyncio.Protocol, ours, ssl=True)

    assert error_as_in_asyncio(accept) == (ValueError, "Server side SSL needs a valid SSLContext")


# Handshakes that come to nothing.


async def test_a_peer_that_says_nothing_is_given_up(loop: whorl.EventLoop) -> None:
    ours, theirs = socket_pair("tcp")
    protocol = Recorder()
    with theirs:
        with pytest.raises(ConnectionAbortedError, match=r"longer than 0\.01 seconds: aborting"):
            await loop.create_connection(
                lambda: protocol,
                sock=ours,
                ssl=client_context(),
                server_hostname="localhost",
                ssl_handshake_timeout=0.01,
            )
    assert protocol.calls == []


async def test_a_server_gives_up_a_client_that_says_nothing(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(
        Recorder, "127.0.0.1", 0, ssl=server_context(), ssl_handshake_timeout=0.01
    )
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        assert await loop.sock_recv(client, 100) == b""
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("ending", ["end", "reset", "garbage"])
@pytest.mark.parametrize("server_side", [False, True], ids=["client", "server"])
async def test_a_handshake_that_breaks_is_an_error(
    loop: whorl.EventLoop, ending: str, server_side: bool
) -> None:
    ours, theirs = socket_pair("tcp")
    protocol = Recorder()
    if server_side:
        connecting = loop.connect_accepted_socket(lambda: protocol, ours, ssl=server_context())
    else:
        connecting = loop.create_connection(
            lambda: protocol, sock=ours, ssl=client_context(), server_hostname="localhost"
        )
    task = loop.create_task(connecting)
    await turns(4)
    if ending == "end":
        theirs.shutdown(socket.SHUT_WR)
    elif ending == "reset":
        reset(theirs)
    else:
        theirs.send(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises((ConnectionResetError, ssl.SSLError)) as caught:
        await task
    assert isinstance(caught.value, ssl.SSLError) == (ending == "garbage")
    theirs.close()
    await turns(3)
    assert protocol.calls == []
    assert ours.fileno() == -1


@pytest.mark.parametrize("steps", range(6))
async def test_a_cancelled_connection_closes_its_socket(loop: whorl.EventLoop, steps: int) -> None:
    ours, theirs = socket_pair("tcp")
    with theirs:
        task = loop.create_task(
            loop.create_connection(Recorder, sock=ours, ssl=client_context(), server_hostname="localhost")
        )
        await turns(steps)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await turns(4)
        if steps:
            assert ours.fileno() == -1
        else:
            ours.close()  # It was never begun.


@pytest.mark.exact("whole messages")
async def test_a_handshake_in_single_bytes(loop: whorl.EventLoop) -> None:
    ours, theirs = socket_pair("tcp")
    protocol = Recorder()
    peer = ManualPeer(theirs)
    task = loop.create_task(
        loop.create_connection(lambda: protocol, sock=ours, ssl=client_context(), server_hostname="localhost")
    )
    peer.incoming.write(await loop.sock_recv(theirs, 65536))
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    for byte in peer.outgoing.read():
        await loop.sock_sendall(theirs, bytes([byte]))
        await turns(1)
    transport, _ = await task
    await peer.handshake()
    await peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    transport.abort()
    theirs.close()
    await turns(3)


# Data.


def is_told_to_pause(protocol: Any) -> bool:
    return bool(protocol.calls.count("pause_writing") > protocol.calls.count("resume_writing"))


@pytest.mark.parametrize("seed", range(4))
async def test_tls_transfers_much_data_in_both_directions_with_pauses(
    loop: whorl.EventLoop, kind: str, seed: int
) -> None:
    dice = random.Random(seed)

    def protocol() -> Any:
        return BufferedRecorder(dice.choice((1000, 16384, 100_000))) if dice.random() < 0.5 else Recorder()

    async def speak(side: Any, data: bytes) -> None:
        start = 0
        while start < len(data):
            size = dice.choice((1, 100, 16384, 16385, 70_000, 300_000))
            piece = data[start : start + size]
            if dice.random() < 0.3:
                side.transport.writelines([piece[:1], bytearray(piece[1:50]), memoryview(piece[50:])])
            else:
                side.transport.write(piece)
            start += size
            if dice.random() < 0.3:
                side.transport.pause_reading()
                await turns(dice.randrange(4))
                side.transport.resume_reading()
            await side.protocol.until(lambda: not is_told_to_pause(side.protocol))

    async with tls_pair(loop, kind, protocol, protocol, small=dice.random() < 0.5) as (client, server):
        said, answered = noise(1_000_000, seed), noise(700_000, seed + 1)
        await asyncio.gather(speak(client, said), speak(server, answered))
        assert digest(await server.protocol.until_received(len(said))) == digest(said)
        assert digest(await client.protocol.until_received(len(answered))) == digest(answered)


@pytest.mark.parametrize("size", [1, 2, 17, 16384])
async def test_data_arrives_in_buffers_of_any_size(loop: whorl.EventLoop, size: int) -> None:
    data = noise(min(400 * size, 1_000_000))
    async with tls_pair(loop, client=lambda: BufferedRecorder(size)) as (client, server):
        server.transport.write(data)
        assert digest(await client.protocol.until_received(len(data))) == digest(data)


@pytest.mark.exact("whole messages")
async def test_records_that_arrive_together_are_delivered_together(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (_, peer):
        for number in range(50):
            peer.tls.write(b"%04d" % number)
        await peer.flush()
        assert await protocol.until_received(200) == b"".join(b"%04d" % number for number in range(50))
        assert protocol.calls == ["connection_made", "data_received"]


async def test_a_record_that_arrives_in_single_bytes(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (_, peer):
        peer.tls.write(b"slowly")
        for byte in peer.outgoing.read():
            await loop.sock_sendall(peer.sock, bytes([byte]))
            await turns(1)
        assert await protocol.until_received(6) == b"slowly"
        assert protocol.calls == ["connection_made", "data_received"]


@pytest.mark.parametrize("kind_of_lines", [iter, list, tuple])
async def test_small_pieces_of_writelines_share_a_record(
    kind_of_lines: Callable[[Any], Any], loop: whorl.EventLoop
) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (transport, peer):
        transport.writelines(kind_of_lines(b"%03d" % number for number in range(1000)))
        assert len(await peer.step(peer.tls.read, 16384)) == 3000


async def test_tls_write_copies_mutable_data(loop: whorl.EventLoop, kind: str) -> None:
    async with tls_pair(loop, kind, small=True) as (client, server):
        data = bytearray(noise(700_000))
        before = bytes(data)
        client.transport.write(data)
        client.transport.writelines([data, memoryview(data)[:1000]])
        data[:] = bytes(len(data))
        data.clear()  # nothing exports it any more
        expected = before + before + before[:1000]
        assert digest(await server.protocol.until_received(len(expected))) == digest(expected)


async def test_tls_write_accepts_any_view_of_bytes(loop: whorl.EventLoop) -> None:
    numbers = array.array("I", range(1000))
    async with tls_pair(loop) as (client, server):
        client.transport.write(memoryview(numbers))
        client.transport.write(memoryview(b"abcdef")[::2])
        client.transport.writelines([memoryview(numbers)[:10], b"", bytearray(b"end")])
        expected = numbers.tobytes() + b"ace" + numbers[:10].tobytes() + b"end"
        assert await server.protocol.until_received(len(expected)) == expected


def test_tls_write_refuses_other_types_than_bytes_as_asyncio_does() -> None:
    async def write(loop: Any) -> list[str]:
        said: list[str] = []
        async with tls_pair(loop) as (client, server):
            for data in (1, "text", None, [b"list"], object):
                with pytest.raises(TypeError) as caught:
                    client.transport.write(data)
                said.append(str(caught.value))
            with pytest.raises(TypeError):
                client.transport.writelines([1])
            client.transport.write(b"")
            client.transport.write(b"still open")
            await server.protocol.until_received(10)
        return said

    assert is_as_in_asyncio(write)[0] == "data: expecting a bytes-like instance, got int"


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(100),
        memoryview(bytearray(100)),
        array.array("I", [0] * 25),
        memoryview(array.array("H", [0] * 50)),
    ],
    ids=["bytearray", "memoryview", "array", "view of an array"],
)
async def test_buffers_of_any_kind_are_filled(loop: whorl.EventLoop, buffer: Any) -> None:
    class Bringing(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> Any:
            assert sizehint > 0
            return buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.received += bytes(memoryview(buffer).cast("B")[:nbytes])
            if type(buffer) is bytearray:
                buffer.append(0)  # Nobody holds it any more.
            self.note("buffer_updated")

    protocol = Bringing()
    async with manual_connection(loop, protocol) as (_, peer):
        for number in range(100):
            peer.tls.write(b"%07d" % number)
        await peer.flush()
        expected = b"".join(b"%07d" % number for number in range(100))
        assert await protocol.until_received(700) == expected


async def test_tls_writelines_refuses_other_types_before_it_sends(loop: whorl.EventLoop) -> None:
    """asyncio ends the connection when it comes to encrypting it."""
    async with tls_pair(loop) as (client, server):
        with pytest.raises(TypeError):
            client.transport.writelines([b"lost", "text"])  # type: ignore[list-item]
        client.transport.writelines([b"sent"])
        assert await server.protocol.until_received(4) == b"sent"
