"""Names that are private in asyncio and that programs read: Whorl's return what asyncio's have."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import threading
from typing import Any

import pytest

from build_tools.sources import ROOT
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, socket_pair, turns

pytestmark = pytest.mark.usefixtures("no_leak")

STATE = ("_closing", "_conn_lost", "_paused", "_protocol_paused", "_high_water", "_low_water")


def shown(transport: Any, *names: str) -> dict[str, Any]:
    """Return a transport's attributes with these names, and the sizes of its buffers."""
    found = {name: getattr(transport, name) for name in names}
    buffer = transport._buffer if hasattr(transport, "_buffer") else []
    found["type"] = type(buffer)
    found["bytes"] = bytes(buffer) if isinstance(buffer, bytearray) else b"".join(map(bytes, buffer))
    return found


async def filled(loop: Any, protocol: Any) -> tuple[Any, socket.socket, bytes]:
    """Return a transport with unsent data, its peer that does not read, and all that was written."""
    ours, peer = socket_pair("unix")
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
    transport.set_write_buffer_limits(high=10, low=5)
    written = b""
    while not transport.get_write_buffer_size():
        transport.write(bytes(4096))
        written += bytes(4096)
    transport.write(b"the rest")
    return transport, peer, written + b"the rest"


def test_a_connection_that_is_used_and_closed() -> None:
    async def scenario(loop: Any) -> Any:
        protocol = Recorder()
        transport, peer, written = await filled(loop, protocol)
        names = (*STATE, "_eof")
        found = [shown(transport, *names)]
        assert found[0].pop("bytes") == written[-transport.get_write_buffer_size() :]
        assert transport._sock.fileno() == transport._sock_fd
        assert transport._loop is loop
        assert transport._protocol is protocol
        assert transport._server is None
        transport.pause_reading()
        transport.write_eof()
        found.append([getattr(transport, name) for name in names])
        with peer:
            transport.abort()
            found.append([getattr(transport, name) for name in names])
            await protocol.until_lost()
        found.append([transport._sock, transport._protocol, transport._closing, transport._conn_lost])
        return found

    is_as_in_asyncio(scenario)


def test_writes_to_a_lost_connection_are_counted() -> None:
    async def scenario(loop: Any) -> Any:
        ours, peer = socket_pair("tcp")
        transport, protocol = await loop.connect_accepted_socket(Recorder, ours)
        with peer:
            found = [transport._conn_lost]
            transport.close()
            for _ in range(2):
                found.append(transport._conn_lost)
                transport.write(b"lost")
            await protocol.until_lost()
        return found

    assert is_as_in_asyncio(scenario) == [0, 1, 2]


def test_an_accepted_connection_has_its_socket() -> None:
    async def scenario(loop: Any) -> Any:
        accepted: list[Any] = []

        class Server(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                accepted.append(transport)

        server = await loop.create_server(Server, "127.0.0.1", 0)
        client, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        while not accepted:
            await turns(1)
        transport = accepted[0]
        sock = transport._sock
        assert sock.fileno() == transport._sock_fd
        assert sock.getpeername() == client._sock.getsockname()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found = [
            type(sock),
            transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        ]
        client.close()
        transport.close()
        found.append(transport._closing)
        server.close()
        await server.wait_closed()
        await turns(3)
        return [*found, transport._sock, sock.fileno()]

    assert is_as_in_asyncio(scenario)[-2:] == [None, -1]


def test_pipes() -> None:
    async def scenario(loop: Any) -> Any:
        read_fd, write_fd = os.pipe()
        readable, writable = os.fdopen(read_fd, "rb", 0), os.fdopen(write_fd, "wb", 0)
        reader, receiver = await loop.connect_read_pipe(Recorder, readable)
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, writable)
        assert (reader._pipe, reader._fileno) == (readable, read_fd)
        assert (writer._pipe, writer._fileno) == (writable, write_fd)
        reader.pause_reading()
        found: list[Any] = [reader._closing, reader._paused]
        while not writer.get_write_buffer_size():
            writer.write(bytes(4096))
        found.append(shown(writer, "_closing", "_conn_lost", "_protocol_paused", "_high_water", "_low_water"))
        writer.abort()
        writer.write(b"lost")
        found.append([writer._closing, writer._conn_lost, len(writer._buffer)])
        reader.close()
        await receiver.until_lost()
        await turns(2)
        return [*found, reader._closing, reader._pipe, writer._pipe]

    is_as_in_asyncio(scenario)


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "written"])
def test_a_file_that_is_taken_from_a_transport_is_closed_by_nobody(is_read: bool) -> None:
    """Programs do so with transports over the standard streams, which other code uses too."""

    async def scenario(loop: Any) -> Any:
        ends = os.pipe()
        files = os.fdopen(ends[0], "rb", 0), os.fdopen(ends[1], "wb", 0)
        with files[0], files[1]:
            ours = files[not is_read]
            connect = loop.connect_read_pipe if is_read else loop.connect_write_pipe
            transport, _ = await connect(asyncio.BaseProtocol, ours)
            if is_read:
                loop._remove_reader(transport._fileno)
            transport._pipe = None
            found = transport._pipe
            transport.__del__()
            return found, os.fstat(ends[0]).st_size, os.fstat(ends[1]).st_size

    is_as_in_asyncio(scenario)


def test_datagrams() -> None:
    async def scenario(loop: Any) -> Any:
        ours, peer = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        peer.bind("")  # to a name that the system makes
        ours.connect(peer.getsockname())
        transport, protocol = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=ours)
        found = [[getattr(transport, name) for name in STATE if name != "_paused"]]
        assert transport._sock is ours
        assert transport._sock_fd == ours.fileno()
        assert transport._protocol is protocol
        assert transport._address is None
        while not transport.get_write_buffer_size():
            transport.sendto(b"a datagram")
        transport.sendto(b"the last")
        buffer = transport._buffer
        found.append([type(buffer), [tuple(item) for item in buffer][-2:], len(buffer)])
        with peer:
            transport.abort()
            found.append([getattr(transport, name) for name in STATE if name != "_paused"])
            await turns(3)
        return found

    is_as_in_asyncio(scenario)


def test_the_earliest_timer_comes_first() -> None:
    """Loops rely on it whose time goes on when nothing is ready."""

    def scenario(loop: Any) -> Any:
        handles = [loop.call_at(when, int) for when in (7e9, 3e9, 5e9, 1e9, 9e9)]
        first = loop._scheduled[0]
        found = [first._when, first is handles[3], handles[1] in loop._scheduled, len(loop._scheduled)]
        for handle in handles:
            handle.cancel()
        return found

    assert is_as_in_asyncio(scenario) == [1e9, True, True, 5]


def test_timers_that_are_cleared_are_not_called() -> None:
    def scenario(loop: Any) -> Any:
        called: list[int] = []
        for _ in range(3):
            loop.call_later(0, called.append, 1)
        loop._scheduled.clear()
        found = len(loop._scheduled)
        loop.call_later(0.001, loop.stop)
        loop.run_forever()
        return found, called

    assert is_as_in_asyncio(scenario) == (0, [])


def test_transports_by_their_descriptors() -> None:
    async def scenario(loop: Any) -> Any:
        ours, peer = socket_pair("tcp")
        transport, protocol = await loop.connect_accepted_socket(Recorder, ours)
        fd = transport._sock_fd
        table = loop._transports
        found = [list(table) == [fd], list(table.keys()) == [fd], list(table.values()) == [transport]]
        found += [
            list(table.items()) == [(fd, transport)],
            fd in table,
            fd + 1 in table,
            "x" in table,
            len(table),
        ]
        found += [table.pop(fd, None) is transport, table.pop(fd, 7), len(table), list(table.values())]
        with peer:
            transport.close()
            await protocol.until_lost()
        return found

    is_as_in_asyncio(scenario)


def test_the_sockets_that_wake_a_loop() -> None:
    def scenario(loop: Any) -> Any:
        found = [
            loop._internal_fds,
            type(loop._ssock),
            type(loop._csock),
            os.get_blocking(loop._ssock.fileno()),
        ]
        assert loop._csock is loop._csock
        assert loop._ssock.fileno() != loop._csock.fileno()
        arrived: list[int] = []
        loop.add_signal_handler(signal.SIGUSR1, lambda: (arrived.append(1), loop.stop()))
        thread = threading.Thread(target=lambda: loop._csock.send(bytes([signal.SIGUSR1])))
        loop.call_later(0.01, thread.start)
        loop.run_forever()
        thread.join()
        loop.close()
        return [*found, arrived, loop._internal_fds, loop._ssock, loop._csock]

    assert is_as_in_asyncio(scenario)[-4:] == [[1], 0, None, None]


def test_current_handle_is_the_running_one_in_debug_mode() -> None:
    def scenario(loop: Any) -> Any:
        found: list[Any] = [loop._current_handle]
        loop.set_debug(True)
        handle = loop.call_soon(lambda: found.append(loop._current_handle is handle))
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop._current_handle = handle
        found.append(loop._current_handle is handle)
        loop._current_handle = None
        return found

    assert is_as_in_asyncio(scenario) == [None, True, True]


def test_an_executor_that_is_shut_down_is_known() -> None:
    async def scenario(loop: Any) -> Any:
        found = loop._check_default_executor()
        await loop.shutdown_default_executor()
        with pytest.raises(RuntimeError) as caught:
            loop._check_default_executor()
        return found, str(caught.value)

    is_as_in_asyncio(scenario)


def test_addresses_are_resolved() -> None:
    async def scenario(loop: Any) -> Any:
        return await loop._ensure_resolved(
            ("127.0.0.1", 80), family=0, type=socket.SOCK_DGRAM, proto=0, flags=0, loop=loop
        )

    is_as_in_asyncio(scenario)


async def test_the_guide_names_what_there_is(loop: Any) -> None:
    page = (ROOT / "docs/guide/asyncio.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w ,]+) \| (.*) \|$", page, re.MULTILINE))
    ours, peer = socket_pair("tcp")
    with peer:
        transport, _ = await loop.connect_accepted_socket(Recorder, ours)
        named = {"the loop": loop, "the loop, to be called": loop, "transports of sockets": transport}
        for row, thing in named.items():
            for name in re.findall(r"`(_\w+)`", rows[row]):
                assert hasattr(thing, name), name
        transport.abort()
        await turns(2)
