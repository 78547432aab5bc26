"""Readers of asyncio's that transports write to directly: what a program could notice is as in asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import socket
import subprocess
import sys
import weakref
from asyncio import tasks
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.conftest import Connect
from tests.children import bare_environment

name: contextvars.ContextVar[str] = contextvars.ContextVar("name")


async def adopted(connect: Connect, **options: Any) -> tuple[Any, Any, Any, socket.socket]:
    """Return a reader, its protocol and their transport, and the peer's socket."""
    reader = asyncio.StreamReader(**options)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, peer = await connect("tcp", protocol)
    return reader, protocol, transport, peer


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


async def waits(reader: Any) -> None:
    """Return when a task waits for the reader's data."""
    await until(lambda: reader._waiter is not None)


async def test_replaced_data_received_is_called_until_it_is_restored(connect: Connect) -> None:
    reader, protocol, _, peer = await adopted(connect)
    seen: list[bytes] = []
    with mock.patch.object(protocol, "data_received", seen.append):
        peer.sendall(b"theirs")
        await until(lambda: seen)
    peer.sendall(b"ours")
    assert await reader.read(10) == b"ours"
    assert seen == [b"theirs"]


async def test_data_received_replaced_before_the_connection_is_called(connect: Connect) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    seen: list[bytes] = []
    protocol.data_received = seen.append  # type: ignore[method-assign]
    _, peer = await connect("tcp", protocol)
    peer.sendall(b"theirs")
    await until(lambda: seen)
    assert seen == [b"theirs"]


async def test_a_method_that_was_not_replaced_cannot_be_put_back(connect: Connect) -> None:
    reader, _, _, _ = await adopted(connect)
    with pytest.raises(AttributeError):
        del reader.feed_data


async def test_wrapped_feed_data_sees_all_data(connect: Connect) -> None:
    reader, _, _, peer = await adopted(connect)
    feed = reader.feed_data
    seen: list[bytes] = []

    def watch(data: bytes) -> None:
        seen.append(data)
        feed(data)

    reader.feed_data = watch
    peer.sendall(b"data")
    assert await reader.read(10) == b"data"
    assert seen == [b"data"]


@pytest.mark.parametrize("method", ["eof_received", "feed_eof", "_wakeup_waiter"])
async def test_the_end_of_data_reaches_a_replaced_method(
    loop: whorl.EventLoop, connect: Connect, method: str
) -> None:
    reader, protocol, _, peer = await adopted(connect)
    owner = protocol if method == "eof_received" else reader
    original, seen = getattr(owner, method), []

    def watch() -> object:
        seen.append(method)
        return original()

    setattr(owner, method, watch)
    reading = loop.create_task(reader.read())
    await waits(reader)
    peer.shutdown(socket.SHUT_WR)
    assert await reading == b""
    assert seen[:1] == [method]


async def test_the_end_of_data_reaches_a_method_that_was_replaced_in_the_class(connect: Connect) -> None:
    reader, _, _, peer = await adopted(connect)
    seen: list[Any] = []
    original = asyncio.StreamReaderProtocol.eof_received

    def watch(protocol: Any) -> bool | None:
        seen.append(protocol)
        return original(protocol)

    with mock.patch.object(asyncio.StreamReaderProtocol, "eof_received", watch):
        peer.shutdown(socket.SHUT_WR)
        assert await reader.read() == b""
    assert len(seen) == 1


async def test_the_end_of_data_leaves_the_transport_open(connect: Connect) -> None:
    reader, _, transport, peer = await adopted(connect)
    peer.shutdown(socket.SHUT_WR)
    assert await reader.read() == b""
    assert reader.at_eof()
    assert not transport.is_closing()
    transport.write(b"answer")
    assert await asyncio.get_running_loop().sock_recv(peer, 10) == b"answer"


async def test_waiting_for_data_makes_no_future(loop: whorl.EventLoop, connect: Connect) -> None:
    reader, _, _, peer = await adopted(connect)
    with mock.patch.object(loop, "create_future", side_effect=AssertionError):
        for _ in range(5):
            reading = loop.create_task(reader.read(4))
            await waits(reader)
            peer.sendall(b"data")
            await until(reading.done)
            assert reading.result() == b"data"


async def test_a_reader_goes_on_in_the_next_turn_in_order(loop: whorl.EventLoop, connect: Connect) -> None:
    reader, _, _, _ = await adopted(connect)
    order: list[Any] = []

    async def read() -> None:
        order.append(await reader.read(4))

    reading = loop.create_task(read())
    await waits(reader)
    loop.call_soon(order.append, "before")
    reader.feed_data(b"data")
    loop.call_soon(order.append, "after")
    assert order == []
    await reading
    await asyncio.sleep(0)
    assert order == ["before", b"data", "after"]


@pytest.mark.parametrize("debug", [False, True])
async def test_reading_task_goes_on_in_its_own_context(
    loop: whorl.EventLoop, connect: Connect, debug: bool
) -> None:
    loop.set_debug(debug)
    reader, _, _, peer = await adopted(connect)
    name.set("outside")

    async def read() -> str:
        name.set("inside")
        await reader.readexactly(4)
        return name.get()

    reading = loop.create_task(read())
    await waits(reader)
    peer.sendall(b"data")
    assert await reading == "inside"
    assert name.get() == "outside"


async def test_a_cancelled_read_leaves_the_data_for_the_next(loop: whorl.EventLoop, connect: Connect) -> None:
    reader, _, _, peer = await adopted(connect)
    for call in (reader.read(4), reader.readexactly(4), reader.readuntil(b"|")):
        reading = loop.create_task(call)
        await waits(reader)
        reading.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await reading
        assert reader._waiter is None
    peer.sendall(b"data")
    assert await reader.readexactly(4) == b"data"


async def test_data_that_came_before_the_cancellation_is_kept(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    reader, _, _, _ = await adopted(connect)
    reading = loop.create_task(reader.read(4))
    await waits(reader)
    reader.feed_data(b"data")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await reader.read(4) == b"data"


async def test_data_for_a_read_that_was_just_cancelled_is_kept(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    reader, _, _, _ = await adopted(connect)
    reading = loop.create_task(reader.read(4))
    await waits(reader)
    reading.cancel()
    reader.feed_data(b"data")
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await reader.read(4) == b"data"


@pytest.mark.parametrize("messages", [["late"], ["early", "late"]])
async def test_read_cancelled_after_the_data_came_gets_the_last_message(
    loop: whorl.EventLoop, connect: Connect, messages: list[str]
) -> None:
    reader, _, _, _ = await adopted(connect)
    reading = loop.create_task(reader.read(4))
    await waits(reader)
    reader.feed_data(b"data")
    for message in messages:
        assert reading.cancel(message)
    with pytest.raises(asyncio.CancelledError) as caught:
        await reading
    assert caught.value.args == ("late",)


async def test_a_cancellation_that_is_taken_back_in_time_is_none_since_3_13(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    reader, _, _, _ = await adopted(connect)
    reading = loop.create_task(reader.read(4))
    await waits(reader)
    reader.feed_data(b"data")
    reading.cancel()
    reading.uncancel()
    if sys.version_info >= (3, 13):
        assert await reading == b"data"
    else:
        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_a_reader_keeps_no_task_that_waited(loop: whorl.EventLoop, connect: Connect) -> None:
    reader, _, _, _ = await adopted(connect)
    reading = loop.create_task(reader.read(4))
    await waits(reader)
    reader.feed_data(b"data")
    assert await reading == b"data"
    last = weakref.ref(reading)
    del reading
    await asyncio.sleep(0)  # The running callback was called with it.
    gc.collect()
    assert last() is None
    assert reader.at_eof() is False


async def test_an_abandoned_read_is_no_hindrance(connect: Connect) -> None:
    reader, _, _, _ = await adopted(connect)
    reading = reader.read(4)
    reading.send(None)
    reading.close()
    reader.feed_data(b"data")
    assert await reader.read(4) == b"data"


async def test_an_error_and_the_end_wake_the_reader(loop: whorl.EventLoop, connect: Connect) -> None:
    reader, _, _, _ = await adopted(connect)
    reading = loop.create_task(reader.read(4))
    await waits(reader)
    reader.set_exception(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await reading
    with pytest.raises(ValueError, match="broken"):
        await reader.readline()
    reader, _, _, _ = await adopted(connect)
    reading = loop.create_task(reader.read(4))
    await waits(reader)
    reader.feed_eof()
    assert await reading == b""
    assert reader.at_eof()


@pytest.mark.parametrize("limit", [2**100, float("inf"), sys.maxsize])
async def test_a_limit_may_be_any_number(connect: Connect, limit: Any) -> None:
    reader, _, _, peer = await adopted(connect, limit=limit)
    assert reader._limit == limit
    peer.sendall(b"line\nrest")
    assert await reader.readline() == b"line\n"
    assert await reader.readuntil(b"st") == b"rest"
    reader._limit = 2
    peer.sendall(b"another\n")
    with pytest.raises(ValueError, match="longer than limit"):
        await reader.readline()


async def test_private_attributes_of_a_reader_keep_their_meaning(connect: Connect) -> None:
    reader, _, transport, _ = await adopted(connect)
    assert reader._transport is transport
    assert reader._eof is False
    assert reader._paused is False
    assert reader._exception is None
    reader._exception = ValueError("set")
    with pytest.raises(ValueError, match="set"):
        await reader.read(1)


async def test_a_future_that_somebody_else_waits_with_is_woken(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    reader, _, _, peer = await adopted(connect)
    waiter = reader._waiter = loop.create_future()
    peer.sendall(b"data")
    await waiter
    assert reader._waiter is None


@pytest.mark.parametrize("kind", ["streams", "sockets"])
async def test_tasks_written_in_python_wait_as_well(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    if kind == "streams":
        reader, _, _, peer = await adopted(connect)
        reading = tasks._PyTask(reader.readexactly(8), loop=loop)  # type: ignore[attr-defined]
        await waits(reader)
    else:
        near, peer = socket.socketpair()
        near.setblocking(False)
        reading = tasks._PyTask(loop.sock_recv(near, 8), loop=loop)  # type: ignore[attr-defined]
        await asyncio.sleep(0)
    with peer:
        peer.sendall(b"all of 8")
        assert await reading == b"all of 8"
    if kind == "sockets":
        near.close()


async def test_receiving_from_a_socket_again_and_again(loop: whorl.EventLoop) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        for number in range(20):
            receiving = loop.create_task(loop.sock_recv(near, 10))
            await asyncio.sleep(0)
            if number % 5 == 3:
                receiving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await receiving
                continue
            far.sendall(b"%d" % number)
            assert await receiving == b"%d" % number


def test_futures_and_tasks_may_have_been_replaced_by_those_in_python_before() -> None:
    program = """
import asyncio
asyncio.Future = asyncio.futures.Future = asyncio.futures._PyFuture
asyncio.Task = asyncio.tasks.Task = asyncio.tasks._PyTask
import whorl

async def main():
    async def serve(reader, writer):
        writer.write(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    asyncio.get_running_loop().call_later(0.01, writer.write, b"question")
    print(await reader.read())
    writer.close()
    server.close()

whorl.run(main())
"""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (answer.stdout, answer.stderr) == ("b'question'\n", "")
