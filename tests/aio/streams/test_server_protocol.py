"""The protocols of asyncio's stream servers: ours from the beginning, and otherwise what asyncio makes."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from asyncio import streams
from pathlib import Path
from typing import Any

import pytest

import whorl
from whorl.aio.streams.reader_writer import StreamReader, StreamWriter, _ReleasedTransport
from whorl.aio.streams.server_protocol import StreamProtocols

pytestmark = pytest.mark.usefixtures("no_leak")


async def answer(reader: Any, writer: Any) -> None:
    writer.write(await reader.read(100))
    writer.close()


async def start(kind: str, path: Path, serve: Any = answer, **options: Any) -> Any:
    if kind == "unix":
        return await asyncio.start_unix_server(serve, path / "socket", **options)
    return await asyncio.start_server(serve, "127.0.0.1", 0, **options)


async def ask(server: Any) -> bytes:
    """Return the server's answer to a word on a new connection."""
    address = server.sockets[0].getsockname()
    if isinstance(address, str):
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        reader, writer = await asyncio.open_connection(*address)
    writer.write(b"word")
    answered = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answered


async def end(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()


async def test_a_server_makes_what_asyncio_makes_and_our_adoption_leaves(
    loop: whorl.EventLoop, kind: str, tmp_path: Path
) -> None:
    server = await start(kind, tmp_path, limit=1000)
    factory = server._protocol_factory
    assert type(factory) is StreamProtocols
    ours, theirs = factory(), factory._factory()
    readers = ours._stream_reader, theirs._stream_reader
    assert type(ours) is type(theirs) is streams.StreamReaderProtocol
    assert list(vars(ours)) == list(vars(theirs))
    differ = {name for name in vars(ours) if vars(ours)[name] != vars(theirs)[name]}
    assert differ == {"_closed", "_stream_reader_wr", "_strong_reader"}
    assert not ours._closed.done()
    assert ours._client_connected_cb is answer
    assert type(readers[0]) is StreamReader
    for name in ("_limit", "_loop", "_buffer", "_eof", "_waiter", "_exception", "_transport", "_paused"):
        assert getattr(readers[0], name) == getattr(readers[1], name)
    assert await ask(server) == b"word"
    await end(server)


async def test_two_protocols_share_nothing_that_changes(kind: str, tmp_path: Path) -> None:
    server = await start(kind, tmp_path)
    one, other = server._protocol_factory(), server._protocol_factory()
    assert one._drain_waiters is not other._drain_waiters
    assert one._closed is not other._closed
    assert one._stream_reader is not other._stream_reader
    assert one._stream_reader._received is not other._stream_reader._received
    await end(server)


async def test_a_protocol_that_nobody_uses_goes_with_its_reader(kind: str, tmp_path: Path) -> None:
    server = await start(kind, tmp_path)
    reader = weakref.ref(server._protocol_factory()._stream_reader)
    gc.collect()
    assert reader() is None
    await end(server)


@pytest.mark.parametrize("name", ["StreamReader", "StreamReaderProtocol"])
@pytest.mark.parametrize("early", [True, False])
async def test_a_class_that_was_replaced_is_used(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, early: bool
) -> None:
    made = []

    class Own(getattr(streams, name)):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            made.append(self)
            super().__init__(*args, **options)

    if early:
        monkeypatch.setattr(streams, name, Own)
    server = await start(kind, tmp_path)
    monkeypatch.setattr(streams, name, Own)
    made.clear()
    protocol = server._protocol_factory()
    assert made == [protocol if name == "StreamReaderProtocol" else protocol._stream_reader]
    assert await ask(server) == b"word"
    await end(server)


@pytest.mark.parametrize("owner", [streams.StreamReader, streams.StreamReaderProtocol])
async def test_a_constructor_that_was_replaced_is_called(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any
) -> None:
    server = await start(kind, tmp_path)
    made = []
    original = owner.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        made.append(self)
        original(self, *args, **options)

    monkeypatch.setattr(owner, "__init__", init)
    protocol = server._protocol_factory()
    assert made == [protocol if owner is streams.StreamReaderProtocol else protocol._stream_reader]
    assert await ask(server) == b"word"
    await end(server)


async def test_in_debug_mode_asyncios_own_factory_is_asked(
    loop: whorl.EventLoop, kind: str, tmp_path: Path
) -> None:
    server = await start(kind, tmp_path)
    loop.set_debug(True)
    try:
        protocol = server._protocol_factory()
        assert protocol._source_traceback  # where the reader was made
        late = await start("tcp", tmp_path)
        assert type(late._protocol_factory) is not StreamProtocols
        await end(late)
    finally:
        loop.set_debug(False)
    await end(server)


async def test_factories_of_others_are_left_alone(loop: whorl.EventLoop) -> None:
    def factory() -> Any:
        reader = asyncio.StreamReader(loop=loop)
        return asyncio.StreamReaderProtocol(reader, answer, loop=loop)

    server: Any = await loop.create_server(factory, "127.0.0.1", 0)
    assert server._protocol_factory is factory
    assert await ask(server) == b"word"
    await end(server)


async def test_a_limit_that_no_reader_can_have_fails_the_connections_only(
    loop: whorl.EventLoop, kind: str, tmp_path: Path
) -> None:
    server = await start(kind, tmp_path, limit=0)
    with pytest.raises(ValueError, match="Limit"):
        server._protocol_factory()
    await end(server)


@pytest.mark.parametrize("limit", [1, 2.5, 1 << 70, float("inf")])
async def test_start_server_accepts_any_other_limit(kind: str, tmp_path: Path, limit: Any) -> None:
    server = await start(kind, tmp_path, limit=limit)
    assert server._protocol_factory()._stream_reader._limit == limit
    assert await ask(server) == b"word"
    await end(server)


async def test_a_server_gets_a_writer_of_ours_and_no_other_is_made(kind: str, tmp_path: Path) -> None:
    found = []

    async def serve(reader: Any, writer: Any) -> None:
        gc.collect()
        assert vars(writer._protocol).get("_stream_writer", writer) in (writer, None)
        found.append((type(writer), list(vars(writer))))
        await answer(reader, writer)

    server = await start(kind, tmp_path, serve)
    assert await ask(server) == b"word"
    model = streams.StreamWriter(_ReleasedTransport(), None, None, asyncio.get_running_loop())  # type: ignore[arg-type]
    assert found == [(StreamWriter, list(vars(model)))]
    await end(server)


async def test_a_writer_with_an_attribute_more_stays_as_it_is(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    made = streams.StreamWriter.__init__

    def make(self: Any, *args: Any) -> None:
        made(self, *args)
        self.more = 1

    async def serve(reader: Any, writer: Any) -> None:
        given.append(type(writer))
        await answer(reader, writer)

    server = await start(kind, tmp_path, serve)
    monkeypatch.setattr(streams.StreamWriter, "__init__", make)
    assert await ask(server) == b"word"
    assert given == [streams.StreamWriter]
    await end(server)


async def test_a_writer_class_that_was_replaced_is_used(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    class Own(streams.StreamWriter):
        pass

    async def serve(reader: Any, writer: Any) -> None:
        given.append(type(writer))
        await answer(reader, writer)

    server = await start(kind, tmp_path, serve)
    monkeypatch.setattr(streams, "StreamWriter", Own)
    assert await ask(server) == b"word"
    assert given == [Own]
    await end(server)


@pytest.mark.parametrize("on_instance", [True, False])
async def test_a_connection_made_that_was_replaced_is_called(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch, on_instance: bool
) -> None:
    calls = []
    original: Any = streams.StreamReaderProtocol.connection_made

    def connection_made(self: Any, transport: Any) -> None:
        calls.append(self)
        original(self, transport)

    def factory() -> Any:
        protocol: Any = asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), answer, loop=loop)
        if on_instance:
            protocol.connection_made = connection_made.__get__(protocol)
        return protocol

    if not on_instance:
        monkeypatch.setattr(streams.StreamReaderProtocol, "connection_made", connection_made)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    assert await ask(server) == b"word"
    assert len(calls) == (1 if on_instance else 2)  # The client's end is a stream, too.
    await end(server)


async def test_an_error_in_a_servers_callback_is_reported_as_asyncio_reports_it(
    kind: str, tmp_path: Path
) -> None:
    def fail(reader: Any, writer: Any) -> None:
        writer.close()
        raise ValueError("broken")

    async def fail_later(reader: Any, writer: Any) -> None:
        fail(reader, writer)

    async def reports(serve: Any, place: Path) -> list[Any]:
        found: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: found.append(context))
        server = await start(kind, place, serve)
        address = server.sockets[0].getsockname()
        opened: Any = asyncio.open_unix_connection if kind == "unix" else asyncio.open_connection
        _, writer = await (opened(address) if kind == "unix" else opened(*address))
        while not found:
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()
        await end(server)
        loop.set_exception_handler(None)
        texts = [re.sub("0x[0-9a-f]+|<_Sel.*>", "", context["message"]) for context in found]
        return [(text, str(c["exception"]), sorted(c)) for text, c in zip(texts, found, strict=True)]

    def on_asyncio(serve: Any, place: Path) -> list[Any]:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(reports(serve, place))

    for number, serve in enumerate((fail, fail_later)):
        for name in ("ours", "theirs"):
            (tmp_path / f"{number}{name}").mkdir()
        ours = await reports(serve, tmp_path / f"{number}ours")
        theirs = await asyncio.to_thread(on_asyncio, serve, tmp_path / f"{number}theirs")
        assert ours == theirs
