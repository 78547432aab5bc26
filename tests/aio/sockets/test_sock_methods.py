"""The sock_ methods."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import digest, noise, socket_pair, turns
from tests.aio.tls_contexts import client_context

pytestmark = pytest.mark.usefixtures("no_leak")

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair(kind: str) -> Iterator[Pair]:
    """Yield two connected sockets."""
    pair = socket_pair(kind, small=True)
    yield pair
    for sock in pair:
        sock.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Yield a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        yield sock


# Receiving.


@pytest.mark.exact("counts turns")
async def test_sock_recv_takes_no_turn_if_data_has_arrived(loop: whorl.EventLoop, pair: Pair) -> None:
    pair[1].send(b"hello")
    before = loop.metrics().turns
    assert await loop.sock_recv(pair[0], 100) == b"hello"
    assert loop.metrics().turns == before


async def test_sock_recv_waits_for_data(loop: whorl.EventLoop, pair: Pair) -> None:
    loop.call_soon(pair[1].send, b"!")
    assert await loop.sock_recv(pair[0], 100) == b"!"


@pytest.mark.exact("whole messages")
async def test_sock_recv_returns_at_most_the_requested_size(loop: whorl.EventLoop, pair: Pair) -> None:
    pair[1].send(b"hello")
    assert await loop.sock_recv(pair[0], 2) == b"he"
    assert await loop.sock_recv(pair[0], 100) == b"llo"


async def test_the_end_is_no_bytes(loop: whorl.EventLoop, pair: Pair) -> None:
    loop.call_soon(pair[1].shutdown, socket.SHUT_WR)
    assert await loop.sock_recv(pair[0], 100) == b""


@pytest.mark.exact("whole messages")
async def test_data_is_received_into_a_buffer(loop: whorl.EventLoop, pair: Pair) -> None:
    buffer = bytearray(10)
    loop.call_soon(pair[1].send, b"hello")
    assert await loop.sock_recv_into(pair[0], buffer) == 5
    pair[1].send(b"!")
    assert await loop.sock_recv_into(pair[0], memoryview(buffer)[5:]) == 1
    assert buffer == b"hello!\0\0\0\0"


async def test_a_cancelled_receive_leaves_no_reader(loop: whorl.EventLoop, pair: Pair) -> None:
    task = loop.create_task(loop.sock_recv(pair[0], 100))
    await turns(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.remove_reader(pair[0]) is False
    pair[1].send(b"!")
    assert await loop.sock_recv(pair[0], 100) == b"!"


@pytest.mark.exact("cancels in the turn of the event")
async def test_cancelled_sock_recv_loses_no_data(loop: whorl.EventLoop, pair: Pair) -> None:
    task = loop.create_task(loop.sock_recv(pair[0], 100))
    await turns(2)
    loop.call_soon(task.cancel)  # It runs before the event, in the same turn.
    pair[1].send(b"k")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await loop.sock_recv(pair[0], 100) == b"k"


async def test_a_cancelled_receive_leaves_the_reader_of_its_successor(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    first = loop.create_task(loop.sock_recv(pair[0], 100))
    await turns(1)
    second = loop.create_task(loop.sock_recv(pair[0], 100))
    await turns(1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    pair[1].send(b"!")
    assert await second == b"!"


async def test_sock_recv_of_no_bytes_returns_at_once_while_another_waits(
    loop: whorl.EventLoop, pair: Pair
) -> None:
    waiting = loop.create_task(loop.sock_recv(pair[0], 100))
    await turns(1)
    assert await asyncio.wait_for(loop.sock_recv(pair[0], 0), 5) == b""
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_receive_that_is_done_leaves_no_reader(loop: whorl.EventLoop, pair: Pair) -> None:
    loop.call_soon(pair[1].send, b"!")
    await loop.sock_recv(pair[0], 100)
    assert loop.remove_reader(pair[0]) is False


async def test_a_send_and_a_receive_wait_side_by_side(loop: whorl.EventLoop, pair: Pair) -> None:
    data = noise(200_000)
    receiving = loop.create_task(loop.sock_recv(pair[0], 100))
    sending = loop.create_task(loop.sock_sendall(pair[0], data))
    await turns(2)
    pair[1].send(b"!")
    assert await receiving == b"!"
    received = bytearray()
    while len(received) < len(data):
        received += await loop.sock_recv(pair[1], 65536)
    await sending
    assert digest(received) == digest(data)


# Sending.


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, lambda data: memoryview(data).cast("I")])
async def test_sock_sendall_sends_all_data(
    loop: whorl.EventLoop, pair: Pair, form: Callable[[bytes], Any]
) -> None:
    data = noise(200_000)
    sending = loop.create_task(loop.sock_sendall(pair[0], form(data)))
    received = bytearray()
    while len(received) < len(data):
        received += await loop.sock_recv(pair[1], 65536)
    await sending
    assert digest(received) == digest(data)


async def test_sock_sendall_of_no_bytes_returns_at_once(loop: whorl.EventLoop, pair: Pair) -> None:
    await loop.sock_sendall(pair[0], b"")


async def test_a_cancelled_send_leaves_no_writer(loop: whorl.EventLoop, pair: Pair) -> None:
    task = loop.create_task(loop.sock_sendall(pair[0], noise(1_000_000)))
    await turns(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.remove_writer(pair[0]) is False


async def test_sending_to_one_who_has_gone_is_an_error(loop: whorl.EventLoop) -> None:
    ours, peer = socket_pair("unix")
    peer.close()
    with pytest.raises(BrokenPipeError):
        await loop.sock_sendall(ours, b"hello")
    ours.close()


async def test_a_buffer_is_free_again_after_the_send(loop: whorl.EventLoop, pair: Pair) -> None:
    data = bytearray(b"hello")
    await loop.sock_sendall(pair[0], data)
    data.clear()  # A BufferError if somebody still looked at it.


# Connecting and accepting.


async def test_a_socket_connects(loop: whorl.EventLoop, listener: socket.socket) -> None:
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, listener.getsockname())
        accepted, address = await loop.sock_accept(listener)
        with accepted:
            assert address == client.getsockname()
            assert accepted.gettimeout() == 0


async def test_an_accept_waits(loop: whorl.EventLoop, listener: socket.socket) -> None:
    accepting = loop.create_task(loop.sock_accept(listener))
    await turns(1)
    with socket.create_connection(listener.getsockname()):
        accepted, _ = await accepting
        accepted.close()


async def test_a_cancelled_accept_leaves_no_reader(loop: whorl.EventLoop, listener: socket.socket) -> None:
    task = loop.create_task(loop.sock_accept(listener))
    await turns(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.remove_reader(listener) is False


def test_a_refused_connection_is_the_error_asyncio_gives() -> None:
    async def connect(loop: Any) -> None:
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, silent.getsockname())

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and nobody listens there
        assert error_as_in_asyncio(connect)[0] is ConnectionRefusedError


async def test_a_name_is_resolved_before_connecting(
    loop: whorl.EventLoop, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = listener.getsockname()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *question: [(2, 1, 6, "", address)])
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("example.com", 80))
        assert client.getpeername() == address


async def test_a_unix_socket_connects_to_an_abstract_name(loop: whorl.EventLoop) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind("")  # Linux finds a name.
        listener.listen()
        client.setblocking(False)
        await loop.sock_connect(client, listener.getsockname())
        assert client.getpeername() == listener.getsockname()


async def test_a_unix_listener_without_room_is_an_error_and_no_connection(loop: whorl.EventLoop) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen(0)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for client in clients:
            client.setblocking(False)
        await loop.sock_connect(clients[0], listener.getsockname())
        with pytest.raises(BlockingIOError):
            await loop.sock_connect(clients[1], listener.getsockname())
        for client in clients:
            client.close()


# Datagrams.


@pytest.fixture(params=["ipv4", "ipv6", "unix"])
def datagram_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Yield two bound datagram sockets."""
    family, address = {
        "ipv4": (socket.AF_INET, ("127.0.0.1", 0)),
        "ipv6": (socket.AF_INET6, ("::1", 0)),
        "unix": (socket.AF_UNIX, ""),  # Linux finds a name.
    }[request.param]
    with socket.socket(family, socket.SOCK_DGRAM) as ours, socket.socket(family, socket.SOCK_DGRAM) as peer:
        for sock in (ours, peer):
            sock.bind(address)
            sock.setblocking(False)
        yield ours, peer


async def test_datagrams_are_sent_and_received_with_addresses(
    loop: whorl.EventLoop, datagram_pair: Pair
) -> None:
    ours, peer = datagram_pair
    loop.call_soon(peer.sendto, b"hello", ours.getsockname())
    data, address = await loop.sock_recvfrom(ours, 4)
    assert (data, address) == (b"hell", peer.getsockname())  # what was cut off is lost, as ever
    assert await loop.sock_sendto(ours, b"world", address) == 5
    buffer = bytearray(10)
    assert await loop.sock_recvfrom_into(peer, buffer) == (5, ours.getsockname())
    assert buffer == b"world\0\0\0\0\0"
    loop.call_soon(ours.sendto, b"again", peer.getsockname())
    assert await loop.sock_recvfrom_into(peer, buffer, 3) == (3, ours.getsockname())
    assert buffer == b"agald\0\0\0\0\0"


async def test_an_empty_and_the_longest_datagram(loop: whorl.EventLoop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        for size in (0, 65_507):
            assert await loop.sock_sendto(sock, bytes(size), sock.getsockname()) == size
            assert await loop.sock_recvfrom(sock, 70_000) == (bytes(size), sock.getsockname())


async def test_a_datagram_waits_until_it_can_be_sent(loop: whorl.EventLoop) -> None:
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, peer, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        peer.bind("")
        other.setblocking(False)
        address = peer.getsockname()
        ours.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += ours.sendto(b"x", address)
        task = loop.create_task(loop.sock_sendto(ours, b"last", address))
        await turns(3)
        assert not task.done()
        for _ in range(sent):
            assert peer.recv(10) == b"x"
        assert await task == 4
        assert peer.recv(10) == b"last"


async def test_a_socket_that_is_not_quite_one_may_say_that_it_would_block(loop: whorl.EventLoop) -> None:
    class Reluctant(socket.socket):
        refusals = 2

        def sendto(self, *args: Any) -> int:
            if self.refusals:
                self.refusals -= 1
                raise BlockingIOError  # with no number
            return super().sendto(*args)

    with Reluctant(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        assert await loop.sock_sendto(sock, b"x", sock.getsockname()) == 1
        assert sock.recv(10) == b"x"


# Refusals.


REFUSED_DATAGRAMS: dict[str, Callable[[Any, socket.socket], Any]] = {
    "a negative size": lambda loop, sock: loop.sock_recvfrom(sock, -1),
    "a size that is no number": lambda loop, sock: loop.sock_recvfrom(sock, "1"),
    "a buffer that is too small": lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(4), 5),
    "a size of a buffer that is negative": lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(4), -1),
    "a size beyond all numbers": lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(4), 2**64),
    "a buffer that cannot be written": lambda loop, sock: loop.sock_recvfrom_into(sock, b"1234"),
    "a buffer that is none": lambda loop, sock: loop.sock_recvfrom_into(sock, 5),
    "text": lambda loop, sock: loop.sock_sendto(sock, "text", ("127.0.0.1", 9)),
    "an address that is none": lambda loop, sock: loop.sock_sendto(sock, b"x", 5),
    "no address": lambda loop, sock: loop.sock_sendto(sock, b"x", None),
    "a port that is none": lambda loop, sock: loop.sock_sendto(sock, b"x", ("127.0.0.1", 70_000)),
    "a datagram that is too long": lambda loop, sock: loop.sock_sendto(sock, bytes(70_000), ("127.0.0.1", 9)),
    "no socket": lambda loop, sock: loop.sock_recvfrom(5, 5),
}


@pytest.mark.parametrize("name", REFUSED_DATAGRAMS)
def test_datagrams_are_refused_with_the_error_asyncio_gives(name: str) -> None:
    async def use(loop: Any) -> Any:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
            sock.sendto(b"12345678", sock.getsockname())
            try:
                await REFUSED_DATAGRAMS[name](loop, sock)
            except Exception as error:
                return type(error), getattr(error, "errno", None)

    assert is_as_in_asyncio(use) is not None


async def test_sock_recvfrom_into_writes_only_within_its_buffer(loop: whorl.EventLoop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        sock.sendto(b"x" * 100, sock.getsockname())
        buffer = bytearray(64)
        with pytest.raises(ValueError, match="nbytes is greater than the length of the buffer"):
            await loop.sock_recvfrom_into(sock, memoryview(buffer)[:8], 100)
        assert not any(buffer)
        assert await loop.sock_recvfrom_into(sock, memoryview(buffer)[:8]) == (8, sock.getsockname())
        assert bytes(buffer) == b"x" * 8 + bytes(56)


REFUSED: dict[str, Callable[[Any, socket.socket], Any]] = {
    "a negative size": lambda loop, sock: loop.sock_recv(sock, -1),
    "a size that is no number": lambda loop, sock: loop.sock_recv(sock, "1"),
    "a buffer that cannot be written": lambda loop, sock: loop.sock_recv_into(sock, b"12345"),
    "a buffer that is none": lambda loop, sock: loop.sock_recv_into(sock, 5),
    "text": lambda loop, sock: loop.sock_sendall(sock, "text"),
    "an address of another family": lambda loop, sock: loop.sock_connect(sock, ("127.0.0.1", 80)),
    "an address that is none": lambda loop, sock: loop.sock_connect(sock, 5),
    "a name with a NUL in it": lambda loop, sock: loop.sock_connect(sock, "/tmp/a\0b"),
    "an accept without a listen": lambda loop, sock: loop.sock_accept(sock),
    "no socket": lambda loop, sock: loop.sock_recv(5, 5),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_error_asyncio_gives(name: str) -> None:
    async def use(loop: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)
            try:
                await REFUSED[name](loop, sock)
            except Exception as error:
                return type(error), getattr(error, "errno", None)

    assert is_as_in_asyncio(use) is not None


async def test_a_socket_that_is_closed_while_a_call_waits_for_it_is_closed_at_once(
    loop: whorl.EventLoop,
) -> None:
    ours, peer = socket_pair("unix")
    receiving = loop.create_task(loop.sock_recv(ours, 1))
    await turns(2)
    ours.close()
    assert ours.fileno() == -1
    assert peer.recv(1) == b""
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    peer.close()


@pytest.mark.parametrize(
    "name",
    [
        "sock_recv",
        "sock_recv_into",
        "sock_recvfrom",
        "sock_recvfrom_into",
        "sock_sendall",
        "sock_sendto",
        "sock_connect",
        "sock_accept",
    ],
)
def test_a_closed_socket_is_refused_with_the_error_asyncio_gives(name: str) -> None:
    arguments: dict[str, list[Any]] = {
        "sock_recv": [5],
        "sock_recv_into": [bytearray(5)],
        "sock_recvfrom": [5],
        "sock_recvfrom_into": [bytearray(5)],
        "sock_sendall": [b"x"],
        "sock_sendto": [b"x", "/tmp/x"],
        "sock_connect": ["/tmp/x"],
        "sock_accept": [],
    }

    async def use(loop: Any) -> Any:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        sock.close()
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            await getattr(loop, name)(sock, *arguments[name])
        return caught.value.errno

    assert is_as_in_asyncio(use) == errno.EBADF


def test_debug_mode_refuses_sockets_that_block() -> None:
    async def use(loop: Any) -> Any:
        loop.set_debug(True)
        with socket.socket() as sock:
            await loop.sock_recv(sock, 5)

    assert error_as_in_asyncio(use) == (ValueError, "the socket must be non-blocking")


def test_sockets_that_speak_tls_are_refused() -> None:
    async def use(loop: Any) -> Any:
        with client_context().wrap_socket(socket.socket(), server_hostname="localhost") as sock:
            assert isinstance(sock, ssl.SSLSocket)
            await loop.sock_recv(sock, 5)

    assert error_as_in_asyncio(use) == (TypeError, "Socket cannot be of type SSLSocket")


async def test_a_socket_that_a_transport_uses_is_refused(loop: whorl.EventLoop) -> None:
    ours, peer = socket_pair("unix")
    duplicate = ours.dup()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    with pytest.raises(RuntimeError, match="is used by transport"):
        await loop.sock_recv(ours, 100)
    transport.close()
    await turns(2)
    peer.close()
    duplicate.close()


async def test_sock_recv_of_no_bytes_returns_at_once(loop: whorl.EventLoop) -> None:
    one, other = socket_pair("unix")
    assert await loop.sock_recv(one, 0) == b""
    assert await loop.sock_recv_into(one, bytearray()) == 0
    other.send(b"x")
    assert await loop.sock_recv(one, 0) == b""
    assert await loop.sock_recv(one, 1) == b"x"
    one.close()
    other.close()
