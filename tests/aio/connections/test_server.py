"""Servers, and the connections they accept."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import gc
import logging
import os
import socket
import stat
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import (
    JumpingClock,
    Recorder,
    receive,
    receive_all,
    refuse_blocking_calls,
    turns,
)
from tests.aio.tls_contexts import client_context, server_context
from whorl.core import Kernel
from whorl.core.kernel.sockets import ACCEPTS_DESCRIPTORS
from whorl.core.limits import ACCEPTS_PER_EVENT

pytestmark = pytest.mark.usefixtures("no_leak")

Reported = list[dict[str, Any]]


class Echo(asyncio.Protocol):
    """Sends everything back; the class remembers its connections."""

    made: ClassVar[list[Any]] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.made.append(transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@pytest.fixture(autouse=True)
def _no_echoes() -> None:
    Echo.made = []


async def connected(loop: whorl.EventLoop, server: Any) -> socket.socket:
    """Return a socket that is connected to a server."""
    address = server.sockets[0].getsockname()
    sock = socket.socket(server.sockets[0].family)
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, address[:2] if isinstance(address, tuple) else address)
    except OSError:
        sock.close()
        raise
    return sock


async def answers(loop: whorl.EventLoop, server: Any) -> bool:
    """Return whether a new connection is served."""
    with await connected(loop, server) as sock:
        await loop.sock_sendall(sock, b"hello")
        return await receive(sock, 5) == b"hello"


async def end(server: Any) -> None:
    """Close a server and its connections, and let everything happen that follows."""
    server.close()
    server.abort_clients()
    await turns(3)


# Serving.


async def test_a_server_serves(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    assert await answers(loop, server)
    assert await answers(loop, server)
    await end(server)


async def test_a_server_is_one_of_asyncios(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    assert isinstance(server, asyncio.AbstractServer)
    assert isinstance(server, asyncio.Server)
    assert server.get_loop() is loop
    assert repr(server) == f"<Server sockets={server.sockets!r}>"
    await end(server)


async def test_the_transport_of_a_connection_knows_both_ends(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    with await connected(loop, server) as sock:
        while not Echo.made:
            await turns(1)
        (transport,) = Echo.made
        assert transport.get_extra_info("peername") == sock.getsockname()
        assert transport.get_extra_info("sockname") == sock.getpeername()
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await end(server)


async def test_a_server_that_is_not_to_serve_waits_until_it_is_told(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, start_serving=False)
    assert not server.is_serving()
    with pytest.raises(ConnectionRefusedError):
        await connected(loop, server)
    await server.start_serving()
    await server.start_serving()
    assert server.is_serving()
    assert await answers(loop, server)
    await end(server)


async def test_a_given_socket_is_served(loop: whorl.EventLoop) -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = await loop.create_server(Echo, sock=sock)
    assert sock.gettimeout() == 0
    assert await answers(loop, server)
    await end(server)
    assert sock.fileno() == -1


async def test_all_hosts_of_a_list_are_served_each_once(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, ["127.0.0.1", "127.0.0.2", "127.0.0.1"], 0)
    hosts = [sock.getsockname()[0] for sock in server.sockets]
    assert hosts == ["127.0.0.1", "127.0.0.2"]
    for sock in server.sockets:
        with socket.create_connection(sock.getsockname()):
            pass
    while len(Echo.made) < 2:
        await turns(1)
    await end(server)


@pytest.mark.parametrize("host", [None, ""])
async def test_create_server_without_a_host_listens_on_all_addresses(
    loop: whorl.EventLoop, host: str | None
) -> None:
    server = await loop.create_server(Echo, host, 0)
    families = {sock.family for sock in server.sockets}
    assert socket.AF_INET in families
    await end(server)


async def test_ipv6_sockets_leave_ipv4_to_others(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "::1", 0)
    assert server.sockets[0].getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    assert await answers(loop, server)
    await end(server)


async def test_the_options_of_the_listening_socket(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, reuse_port=True, keep_alive=True)
    sock = server.sockets[0]
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await end(server)
    server = await loop.create_server(Echo, "127.0.0.1", 0, reuse_address=False)
    assert not server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    await end(server)


async def test_two_servers_share_a_port_if_they_may(loop: whorl.EventLoop) -> None:
    first = await loop.create_server(Echo, "127.0.0.1", 0, reuse_port=True)
    port = first.sockets[0].getsockname()[1]
    second = await loop.create_server(Echo, "127.0.0.1", port, reuse_port=True)
    await end(first)
    await end(second)


def test_an_address_that_is_taken_is_the_error_asyncio_gives() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:

        async def serve(loop: Any) -> None:
            await loop.create_server(Echo, *taken.getsockname())

        assert error_as_in_asyncio(serve)[0] is OSError


async def test_create_server_keeps_no_address_if_one_is_in_use(loop: whorl.EventLoop) -> None:
    free, taken = "127.7.7.1", "127.7.7.2"  # from 127.0.0.1 others connect, and each of them has a port there
    with socket.create_server((taken, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="address already in use"):
            await loop.create_server(Echo, [free, taken], port)
        with socket.create_server((free, port), reuse_port=False):
            pass


async def test_a_thousand_connections_cost_no_task(loop: whorl.EventLoop, kernel: Any) -> None:
    rounds = 10 if kernel is None else 1  # for each of many seeds
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    loop.set_task_factory(lambda *arguments, **options: pytest.fail("a task for a connection"))
    address = server.sockets[0].getsockname()
    for _ in range(rounds):
        clients = [socket.create_connection(address) for _ in range(100)]
        while len(Echo.made) < 100:
            await turns(1)
        for client in clients:
            client.close()
        Echo.made.clear()
    loop.set_task_factory(None)
    await end(server)


async def test_a_connection_runs_in_a_copy_of_the_servers_context(loop: whorl.EventLoop) -> None:
    name = contextvars.ContextVar("name", default="outside")
    seen: list[tuple[str, str]] = []

    class Protocol(Echo):
        def __init__(self) -> None:
            seen.append(("factory", name.get()))
            name.set("a connection's")

        def connection_made(self, transport: Any) -> None:
            seen.append(("made", name.get()))
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            if seen[-1][0] != "data":  # It may come in pieces.
                seen.append(("data", name.get()))
            super().data_received(data)

    name.set("the server's")
    server = await loop.create_server(Protocol, "127.0.0.1", 0)
    name.set("something else")
    for _ in range(2):
        assert await answers(loop, server)
    connection = [("factory", "the server's"), ("made", "a connection's"), ("data", "a connection's")]
    assert seen == connection * 2
    await end(server)


# Closing.


async def test_closing_ends_the_listening_and_not_the_connections(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    sock = await connected(loop, server)
    await loop.sock_sendall(sock, b"a")
    assert await receive(sock, 1) == b"a"
    server.close()
    assert not server.is_serving()
    assert server.sockets == ()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    await loop.sock_sendall(sock, b"b")
    assert await receive(sock, 1) == b"b"
    sock.close()
    await end(server)


async def test_closing_again_does_nothing(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    server.close()
    server.close()
    await server.wait_closed()


async def test_close_clients_closes_the_connections(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    sock = await connected(loop, server)
    while not Echo.made:
        await turns(1)
    server.close()
    server.close_clients()
    assert await loop.sock_recv(sock, 1) == b""
    sock.close()
    await server.wait_closed()


async def test_abort_clients_drops_what_is_unsent(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    sock = await connected(loop, server)
    while not Echo.made:
        await turns(1)
    Echo.made[0].write(bytes(50_000_000))
    server.close()
    server.abort_clients()
    await server.wait_closed()
    assert Echo.made[0].get_write_buffer_size() == 0
    sock.close()


async def test_wait_closed_waits_for_the_connections(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    sock = await connected(loop, server)
    while not Echo.made:
        await turns(1)
    waiting = loop.create_task(server.wait_closed())
    await turns(3)
    assert not waiting.done()
    server.close()
    await turns(3)
    assert not waiting.done()
    sock.close()
    await waiting


@pytest.mark.parametrize("order", ["before", "after"])
def test_wait_closed_without_connections_is_as_in_asyncio(order: str) -> None:
    async def wait(loop: Any) -> bool:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        if order == "after":
            server.close()
        waiting = loop.create_task(server.wait_closed())
        await turns(2)
        done = waiting.done()
        server.close()
        await waiting
        return done

    is_as_in_asyncio(wait)


def test_a_closed_server_does_not_start_again() -> None:
    async def start(loop: Any) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0, start_serving=False)
        server.close()
        try:
            await server.start_serving()
        except TypeError as error:
            raise TypeError from error  # its text is that of an accident

    assert error_as_in_asyncio(start)[0] is TypeError


async def test_the_end_of_a_with_closes_the_server(loop: whorl.EventLoop) -> None:
    async with await loop.create_server(Echo, "127.0.0.1", 0) as server:
        assert await answers(loop, server)
        for transport in Echo.made:
            transport.abort()  # Before Python 3.12, the end does not wait for connections.
        await turns(2)
        Echo.made.clear()
    assert server.sockets == ()


async def test_serve_forever_serves_until_it_is_cancelled(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, start_serving=False)
    serving = loop.create_task(server.serve_forever())
    await turns(2)
    assert await answers(loop, server)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert not server.is_serving()


async def test_serve_forever_ends_when_the_server_is_closed(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    serving = loop.create_task(server.serve_forever())
    await turns(1)
    server.close()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_serve_forever_twice_is_refused(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    serving = loop.create_task(server.serve_forever())
    await turns(1)
    with pytest.raises(RuntimeError, match="already being awaited"):
        await server.serve_forever()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    with pytest.raises(RuntimeError, match="is closed"):
        await server.serve_forever()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="connections are closed since Python 3.14")
async def test_a_cancelled_serve_forever_closes_the_connections(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    serving = loop.create_task(server.serve_forever())
    sock = await connected(loop, server)
    while not Echo.made:
        await turns(1)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert await loop.sock_recv(sock, 1) == b""
    sock.close()


async def test_a_closed_server_is_freed(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    reference = weakref.ref(server)
    assert await answers(loop, server)
    await end(server)
    del server
    Echo.made.clear()
    await turns(3)
    gc.collect()
    assert reference() is None


async def test_a_factory_may_close_the_server(loop: whorl.EventLoop) -> None:
    def factory() -> asyncio.Protocol:
        server.close()
        return Echo()

    server = await loop.create_server(factory, "127.0.0.1", 0)
    with await connected(loop, server) as sock:
        assert await receive_all(sock) == b""
    assert not server.is_serving()
    assert Echo.made == []


# Failures.


async def test_a_factory_that_fails_costs_only_its_connection(loop: whorl.EventLoop) -> None:
    failures = 1

    def factory() -> asyncio.Protocol:
        nonlocal failures
        if failures:
            failures -= 1
            raise ZeroDivisionError
        return Echo()

    server = await loop.create_server(factory, "127.0.0.1", 0)
    with await connected(loop, server) as sock:
        assert await receive_all(sock) == b""
    assert await answers(loop, server)
    await end(server)


async def test_debug_mode_reports_a_factory_that_fails(loop: whorl.EventLoop, reported: Reported) -> None:
    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError

    loop.set_debug(True)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    with await connected(loop, server) as sock:
        assert await receive_all(sock) == b""
    context = reported.pop()
    assert context["message"] == "Error on transport creation for incoming connection"
    assert type(context["exception"]) is ZeroDivisionError
    await end(server)


def test_ctrl_c_in_a_factory_leaves_the_run_and_the_other_connections_are_served() -> None:
    async def begin() -> Any:
        return await loop.create_server(factory, "127.0.0.1", 0)

    calls = 0

    def factory() -> asyncio.Protocol:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return Echo()

    loop = whorl.EventLoop()
    server = loop.run_until_complete(begin())
    address = server.sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(10)]
    for client in clients:
        client.send(b"hello")
        client.setblocking(False)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    served = clients[:2] + clients[3:]
    for client in served:
        assert loop.run_until_complete(receive(client, 5)) == b"hello"
    with pytest.raises(ConnectionResetError):
        loop.run_until_complete(receive_all(clients[2]))
    for client in clients:
        client.close()
    loop.run_until_complete(end(server))
    loop.close()


class Refusing(JumpingClock):
    """A kernel that answers accepts with errors for some time."""

    def __init__(self, with_descriptors: bool) -> None:
        super().__init__()
        self.accepts_descriptors = with_descriptors
        self.refusals: list[int] = []
        self.refused_watches: dict[int, int] = {}  # by descriptor: how often it is not watched
        self.accepts = 0

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        if operation == 1 and self.refused_watches.get(fd):
            self.refused_watches[fd] -= 1
            return -errno.ENOSPC
        return super().epoll_ctl(epfd, operation, fd, mask, generation)

    def accept(self, sock: Any) -> Any:
        return self._refuse() or super().accept(sock)

    def accept_descriptor(self, fd: int) -> Any:
        return self._refuse() or super().accept_descriptor(fd)

    def _refuse(self) -> int:
        self.accepts += 1
        return -self.refusals.pop(0) if self.refusals else 0


class TestRefusals:
    """Tests on a kernel that refuses."""

    @pytest.fixture(params=["socket", "descriptor"] if ACCEPTS_DESCRIPTORS else ["socket"])
    def kernel(self, request: pytest.FixtureRequest) -> Refusing:
        return Refusing(with_descriptors=request.param == "descriptor")

    @pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
    async def test_server_reports_exhausted_resources_once_pauses_and_goes_on(
        self, loop: whorl.EventLoop, kernel: Refusing, reported: Reported, code: int
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        kernel.refusals = [code]
        began = kernel.jumped
        assert await answers(loop, server)
        assert kernel.jumped - began > 900_000_000
        context = reported.pop()
        assert context["message"] == "socket.accept() out of system resource"
        assert context["exception"].errno == code
        assert kernel.accepts < 10
        await end(server)

    async def test_server_pauses_again_if_the_kernel_has_no_room_for_its_watch(
        self, loop: whorl.EventLoop, kernel: Refusing, reported: Reported
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        kernel.refusals, kernel.refused_watches = [errno.ENOMEM], {server.sockets[0].fileno(): 1}
        assert await answers(loop, server)
        assert kernel.refused_watches == {server.sockets[0].fileno(): 0}
        assert len(reported) == 1, "the second error is of the same pause"
        reported.clear()
        await end(server)

    async def test_one_call_accepts_a_lone_connection(self, loop: whorl.EventLoop, kernel: Refusing) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        assert await answers(loop, server)
        assert kernel.accepts == (1 if kernel.accepts_descriptors else 2)
        await end(server)

    async def test_connections_that_wait_are_accepted_in_one_turn(
        self, loop: whorl.EventLoop, kernel: Refusing
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(5)]
        await turns(2)
        assert kernel.accepts == 6
        for client in clients:
            client.close()
        await end(server)

    async def test_a_server_may_be_closed_while_it_rests(
        self, loop: whorl.EventLoop, kernel: Refusing, reported: Reported
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        kernel.refusals = [errno.EMFILE]
        sock = await connected(loop, server)
        while not reported:
            await turns(1)
        server.close()
        await asyncio.sleep(2)
        assert kernel.accepts == 1
        sock.close()
        reported.clear()

    async def test_connections_that_ended_before_they_were_accepted_are_passed_over(
        self, loop: whorl.EventLoop, kernel: Refusing
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        kernel.refusals = [errno.ECONNABORTED, errno.ECONNABORTED, errno.EINTR]
        assert await answers(loop, server)
        await end(server)

    async def test_server_reports_other_errors_of_accept(
        self, loop: whorl.EventLoop, kernel: Refusing, reported: Reported
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        kernel.refusals = [errno.EPERM]
        began = kernel.jumped
        assert await answers(loop, server)
        assert kernel.jumped == began, "it is the error of one connection"
        context = reported.pop()
        assert context["message"] == "socket.accept() failed"
        assert isinstance(context["exception"], PermissionError)
        kernel.refusals = [errno.EPERM]
        assert await answers(loop, server)
        assert isinstance(reported.pop()["exception"], PermissionError)
        await end(server)

    @pytest.mark.parametrize("code", [errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH])
    async def test_an_error_that_each_connection_has_is_reported_once_and_server_pauses(
        self, loop: whorl.EventLoop, kernel: Refusing, reported: Reported, code: int
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        kernel.refusals = [code] * (2 * ACCEPTS_PER_EVENT)
        began = kernel.jumped
        assert await answers(loop, server)
        assert kernel.jumped - began > 1_900_000_000
        assert reported.pop()["exception"].errno == code
        await end(server)

    @pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.EACCES])
    async def test_an_error_of_the_listening_socket_is_reported_once_and_server_pauses(
        self, loop: whorl.EventLoop, kernel: Refusing, reported: Reported, code: int
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        kernel.refusals = [code] * 5
        began = kernel.jumped
        assert await answers(loop, server)
        assert kernel.jumped - began > 4_900_000_000
        assert reported.pop()["exception"].errno == code
        await end(server)

    async def test_an_exception_of_accept_is_reported_once_and_server_pauses(
        self, loop: whorl.EventLoop, kernel: Refusing, reported: Reported, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        failures = [ZeroDivisionError(), ZeroDivisionError()]

        def fail() -> int:
            if failures:
                raise failures.pop()
            return 0

        monkeypatch.setattr(kernel, "_refuse", fail)
        began = kernel.jumped
        assert await answers(loop, server)
        assert kernel.jumped - began > 1_900_000_000
        assert isinstance(reported.pop()["exception"], ZeroDivisionError)
        await end(server)

    async def test_a_handler_of_the_report_may_close_the_server(
        self, loop: whorl.EventLoop, kernel: Refusing
    ) -> None:
        def close(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            seen.append(context["exception"].errno)
            server.close()

        seen: list[int] = []
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        loop.set_exception_handler(close)
        kernel.refusals = [errno.EPROTO]
        with socket.create_connection(server.sockets[0].getsockname()):
            while not seen:
                await turns(1)
        await asyncio.sleep(2)
        assert (seen, kernel.accepts) == ([errno.EPROTO], 1)


class OneFamily(Kernel):
    """A kernel without IPv6, in one of the two ways in which machines do not have it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def open_socket(self, family: int, kind: int, protocol: int) -> Any:
        if self.way == "no sockets" and family == socket.AF_INET6:
            return -errno.EAFNOSUPPORT
        return super().open_socket(family, kind, protocol)

    def bind(self, sock: Any, address: Any) -> int:
        if self.way == "no addresses" and sock.family == socket.AF_INET6:
            return -errno.EADDRNOTAVAIL
        return super().bind(sock, address)


class TestOneFamily:
    """Tests on a machine without IPv6."""

    @pytest.fixture(params=["no sockets", "no addresses"])
    def kernel(self, request: pytest.FixtureRequest) -> OneFamily:
        return OneFamily(request.param)

    @pytest.fixture(autouse=True)
    def two_families(self, monkeypatch: pytest.MonkeyPatch) -> None:
        infos = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::", 0, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *question: infos)

    async def test_the_family_is_left_out(self, loop: whorl.EventLoop) -> None:
        server = await loop.create_server(Echo, None, 0)
        assert [sock.family for sock in server.sockets] == [socket.AF_INET]
        assert await answers(loop, server)
        await end(server)

    async def test_debug_mode_says_so(self, loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture) -> None:
        loop.set_debug(True)
        await end(await loop.create_server(Echo, None, 0))
        assert [record.levelno for record in caplog.records if "::" in record.message] or [
            record for record in caplog.records if "create_server() failed to create" in record.message
        ]
        assert all(record.levelno == logging.WARNING for record in caplog.records)

    async def test_create_server_without_any_address_family_fails(
        self, loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        infos = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::", 0, 0, 0))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *question: infos)
        with pytest.raises(OSError, match="bind on"):
            await loop.create_server(Echo, None, 0)


# On UNIX sockets.


@pytest.mark.parametrize("form", [str, bytes, Path], ids=["text", "bytes", "path object"])
async def test_a_unix_server_is_named_by(loop: whorl.EventLoop, tmp_path: Path, form: type) -> None:
    path = tmp_path / "socket"
    server = await loop.create_unix_server(Echo, str(path).encode() if form is bytes else form(path))
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert await answers(loop, server)
    await end(server)


@pytest.mark.parametrize("name", ["\0whorl-test-abstract", b"\0whorl-test-abstract"])
async def test_a_unix_server_may_have_an_abstract_name(loop: whorl.EventLoop, name: str | bytes) -> None:
    server = await loop.create_unix_server(Echo, name)
    assert await answers(loop, server)
    await end(server)


async def test_a_unix_socket_may_be_given(loop: whorl.EventLoop, tmp_path: Path) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(tmp_path / "socket"))
    server = await loop.create_unix_server(Echo, sock=sock)
    assert await answers(loop, server)
    await end(server)


def test_the_unix_socket_is_removed_or_kept_as_in_asyncio(tmp_path: Path) -> None:
    path = tmp_path / "socket"

    async def serve(loop: Any) -> bool:
        server = await loop.create_unix_server(Echo, path)
        server.close()
        await turns(2)
        return path.exists()

    assert is_as_in_asyncio(serve) is (sys.version_info < (3, 13))


@pytest.mark.parametrize("cleanup", [False, True])
async def test_the_unix_socket_is_removed_if_that_is_wanted(
    loop: whorl.EventLoop, tmp_path: Path, cleanup: bool
) -> None:
    path = tmp_path / "socket"
    server = await loop.create_unix_server(Echo, path, cleanup_socket=cleanup)
    server.close()
    assert path.exists() is not cleanup


async def test_server_close_keeps_a_file_that_replaced_its_unix_socket(
    loop: whorl.EventLoop, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    server = await loop.create_unix_server(Echo, path, cleanup_socket=True)
    path.rename(tmp_path / "elsewhere")
    path.write_text("not a socket")
    server.close()
    assert path.read_text() == "not a socket"


async def test_a_unix_socket_that_is_gone_already_is_no_error(
    loop: whorl.EventLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "socket"
    server = await loop.create_unix_server(Echo, path, cleanup_socket=True)
    path.unlink()
    server.close()
    assert caplog.records == []


async def test_a_unix_server_can_be_made_where_blocking_calls_are_refused(
    loop: whorl.EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    refuse_blocking_calls(monkeypatch)
    server = await loop.create_unix_server(Echo, path)
    server.close()


async def test_a_stale_unix_socket_is_replaced(loop: whorl.EventLoop, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    server = await loop.create_unix_server(Echo, path)
    assert await answers(loop, server)
    await end(server)


async def test_a_file_at_the_path_is_kept(loop: whorl.EventLoop, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("not a socket")
    with pytest.raises(OSError, match=f"Address {str(path)!r} is already in use") as caught:
        await loop.create_unix_server(Echo, path)
    assert caught.value.errno == errno.EADDRINUSE
    assert path.read_text() == "not a socket"


async def test_a_path_with_a_nul_is_refused(loop: whorl.EventLoop) -> None:
    with pytest.raises(ValueError, match="null"):
        await loop.create_unix_server(Echo, "/a\0b")


async def test_the_permissions_of_a_unix_socket_can_be_set(loop: whorl.EventLoop, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    server = await loop.create_unix_server(Echo, path, mode=0o600)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    await end(server)


# With TLS.


async def test_ssl_makes_a_tls_server(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=server_context())
    address = server.sockets[0].getsockname()
    transport, protocol = await loop.create_connection(
        Recorder, *address, ssl=client_context(), server_hostname="localhost"
    )
    transport.write(b"hello")
    assert await protocol.until_received(5) == b"hello"
    assert Echo.made[0].get_extra_info("ssl_object") is not None
    transport.close()
    await protocol.until_lost()
    await end(server)


async def test_a_client_that_does_not_speak_tls_costs_only_its_connection(
    loop: whorl.EventLoop, reported: list[dict[str, Any]]
) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=server_context())
    with await connected(loop, server) as sock:
        with contextlib.suppress(ConnectionError):  # if the server did not wait for all of it
            await loop.sock_sendall(sock, b"GET / HTTP/1.0\r\n\r\n")
            assert b"hello" not in await receive_all(sock)
    assert [report["exception"].reason for report in reported] == ["HTTP_REQUEST"]
    reported.clear()
    assert Echo.made == []
    transport, protocol = await loop.create_connection(
        Recorder, *server.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
    )
    transport.write(b"hello")
    assert await protocol.until_received(5) == b"hello"
    transport.abort()
    await end(server)
    await turns(3)


async def test_a_client_that_never_speaks_is_let_go(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=server_context(), ssl_handshake_timeout=0.01)
    with await connected(loop, server) as sock:
        assert await receive_all(sock) == b""
    await end(server)


# Streams.


async def test_streams_work(loop: whorl.EventLoop) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\n")
    assert await reader.read() == b"hello\n"
    writer.close()
    await writer.wait_closed()
    await end(server)


# Refusals.

REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda loop, sock: loop.create_server(Echo),
    "host and socket": lambda loop, sock: loop.create_server(Echo, "127.0.0.1", 0, sock=sock(2, 1)),
    "a datagram socket": lambda loop, sock: loop.create_server(Echo, sock=sock(2, 2)),
    "ssl that is a bool": lambda loop, sock: loop.create_server(Echo, "127.0.0.1", 0, ssl=True),
    "a handshake timeout without TLS": lambda loop, sock: loop.create_server(
        Echo, "127.0.0.1", 0, ssl_handshake_timeout=1
    ),
    "a shutdown timeout without TLS": lambda loop, sock: loop.create_server(
        Echo, "127.0.0.1", 0, ssl_shutdown_timeout=1
    ),
    "a NUL in a host": lambda loop, sock: loop.create_server(Echo, "a\0b", 0),
    "a NUL in a number": lambda loop, sock: loop.create_server(Echo, "127.0.0.1\0", 0),
    "a port that is too large": lambda loop, sock: loop.create_server(Echo, "127.0.0.1", 70000),
    "an address of nobody's": lambda loop, sock: loop.create_server(Echo, "192.0.2.1", 0),
    "a host that is a number": lambda loop, sock: loop.create_server(Echo, 5, 0),
    "UNIX, nothing": lambda loop, sock: loop.create_unix_server(Echo),
    "UNIX, path and socket": lambda loop, sock: loop.create_unix_server(Echo, "/x", sock=sock(1, 1)),
    "UNIX, a TCP socket": lambda loop, sock: loop.create_unix_server(Echo, sock=sock(2, 1)),
    "UNIX, a datagram socket": lambda loop, sock: loop.create_unix_server(Echo, sock=sock(1, 2)),
    "UNIX, ssl that is a bool": lambda loop, sock: loop.create_unix_server(Echo, "/x", ssl=True),
    "UNIX, a handshake timeout without TLS": lambda loop, sock: loop.create_unix_server(
        Echo, "/x", ssl_handshake_timeout=1
    ),
    "UNIX, a path that is a number": lambda loop, sock: loop.create_unix_server(Echo, 5),
    "UNIX, no such folder": lambda loop, sock: loop.create_unix_server(Echo, "/nonexistent/socket"),
    "UNIX, a path that is too long": lambda loop, sock: loop.create_unix_server(Echo, "x" * 200),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_error_asyncio_gives(name: str) -> None:
    async def serve(loop: Any) -> Any:
        made: list[socket.socket] = []

        def sock(family: int, kind: int) -> socket.socket:
            made.append(socket.socket(family, kind))
            return made[-1]

        try:
            await REFUSED[name](loop, sock)
        except Exception as error:
            return type(error), str(error).split("<socket")[0]  # The rest has numbers of descriptors in it.
        finally:
            for each in made:
                each.close()

    assert is_as_in_asyncio(serve) is not None
