"""UNIX sockets, pipes, epolls and descriptors of a simulated host."""

from __future__ import annotations

import array
import asyncio
import os
import socket

import pytest

from tests.sim.conftest import Run
from whorl import sim
from whorl.sim.errors import OtherLoop, RealDescriptor
from whorl.sim.files.file import FIRST_FD, Counter, DescriptorTable


def test_unix_socket_has_a_name_on_its_host_only(exact: Run) -> None:
    async def main(world: sim.World) -> bytes:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")
            writer.close()

        async def ask() -> bytes:
            reader, writer = await asyncio.open_unix_connection("/run/greet")
            data = await reader.read()
            writer.close()
            return data

        server = await asyncio.start_unix_server(greet, "/run/greet")
        with pytest.raises(FileNotFoundError):
            await world.host("other").run(ask)
        data = await ask()
        server.close()
        return data

    assert exact(main) == b"hello"


def test_descriptors_travel_through_unix_sockets(exact: Run) -> None:
    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [reader]))])
        os.close(reader)
        data, [(_, _, passed)], _, _ = theirs.recvmsg(10, socket.CMSG_SPACE(4))
        assert data == b"x"
        [received] = array.array("i", passed)
        os.write(writer, b"through the pipe")
        content = os.read(received, 100)
        for fd in (received, writer):
            os.close(fd)
        ours.close()
        theirs.close()
        return content

    assert exact(main) == b"through the pipe"


def test_pipe_ends_when_its_writer_is_closed(exact: Run) -> None:
    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        read_fd, write_fd = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb", 0)
        )
        os.write(write_fd, b"hello")
        os.close(write_fd)
        data = await reader.read()
        transport.close()
        return data

    assert exact(main) == b"hello"


def test_pipe_holds_64_kibibytes(exact: Run) -> None:
    async def main() -> int:
        reader, writer = os.pipe()
        written = os.write(writer, bytes(100_000))
        with pytest.raises(BlockingIOError):
            os.write(writer, b"more")
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            os.write(writer, b"more")
        os.close(writer)
        return written

    assert exact(main) == 65_536


def test_add_reader_watches_a_simulated_descriptor(exact: Run) -> None:
    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        got = loop.create_future()
        loop.add_reader(reader, lambda: got.set_result(os.read(reader, 100)))
        loop.call_later(1, os.write, writer, b"now")
        data = await got
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)
        return data  # type: ignore[no-any-return]

    assert exact(main) == b"now"


def test_descriptor_of_the_real_process_is_refused_by_name() -> None:
    real, other = os.pipe()

    async def main() -> None:
        asyncio.get_running_loop().add_reader(real, print)

    try:
        result = sim.run(main)
    finally:
        os.close(real)
        os.close(other)
    [finding] = result.findings
    assert finding.kind == "limit"
    assert isinstance(finding.exception, RealDescriptor)
    assert "test_local.py" in finding.text


def test_other_loops_are_refused_by_name() -> None:
    async def main() -> None:
        asyncio.SelectorEventLoop()

    [finding] = sim.run(main).findings
    assert isinstance(finding.exception, OtherLoop)


def test_lowest_free_descriptor_is_given_next() -> None:
    table = DescriptorTable(10)
    machine = None
    files = [Counter(machine) for _ in range(4)]  # type: ignore[arg-type]
    assert [table.add(file) for file in files] == [FIRST_FD + number for number in range(4)]
    table.remove(FIRST_FD + 2)
    table.remove(FIRST_FD + 1)
    assert table.add(files[0]) == FIRST_FD + 1
    assert table.add(files[0], FIRST_FD + 8) == FIRST_FD + 8
    assert [table.add(files[0]) for _ in range(3)] == [FIRST_FD + 2, FIRST_FD + 4, FIRST_FD + 5]
