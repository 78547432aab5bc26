"""The table of handles: kinds, addresses, what waits to be sent, what is paused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import Any

import whorl
from whorl import Loop
from whorl.aio.connections.datagram_transport import DatagramTransport
from whorl.handles import Timer
from whorl.inspector.tables.handles import HandleFigures, handles, is_of_loop


def rows_of(loop: Any) -> dict[int | None, HandleFigures]:
    return {row.fd: row for row in handles(loop)}


def test_a_server_and_both_ends_of_a_connection_are_listed() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted = asyncio.Event()

        def connected(reader: Any, writer: Any) -> None:
            accepted.set()
            writers.append(writer)

        writers: list[Any] = []
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        await accepted.wait()
        rows = handles(loop)
        assert [(row.state, row.local) for row in rows if row.kind == "server"] == [("listening", address)]
        ends = [row for row in rows if row.kind == "tcp"]
        assert sorted([ends[0].peer, ends[1].peer]) == sorted([ends[0].local, ends[1].local])
        assert {row.owner for row in ends} == {"StreamReaderProtocol"}
        assert {row.waits_for[:1] for row in ends} == {"r"}
        assert address in {row.peer for row in ends}
        for each in (writer, *writers):
            each.close()
        server.close()

    whorl.run(main())


def test_the_bytes_and_calls_of_a_connection_are_shown() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport_made = loop.create_future()
        server = await loop.create_server(lambda: Noting(transport_made), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            transport = await transport_made
            transport.write(b"12345")
            row = rows_of(loop)[transport.get_extra_info("socket").fileno()]
            assert (row.bytes_in, row.bytes_out, row.reads, row.writes) == (0, 5, 0, 1)
            assert await loop.run_in_executor(None, client.recv, 5) == b"12345"
            transport.close()
        server.close()

    whorl.run(main())


def test_addresses_are_read_without_being_stored() -> None:
    async def main() -> None:
        accepted = asyncio.get_running_loop().create_future()
        server = await asyncio.get_running_loop().create_server(lambda: Noting(accepted), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            transport = await accepted
            for _ in range(2):
                assert transport._addresses() == (client.getsockname(), client.getpeername())
            assert transport.get_extra_info("peername") == client.getsockname()
            assert transport._addresses() == (client.getsockname(), client.getpeername())
            transport.close()
        server.close()

    whorl.run(main())


class Noting(asyncio.Protocol):
    def __init__(self, made: asyncio.Future[Any]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.set_result(transport)


def test_a_full_connection_says_so() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            transport, _ = await loop.create_connection(asyncio.Protocol, *silent.getsockname())
            transport.write(b"x" * 50_000_000)
            transport.pause_reading()  # type: ignore[attr-defined]
            row = next(row for row in handles(loop) if row.kind == "tcp")
            assert row.paused == "reading and writing"
            assert row.unsent == transport.get_write_buffer_size() > 1_000_000
            transport.abort()

    whorl.run(main())


def test_pipes_datagrams_children_and_watched_sockets_are_listed() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            reader, writer = os.pipe()
            pipe, _ = await loop.connect_read_pipe(asyncio.Protocol, stack.enter_context(open(reader, "rb")))
            out, _ = await loop.connect_write_pipe(asyncio.Protocol, stack.enter_context(open(writer, "wb")))
            udp, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
            child = await asyncio.create_subprocess_exec("sleep", "50")
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            stack.enter_context(theirs)
            ours.setblocking(False)
            loop.add_reader(theirs, child.kill)
            task = asyncio.create_task(loop.sock_recv(ours, 10))
            await asyncio.sleep(0)
            rows = rows_of(loop)
            assert rows[reader].kind == "read pipe"
            assert str(rows[reader].local).startswith("pipe:[")
            assert {row.kind for row in rows.values()} >= {"wakeup", "datagram", "child", "read pipe"}
            assert [row.owner for row in rows.values() if row.kind == "child"] == [f"process {child.pid}"]
            assert rows[ours.fileno()].kind == "sock_ wait"
            assert rows[theirs.fileno()].kind == "callbacks"
            assert rows[theirs.fileno()].owner == "Process.kill"
            task.cancel()
            loop.remove_reader(theirs)
            child.kill()
            await child.wait()
            for transport in (pipe, out, udp):
                transport.close()
            await asyncio.sleep(0)

    whorl.run(main())


def test_a_connection_that_is_being_made_is_listed() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            for _ in range(3):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            task = asyncio.create_task(asyncio.open_connection(*listener.getsockname()))
            await asyncio.sleep(0)
            rows = [row for row in handles(loop) if row.kind in ("connecting", "sock_ wait")]
            assert [row.waits_for[-1:] for row in rows] == ["w"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    whorl.run(main())


def test_the_machines_loop_has_a_table_too() -> None:
    loop = Loop()
    timer = Timer(loop)
    timer.start(lambda timer: None, 10**9)
    rows = handles(loop)
    assert [(row.state, row.fd) for row in rows if row.kind == "timer"] == [("active", None)]
    timer.close()
    loop.run()
    loop.close()


def test_a_handle_that_is_just_being_made_is_left_out() -> None:
    async def main() -> list[HandleFigures]:
        loop: Any = asyncio.get_running_loop()
        half_made = DatagramTransport.__new__(DatagramTransport)
        loop._transports.add(1_000, half_made)
        try:
            return handles(loop)
        finally:
            loop._transports.discard(1_000, half_made)

    assert [row.kind for row in whorl.run(main())] == ["wakeup"]


def test_handles_of_a_program_that_opens_none_are_the_loops_own() -> None:
    async def main() -> list[HandleFigures]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, print)
        await loop.getaddrinfo("localhost", 80)
        return handles(loop)

    found = whorl.run(main())
    assert {"wakeup", "signals"} <= {row.kind for row in found}
    assert all(is_of_loop(row) for row in found)
