"""Transports over pipes, FIFOs, sockets and terminals, one direction each."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import gc
import os
import pty
import selectors
import socket
import tty
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, digest, noise, turns, turns_while_idle
from whorl.core import Kernel

pytestmark = pytest.mark.usefixtures("no_leak")

Reported = list[dict[str, Any]]
Ends = tuple[Any, Any]


def reading(fd: int) -> Any:
    """Return a file object for the reading end of a descriptor."""
    return open(fd, "rb", 0)


def writing(fd: int) -> Any:
    """Return a file object for the writing end of a descriptor."""
    return open(fd, "wb", 0)


def new_pipe() -> Ends:
    """Return the reading and the writing end of a pipe."""
    read_fd, write_fd = os.pipe()
    return reading(read_fd), writing(write_fd)


def new_fifo(folder: Path) -> Ends:
    """Return the two ends of a pipe with a name."""
    path = folder / "fifo"
    os.mkfifo(path)
    read_fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    return reading(read_fd), writing(os.open(path, os.O_WRONLY))


def new_sockets() -> Ends:
    """Return two sockets; the test writes to one of them."""
    ours, theirs = socket.socketpair()
    return reading(ours.detach()), writing(theirs.detach())


def new_terminal() -> Ends:
    """Return the two sides of a terminal that passes bytes unchanged."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    return reading(master), writing(slave)


KINDS: dict[str, Callable[[Path], Ends]] = {
    "pipe": lambda folder: new_pipe(),
    "fifo": new_fifo,
    "socket": lambda folder: new_sockets(),
    "terminal": lambda folder: new_terminal(),
}


@pytest.fixture(params=KINDS)
def ends(request: pytest.FixtureRequest, no_leak: None, tmp_path: Path) -> Iterator[Ends]:
    """Yield a reading and a writing file object of each kind."""
    made = KINDS[request.param](tmp_path)
    yield made
    for file in made:
        file.close()


@pytest.fixture(params=["pipe", "fifo", "socket"])
def noticed(request: pytest.FixtureRequest, no_leak: None, tmp_path: Path) -> Iterator[Ends]:
    """Yield ends of the kinds whose writer notices that the reader is gone."""
    made = KINDS[request.param](tmp_path)
    yield made
    for file in made:
        file.close()


async def connect(ends: Ends) -> tuple[Recorder, Recorder]:
    """Return a protocol that reads and one that writes."""
    loop = asyncio.get_running_loop()
    _, reader = await loop.connect_read_pipe(Recorder, ends[0])
    _, writer = await loop.connect_write_pipe(Recorder, ends[1])
    return reader, writer


def write_all(fd: int, data: bytes) -> None:
    """Write a little to a descriptor."""
    assert os.write(fd, data) == len(data)


def fill(fd: int) -> int:
    """Write to a descriptor that does not block until nothing more goes in; how much that was."""
    total = 0
    try:
        while True:
            total += os.write(fd, bytes(4096))
    except BlockingIOError:
        return total


# Data.


async def test_pipe_transports_transfer_data(ends: Ends) -> None:
    reader, writer = await connect(ends)
    writer.transport.write(b"one ")
    writer.transport.writelines([b"two ", bytearray(b"three "), memoryview(b"four")])
    assert await reader.until_received(18) == b"one two three four"
    assert reader.calls[0] == "connection_made"
    writer.transport.close()
    await writer.until_lost()
    reader.transport.close()
    await reader.until_lost()


async def test_megabytes_pass_unchanged(noticed: Ends) -> None:
    reader, writer = await connect(noticed)
    data = noise(3_000_000)
    writer.transport.write(data)
    writer.transport.write_eof()
    assert await reader.until_lost() is None
    assert digest(reader.received) == digest(data)
    assert await writer.until_lost() is None
    assert writer.calls == ["connection_made", "pause_writing", "resume_writing", "connection_lost"]


async def test_the_end_of_what_is_read_ends_the_transport(noticed: Ends) -> None:
    reader, writer = await connect(noticed)
    writer.transport.write(b"last words")
    writer.transport.close()
    assert await reader.until_lost() is None
    assert bytes(reader.received) == b"last words"
    assert reader.calls[-2:] == ["eof_received", "connection_lost"]
    assert reader.transport.is_closing()
    assert noticed[0].closed
    await writer.until_lost()
    assert noticed[1].closed


async def test_eof_received_cannot_keep_a_pipe_open(noticed: Ends) -> None:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_read_pipe(lambda: Recorder(keep_open=True), noticed[0])
    noticed[1].close()
    assert await protocol.until_lost() is None
    assert not transport.is_reading()


async def test_a_terminal_whose_other_side_is_closed_ends_quietly() -> None:
    loop = asyncio.get_running_loop()
    master, slave = new_terminal()
    _, protocol = await loop.connect_read_pipe(Recorder, master)
    write_all(slave.fileno(), b"x")
    assert await protocol.until_received(1) == b"x"
    slave.close()
    error = await protocol.until_lost()
    assert isinstance(error, OSError)
    assert "eof_received" not in protocol.calls


async def test_a_failing_read_is_reported(reported: Reported) -> None:
    loop = asyncio.get_running_loop()
    read_fd, write_fd = os.pipe()
    transport, protocol = await loop.connect_read_pipe(Recorder, reading(read_fd))
    watched = os.dup(read_fd)  # so that the pipe stays watched when the descriptor means a directory
    folder = os.open("/", os.O_RDONLY)
    os.dup2(folder, read_fd)
    write_all(write_fd, b"x")
    await protocol.until_lost()
    for fd in (folder, watched, write_fd):
        os.close(fd)
    assert isinstance(protocol.error, IsADirectoryError)
    (context,) = reported
    reported.clear()
    assert context["message"] == "Fatal read error on pipe transport"
    assert context["transport"] is transport
    assert context["protocol"] is protocol


async def test_an_error_of_data_received_is_reported_and_the_transport_goes_on(reported: Reported) -> None:
    class Fails(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.received) == 1:
                raise ZeroDivisionError

    loop = asyncio.get_running_loop()
    reader, writer = new_pipe()
    transport, protocol = await loop.connect_read_pipe(Fails, reader)
    write_all(writer.fileno(), b"x")
    await protocol.until_received(1)
    write_all(writer.fileno(), b"y")
    await protocol.until_received(2)
    assert bytes(protocol.received) == b"xy"
    assert isinstance(reported.pop()["exception"], ZeroDivisionError)
    transport.close()
    writer.close()
    await protocol.until_lost()


# Pausing.


@pytest.mark.exact("a write that is refused costs a turn")
async def test_a_paused_pipe_gives_nothing_and_costs_nothing(ends: Ends) -> None:
    reader, writer = await connect(ends)
    transport = reader.transport
    transport.pause_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    writer.transport.write(b"later")
    assert await turns_while_idle() <= 1
    assert not reader.received
    transport.resume_reading()
    transport.resume_reading()
    assert transport.is_reading()
    assert await reader.until_received(5) == b"later"
    transport.close()
    assert not transport.is_reading()
    transport.pause_reading()
    transport.resume_reading()
    writer.transport.abort()
    await reader.until_lost()
    await writer.until_lost()


async def test_a_pipe_paused_from_the_start_is_not_read() -> None:
    class Paused(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()

    loop = asyncio.get_running_loop()
    reader, writer = new_pipe()
    writer.write(b"x")
    transport, protocol = await loop.connect_read_pipe(Paused, reader)
    await turns(3)
    assert not protocol.received
    writer.close()
    await turns(3)
    assert not protocol.is_lost
    transport.resume_reading()
    assert await protocol.until_lost() is None
    assert bytes(protocol.received) == b"x"


@pytest.mark.exact("looks at once for what was written")
async def test_a_writer_is_paused_and_resumed_at_the_watermarks() -> None:
    loop = asyncio.get_running_loop()
    reader, writer = new_pipe()
    os.set_blocking(reader.fileno(), False)
    transport, protocol = await loop.connect_write_pipe(Recorder, writer)
    transport.set_write_buffer_limits(high=1000, low=100)
    assert transport.get_write_buffer_limits() == (100, 1000)
    fill(writer.fileno())
    transport.write(bytes(1000))
    assert transport.get_write_buffer_size() == 1000
    assert protocol.calls == ["connection_made"]
    transport.write(b"x")
    assert transport.get_write_buffer_size() == 1001
    assert protocol.calls == ["connection_made", "pause_writing"]
    while os.read(reader.fileno(), 65536):
        await turns(2)
        if "resume_writing" in protocol.calls:
            break
    assert protocol.calls == ["connection_made", "pause_writing", "resume_writing"]
    assert transport.get_write_buffer_size() == 0
    with pytest.raises(ValueError, match="must be"):
        transport.set_write_buffer_limits(high=1, low=2)
    transport.close()
    await protocol.until_lost()
    reader.close()


def test_a_writer_goes_on_once_all_is_written_whatever_the_low_watermark() -> None:
    async def sizes(loop: Any) -> list[int]:
        reader, writer = new_pipe()
        os.set_blocking(reader.fileno(), False)
        transport, protocol = await loop.connect_write_pipe(Recorder, writer)
        transport.set_write_buffer_limits(high=160_000, low=150_000)
        transport.write(bytes(300_000))
        seen = []
        while "resume_writing" not in protocol.calls:
            os.read(reader.fileno(), 65536)
            seen.append(transport.get_write_buffer_size())
            await asyncio.sleep(0.001)
        transport.abort()
        reader.close()
        return seen

    assert is_as_in_asyncio(sizes)[-1] > 0


def test_a_reader_of_what_nobody_waits_for_is_made_all_the_same() -> None:
    async def outcome(loop: Any) -> Any:
        reports: list[Any] = []
        loop.set_exception_handler(lambda loop, context: reports.append(context))
        transport, protocol = await loop.connect_read_pipe(Recorder, open(os.devnull, "rb", 0))
        await asyncio.sleep(0)
        seen = repr(transport.is_closing()), list(protocol.calls)
        transport.close()
        await protocol.until_lost()
        # Up to Python 3.12 the message goes on with arguments, which are asyncio's own.
        told = [(str(each["message"]).partition("(")[0], repr(each["exception"])) for each in reports]
        return seen, protocol.calls, told

    is_as_in_asyncio(outcome)


# The end.


async def test_close_writes_what_is_unsent_and_abort_does_not() -> None:
    loop = asyncio.get_running_loop()
    for end, expected in (("close", 100_000), ("write_eof", 100_000), ("abort", 0)):
        read_end, write_end = new_pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, write_end)
        filled = fill(write_end.fileno())
        transport.write(bytes(100_000))
        getattr(transport, end)()
        assert transport.is_closing()
        _, reader = await loop.connect_read_pipe(Recorder, read_end)
        assert await reader.until_lost() is None
        assert len(reader.received) == filled + expected
        assert await protocol.until_lost() is None
        assert protocol.calls.count("connection_lost") == 1


async def test_a_writer_notices_that_its_reader_is_gone(noticed: Ends) -> None:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(Recorder, noticed[1])
    assert await turns_while_idle() <= 1
    noticed[0].close()
    assert await protocol.until_lost() is None
    assert transport.is_closing()


async def test_a_reader_that_leaves_bytes_unread_breaks_the_pipe(noticed: Ends) -> None:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(Recorder, noticed[1])
    fill(noticed[1].fileno())
    transport.write(b"never read")
    noticed[0].close()
    assert isinstance(await protocol.until_lost(), BrokenPipeError)
    assert transport.get_write_buffer_size() == 0


@pytest.mark.exact("the first write is refused, and fails later")
async def test_a_write_that_fails_ends_the_transport() -> None:
    loop = asyncio.get_running_loop()
    reader, writer = new_pipe()
    transport, protocol = await loop.connect_write_pipe(Recorder, writer)
    reader.close()
    transport.write(b"x")
    assert transport.is_closing()
    assert isinstance(await protocol.until_lost(), BrokenPipeError)


async def test_a_terminal_is_not_watched_while_nothing_is_unsent() -> None:
    loop = asyncio.get_running_loop()
    master, slave = new_terminal()
    transport, protocol = await loop.connect_write_pipe(Recorder, master)
    slave.close()
    assert await turns_while_idle() <= 1
    assert not protocol.is_lost
    transport.close()
    await protocol.until_lost()


@pytest.mark.exact("looks at once for what was written")
async def test_write_pipe_over_a_socket_ignores_incoming_data() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    transport, protocol = await loop.connect_write_pipe(Recorder, ours)
    theirs.send(b"an answer")
    assert await turns_while_idle() <= 1
    transport.write(b"more")
    assert theirs.recv(10) == b"more"
    theirs.close()
    await protocol.until_lost()


@pytest.mark.parametrize("end", ["close", "write_eof", "abort"])
async def test_writing_after_the_end_warns_as_asyncio_does(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    reader, writer = new_pipe()
    transport, protocol = await loop.connect_write_pipe(Recorder, writer)
    getattr(transport, end)()
    for _ in range(5):
        transport.write(b"x")
    assert not caplog.records
    transport.write(b"x")
    (record,) = caplog.records
    assert record.getMessage() == "pipe closed by peer or os.write(pipe, data) raised exception."
    await protocol.until_lost()
    transport.write(b"x")
    for name in ("close", "write_eof", "abort"):
        getattr(transport, name)()
    await turns(2)
    assert protocol.calls.count("connection_lost") == 1
    reader.close()


# Sharing a descriptor.


async def converse(master: Any, reader: Recorder, writer: Recorder) -> None:
    """Talk in both directions between a terminal and its other side."""
    loop = asyncio.get_running_loop()
    data = noise(100_000)
    writer.transport.write(data)
    received = bytearray()
    os.set_blocking(master.fileno(), False)
    arrived = asyncio.Event()
    loop.add_reader(master, arrived.set)
    while len(received) < len(data):
        arrived.clear()
        await arrived.wait()
        with suppress(BlockingIOError):  # the event may have come twice for the same data
            received += os.read(master.fileno(), 65536)
    loop.remove_reader(master)
    assert digest(received) == digest(data)
    write_all(master.fileno(), b"answer")
    assert await reader.until_received(6) == b"answer"


@pytest.mark.exact("looks at once for what was written")
@pytest.mark.parametrize("same", [True, False], ids=["one descriptor", "a duplicate"])
@pytest.mark.parametrize("kind", ["terminal", "socket"])
async def test_a_reader_and_a_writer_share_a_file(same: bool, kind: str) -> None:
    loop = asyncio.get_running_loop()
    if kind == "terminal":
        master, slave = new_terminal()
        fd = os.dup(slave.fileno())
        slave.close()
    else:
        master, other = socket.socketpair()
        fd = other.detach()
    ours = open(fd, "rb", 0)
    writer_file = open(fd if same else os.dup(fd), "wb", 0, closefd=not same)
    _, reader = await loop.connect_read_pipe(Recorder, ours)
    _, writer = await loop.connect_write_pipe(Recorder, writer_file)
    await converse(master, reader, writer)
    reader.transport.pause_reading()
    write_all(master.fileno(), b"paused")
    await turns(3)
    reader.transport.resume_reading()
    await reader.until_received(12)
    reader.transport.close()
    await reader.until_lost()
    if not same:
        writer.transport.write(b"after the reader")
        assert os.read(master.fileno(), 100) == b"after the reader"
    writer.transport.close()
    await writer.until_lost()
    master.close()


async def test_two_readers_of_one_descriptor_take_turns() -> None:
    loop = asyncio.get_running_loop()
    read_fd, write_fd = os.pipe()
    _, first = await loop.connect_read_pipe(Recorder, reading(read_fd))
    _, second = await loop.connect_read_pipe(Recorder, open(read_fd, "rb", 0, closefd=False))
    write_all(write_fd, b"x")
    while len(first.received) + len(second.received) < 1:
        await asyncio.sleep(0)
    os.close(write_fd)
    await first.until_lost()
    await second.until_lost()


async def test_a_callback_beside_a_transport() -> None:
    loop = asyncio.get_running_loop()
    master, slave = new_terminal()
    transport, protocol = await loop.connect_read_pipe(Recorder, slave)
    writable = asyncio.Event()
    loop.add_writer(slave.fileno(), writable.set)
    await writable.wait()
    assert loop.remove_writer(slave.fileno())
    write_all(master.fileno(), b"x")
    assert await protocol.until_received(1) == b"x"
    assert not loop.remove_reader(slave.fileno())
    transport.close()
    await protocol.until_lost()
    master.close()


class Full(Kernel):
    """A file without a descriptor left for a duplicate."""

    def duplicate(self, fd: int, lowest: int = 0) -> int:
        return -errno.EMFILE


class TestNoDescriptorLeft:
    @pytest.fixture
    def kernel(self) -> Kernel:
        return Full()

    async def test_a_second_transport_is_refused(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = new_sockets()
        _, reader = await loop.connect_read_pipe(Recorder, ours)
        with pytest.raises(OSError, match="Too many open files"):
            await loop.connect_write_pipe(Recorder, open(ours.fileno(), "wb", 0, closefd=False))
        theirs.close()
        await reader.until_lost()

    async def test_a_second_writer_to_a_terminal_loses_its_connection(self) -> None:
        loop = asyncio.get_running_loop()
        master, slave = new_terminal()
        _, reader = await loop.connect_read_pipe(Recorder, slave)
        _, writer = await loop.connect_write_pipe(Recorder, open(slave.fileno(), "wb", 0, closefd=False))
        while not writer.transport.is_closing():
            writer.transport.write(bytes(65536))
        error = await writer.until_lost()
        assert isinstance(error, OSError)
        assert error.errno == errno.EMFILE
        reader.transport.close()
        await reader.until_lost()
        master.close()


# Refusals.


class Folder:
    """A directory, as a file object."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        os.close(self._fd)


def test_connect_pipe_methods_refuse_regular_files_and_directories(tmp_path: Path) -> None:
    for method in ("connect_read_pipe", "connect_write_pipe"):

        async def open_file(loop: Any, method: str = method) -> Any:
            with open(tmp_path / "file", "w+b", 0) as file:
                await getattr(loop, method)(asyncio.Protocol, file)

        async def open_folder(loop: Any, method: str = method) -> Any:
            await getattr(loop, method)(asyncio.Protocol, Folder(tmp_path))

        assert error_as_in_asyncio(open_file)[0] is ValueError
        assert error_as_in_asyncio(open_folder)[0] is ValueError


async def test_a_refused_file_is_left_to_its_owner(loop: whorl.EventLoop, tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+b", 0) as file:
        for connect_pipe in (loop.connect_read_pipe, loop.connect_write_pipe):
            with pytest.raises(ValueError, match="pipes"):
                await connect_pipe(Recorder, file)
            with pytest.raises(AttributeError):
                await connect_pipe(Recorder, None)
        gc.collect()
        file.write(b"x")
    for connect_pipe in (loop.connect_read_pipe, loop.connect_write_pipe):
        with pytest.raises(ValueError, match="closed file"):
            await connect_pipe(Recorder, file)
    assert loop.metrics().active_handles == 0


@pytest.mark.parametrize("parts", [None, 3, ["text"], [b"bytes", None]], ids=str)
def test_parts_that_cannot_be_joined_are_refused_as_asyncio_does(parts: Any) -> None:
    async def write(loop: Any) -> None:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0) as file:
            transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, file)
            try:
                transport.writelines(parts)
            finally:
                transport.abort()
                await turns(3)

    assert error_as_in_asyncio(write)[0] is TypeError


def test_write_pipe_refuses_text_as_in_asyncio() -> None:
    async def write_text(loop: Any) -> Any:
        reader, writer = new_pipe()
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, writer)
        try:
            transport.write("text")
        except AssertionError:
            return "refused"
        finally:
            transport.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            reader.close()

    is_as_in_asyncio(write_text)


async def test_a_connection_that_is_cancelled_closes_the_pipe(loop: whorl.EventLoop) -> None:
    for connect_pipe, index in ((loop.connect_read_pipe, 0), (loop.connect_write_pipe, 1)):
        ends = new_pipe()
        protocol = Recorder()
        task = loop.create_task(connect_pipe(lambda protocol=protocol: protocol, ends[index]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await protocol.until_lost()
        assert protocol.calls == ["connection_made", "connection_lost"]
        assert ends[index].closed
        ends[1 - index].close()


# Representations.


def test_pipe_transports_refuse_unsupported_methods_as_in_asyncio() -> None:
    async def use(loop: Any) -> Any:
        reader, writer = await connect(new_pipe())
        answers = {}
        for transport in (reader.transport, writer.transport):
            for name in ("is_reading", "pause_reading", "resume_reading", "write_eof", "can_write_eof"):
                try:
                    answer = getattr(transport, name)()
                except (AttributeError, NotImplementedError) as error:
                    answer = type(error)
                answers[transport is writer.transport, name] = answer
            transport.close()
        await reader.until_lost()
        await writer.until_lost()
        return answers

    assert is_as_in_asyncio(use)[True, "pause_reading"] is NotImplementedError


async def test_a_transport_is_asyncios_and_ours(ends: Ends) -> None:
    reader, writer = await connect(ends)
    assert isinstance(reader.transport, asyncio.ReadTransport)
    assert not isinstance(reader.transport, asyncio.WriteTransport)
    assert isinstance(writer.transport, asyncio.Transport)
    assert writer.transport.can_write_eof()
    for protocol, file in ((reader, ends[0]), (writer, ends[1])):
        transport = protocol.transport
        assert transport.get_extra_info("pipe") is file
        assert transport.get_extra_info("nothing", 5) == 5
        assert transport.get_protocol() is protocol
        other = Recorder()
        transport.set_protocol(other)
        assert transport.get_protocol() is other
        transport.close()
        assert await other.until_lost() is None
        assert not protocol.is_lost
        assert transport.get_protocol() is None


def test_a_transport_that_outlives_its_loop_says_that_it_is_open() -> None:
    loop = whorl.EventLoop()
    read_end, write_end = new_pipe()
    reader, _ = loop.run_until_complete(loop.connect_read_pipe(Recorder, read_end))
    writer, _ = loop.run_until_complete(loop.connect_write_pipe(Recorder, write_end))
    read_fd, write_fd = read_end.fileno(), write_end.fileno()
    loop.close()
    assert repr(reader) == f"<_UnixReadPipeTransport fd={read_fd} open>"
    assert repr(writer).startswith(f"<_UnixWritePipeTransport fd={write_fd} open")
    for transport in (reader, writer):
        with pytest.warns(ResourceWarning, match="unclosed transport"):
            transport.__del__()


async def test_a_transport_shows_its_state() -> None:
    read_end, write_end = new_pipe()
    reader, writer = await connect((read_end, write_end))
    read_fd, write_fd = read_end.fileno(), write_end.fileno()
    assert repr(reader.transport) == f"<_UnixReadPipeTransport fd={read_fd} polling>"
    reader.transport.pause_reading()
    assert repr(reader.transport) == f"<_UnixReadPipeTransport fd={read_fd} idle>"
    assert repr(writer.transport) == f"<_UnixWritePipeTransport fd={write_fd} idle bufsize=0>"
    fill(write_fd)
    writer.transport.write(b"xyz")
    assert repr(writer.transport) == f"<_UnixWritePipeTransport fd={write_fd} polling bufsize=3>"
    writer.transport.close()
    assert repr(writer.transport) == f"<_UnixWritePipeTransport closing fd={write_fd} polling bufsize=3>"
    reader.transport.close()
    await reader.until_lost()
    await writer.until_lost()
    assert repr(reader.transport) == f"<_UnixReadPipeTransport closed fd={read_fd} closed>"
    assert repr(writer.transport) == f"<_UnixWritePipeTransport closed fd={write_fd} closed>"


def test_a_transport_that_nobody_closed_complains(ends: Ends) -> None:
    loop = whorl.EventLoop()
    kept = weakref.WeakSet[Any]()

    async def forget() -> None:
        for protocol in await connect(ends):
            kept.add(protocol.transport)

    loop.run_until_complete(forget())
    loop.close()
    with pytest.warns(ResourceWarning) as warned:
        gc.collect()
    assert not kept
    texts = sorted(str(warning.message) for warning in warned)
    assert len(texts) == 2
    assert texts[0].startswith("unclosed transport <_UnixReadPipeTransport")
    assert texts[1].startswith("unclosed transport <_UnixWritePipeTransport")
    assert ends[0].closed
    assert ends[1].closed


async def test_debug_mode_tells_what_happens(loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 60
    with caplog.at_level("DEBUG", logger="asyncio"):
        reader, writer = await connect(new_pipe())
        reader.transport.pause_reading()
        reader.transport.resume_reading()
        writer.transport.close()
        await reader.until_lost()
        reader, writer = await connect(new_pipe())
        reader.transport.close()
        await writer.until_lost()
    messages = "\n".join(record.getMessage() for record in caplog.records)
    for expected in ("Read pipe ", "Write pipe ", "pauses reading", "resumes reading", "was closed by peer"):
        assert expected in messages
    assert messages.count("was closed by peer") == 2


# Other pollers, and a descriptor closed underneath.


@pytest.mark.parametrize("selector", ["SelectSelector", "PollSelector", "EpollSelector"])
def test_pipes_on_other_pollers(selector: str, noticed: Ends) -> None:
    loop = whorl.EventLoop(getattr(selectors, selector)())

    async def talk() -> None:
        reader, writer = await connect(noticed)
        data = noise(300_000)
        writer.transport.write(data)
        await reader.until_received(len(data))
        assert digest(reader.received) == digest(data)
        assert await turns_while_idle() <= 1
        reader.transport.close()
        await reader.until_lost()
        assert await writer.until_lost() is None

    loop.run_until_complete(talk())
    loop.close()


async def test_a_pipe_closed_underneath_harms_nobody() -> None:
    loop = asyncio.get_running_loop()
    reader, writer = new_pipe()
    transport, protocol = await loop.connect_read_pipe(Recorder, reader)
    reader.close()
    others = new_pipe()  # the same number, perhaps
    transport.close()
    await protocol.until_lost()
    other, _ = await connect(others)
    other.transport.close()
    await other.until_lost()
    writer.close()
    await turns(3)


async def test_callbacks_run_in_the_context_of_the_connection() -> None:
    loop: Any = asyncio.get_running_loop()
    seen = []

    class Named(Recorder):
        def note(self, call: str) -> None:
            seen.append((call, name.get()))
            super().note(call)

    name = contextvars.ContextVar("name", default="nobody")
    name.set("somebody")
    reader, writer = new_pipe()
    transport, protocol = await loop.connect_read_pipe(Named, reader)
    name.set("somebody else")
    transport.pause_reading()
    transport.resume_reading()
    writer.write(b"x")
    writer.close()
    await protocol.until_lost()
    assert [call for call, _ in seen] == [
        "connection_made",
        "data_received",
        "eof_received",
        "connection_lost",
    ]
    assert {value for _, value in seen} == {"somebody"}
