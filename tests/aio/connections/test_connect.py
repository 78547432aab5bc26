"""Connections to hosts, to UNIX sockets, and over sockets made elsewhere."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, digest, noise, receive_all, socket_pair, turns
from tests.aio.tls_contexts import client_context, server_context
from whorl.aio.connections.connect import interleaved
from whorl.core import Kernel

pytestmark = pytest.mark.usefixtures("no_leak")

STREAM, TCP = socket.SOCK_STREAM, socket.IPPROTO_TCP


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Yield a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        yield sock


@pytest.fixture
def dead_port() -> Iterator[int]:
    """Yield a port without a listener: it is bound, so that no other process gets it meanwhile."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        yield silent.getsockname()[1]


def info(host: str, port: int) -> tuple[Any, ...]:
    """Return a row of getaddrinfo's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return (family, STREAM, TCP, "", (host, port))


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the addresses to which names are resolved."""

    def resolve(**names: list[tuple[Any, ...]]) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *question: names[host])

    return resolve


async def end(transport: Any) -> None:
    """Let a connection go, and everything that refers to it."""
    transport.abort()
    await turns(3)


# To hosts.


async def test_a_connection_carries_data_both_ways(loop: whorl.EventLoop, listener: socket.socket) -> None:
    data = noise(500_000)
    host, port = listener.getsockname()
    transport, protocol = await loop.create_connection(Recorder, host, port)
    peer, _ = await loop.sock_accept(listener)
    transport.write(data)
    transport.write_eof()
    assert digest(await receive_all(peer)) == digest(data)
    await loop.sock_sendall(peer, b"hello")
    assert await protocol.until_received(5) == b"hello"
    peer.close()
    assert await protocol.until_lost() is None


async def test_the_protocol_knows_its_transport_when_the_call_returns(
    loop: whorl.EventLoop, listener: socket.socket
) -> None:
    transport, protocol = await loop.create_connection(Recorder, *listener.getsockname())
    assert protocol.transport is transport
    assert protocol.calls == ["connection_made"]
    assert isinstance(transport, asyncio.Transport)
    assert transport.get_extra_info("peername") == listener.getsockname()
    await end(transport)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_hosts_are_names_or_numbers(loop: whorl.EventLoop, listener: socket.socket, host: str) -> None:
    port = listener.getsockname()[1]
    transport, _ = await loop.create_connection(Recorder, host, port, family=socket.AF_INET)
    await end(transport)


async def test_the_next_address_is_tried_if_one_refuses(
    loop: whorl.EventLoop, listener: socket.socket, dead_port: int, resolve: Callable[..., None]
) -> None:
    resolve(both=[info("127.0.0.1", dead_port), info(*listener.getsockname())])
    transport, _ = await loop.create_connection(Recorder, "both", 80)
    assert transport.get_extra_info("peername") == listener.getsockname()
    await end(transport)


async def test_happy_eyeballs_find_the_address_that_answers(
    loop: whorl.EventLoop, listener: socket.socket, dead_port: int, resolve: Callable[..., None]
) -> None:
    resolve(both=[info("127.0.0.1", dead_port), info(*listener.getsockname())])
    transport, _ = await loop.create_connection(Recorder, "both", 80, happy_eyeballs_delay=60)
    assert transport.get_extra_info("peername") == listener.getsockname()
    await end(transport)


class Attentive(Kernel):
    """A kernel that notes to where it was asked to connect."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def connect(self, sock: Any, address: Any) -> int:
        self.asked.append(address)
        return super().connect(sock, address)


class TestSilence:
    """Addresses that do not answer."""

    @pytest.fixture
    def kernel(self) -> Attentive:
        return Attentive()

    async def test_happy_eyeballs_do_not_wait_for_one_who_is_silent(
        self, loop: whorl.EventLoop, kernel: Attentive, listener: socket.socket, resolve: Callable[..., None]
    ) -> None:
        # A listener whose queue is full lets connections hang, as a lost packet would.
        with socket.socket() as deaf, socket.socket() as first:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            first.connect(deaf.getsockname())
            resolve(both=[info(*deaf.getsockname()), info(*listener.getsockname())])
            transport, _ = await loop.create_connection(Recorder, "both", 80, happy_eyeballs_delay=0.01)
            assert transport.get_extra_info("peername") == listener.getsockname()
            assert [address[1] for address in kernel.asked] == [
                deaf.getsockname()[1],
                listener.getsockname()[1],
            ]
            await end(transport)


def test_a_refused_connection_is_the_error_asyncio_gives(dead_port: int) -> None:
    async def connect(loop: Any) -> None:
        await loop.create_connection(Recorder, "127.0.0.1", dead_port)

    assert error_as_in_asyncio(connect)[0] is ConnectionRefusedError


def test_create_connection_reports_several_refusals_as_asyncio_does(
    dead_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [info("127.0.0.1", dead_port), info("127.0.0.2", dead_port)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *question: infos)

    async def connect(loop: Any) -> None:
        await loop.create_connection(Recorder, "both", 80)

    kind, text = error_as_in_asyncio(connect)
    assert kind is OSError
    assert text.startswith("Multiple exceptions: ")


@pytest.mark.parametrize("delay", [None, 60])
async def test_create_connection_raises_all_errors_as_a_group_on_request(
    loop: whorl.EventLoop, dead_port: int, resolve: Callable[..., None], delay: float | None
) -> None:
    resolve(both=[info("127.0.0.1", dead_port), info("127.0.0.2", dead_port)])
    with pytest.raises(ExceptionGroup, match="create_connection failed") as caught:
        await loop.create_connection(Recorder, "both", 80, all_errors=True, happy_eyeballs_delay=delay)
    assert [type(error) for error in caught.value.exceptions] == [ConnectionRefusedError] * 2


async def test_a_name_without_addresses_is_an_error(
    loop: whorl.EventLoop, resolve: Callable[..., None]
) -> None:
    resolve(none=[])
    with pytest.raises(OSError, match="returned empty list"):
        await loop.create_connection(Recorder, "none", 80)


async def test_a_local_address_can_be_chosen(loop: whorl.EventLoop, listener: socket.socket) -> None:
    transport, _ = await loop.create_connection(
        Recorder, *listener.getsockname(), local_addr=("127.0.0.2", 0)
    )
    assert transport.get_extra_info("sockname")[0] == "127.0.0.2"
    await end(transport)


async def test_the_next_local_address_is_tried(
    loop: whorl.EventLoop, listener: socket.socket, resolve: Callable[..., None]
) -> None:
    taken = listener.getsockname()[1]
    resolve(mine=[info("::1", 0), info("127.0.0.1", taken), info("127.0.0.3", 0)])
    transport, _ = await loop.create_connection(Recorder, *listener.getsockname(), local_addr=("mine", 0))
    assert transport.get_extra_info("sockname")[0] == "127.0.0.3"
    await end(transport)


def test_a_local_address_that_cannot_be_had_is_the_error_asyncio_gives() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:

        async def connect(loop: Any) -> None:
            await loop.create_connection(
                Recorder, *taken.getsockname(), local_addr=("127.0.0.1", taken.getsockname()[1])
            )

        assert error_as_in_asyncio(connect)[0] is OSError


def test_a_local_address_of_another_family_is_the_error_asyncio_gives(dead_port: int) -> None:
    async def connect(loop: Any) -> None:
        await loop.create_connection(Recorder, "127.0.0.1", dead_port, local_addr=("::1", 0))

    kind, text = error_as_in_asyncio(connect)
    assert kind is OSError
    if sys.version_info >= (3, 12):
        assert text.startswith("no matching local address with family=")


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "a1 b1 a2 b2 a3"), (2, "a1 a2 b1 a3 b2"), (3, "a1 a2 a3 b1 b2")],
)
def test_families_take_turns(count: int, expected: str) -> None:
    infos = [(name[0], 0, 0, "", name) for name in "a1 a2 a3 b1 b2".split()]
    assert [row[4] for row in interleaved(infos, count)] == expected.split()  # type: ignore[arg-type]


async def test_a_cancelled_connect_leaves_nothing(loop: whorl.EventLoop) -> None:
    with socket.socket() as deaf, socket.socket() as first:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        first.connect(deaf.getsockname())
        task = loop.create_task(loop.create_connection(Recorder, *deaf.getsockname()))
        await turns(3)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# Over a socket.


async def test_a_connected_socket_is_taken_over(loop: whorl.EventLoop, kind: str) -> None:
    ours, peer = socket_pair(kind)
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    await end(transport)
    peer.close()
    assert ours.fileno() == -1


async def test_a_socket_that_blocks_is_made_non_blocking(loop: whorl.EventLoop) -> None:
    ours, peer = socket_pair("tcp")
    ours.setblocking(True)
    transport, _ = await loop.create_connection(Recorder, sock=ours)
    assert ours.gettimeout() == 0
    await end(transport)
    peer.close()


async def test_an_accepted_socket_is_served(loop: whorl.EventLoop, kind: str) -> None:
    ours, peer = socket_pair(kind)
    transport, protocol = await loop.connect_accepted_socket(Recorder, ours)
    peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    await end(transport)
    peer.close()


async def test_small_writes_are_not_delayed(loop: whorl.EventLoop) -> None:
    ours, peer = socket_pair("tcp")
    transport, _ = await loop.create_connection(Recorder, sock=ours)
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await end(transport)
    peer.close()


async def test_callbacks_run_in_the_context_of_the_call(loop: whorl.EventLoop) -> None:
    name = contextvars.ContextVar("name", default="outside")
    seen: list[str] = []

    class Protocol(Recorder):
        def connection_made(self, transport: Any) -> None:
            seen.append(name.get())
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            seen.append(name.get())
            super().data_received(data)

    name.set("inside")
    ours, peer = socket_pair("unix")
    transport, protocol = await loop.create_connection(Protocol, sock=ours)
    peer.send(b"!")
    await protocol.until_received(1)
    assert seen == ["inside", "inside"]
    await end(transport)
    peer.close()


async def test_a_factory_that_fails_closes_the_socket(loop: whorl.EventLoop) -> None:
    def fail() -> asyncio.Protocol:
        raise ZeroDivisionError

    ours, peer = socket_pair("tcp")
    with pytest.raises(ZeroDivisionError):
        await loop.create_connection(fail, sock=ours)
    assert ours.fileno() == -1
    peer.close()


async def test_debug_mode_logs_the_connection(
    loop: whorl.EventLoop, listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_debug(True)
    with caplog.at_level("DEBUG", logger="asyncio"):
        transport, _ = await loop.create_connection(Recorder, *listener.getsockname())
    assert f"connected to 127.0.0.1:{listener.getsockname()[1]}: " in caplog.text
    await end(transport)


# To UNIX sockets.


@pytest.mark.parametrize("form", [str, bytes, Path], ids=["text", "bytes", "path object"])
async def test_a_unix_socket_is_named_by(loop: whorl.EventLoop, tmp_path: Path, form: type) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.setblocking(False)
        name = str(path).encode() if form is bytes else form(path)
        transport, protocol = await loop.create_unix_connection(Recorder, name)
        peer, _ = await loop.sock_accept(listener)
        peer.send(b"hello")
        assert await protocol.until_received(5) == b"hello"
        peer.close()
        await end(transport)


async def test_a_connected_unix_socket_is_taken_over(loop: whorl.EventLoop) -> None:
    ours, peer = socket_pair("unix")
    transport, protocol = await loop.create_unix_connection(Recorder, sock=ours)
    peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    await end(transport)
    peer.close()


@pytest.mark.parametrize("path", ["/nonexistent/socket", "/dev/null", "\0nobody-listens-here", "x" * 200])
def test_a_unix_socket_that_cannot_be_had_is_the_error_asyncio_gives(path: str) -> None:
    async def connect(loop: Any) -> None:
        await loop.create_unix_connection(Recorder, path)

    error_as_in_asyncio(connect)


# With TLS.


class Greeter(asyncio.Protocol):
    """A protocol that says hello."""

    def connection_made(self, transport: Any) -> None:
        transport.write(b"hello")
        transport.close()


@pytest.fixture
def tls_port(loop: whorl.EventLoop) -> Iterator[int]:
    """Yield the port of a server that says hello, in TLS."""
    server = loop.run_until_complete(loop.create_server(Greeter, "127.0.0.1", 0, ssl=server_context()))
    yield server.sockets[0].getsockname()[1]
    server.close()
    loop.run_until_complete(server.wait_closed())


def ignore_alerts(loop: whorl.EventLoop) -> None:
    """Drop the server's reports of refused certificates: nobody knows in which turn they come."""

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), ssl.SSLError):
            former(loop, context)

    former: Any = loop.get_exception_handler()
    loop.set_exception_handler(report)


async def test_ssl_makes_a_tls_connection(loop: whorl.EventLoop, tls_port: int) -> None:
    transport, protocol = await loop.create_connection(
        Recorder, "localhost", tls_port, ssl=client_context(), family=socket.AF_INET
    )
    assert await protocol.until_received(5) == b"hello"
    assert transport.get_extra_info("ssl_object").version().startswith("TLSv1")
    assert transport.get_extra_info("peercert")["subject"] == ((("commonName", "localhost"),),)
    await protocol.until_lost()


async def test_ssl_true_checks_the_certificate(loop: whorl.EventLoop, tls_port: int) -> None:
    ignore_alerts(loop)
    with pytest.raises(ssl.SSLCertVerificationError):
        await loop.create_connection(Recorder, "127.0.0.1", tls_port, ssl=True)


async def test_a_certificate_for_another_name_is_refused(loop: whorl.EventLoop, tls_port: int) -> None:
    ignore_alerts(loop)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.com"):
        await loop.create_connection(
            Recorder, "127.0.0.1", tls_port, ssl=client_context(), server_hostname="example.com"
        )


async def test_a_peer_that_does_not_speak_tls_is_an_error(
    loop: whorl.EventLoop, listener: socket.socket
) -> None:
    connecting = loop.create_task(
        loop.create_connection(Recorder, *listener.getsockname(), ssl=client_context())
    )
    peer, _ = await loop.sock_accept(listener)
    peer.sendall(b"this is no TLS\n")  # at once: after a part of it, the other side may be gone
    with pytest.raises(ssl.SSLError):
        await connecting
    peer.close()
    await turns(3)


async def test_a_handshake_that_takes_too_long_is_an_error(
    loop: whorl.EventLoop, listener: socket.socket
) -> None:
    with pytest.raises(ConnectionAbortedError, match="SSL handshake is taking longer than"):
        await loop.create_connection(
            Recorder, *listener.getsockname(), ssl=client_context(), ssl_handshake_timeout=0.01
        )
    await turns(3)


async def test_an_accepted_socket_may_speak_tls(loop: whorl.EventLoop) -> None:
    ours, theirs = socket_pair("tcp")
    (transport, protocol), (server_transport, _) = await asyncio.gather(
        loop.create_connection(Recorder, sock=ours, ssl=client_context(), server_hostname="localhost"),
        loop.connect_accepted_socket(Recorder, theirs, ssl=server_context()),
    )
    server_transport.write(b"hello")
    assert await protocol.until_received(5) == b"hello"
    transport.abort()
    server_transport.abort()
    await turns(5)


async def test_tls_works_over_unix_sockets(loop: whorl.EventLoop) -> None:
    ours, theirs = socket_pair("unix")
    (transport, protocol), (server_transport, _) = await asyncio.gather(
        loop.create_unix_connection(Recorder, sock=ours, ssl=client_context(), server_hostname="localhost"),
        loop.connect_accepted_socket(Recorder, theirs, ssl=server_context()),
    )
    server_transport.write(b"hello")
    assert await protocol.until_received(5) == b"hello"
    transport.abort()
    server_transport.abort()
    await turns(5)


# Refusals.


class Socket:
    """A stand-in for a socket of some kind as an argument; the socket is made when it is needed."""

    def __init__(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> None:
        self.family = family
        self.kind = kind


ARGUMENTS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "nothing": ("create_connection", (), {}),
    "host and socket": ("create_connection", ("127.0.0.1", 80), {"sock": Socket()}),
    "a datagram socket": ("create_connection", (), {"sock": Socket(kind=socket.SOCK_DGRAM)}),
    "a server name without TLS": ("create_connection", ("127.0.0.1", 80), {"server_hostname": "x"}),
    "TLS without a server name": ("create_connection", (), {"sock": Socket(), "ssl": True}),
    "a handshake timeout without TLS": (
        "create_connection",
        ("127.0.0.1", 80),
        {"ssl_handshake_timeout": 1},
    ),
    "a shutdown timeout without TLS": ("create_connection", ("127.0.0.1", 80), {"ssl_shutdown_timeout": 1}),
    "a NUL in a host": ("create_connection", ("a\0b", 80), {}),
    "a NUL in a number": ("create_connection", ("127.0.0.1\0", 80), {}),
    "a port that is too large": ("create_connection", ("127.0.0.1", 70000), {}),
    "a negative port": ("create_connection", ("127.0.0.1", -1), {}),
    "a host that is a number": ("create_connection", (5, 80), {}),
    "a host with an empty label": ("create_connection", ("a..b", 80), {}),
    "no path and no socket": ("create_unix_connection", (), {}),
    "path and socket": ("create_unix_connection", ("/x",), {"sock": Socket(socket.AF_UNIX)}),
    "a TCP socket for a UNIX one": ("create_unix_connection", (), {"sock": Socket()}),
    "UNIX, TLS and no server name": ("create_unix_connection", ("/x",), {"ssl": True}),
    "UNIX, a server name without TLS": ("create_unix_connection", ("/x",), {"server_hostname": "x"}),
    "UNIX, a handshake timeout without TLS": (
        "create_unix_connection",
        ("/x",),
        {"ssl_handshake_timeout": 1},
    ),
    "UNIX, a shutdown timeout without TLS": ("create_unix_connection", ("/x",), {"ssl_shutdown_timeout": 1}),
    "a path that is a number": ("create_unix_connection", (5,), {}),
    "a path with a NUL": ("create_unix_connection", ("/a\0b",), {}),
    "an accepted datagram socket": ("connect_accepted_socket", (Socket(kind=socket.SOCK_DGRAM),), {}),
    "accepted, a handshake timeout without TLS": (
        "connect_accepted_socket",
        (Socket(),),
        {"ssl_handshake_timeout": 1},
    ),
    "accepted, a shutdown timeout without TLS": (
        "connect_accepted_socket",
        (Socket(),),
        {"ssl_shutdown_timeout": 1},
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_refused_with_the_error_asyncio_gives(name: str) -> None:
    method, positional, options = ARGUMENTS[name]

    async def call(loop: Any) -> Any:
        made: list[socket.socket] = []

        def real(argument: Any) -> Any:
            if isinstance(argument, Socket):
                made.append(socket.socket(argument.family, argument.kind))
                return made[-1]
            return argument

        try:
            await getattr(loop, method)(
                Recorder, *map(real, positional), **{key: real(value) for key, value in options.items()}
            )
        except Exception as error:
            text = str(error).split("<socket")[0]  # The rest has numbers of descriptors in it.
            return type(error), text
        finally:
            for sock in made:
                sock.close()

    assert is_as_in_asyncio(call) is not None


@pytest.mark.parametrize("method", ["create_connection", "create_unix_connection", "connect_accepted_socket"])
def test_a_socket_that_speaks_tls_is_refused(loop: whorl.EventLoop, method: str) -> None:
    with client_context().wrap_socket(socket.socket(), server_hostname="localhost") as sock:
        call = getattr(loop, method)
        arguments: tuple[Any, ...] = (sock,) if method == "connect_accepted_socket" else ()
        options = {} if arguments else {"sock": sock}
        with pytest.raises((TypeError, ValueError), match="Socket"):
            loop.run_until_complete(call(Recorder, *arguments, **options))


def test_connection_made_comes_in_asyncios_turns_on_both_ends() -> None:
    async def scenario(loop: Any) -> Any:
        turn = 0
        steps: list[tuple[int, str]] = []

        class Steps(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                steps.append((turn, f"{type(self).__name__} knows its transport"))
                self.transport = transport
                if type(self) is Client:
                    transport.write(b"x")

            def data_received(self, data: bytes) -> None:
                steps.append((turn, f"{type(self).__name__} received"))
                if type(self) is Accepted:
                    self.transport.write(data)

        class Client(Steps):
            pass

        class Accepted(Steps):
            pass

        def count() -> None:
            nonlocal turn
            turn += 1
            if turn < 20:
                loop.call_soon(count)

        server = await loop.create_server(Accepted, "127.0.0.1", 0)
        loop.call_soon(count)
        transport, _ = await loop.create_connection(Client, *server.sockets[0].getsockname())
        steps.append((turn, "connected"))
        while turn < 20:
            await asyncio.sleep(0)
        transport.close()
        await turns(5)
        server.close()
        await server.wait_closed()
        return steps

    assert "connected" in [step for _, step in is_as_in_asyncio(scenario)]
