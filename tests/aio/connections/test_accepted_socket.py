"""Connections that a server accepts as descriptors, and the socket objects that are made of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, turns
from tests.core.kernel.fault_injection import FaultKernel
from whorl.core import Kernel

pytestmark = pytest.mark.usefixtures("no_leak")


@contextlib.asynccontextmanager
async def accepted(
    loop: whorl.EventLoop, family: int, path: Path, make_protocol: Any = None
) -> AsyncIterator[tuple[Any, socket.socket, Any]]:
    """Yield the protocol of an accepted connection, its peer, and the server."""
    made: list[Any] = []

    def factory() -> Any:
        made.append(Recorder() if make_protocol is None else make_protocol())
        return made[-1]

    if family == socket.AF_UNIX:
        server = await loop.create_unix_server(factory, path)
    else:
        host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        server = await loop.create_server(factory, host, 0)
    peer = socket.socket(family)
    peer.connect(server.sockets[0].getsockname())
    peer.setblocking(False)
    while not made:
        await asyncio.sleep(0)
    await turns(2)
    yield made[0], peer, server
    peer.close()
    server.close()
    server.abort_clients()
    await turns(3)


FAMILIES = [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX]


@pytest.mark.parametrize("family", FAMILIES)
async def test_extra_info_of_an_accepted_connection_agrees_with_its_socket(
    family: int, loop: whorl.EventLoop, tmp_path: Path
) -> None:
    async with accepted(loop, family, tmp_path / "socket") as (protocol, peer, server):
        transport = protocol.transport
        assert transport.get_extra_info("peername") == peer.getsockname()
        assert transport.get_extra_info("sockname") == peer.getpeername()
        sock = transport.get_extra_info("socket")
        assert transport.get_extra_info("socket") is sock
        assert isinstance(sock, asyncio.trsock.TransportSocket)
        assert sock.fileno() == transport._sock_fd
        assert sock.family == family
        assert sock.type == socket.SOCK_STREAM
        assert sock.proto == server.sockets[0].proto
        assert sock.gettimeout() == 0
        assert sock.getpeername() == transport.get_extra_info("peername")
        assert not os.get_inheritable(sock.fileno())
        if family != socket.AF_UNIX:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert transport.get_extra_info("nothing", "default") == "default"


async def test_an_abstract_and_a_bound_peer_have_names(loop: whorl.EventLoop, tmp_path: Path) -> None:
    protocols: list[Recorder] = []

    def factory() -> Recorder:
        protocols.append(Recorder())
        return protocols[-1]

    server = await loop.create_unix_server(factory, tmp_path / "server")
    names: list[Any] = [f"\0whorl-{os.getpid()}", str(tmp_path / "peer")]
    for name in names:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.bind(name)
            peer.connect(str(tmp_path / "server"))
            await turns(4)
            assert protocols[-1].transport.get_extra_info("peername") == peer.getsockname()
            assert protocols[-1].transport.get_extra_info("sockname") == str(tmp_path / "server")
    server.close()
    await turns(4)


async def test_the_names_stay_when_the_connection_is_over(loop: whorl.EventLoop, tmp_path: Path) -> None:
    async with accepted(loop, socket.AF_INET, tmp_path) as (protocol, peer, _):
        transport, name = protocol.transport, peer.getsockname()
        peer.close()
        transport.abort()
        await turns(4)
        assert transport.get_extra_info("peername") == name
        sock = transport.get_extra_info("socket")
        assert sock.fileno() == -1
        assert sock.family == socket.AF_INET


@pytest.mark.parametrize("family", FAMILIES)
async def test_bytes_and_the_end_go_both_ways(family: int, loop: whorl.EventLoop, tmp_path: Path) -> None:
    async with accepted(loop, family, tmp_path / "socket") as (protocol, peer, _):
        peer.send(b"question")
        while bytes(protocol.received) != b"question":
            await asyncio.sleep(0)
        protocol.transport.write(b"answer")
        protocol.transport.write_eof()
        peer.setblocking(True)
        assert peer.recv(100) == b"answer"
        assert peer.recv(100) == b""


async def test_a_transport_that_nobody_closes_says_so(loop: whorl.EventLoop, tmp_path: Path) -> None:
    async with accepted(loop, socket.AF_INET, tmp_path) as (protocol, _, server):
        protocol.transport.pause_reading()
        loop._poller.remove(protocol.transport)
        last = [protocol.transport]
        protocol.transport = None
        with pytest.warns(ResourceWarning, match="unclosed transport"):
            last.clear()
        server.close()
        await asyncio.wait_for(server.wait_closed(), 5)


async def test_a_protocol_that_cannot_be_told_costs_no_descriptor(
    loop: whorl.EventLoop, tmp_path: Path, reported: list[dict[str, Any]]
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with accepted(loop, socket.AF_INET, tmp_path, object) as (_, peer, server):
        await turns(2)
        peer.setblocking(True)
        assert peer.recv(1) == b""
        server.close()
        await asyncio.wait_for(server.wait_closed(), 5)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    reported.clear()


@pytest.mark.parametrize("fails", [True, False])
async def test_a_factory_that_closes_its_server_costs_no_descriptor(
    fails: bool, loop: whorl.EventLoop
) -> None:
    def factory() -> Any:
        server.close()
        if fails:
            raise LookupError("no protocol")
        return Recorder()

    server = await loop.create_server(factory, "127.0.0.1", 0)
    before = len(os.listdir("/proc/self/fd"))
    with socket.create_connection(server.sockets[0].getsockname()) as peer:
        await turns(3)
        assert peer.recv(1) == b""
    assert len(os.listdir("/proc/self/fd")) == before - 1  # The listening socket is closed too.
    await asyncio.wait_for(server.wait_closed(), 5)


async def test_a_socket_object_is_to_be_had_when_descriptors_have_run_out(
    loop: whorl.EventLoop, tmp_path: Path
) -> None:
    async with accepted(loop, socket.AF_INET, tmp_path) as (living, _, server):
        with socket.create_connection(server.sockets[0].getsockname()) as peer:
            await turns(3)
            closed = server._clients.transports()[-1]
            closed.abort()
            await turns(2)
            assert peer.fileno() >= 0
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            sock = living.transport.get_extra_info("socket")
            none = closed.get_extra_info("socket")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert sock.getsockname() == living.transport.get_extra_info("sockname")
        assert none.fileno() == -1


@pytest.mark.parametrize("name", ["accept", "recv", "send"])
async def test_a_replaced_method_is_called(
    name: str, loop: whorl.EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = getattr(socket.socket, name)
    calls = []

    def replaced(sock: socket.socket, *args: Any) -> Any:
        calls.append(sock)
        return method(sock, *args)

    monkeypatch.setattr(socket.socket, name, replaced)
    async with accepted(loop, socket.AF_INET, tmp_path) as (protocol, peer, _):
        os.write(peer.fileno(), b"question")
        while not protocol.received:
            await asyncio.sleep(0)
        protocol.transport.write(b"answer")
        assert calls
        assert peer not in calls


async def test_a_replaced_socket_class_is_made(loop: whorl.EventLoop, tmp_path: Path) -> None:
    class Own(socket.socket):
        """A program's own."""

    async with accepted(loop, socket.AF_INET, tmp_path) as (_, _, server):
        with mock.patch.object(socket, "socket", Own):
            with socket.create_connection(server.sockets[0].getsockname()):
                await turns(3)
                newest = server._clients.transports()[-1]
                assert type(newest.get_extra_info("socket")._sock) is Own


def test_kernels_of_other_worlds_accept_objects() -> None:
    class Other(Kernel):
        """A kernel that may be a world of its own."""

    assert Kernel().accepts_descriptors == whorl.compiled
    assert FaultKernel(1).accepts_descriptors == whorl.compiled
    assert not Other().accepts_descriptors


class Failing(Recorder):
    """A protocol whose methods raise given exceptions."""

    errors: dict[str, BaseException] = {}  # noqa: RUF012

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if "made" in self.errors:
            raise self.errors.pop("made")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if "lost" in self.errors:
            raise self.errors.pop("lost")


@pytest.mark.parametrize("family", FAMILIES)
async def test_protocol_errors_are_reported_as_those_of_callbacks(
    family: int, loop: whorl.EventLoop, tmp_path: Path
) -> None:
    reports: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reports.append(context))
    Failing.errors = {"made": ValueError("made"), "lost": ValueError("lost")}
    async with accepted(loop, family, tmp_path / "socket", Failing) as (protocol, peer, _):
        assert [str(report["exception"]) for report in reports] == ["made"]
        assert "Failing.connection_made" in reports[0]["message"]
        peer.send(b"here")
        assert await protocol.until_received(4) == b"here"  # It goes on.
        protocol.transport.close()
        await turns(2)
        assert [str(report["exception"]) for report in reports] == ["made", "lost"]
        assert "_call_connection_lost" in reports[1]["message"]
        assert isinstance(reports[1]["handle"], asyncio.Handle)
        assert protocol.transport.fileno() == -1
        assert peer.recv(1) == b""


def test_an_interrupt_while_a_protocol_is_told_costs_no_data() -> None:
    made: list[Failing] = []

    def factory() -> Failing:
        made.append(Failing())
        return made[-1]

    async def until(size: int) -> None:
        while not made or len(made[0].received) < size:
            await asyncio.sleep(0)

    Failing.errors = {"made": KeyboardInterrupt()}
    with contextlib.closing(whorl.new_event_loop()) as loop:
        server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
        with socket.create_connection(server.sockets[0].getsockname()) as peer:
            peer.send(b"here")
            with pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(until(4))
            loop.run_until_complete(until(4))
            made[0].transport.abort()
        server.close()
        loop.run_until_complete(turns(3))
        assert made[0].calls[-1] == "connection_lost"


async def test_replaced_call_soon_schedules_the_calls_of_the_protocol(
    loop: whorl.EventLoop, tmp_path: Path
) -> None:
    asked: list[str] = []
    plain = loop.call_soon

    def call_soon(callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        asked.append(getattr(callback, "__name__", ""))
        return plain(callback, *args, context=context)

    loop.call_soon = call_soon  # type: ignore[method-assign, assignment]
    try:
        async with accepted(loop, socket.AF_INET, tmp_path) as (protocol, _, _):
            protocol.transport.close()
            await turns(2)
    finally:
        del loop.call_soon
    assert {"connection_made", "_call_connection_lost"} <= set(asked)


async def test_a_connection_that_is_over_before_its_protocol_was_told_is_told_both(
    loop: whorl.EventLoop, tmp_path: Path
) -> None:
    class Ended(Recorder):
        def __init__(self) -> None:
            super().__init__()
            loop.call_soon(lambda: server.abort_clients())

    made: list[Ended] = []

    def factory() -> Ended:
        made.append(Ended())
        return made[-1]

    server = await loop.create_unix_server(factory, tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(os.fspath(tmp_path / "socket"))
        peer.send(b"never read")
        while not made:
            await asyncio.sleep(0)
        await turns(4)
    assert made[0].calls == ["connection_made", "connection_lost"]
    assert made[0].transport.fileno() == -1
    server.close()
    await server.wait_closed()


# When a connection that was accepted gets its protocol.


@pytest.mark.parametrize("debug", [False, True], ids=["descriptor", "socket object"])
def test_accepted_connection_takes_its_steps_in_asyncios_turns(debug: bool) -> None:
    async def scenario(loop: Any) -> Any:
        turn = 0
        steps: list[tuple[int, str]] = []

        def count() -> None:
            nonlocal turn
            turn += 1
            if turn < 20:
                loop.call_soon(count)

        async def serve(reader: Any, writer: Any) -> None:
            steps.append((turn, "served"))
            raise ZeroDivisionError

        class Steps(asyncio.Protocol):
            def __init__(self) -> None:
                steps.append((turn, "made"))

            def connection_made(self, transport: Any) -> None:
                steps.append((turn, "connection_made"))

            def data_received(self, data: bytes) -> None:
                steps.append((turn, "data_received"))

        loop.set_exception_handler(lambda loop, context: steps.append((turn, "reported")))
        servers = [
            await loop.create_server(Steps, "127.0.0.1", 0),
            await asyncio.start_server(serve, "127.0.0.1", 0),
        ]
        loop.set_debug(debug)
        peers = [socket.create_connection(server.sockets[0].getsockname()) for server in servers]
        for peer in peers:
            peer.send(b"x")
        loop.call_soon(count)
        while turn < 20:
            await asyncio.sleep(0)
        for thing in (*peers, *servers):
            thing.close()
        await asyncio.sleep(0.01)
        return sorted(steps)

    assert [step for _, step in is_as_in_asyncio(scenario)][:2] == ["made", "connection_made"]


@pytest.mark.parametrize("closed", ["server", "loop", "nothing"])
@pytest.mark.parametrize("debug", [False, True], ids=["descriptor", "socket object"])
@pytest.mark.usefixtures("unwarned")
def test_accepted_socket_that_gets_no_protocol_is_closed(closed: str, debug: bool) -> None:
    loop = whorl.EventLoop()
    loop.set_debug(debug)
    made: list[Any] = []

    def factory() -> Any:
        made.append(Recorder())
        return made[-1]

    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    peer = socket.create_connection(server.sockets[0].getsockname())
    loop._step(False)
    if closed == "server":
        server.close()
        loop._step(False)
    loop.close()
    if closed != "nothing":
        server.close()
    del server, loop
    gc.collect()
    with peer:
        peer.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(1) == b""
    assert not made


def test_an_interrupt_out_of_a_factory_costs_the_other_connections_nothing(loop: whorl.EventLoop) -> None:
    made: list[Any] = []

    def factory() -> Any:
        made.append(Recorder())
        if len(made) == 1:
            raise KeyboardInterrupt
        return made[-1]

    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    peers = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(1))
    loop.run_until_complete(turns(5))
    assert [protocol.calls for protocol in made] == [[], ["connection_made"], ["connection_made"]]
    for peer in peers:
        peer.close()
    server.close()
    server.abort_clients()
    loop.run_until_complete(turns(3))


async def test_a_server_knows_its_open_connections_whatever_has_come_and_gone(
    loop: whorl.EventLoop, tmp_path: Path
) -> None:
    async with accepted(loop, socket.AF_INET, tmp_path) as (_, _, server):
        address = server.sockets[0].getsockname()
        expected = set(server._clients.transports())
        for step in range(6):
            before = set(server._clients.transports())
            peers = [socket.create_connection(address) for _ in range(step)]
            while len(server._clients) < len(before) + step:
                await asyncio.sleep(0)
            expected |= set(server._clients.transports()) - before
            for transport in [*expected][: step // 2 + 1]:
                transport.abort()
                expected.discard(transport)
            await turns(3)
            assert set(server._clients.transports()) == expected
            assert len(server._clients) == len(expected)
            for peer in peers:
                peer.close()
            server.abort_clients()
            await turns(3)
            expected.clear()
            assert not server._clients.transports()


@pytest.mark.parametrize("is_abstract", [False, True])
async def test_the_own_name_of_an_accepted_unix_socket_is_known_after_its_end(
    loop: whorl.EventLoop, tmp_path: Path, is_abstract: bool
) -> None:
    path: Any = tmp_path / "server"
    if is_abstract:
        path = f"\0whorl {tmp_path}"
    async with accepted(loop, socket.AF_UNIX, path) as (protocol, peer, server):
        name = peer.getpeername()
        peer.close()
        server.close()
        while not protocol.transport.is_closing():
            await asyncio.sleep(0)
        await turns(2)
        assert protocol.transport.get_extra_info("sockname") == name
        assert protocol.transport.get_extra_info("peername") == ""


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, connections are accepted by the socket object")
async def test_a_connection_waits_while_there_is_no_memory_for_its_context(
    loop: whorl.EventLoop, tmp_path: Path
) -> None:
    failed: list[Any] = []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    async with accepted(loop, socket.AF_INET, tmp_path) as (_, _, server):
        context, server._context = server._context, None
        with socket.create_connection(server.sockets[0].getsockname()) as peer:
            while not failed:
                await asyncio.sleep(0)
            server._context = context
            while len(server._clients) < 2:
                await asyncio.sleep(0)
            server.abort_clients()
            await turns(2)
            peer.setblocking(True)
            assert peer.recv(1) == b""
    assert {type(error) for error in failed} == {TypeError}
