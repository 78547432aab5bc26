"""The buffer of a stream's reader, against one bytearray that does the same."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import whorl
from tests.aio.conftest import Connect
from whorl.aio.streams import reader_writer
from whorl.aio.streams.buffer import StreamBuffer
from whorl.core.limits import SHORT_CHUNK as SHORT

WORDS = st.sampled_from([b"", b"a", b"\n", b"ab\n", b"-" * SHORT, b"x" * SHORT + b"\r", b"\n\r\n", b"b" * 3])
STEPS = st.one_of(
    st.tuples(st.just("add"), WORDS),
    st.tuples(st.just("take"), st.integers(0, 3 * SHORT)),
    st.tuples(st.just("find"), st.tuples(st.sampled_from([b"\n", b"\r\n", b"ab"]), st.integers(0, SHORT))),
    st.tuples(st.just("until"), st.tuples(st.sampled_from([b"\n", b"\r\n", b"ab"]), st.integers(0, SHORT))),
    st.tuples(st.just("lend"), st.none()),
)


@given(st.lists(STEPS, max_size=40))
def test_stream_buffer_does_what_a_bytearray_does(steps: list[tuple[str, Any]]) -> None:
    buffer = StreamBuffer()
    model = bytearray()
    for step, detail in steps:
        if step == "add":
            buffer.add(detail)
            model += detail
        elif step == "take":
            assert buffer.take(detail) == model[:detail]
            del model[:detail]
        elif step == "find":
            assert buffer.find(*detail) == model.find(*detail)
        elif step == "until":
            separator, limit = detail
            found = model.find(separator)
            if not 0 <= found <= limit:
                assert buffer.take_until(separator, limit) is None
            else:
                assert buffer.take_until(separator, limit) == model[: found + len(separator)]
                del model[: found + len(separator)]
        else:
            assert buffer.lend() == model
        assert len(buffer) == len(model)
    assert buffer.take(len(model)) == model


def test_a_chunk_that_is_taken_whole_is_not_copied() -> None:
    buffer = StreamBuffer()
    data = b"x" * 2000
    buffer.add(data)
    assert buffer.take(4000) is data


def test_stream_buffer_keeps_using_the_bytearray_that_it_lends() -> None:
    buffer = StreamBuffer()
    buffer.add(b"one")
    lent = buffer.lend()
    assert buffer.take(10) == b"one"
    lent += b"two"
    buffer.add(b" three")
    assert lent == b"two three"
    assert buffer.take(3) == b"two"
    assert lent == b" three"


def test_single_bytes_are_put_together() -> None:
    buffer = StreamBuffer()
    for _ in range(100_000):
        buffer.add(b"x")
    assert buffer.take(100_000) == b"x" * 100_000


@pytest.mark.parametrize("bad", [5, "text", None])
def test_stream_buffer_refuses_other_types_than_bytes(bad: Any) -> None:
    buffer = StreamBuffer()
    with pytest.raises(TypeError):
        buffer.add(bad)
    assert len(buffer) == 0


def test_a_negative_number_takes_nothing() -> None:
    buffer = StreamBuffer()
    buffer.add(b"data")
    assert buffer.take(-1) == b""
    buffer.lend()
    assert buffer.take(-1) == b""
    assert buffer.take(4) == b"data"


# Readers that asyncio has made.


async def pair(connect: Connect, protocol_class: Any = asyncio.StreamReaderProtocol) -> tuple[Any, Any]:
    """Return a reader of asyncio's, whose protocol a transport gets, and the peer's socket."""
    reader = asyncio.StreamReader()
    protocol = protocol_class(reader)
    _, peer = await connect("tcp", protocol)
    return reader, peer


async def test_a_reader_of_asyncio_becomes_ours(connect: Connect) -> None:
    reader, peer = await pair(connect)
    assert type(reader) is reader_writer.StreamReader
    assert isinstance(reader, asyncio.StreamReader)
    peer.sendall(b"one\ntwo\nthree")
    assert await reader.readline() == b"one\n"
    assert await reader.readuntil(b"wo") == b"two"
    assert await reader.readexactly(1) == b"\n"
    assert await reader.read(3) == b"thr"
    assert bytes(reader._buffer) == b"ee"
    assert not reader.at_eof()


async def test_stream_reader_returns_data_fed_before_the_connection_first(connect: Connect) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"before ")
    protocol = asyncio.StreamReaderProtocol(reader)
    _, peer = await connect("tcp", protocol)
    peer.sendall(b"after")
    assert await reader.readexactly(12) == b"before after"


async def test_a_class_of_somebody_else_is_left_alone(connect: Connect) -> None:
    class Protocol(asyncio.StreamReaderProtocol):
        """A protocol class that is not asyncio's own."""

    reader, peer = await pair(connect, Protocol)
    assert type(reader) is asyncio.StreamReader
    peer.sendall(b"data")
    assert await reader.readexactly(4) == b"data"


async def test_a_replaced_method_is_called(connect: Connect) -> None:
    async def read(self: Any, n: int = -1) -> bytes:
        return b"replaced"

    with mock.patch.object(asyncio.StreamReader, "read", read):
        reader, _ = await pair(connect)
        assert type(reader) is asyncio.StreamReader
        assert await reader.read() == b"replaced"


async def test_a_method_replaced_on_an_object_is_called(connect: Connect) -> None:
    reader, peer = await pair(connect)
    reader.feed_data = mock.Mock()
    peer.sendall(b"data")
    while not reader.feed_data.called:
        await asyncio.sleep(0.001)
    reader.feed_data.assert_called_once_with(b"data")
    del reader.feed_data


async def test_data_for_a_reader_that_is_gone_is_dropped(connect: Connect) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, peer = await connect("tcp", protocol)
    del reader
    gc.collect()
    for _ in range(100):
        peer.sendall(b"x" * 2000)
        await asyncio.sleep(0)
    assert transport.is_reading()


async def test_a_reader_is_paused_beyond_twice_its_limit_and_resumed(connect: Connect) -> None:
    reader = asyncio.StreamReader(limit=1000)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, peer = await connect("tcp", protocol)
    peer.sendall(b"x" * 2001)
    while not reader._paused:  # type: ignore[attr-defined]
        await asyncio.sleep(0)
    assert not transport.is_reading()
    assert len(await reader.read(1000)) == 1000
    assert not transport.is_reading()
    assert len(await reader.read(1)) == 1
    assert transport.is_reading()


@pytest.mark.parametrize("limit", [4, 5, 6])
async def test_limits_are_those_of_asyncio(limit: int) -> None:
    async def outcomes(reader: Any) -> list[Any]:
        reader.feed_data(b"12345\n12\n123456789\n\n")
        reader.feed_eof()
        found = []
        for _ in range(5):
            try:
                found.append(await reader.readline())
            except ValueError as error:
                found.append(str(error))
            try:
                found.append(await reader.readuntil(b"9\n"))
            except asyncio.LimitOverrunError as error:
                found.append((str(error), error.consumed))
            except asyncio.IncompleteReadError as error:
                found.append((str(error), error.partial))
            found.append(bytes(reader._buffer))
        return found

    assert await outcomes(reader_writer.StreamReader(limit)) == await outcomes(asyncio.StreamReader(limit))


async def test_stream_reader_refuses_a_second_waiting_read(loop: whorl.EventLoop) -> None:
    reader = reader_writer.StreamReader()
    waiting = loop.create_task(reader.read(1))
    await asyncio.sleep(0)
    for call in (reader.read(1), reader.readline(), reader.readexactly(1)):
        with pytest.raises(RuntimeError, match="another coroutine"):
            await call
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    reader.feed_data(b"data")
    assert await reader.read(4) == b"data"


async def test_drain_of_a_writer_of_ours_waits_and_fails_as_asyncio_has_it(tmp_path: Path) -> None:
    accepted = asyncio.get_running_loop().create_future()

    async def serve(reader: Any, writer: Any) -> None:
        accepted.set_result((reader, writer))

    server = await whorl.start_unix_server(serve, tmp_path / "socket")
    reader, writer = await whorl.open_unix_connection(tmp_path / "socket")
    theirs, answering = await accepted
    assert type(writer) is type(answering) is reader_writer.StreamWriter
    writer.write(b"x" * 4_000_000)
    draining = asyncio.create_task(writer.drain())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not draining.done()
    assert len(await theirs.readexactly(4_000_000)) == 4_000_000
    await draining
    reader.set_exception(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await writer.drain()
    answering.close()
    await answering.wait_closed()
    with pytest.raises(ConnectionResetError):
        await answering.drain()
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def test_streams_of_ours_over_tcp() -> None:
    async def serve(reader: Any, writer: Any) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await whorl.start_server(serve, "127.0.0.1", 0)
    reader, writer = await whorl.open_connection(*server.sockets[0].getsockname())
    writer.write(b"line\n")
    assert await reader.read() == b"line\n"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


def test_on_another_loop_they_are_those_of_asyncio() -> None:
    async def main() -> None:
        server = await whorl.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        reader, writer = await whorl.open_connection(*server.sockets[0].getsockname())
        assert type(reader) is asyncio.StreamReader
        assert type(writer) is asyncio.StreamWriter
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        server.close()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main())
