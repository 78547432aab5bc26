"""TCP: addresses, options, sockets made elsewhere, resets."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest

from tests.handles.pairs import Ended, Kind, Reader, Stream
from whorl.core import Event, Loop, RunMode
from whorl.handles import TCP, Poll

LOCAL = ("127.0.0.1", 0)


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


NEEDS_IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this system has no IPv6")


@pytest.fixture
def kind(tmp_path: Any) -> Kind:
    return Kind("tcp", tmp_path)


def option(stream: TCP, level: int, name: int) -> int:
    """Return a socket option of a handle."""
    with socket.socket(fileno=os.dup(stream.fileno())) as sock:
        return sock.getsockopt(level, name)


def test_both_ends_know_their_addresses(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    assert client.getsockname() == server.getpeername()
    assert client.getpeername() == server.getsockname()
    assert server.getsockname()[0] == "127.0.0.1"


@NEEDS_IPV6
def test_ipv6_is_spoken(loop: Loop) -> None:
    server, client, reader = TCP(loop), TCP(loop), Reader()

    def greet(server: Stream, error: OSError | None) -> None:
        connection = TCP(loop)
        server.accept(connection)
        connection.write(b"hello")
        connection.shutdown()
        server.close()

    server.bind(("::1", 0))
    server.listen(1, greet)
    address = server.getsockname()
    assert len(address) == 4
    client.connect(address)
    client.read_start(reader)
    loop.run()
    assert reader.data == b"hello"


@NEEDS_IPV6
@pytest.mark.parametrize("ipv6only", [True, False])
def test_a_socket_for_ipv6_takes_ipv4_unless_it_is_for_ipv6_only(loop: Loop, ipv6only: bool) -> None:
    server = TCP(loop)
    server.bind(("::", 0), ipv6only=ipv6only)
    assert option(server, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == ipv6only
    ended = Ended()
    server.listen(1, lambda server, error: None)
    TCP(loop).connect(("127.0.0.1", server.getsockname()[1]), ended)
    server.unref()
    loop.run()
    assert ended.results == [("Connect", errno.ECONNREFUSED if ipv6only else None)]


def test_ipv6_only_needs_an_ipv6_address(loop: Loop) -> None:
    with pytest.raises(OSError, match="Invalid") as caught:
        TCP(loop).bind(LOCAL, ipv6only=True)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("host", ["localhost", "", "127.0.0", "256.0.0.1", "::g", "127.0.0.1\0"])
@pytest.mark.parametrize("act", ["bind", "connect"])
def test_only_numeric_addresses_are_taken(loop: Loop, host: str, act: str) -> None:
    with pytest.raises((OSError, ValueError), match=r"numeric|null"):
        getattr(TCP(loop), act)((host, 80))
    assert not loop.alive()


@pytest.mark.parametrize("address", [None, 5, ("127.0.0.1",), ("127.0.0.1", "http"), (1, 2), "127.0.0.1"])
def test_tcp_bind_and_connect_refuse_an_invalid_address(loop: Loop, address: Any) -> None:
    stream = TCP(loop)
    for act in (stream.bind, stream.connect):
        with pytest.raises((TypeError, ValueError, OSError)):
            act(address)
    assert not loop.alive()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_tcp_connect_refuses_an_invalid_port(loop: Loop, port: int) -> None:
    with pytest.raises(OverflowError):
        TCP(loop).connect(("127.0.0.1", port))
    assert not loop.alive()


def test_an_address_in_use_is_refused_at_once(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    with pytest.raises(OSError, match="in use") as caught:
        TCP(loop).bind(server.getsockname())
    assert caught.value.errno == errno.EADDRINUSE


def test_a_port_can_be_shared(loop: Loop) -> None:
    first, second = TCP(loop), TCP(loop)
    first.bind(LOCAL, reuseport=True)
    second.bind(first.getsockname(), reuseport=True)
    for server in (first, second):
        server.listen(1, print)
    assert first.getsockname() == second.getsockname()


def test_an_address_can_be_used_again_at_once(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    address = server.getsockname()
    server.close()  # the one who closes first waits in TIME_WAIT
    loop.run()
    client.close()
    loop.run()
    again = TCP(loop)
    again.bind(address)
    assert again.getsockname() == address


def test_a_socket_that_listens_without_an_address_gets_one(loop: Loop) -> None:
    server = TCP(loop)
    server.listen(1, print)
    host, port = server.getsockname()
    assert host == "0.0.0.0"
    assert port > 0


def test_a_client_may_choose_its_own_address(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, lambda server, error: server.close())
    client = TCP(loop)
    client.bind(LOCAL)
    address = client.getsockname()
    client.connect(server.getsockname())
    loop.run()
    assert client.getsockname() == address


def test_tcp_handle_without_a_socket_has_no_address(loop: Loop) -> None:
    stream = TCP(loop)
    for ask in (stream.getsockname, stream.getpeername, stream.close_reset):
        with pytest.raises(OSError, match="Bad file") as caught:
            ask()
        assert caught.value.errno == errno.EBADF
    assert stream.fileno() == -1


def test_a_socket_without_a_peer_has_no_peers_address(loop: Loop) -> None:
    stream = TCP(loop)
    stream.bind(LOCAL)
    with pytest.raises(OSError, match="not connected") as caught:
        stream.getpeername()
    assert caught.value.errno == errno.ENOTCONN


def test_tcp_connect_raises_an_immediate_error(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    server.unref()
    with pytest.raises(OSError, match="already connected") as caught:
        server.connect(("127.0.0.1", 1))
    assert caught.value.errno == errno.EISCONN
    assert not loop.alive()


def test_a_socket_opened_unconnected_can_connect(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, lambda server, error: server.close())
    client, ended = TCP(loop), Ended()
    client.open(socket.socket())
    client.connect(server.getsockname(), ended)
    loop.run()
    assert ended.results == [("Connect", None)]


# Options.


@pytest.mark.parametrize("when", ["before", "after"])
def test_small_writes_can_be_sent_at_once(loop: Loop, kind: Kind, when: str) -> None:
    stream = TCP(loop)
    if when == "before":
        stream.nodelay()
    stream.bind(LOCAL)
    if when == "after":
        stream.nodelay()
    assert option(stream, socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    stream.nodelay(False)
    assert option(stream, socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_silent_peer_can_be_probed(loop: Loop, when: str) -> None:
    stream = TCP(loop)
    if when == "before":
        stream.keepalive(True, 30, 5, 3)
    stream.bind(LOCAL)
    if when == "after":
        stream.keepalive(True, 30, 5, 3)
    assert option(stream, socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert option(stream, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    assert option(stream, socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 5
    assert option(stream, socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
    stream.keepalive(False)
    assert option(stream, socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


def test_an_accepted_connection_takes_the_options_of_its_handle(loop: Loop, kind: Kind) -> None:
    accepted = TCP(loop)
    accepted.nodelay()
    accepted.keepalive()
    server = kind.server(loop, lambda server, error: (server.accept(accepted), server.close()))
    TCP(loop).connect(server.getsockname())
    loop.run()
    assert option(accepted, socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert option(accepted, socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize("times", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-5, 1, 1)])
def test_probes_need_times_above_zero(loop: Loop, times: tuple[int, int, int]) -> None:
    with pytest.raises(OSError, match="Invalid") as caught:
        TCP(loop).keepalive(True, *times)
    assert caught.value.errno == errno.EINVAL


def test_simultaneous_accepts_are_accepted(loop: Loop) -> None:
    TCP(loop).simultaneous_accepts(True)


# Sockets made elsewhere.


def test_a_connected_socket_can_be_taken_over(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(True)
        stream, reader = TCP(loop), Reader()
        stream.open(ours)
        assert ours.fileno() == -1  # it has given its descriptor up
        assert not os.get_blocking(stream.fileno())
        stream.read_start(reader)
        theirs.send(b"hello")
        theirs.shutdown(socket.SHUT_WR)
        loop.run()
    assert (reader.data, reader.ends) == (b"hello", [None])


def test_a_listening_descriptor_can_be_taken_over(loop: Loop) -> None:
    seen: list[str] = []
    made = socket.create_server(LOCAL)
    address = made.getsockname()
    server = TCP(loop)
    server.open(made.detach())
    server.listen(10, lambda server, error: (seen.append("connection"), server.close()))
    TCP(loop).connect(address)
    loop.run()
    assert seen == ["connection"]


def test_a_handle_takes_one_socket_only(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(OSError, match="busy") as caught:
            client.open(ours)
        assert caught.value.errno == errno.EBUSY
        assert ours.fileno() >= 0


def test_a_watched_descriptor_cannot_be_taken_over(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poll = Poll(loop, ours)
        poll.start(Event.READABLE, lambda handle, events, error: None)
        with pytest.raises(FileExistsError):
            TCP(loop).open(ours)
        poll.close()


def test_tcp_open_refuses_a_non_socket(loop: Loop) -> None:
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="non-socket") as caught:
        TCP(loop).open(reader)
    assert caught.value.errno == errno.ENOTSOCK
    os.close(reader)
    os.close(writer)
    with pytest.raises(OSError, match="Bad file"):
        TCP(loop).open(reader)


# The end.


def test_a_reset_is_not_an_end(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    reader, seen = Reader(), []
    server.read_start(reader)
    client.close_reset(lambda handle: seen.append("closed"))
    loop.run()
    assert reader.ends == [errno.ECONNRESET]
    assert seen == ["closed"]


def test_a_handle_that_is_shutting_down_cannot_reset(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    client.shutdown()
    with pytest.raises(OSError, match="Invalid") as caught:
        client.close_reset()
    assert caught.value.errno == errno.EINVAL
    loop.run(RunMode.NOWAIT)
    client.close_reset()


def test_a_handle_without_a_socket_can_be_closed(loop: Loop) -> None:
    seen: list[str] = []
    TCP(loop).close(lambda handle: seen.append("closed"))
    loop.run()
    assert seen == ["closed"]
