"""Sockets with methods of their own: they are called where asyncio calls them, with what it gives them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from whorl.core.kernel.socket_overrides import NAMES, overrides_method

pytestmark = pytest.mark.usefixtures("no_leak")

CALLED = ("recv", "recv_into", "recvfrom", "recvfrom_into", "send", "sendto", "connect", "accept")


class Telling(socket.socket):
    """A socket that notes each call, and refuses `refusals` times because the call would block."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.setblocking(False)
        self.told: list[Any] = []
        self.refusals = 0
        self.error: BaseException | None = None


def telling(name: str) -> Callable[..., Any]:
    def method(self: Telling, *args: Any) -> Any:
        self.told.append((name, *(type(one) if isinstance(one, tuple) else _plain(one) for one in args)))
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError if self.refusals % 2 else InterruptedError  # with no number
        if self.error is not None:
            raise self.error
        return getattr(socket.socket, name)(self, *args)

    return method


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


for each in CALLED:
    setattr(Telling, each, telling(each))


async def receive(loop: Any, sock: Telling, peer: socket.socket) -> Any:
    peer.send(b"hello")
    return await loop.sock_recv(sock, 3), await loop.sock_recv(sock, 3)


async def receive_into(loop: Any, sock: Telling, peer: socket.socket) -> Any:
    loop.call_soon(peer.send, b"hello")
    buffer = bytearray(9)
    return await loop.sock_recv_into(sock, buffer), buffer


async def send(loop: Any, sock: Telling, peer: socket.socket) -> Any:
    return await loop.sock_sendall(sock, bytearray(b"hello")), peer.recv(9)


async def send_very_much(loop: Any, sock: Telling, peer: socket.socket) -> Any:
    peer.setblocking(False)
    sending = loop.create_task(loop.sock_sendall(sock, bytes(3_000_000)))
    got = 0
    while got < 3_000_000:
        with contextlib.suppress(BlockingIOError):
            got += len(peer.recv(1_000_000))
        await asyncio.sleep(0)
    sock.told = [sorted({name for name, *_ in sock.told})]
    return await sending, got


async def receive_datagram(loop: Any, sock: Telling, peer: socket.socket) -> Any:
    loop.call_soon(peer.sendto, b"hello", sock.getsockname())
    return (await loop.sock_recvfrom(sock, 3))[0]


async def receive_datagram_into(loop: Any, sock: Telling, peer: socket.socket) -> Any:
    loop.call_soon(peer.sendto, b"hello", sock.getsockname())
    buffer = bytearray(9)
    return (await loop.sock_recvfrom_into(sock, buffer))[0], buffer


async def send_datagram(loop: Any, sock: Telling, peer: socket.socket) -> Any:
    return await loop.sock_sendto(sock, b"hello", peer.getsockname()), peer.recv(9)


STREAM_CALLS = [receive, receive_into, send, send_very_much]
DATAGRAM_CALLS = [receive_datagram, receive_datagram_into, send_datagram]


def stream_pair() -> tuple[Telling, socket.socket]:
    ours, theirs = socket.socketpair()
    return Telling(fileno=ours.detach()), theirs


def datagram_pair() -> tuple[Telling, socket.socket]:
    ours = Telling(socket.AF_INET, socket.SOCK_DGRAM)
    theirs = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for sock in (ours, theirs):
        sock.bind(("127.0.0.1", 0))
    return ours, theirs


@pytest.mark.parametrize("refusals", [0, 1, 4])
@pytest.mark.parametrize("call", [*STREAM_CALLS, *DATAGRAM_CALLS])
def test_the_methods_of_a_subclass_are_called(call: Any, refusals: int) -> None:
    async def use(loop: Any) -> Any:
        ours, theirs = stream_pair() if call in STREAM_CALLS else datagram_pair()
        with ours, theirs:
            ours.refusals = refusals
            return await asyncio.wait_for(call(loop, ours, theirs), 10), ours.told

    result, told = is_as_in_asyncio(use)
    assert result
    assert len(told) > refusals or call is send_very_much


@pytest.mark.parametrize("error", [ValueError("mine"), OSError("mine"), OSError(-3, "mine"), KeyError(5)])
@pytest.mark.parametrize("refusals", [0, 1])
@pytest.mark.parametrize("call", [*STREAM_CALLS[:3], *DATAGRAM_CALLS])
def test_the_errors_of_a_subclass_arrive_as_they_are(call: Any, refusals: int, error: Exception) -> None:
    async def use(loop: Any) -> Any:
        ours, theirs = stream_pair() if call in STREAM_CALLS else datagram_pair()
        with ours, theirs:
            ours.refusals = refusals
            ours.error = error
            try:
                await asyncio.wait_for(call(loop, ours, theirs), 10)
            except type(error) as raised:
                return raised is error

    assert is_as_in_asyncio(use) is True


@pytest.mark.parametrize("refusals", [0, 1, 2])
def test_connections_are_made_and_accepted_by_the_methods_of_a_subclass(refusals: int) -> None:
    async def use(loop: Any) -> Any:
        with Telling() as listener, Telling() as client:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.refusals = refusals
            await loop.sock_connect(client, listener.getsockname())
            connection, address = await loop.sock_accept(listener)
            with connection:
                return (
                    type(connection),
                    connection.gettimeout(),
                    address == client.getsockname(),
                    listener.told,
                    client.told,
                )

    assert is_as_in_asyncio(use)[3]


def test_a_refused_connection_of_a_subclass_is_the_error_asyncio_gives() -> None:
    async def use(loop: Any) -> Any:
        with socket.socket() as silent, Telling() as client:
            silent.bind(("127.0.0.1", 0))  # and nobody listens there
            address = silent.getsockname()
            try:
                await loop.sock_connect(client, address)
            except OSError as error:
                return type(error), error.errno, str(error).replace(str(address[1]), "port")

    assert is_as_in_asyncio(use)[0] is ConnectionRefusedError


async def test_a_cancelled_call_leaves_no_watcher(loop: whorl.EventLoop) -> None:
    ours, theirs = stream_pair()
    with ours, theirs:
        waiting = loop.create_task(loop.sock_recv(ours, 5))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not loop.remove_reader(ours)
        theirs.send(b"hello")
        assert await loop.sock_recv(ours, 5) == b"hello"


def test_a_method_replaced_in_pythons_class_is_called() -> None:
    async def use(loop: Any) -> Any:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            with (
                mock.patch.object(socket.socket, "recv", lambda sock, size: (sock is ours, size)),
                mock.patch.object(socket.socket, "send", lambda sock, data: len(data)),
            ):
                received = await loop.sock_recv(ours, 7), await loop.sock_sendall(ours, b"never sent")
            await loop.sock_sendall(ours, b"sent")
            return received, theirs.recv(20)

    assert is_as_in_asyncio(use) == (((True, 7), None), b"sent")


def test_an_object_that_stands_in_for_a_socket_is_asked() -> None:
    class StandIn:
        def __init__(self, sock: socket.socket) -> None:
            self.fileno = sock.fileno
            self.gettimeout = sock.gettimeout
            self.sock = sock

        def recv(self, size: int) -> bytes:
            return self.sock.recv(size).upper()

    async def use(loop: Any) -> Any:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            loop.call_soon(theirs.send, b"hello")
            received = await loop.sock_recv(StandIn(ours), 9)
            try:
                await loop.sock_sendall(StandIn(ours), b"x")
            except AttributeError as error:
                return received, str(error)

    assert is_as_in_asyncio(use)[0] == b"HELLO"


def test_a_subclass_without_such_methods_is_like_any_socket() -> None:
    class Plain(socket.socket):
        note = "a subclass has a dictionary"

    with Plain() as sock, socket.socket() as other:
        assert not overrides_method(sock, *NAMES)
        assert not overrides_method(other, *NAMES)
        sock.recv = print  # type: ignore[method-assign, assignment]
        assert overrides_method(sock, "send", "recv")
        assert not overrides_method(sock, "send")


# Datagram endpoints.


class Listening(asyncio.DatagramProtocol):
    """A protocol that notes its data."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.heard = asyncio.Event()

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.told.append(data)
        self.heard.set()

    def error_received(self, error: OSError) -> None:
        self.told.append(error.args)
        self.heard.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append((type(error), str(error)))
        self.heard.set()


async def endpoint(loop: Any, sock: Any) -> tuple[Any, Listening]:
    made: tuple[Any, Listening] = await loop.create_datagram_endpoint(Listening, sock=sock)
    return made


def test_the_methods_of_an_endpoints_socket_are_called() -> None:
    async def use(loop: Any) -> Any:
        ours, theirs = datagram_pair()
        with theirs:
            transport, protocol = await endpoint(loop, ours)
            ours.refusals = 1
            for data in (b"one", b"two"):
                transport.sendto(data, theirs.getsockname())
            theirs.settimeout(10)
            sent = [await loop.run_in_executor(None, theirs.recv, 9) for _ in range(2)]
            told = ours.told
            ours.told = []
            theirs.sendto(b"hello", ours.getsockname())
            await asyncio.wait_for(protocol.heard.wait(), 10)
            received = list(protocol.told)
            transport.abort()
            return sent, told, [name for name, *_ in ours.told], received

    assert is_as_in_asyncio(use)[2:] == (["recvfrom"], [b"hello"])


@pytest.mark.parametrize("error", [OSError("mine"), OSError(5, "mine"), ValueError("mine")])
@pytest.mark.parametrize("direction", ["in", "out", "out, later"])
def test_the_errors_of_an_endpoints_socket_are_told_to_the_protocol(direction: str, error: Exception) -> None:
    async def use(loop: Any) -> Any:
        reported: list[Any] = []
        loop.set_exception_handler(lambda loop, context: reported.append(context["message"]))
        ours, theirs = datagram_pair()
        with theirs:
            transport, protocol = await endpoint(loop, ours)
            ours.error = error
            ours.refusals = int(direction == "out, later")
            if direction == "in":
                theirs.sendto(b"hello", ours.getsockname())
            else:
                transport.sendto(b"hello", theirs.getsockname())
            await asyncio.wait_for(protocol.heard.wait(), 10)
            ours.error = None
            told = list(protocol.told)
            transport.abort()
            return told, reported if direction == "in" else None  # where asyncio fails, too

    assert is_as_in_asyncio(use)[0]


async def two_writes(loop: Any, sock: Telling) -> list[Any]:
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, sock)
    transport.write(b"one")
    transport.write(b"two")
    told = list(sock.told)
    transport.close()
    await asyncio.sleep(0)
    return told


def test_overridden_send_is_called_for_each_write_of_a_callback() -> None:
    ours, peer = socket.socketpair()
    with (
        peer,
        Telling(fileno=ours.detach()) as sock,
        contextlib.closing(whorl.EventLoop()) as loop,
    ):
        assert loop.run_until_complete(two_writes(loop, sock)) == [("send", b"one"), ("send", b"two")]


async def test_a_fileno_that_python_s_class_was_given_is_asked(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    asked = []
    fileno = socket.socket.fileno

    def ask(self: socket.socket) -> int:
        asked.append(self)
        return fileno(self)

    with ours, theirs:
        ours.setblocking(False)
        await loop.sock_sendall(ours, b"before")
        assert theirs.recv(100) == b"before"
        monkeypatch.setattr(socket.socket, "fileno", ask)
        theirs.send(b"word")
        assert await loop.sock_recv(ours, 100) == b"word"
        assert asked == [ours]
        monkeypatch.undo()
        theirs.send(b"word")
        assert await loop.sock_recv(ours, 100) == b"word"
        assert asked == [ours]


async def test_short_and_long_messages_follow_each_other(loop: whorl.EventLoop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        for much in (100, 60_000, 60_000, 100, 100):
            receiving = asyncio.ensure_future(loop.sock_recv(ours, 1 << 16))
            await asyncio.sleep(0)
            theirs.send(bytes(much))
            assert await receiving == bytes(much)
