"""TLS connections that the loop makes and accepts itself, which have no socket object."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, digest, noise, turns
from tests.aio.tls_contexts import client_context, distrustful_context, server_context
from whorl.aio.transports.tls import TLSProtocol

pytestmark = pytest.mark.usefixtures("no_leak")

Factory = Callable[[], asyncio.BaseProtocol]


@contextlib.asynccontextmanager
async def serving(loop: Any, factory: Factory, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Yield a TLS server and its address."""
    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=server_context(), **options)
    try:
        yield server, server.sockets[0].getsockname()
    finally:
        server.close()
        await server.wait_closed()


async def connect(loop: Any, address: Any, context: Any = None, factory: Any = Recorder) -> Any:
    """Return a transport and its protocol, after the handshake."""
    return await loop.create_connection(
        factory, *address, ssl=context or client_context(), server_hostname="localhost"
    )


class Echo(asyncio.Protocol):
    """Sends everything back."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Asking(Recorder):
    """Writes and closes as soon as it is connected."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.write(b"question")
        transport.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("size", [1, 3 * 16384, 1_000_000])
async def test_data_comes_back_over_many_connections(loop: whorl.EventLoop, host: str, size: int) -> None:
    async def exchange(port: int, number: int) -> None:
        transport, protocol = await connect(loop, (host, port))
        data = noise(size, number)
        transport.write(data)
        assert digest(await protocol.until_received(size)) == digest(data)
        transport.close()
        await protocol.until_lost()

    async with serving(loop, Echo) as (_, address):
        await asyncio.gather(*(exchange(address[1], number) for number in range(8)))


async def test_data_comes_back_over_a_unix_socket(loop: whorl.EventLoop, tmp_path: Any) -> None:
    path = str(tmp_path / "socket")
    server = await loop.create_unix_server(Echo, path, ssl=server_context())
    transport, protocol = await loop.create_unix_connection(
        Recorder, path, ssl=client_context(), server_hostname="localhost"
    )
    transport.write(b"question")
    assert await protocol.until_received(8) == b"question"
    assert transport.get_extra_info("peername") == path
    transport.close()
    await protocol.until_lost()
    server.close()
    await server.wait_closed()


def test_both_ends_know_what_asyncio_knows() -> None:
    async def scenario(loop: Any) -> Any:
        accepted = loop.create_future()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                accepted.set_result(facts(transport))

        def facts(transport: Any) -> Any:
            known = transport.get_extra_info
            sock = known("socket")
            assert known("sockname") == sock.getsockname()
            assert known("peername") == sock.getpeername()
            assert known("ssl_object").cipher() == known("cipher")
            return (
                (sock.family, sock.type, sock.proto, sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)),
                (known("peercert"), known("cipher"), known("compression")),
            )

        async with serving(loop, Accepted) as (_, address):
            transport, protocol = await connect(loop, address)
            answer = facts(transport), await accepted
            transport.close()
            await protocol.until_lost()
        return answer

    is_as_in_asyncio(scenario)


def test_the_calls_are_those_of_asyncio() -> None:
    async def scenario(loop: Any) -> Any:
        made: list[Recorder] = []

        def factory() -> Recorder:
            made.append(Recorder())
            return made[-1]

        async with serving(loop, factory) as (_, address):
            _, protocol = await connect(loop, address, factory=Asking)
            await protocol.until_lost()
            await made[0].until_lost()
        return protocol.calls, made[0].calls, bytes(made[0].received)

    assert is_as_in_asyncio(scenario)[2] == b"question"


def test_a_refused_certificate_ends_both_ends_as_in_asyncio() -> None:
    async def scenario(loop: Any) -> Any:
        made: list[Recorder] = []

        def factory() -> Recorder:
            made.append(Recorder())
            return made[-1]

        async with serving(loop, factory) as (_, address):
            try:
                await connect(loop, address, distrustful_context())
            except ssl.SSLError as error:
                answer = type(error), error.reason
            await turns(20)
        return answer, [protocol.calls for protocol in made]

    is_as_in_asyncio(scenario)


@pytest.mark.parametrize("place", ["loop", "class"])
async def test_a_replaced_method_that_makes_transports_is_called(
    loop: whorl.EventLoop, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = []
    owner: Any = loop if place == "loop" else type(loop)
    method = owner._make_ssl_transport

    def replaced(*args: Any, **options: Any) -> Any:
        sides.append(options["server_side"])
        return method(*args, **options)

    async with serving(loop, Echo) as (_, address):
        monkeypatch.setattr(owner, "_make_ssl_transport", replaced)
        transport, protocol = await connect(loop, address)
        assert sorted(sides) == [False, True]
        monkeypatch.undo()
        transport.close()
        await protocol.until_lost()


@pytest.mark.parametrize("how", ["a class of the context's", "the class of all"])
async def test_methods_of_the_programs_own_shake_hands_and_say_goodbye(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    names = ("do_handshake", "unwrap", "getpeercert", "cipher", "compression")
    seen = set()

    def noting(name: str, method: Any) -> Any:
        def call(*args: Any) -> Any:
            seen.add(name)
            return method(*args)

        return call

    replaced = {name: noting(name, getattr(ssl.SSLObject, name)) for name in names}
    context = client_context()
    if how == "a class of the context's":
        context.sslobject_class = type("Observed", (ssl.SSLObject,), replaced)
    else:
        for name, method in replaced.items():
            monkeypatch.setattr(ssl.SSLObject, name, method)
    async with serving(loop, Echo) as (_, address):
        transport, protocol = await connect(loop, address, context)
        transport.close()
        await protocol.until_lost()
    assert seen == {*names}


async def test_a_context_of_a_class_of_the_programs_own_makes_the_ssl_object(loop: whorl.EventLoop) -> None:
    names = []

    class Context(ssl.SSLContext):
        def wrap_bio(self, *args: Any, **options: Any) -> Any:
            names.append(options["server_hostname"])
            return super().wrap_bio(*args, **options)

    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with serving(loop, Echo) as (_, address):
        transport, protocol = await connect(loop, address, context)
        transport.close()
        await protocol.until_lost()
    assert names == ["localhost"]


async def test_a_connection_is_closed_if_its_context_makes_no_ssl_object(loop: whorl.EventLoop) -> None:
    class Refusing(ssl.SSLContext):
        def wrap_bio(self, *args: Any, **options: Any) -> Any:
            raise ValueError("refused")

    async with serving(loop, Echo) as (server, address):
        with pytest.raises(ValueError, match="refused"):
            await connect(loop, address, Refusing(ssl.PROTOCOL_TLS_CLIENT))
        server._ssl_context = Refusing(ssl.PROTOCOL_TLS_SERVER)
        with pytest.raises(ConnectionError):
            await connect(loop, address)


async def test_a_handshake_without_an_answer_can_be_cancelled(loop: whorl.EventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connecting = asyncio.ensure_future(connect(loop, listener.getsockname()))
        peer, _ = await asyncio.to_thread(listener.accept)
        with peer:
            assert await asyncio.to_thread(peer.recv, 1)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            while await asyncio.to_thread(peer.recv, 65536):
                pass


async def test_a_handshake_without_an_answer_ends_in_time(loop: whorl.EventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(ConnectionAbortedError, match=r"taking longer than 0\.01 seconds"):
            await loop.create_connection(
                Recorder, *listener.getsockname(), ssl=True, server_hostname="x", ssl_handshake_timeout=0.01
            )


# Uncompiled, the connection has a socket object, which warns as on asyncio.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_an_accepted_connection_is_closed_if_its_task_is_cancelled(loop: whorl.EventLoop) -> None:
    made: list[asyncio.BaseProtocol] = []

    def factory() -> asyncio.BaseProtocol:
        made.append(Echo())
        return made[-1]

    cancelled = []

    def task_factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        cancelled.append(task.cancel())
        return task

    async with serving(loop, factory) as (_, address):
        with socket.create_connection(address) as client:
            client.setblocking(False)
            loop.set_task_factory(task_factory)
            while not cancelled:
                await turns(1)
            loop.set_task_factory(None)
            assert await loop.sock_recv(client, 1) == b""
    assert made == []


async def test_an_accepted_connection_is_closed_if_its_factory_closes_the_server(
    loop: whorl.EventLoop,
) -> None:
    closing = loop.create_future()

    def factory() -> asyncio.BaseProtocol:
        closing.result().close()
        return Echo()

    async with serving(loop, factory) as (server, address):
        closing.set_result(server)
        with socket.create_connection(address) as client:
            client.setblocking(False)
            assert await loop.sock_recv(client, 1) == b""


class Underneath(asyncio.Transport):
    """A transport that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        """Do nothing: the test ends the connection."""


async def test_a_servers_tickets_leave_with_its_answer(loop: whorl.EventLoop) -> None:
    layer = TLSProtocol(loop, Echo(), server_context(), None, server_side=True)  # type: ignore[arg-type]
    underneath = Underneath()
    layer.connection_made(underneath)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    layer.data_received(outgoing.read())
    incoming.write(b"".join(underneath.writes))
    client.do_handshake()
    client.write(b"question")
    underneath.writes.clear()
    layer.data_received(outgoing.read())
    (answer,) = underneath.writes
    incoming.write(answer)
    assert client.read(100) == b"question"
    layer._app_transport.abort()
    layer.connection_lost(None)
