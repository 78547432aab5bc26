"""Sockets that are being connected: nothing is lost on the way, and replaced methods are called."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, turns
from whorl.aio.interop.stock import CONNECTION_METHODS

pytestmark = pytest.mark.usefixtures("no_leak")

# The connection has an address in numbers, and no TLS.
NOT_CALLED = {"getaddrinfo", "_make_ssl_transport"}


@pytest.fixture
def address() -> Iterator[Any]:
    """Yield the address of a server that answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


@pytest.fixture
def deaf() -> Iterator[Any]:
    """Yield the address of a server whose queue is full: a connect to it does not end."""
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        first.connect(listener.getsockname())
        yield listener.getsockname()


async def closed(transport: Any, protocol: Recorder) -> None:
    """Close a connection, and wait until its descriptor is."""
    transport.close()
    await protocol.until_lost()


class Ends(asyncio.Protocol):
    """A protocol that keeps its data until the end of the connection."""

    def __init__(self, ended: asyncio.Future[bytes]) -> None:
        self.data = b""
        self.ended = ended

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(self.data)


@pytest.mark.parametrize("answer", [b"", b"early"])
async def test_data_that_comes_before_the_protocol_is_made_is_received(
    loop: whorl.EventLoop, answer: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answered = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(answer)
            answered.set()

        ended: asyncio.Future[bytes] = loop.create_future()

        def factory() -> Ends:
            assert answered.wait(10)
            return Ends(ended)

        thread = threading.Thread(target=serve)
        thread.start()
        await loop.create_connection(factory, *listener.getsockname())
        assert await ended == answer
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "localhost"])
async def test_the_names_are_those_of_the_socket(loop: whorl.EventLoop, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server(("::1" if ":" in host else "127.0.0.1", 0), family=family) as listener:
        port = listener.getsockname()[1]
        transport, protocol = await loop.create_connection(Recorder, host, port, family=family)
        names = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        sock = transport.get_extra_info("socket")
        assert names == (sock.getpeername(), sock.getsockname())
        assert (sock.family, sock.type, sock.proto) == (family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await closed(transport, protocol)


@pytest.mark.parametrize("place", ["loop", "class"])
@pytest.mark.parametrize("name", sorted({*CONNECTION_METHODS} - NOT_CALLED))
async def test_create_connection_calls_a_method_that_was_replaced(
    loop: whorl.EventLoop, address: Any, name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    method = getattr(loop if place == "loop" else type(loop), name)

    def replaced(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return method(*args, **options)

    monkeypatch.setattr(loop if place == "loop" else type(loop), name, replaced)
    transport, protocol = await loop.create_connection(Recorder, *address)
    assert calls
    monkeypatch.undo()
    await closed(transport, protocol)


async def test_a_subclass_of_the_loop_has_its_methods_called(address: Any) -> None:
    calls = []

    class Loop(whorl.EventLoop):
        async def sock_connect(self, sock: Any, address: Any) -> None:
            calls.append(address)
            await super().sock_connect(sock, address)

    def run() -> None:
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(connect())

    async def connect() -> None:
        transport, protocol = await asyncio.get_running_loop().create_connection(Recorder, *address)
        await closed(transport, protocol)

    await asyncio.to_thread(run)
    assert calls == [address]


async def test_create_connection_uses_a_class_of_sockets_that_was_replaced(
    loop: whorl.EventLoop, address: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(socket.socket):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(socket, "socket", Counted)
    transport, protocol = await loop.create_connection(Recorder, *address)
    assert made
    await closed(transport, protocol)


def test_add_reader_works_beside_a_connect() -> None:
    async def scenario(loop: Any) -> Any:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
            sock.setblocking(False)
            connecting = asyncio.ensure_future(loop.sock_connect(sock, listener.getsockname()))
            await asyncio.sleep(0)
            readable: asyncio.Future[bytes] = loop.create_future()
            loop.add_reader(sock, lambda: readable.done() or readable.set_result(sock.recv(9)))
            await connecting
            connection, _ = listener.accept()
            with connection:
                connection.send(b"data")
                data = await readable
            return data, loop.remove_reader(sock)

    assert is_as_in_asyncio(scenario) == (b"data", True)


async def test_a_socket_is_used_at_will_once_it_is_connected(loop: whorl.EventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            receiving = asyncio.ensure_future(loop.sock_recv(sock, 9))
            await turns(2)
            connection.send(b"data")
            assert await receiving == b"data"


def test_a_refused_sock_connect_is_asyncios_error() -> None:
    async def scenario(loop: Any) -> Any:
        answers = []
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.socket(family) as silent, socket.socket(family) as sock:
                silent.bind((host, 0))
                address = silent.getsockname()[:2]
                sock.setblocking(False)
                try:
                    await loop.sock_connect(sock, address)
                except OSError as error:
                    answers.append((type(error), str(error).replace(str(address[1]), "port")))
        return answers

    assert len(is_as_in_asyncio(scenario)) == 2


async def test_sock_connect_can_be_cancelled_and_made_again(
    loop: whorl.EventLoop, deaf: Any, address: Any
) -> None:
    with socket.socket() as sock:
        sock.setblocking(False)
        connecting = asyncio.ensure_future(loop.sock_connect(sock, deaf))
        await turns(2)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
    with socket.socket() as sock:  # It mostly has the same number.
        sock.setblocking(False)
        await loop.sock_connect(sock, address)


def test_a_connect_that_goes_on_when_the_loop_is_closed_leaves_nothing(deaf: Any) -> None:
    loop = whorl.new_event_loop()
    connecting = loop.create_connection(Recorder, *deaf)
    connecting.send(None)  # type: ignore[attr-defined]
    loop.close()
    connecting.close()


async def test_a_duplicate_that_outlives_the_connection_does_not_disturb_others(
    loop: whorl.EventLoop,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        transport, protocol = await loop.create_connection(Recorder, *address)
        peer, _ = listener.accept()
        duplicate = os.dup(transport.fileno())  # type: ignore[attr-defined]
        await closed(transport, protocol)
        ended: asyncio.Future[bytes] = loop.create_future()
        await loop.create_connection(lambda: Ends(ended), *address)
        other, _ = listener.accept()
        with peer, other:
            for _ in range(3):
                peer.send(b"for the duplicate")
                other.send(b"x")
                await turns(3)
        assert await ended == b"xxx"
        assert os.read(duplicate, 100) == 3 * b"for the duplicate"
        os.close(duplicate)


async def test_connections_that_come_together_are_all_accepted(loop: whorl.EventLoop) -> None:
    made: list[Recorder] = []

    def factory() -> Recorder:
        made.append(Recorder())
        return made[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(5)]
    while len(made) < 5:
        await turns(1)
    for client in clients:
        client.close()
    for protocol in made:
        await protocol.until_lost()
    server.close()
    await server.wait_closed()
