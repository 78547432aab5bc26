"""UNIX sockets, pipes, epolls and descriptors of a simulated host."""

from __future__ import annotations

import array
import asyncio
import os
import select
import socket
import struct

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


def test_descriptors_that_find_no_room_in_a_message_are_closed(exact: Run) -> None:
    async def main() -> tuple[int, bytes]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        reader, writer = os.pipe()
        ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writer]))])
        os.close(writer)
        _, messages, flags, _ = theirs.recvmsg(10)
        assert messages == []
        for sock in (ours, theirs):
            sock.close()
        content = os.read(reader, 10)  # the end: nobody has the other descriptor
        os.close(reader)
        return flags, content

    assert exact(main) == (socket.MSG_CTRUNC, b"")


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_pair_of_message_sockets_keeps_messages(exact: Run, kind: socket.SocketKind) -> None:
    async def main() -> tuple[int, list[bytes]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.send(b"ab")
        ours.send(b"cd")
        got = [theirs.recv(10), theirs.recv(10)]
        ours.close()
        theirs.close()
        return theirs.type, got

    assert exact(main) == (kind, [b"ab", b"cd"])


def test_peer_of_a_unix_socket_knows_at_once_that_it_is_closed(exact: Run) -> None:
    async def main() -> int:
        ours, theirs = socket.socketpair()
        theirs.close()
        poll = select.poll()
        poll.register(ours)
        [(_, events)] = poll.poll(0)
        with pytest.raises(BrokenPipeError):
            ours.send(b"x")
        ours.close()
        return events

    assert exact(main) & select.POLLHUP


def test_writer_goes_on_once_a_full_unix_socket_is_read(exact: Run) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        sending = asyncio.ensure_future(loop.sock_sendall(ours, bytes(1_000_000)))
        got = 0
        while got < 1_000_000:
            got += len(await loop.sock_recv(theirs, 10_000))
        await sending
        ours.close()
        theirs.close()
        return got

    assert exact(main) == 1_000_000


def test_credentials_of_a_peer_are_those_of_the_process(exact: Run) -> None:
    async def main() -> bool:
        ours, theirs = socket.socketpair()
        found = struct.unpack("3i", ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        ours.close()
        theirs.close()
        return found == (os.getpid(), os.getuid(), os.getgid())

    assert exact(main)


def test_local_descriptors_become_ready_in_the_order_of_their_writes() -> None:
    async def main() -> list[int]:
        loop, got = asyncio.get_running_loop(), list[int]()
        pairs = [socket.socketpair() for _ in range(3)]
        ends = [(reader.fileno(), writer.fileno()) for reader, writer in pairs]
        ends += [os.pipe() for _ in range(3)]

        def read(number: int) -> None:
            os.read(ends[number][0], 10)
            got.append(number)

        for number, (reader, _) in enumerate(ends):
            loop.add_reader(reader, read, number)
        for _, writer in reversed(ends):
            os.write(writer, b"1")
        await asyncio.sleep(0.01)
        return got

    for seed in range(20):
        assert sim.run(main, seed=seed, allow={"leaks"}).value == [5, 4, 3, 2, 1, 0]


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
        reader, writer = os.pipe2(os.O_NONBLOCK)
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
