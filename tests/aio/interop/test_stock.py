"""Whorl's assumptions about CPython hold on this Python, and no longer after a replacement."""

from __future__ import annotations

import asyncio
import socket
from asyncio import futures, streams
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, thread
from types import FunctionType, MethodType
from typing import Any
from unittest import mock

import pytest

import whorl
from whorl.aio.interop import stock
from whorl.aio.streams import reader_writer

pytestmark = pytest.mark.usefixtures("no_leak")


class NotingLoop(asyncio.SelectorEventLoop):
    """A loop that makes no server, but returns the factory of its protocols."""

    async def create_server(self, factory: Any, *args: Any, **options: Any) -> Any:
        return factory

    async def create_connection(self, factory: Any, *args: Any, **options: Any) -> Any:
        self.factory = factory
        raise ConnectionError

    create_unix_connection = create_connection

    async def create_unix_server(self, factory: Any, *args: Any, **options: Any) -> Any:
        return factory


async def answer(reader: Any, writer: Any) -> None:
    """Do nothing, as the handler of a server."""


def server_factory(start: Callable[..., Any] = streams.start_server) -> Any:
    """Return the factory of protocols that asyncio gives a loop."""
    with asyncio.Runner(loop_factory=NotingLoop) as runner:
        return runner.run(start(answer))


def has_stock_protocol_attributes() -> bool:
    return stock.has_stock_protocol_attributes(server_factory()(), answer)


def is_stock_server_factory() -> bool:
    factories = map(server_factory, (streams.start_server, streams.start_unix_server))
    return all(map(stock.is_stock_server_factory, factories))


def is_stock_client_factory() -> bool:
    factories: list[Any] = []
    with asyncio.Runner(loop_factory=NotingLoop) as runner:
        for function in (streams.open_connection, streams.open_unix_connection):
            with pytest.raises(ConnectionError):
                runner.run(function())
            factories.append(runner.get_loop().factory)  # type: ignore[attr-defined]
    return all(map(stock.is_stock_client_factory, factories))


def has_stock_end_of_data() -> bool:
    protocol = mock.Mock()
    protocol.eof_received = MethodType(streams.StreamReaderProtocol.eof_received, protocol)
    return stock.has_stock_end_of_data(protocol)


def is_stock_submit() -> bool:
    return stock.is_stock_submit(ThreadPoolExecutor.submit)


def is_stock_executor() -> bool:
    with ThreadPoolExecutor(1) as executor:
        return stock.is_stock_executor(executor)


def is_stock_socket() -> bool:
    with socket.socket() as sock:
        return stock.is_stock_socket(sock)


def has_stock_connection_methods() -> bool:
    return stock.has_stock_connection_methods(whorl.EventLoop)


def and_one_more(function: Any) -> Any:
    """Return what does the same, and gives its first argument another attribute."""

    def call(self: Any, *args: Any, **options: Any) -> None:
        function(self, *args, **options)
        self.more = 1

    return call


Question = Callable[[], bool]

# Each question, and what may be replaced so that the answer is no.
ASSUMPTIONS: dict[Question, list[tuple[Any, str]]] = {
    stock.has_stock_stream_methods: [
        (owner, name)
        for owner, names in (
            (streams.StreamReader, sorted(vars(reader_writer.StreamReader))),  # each that our reader replaces
            (streams.StreamReader, ["_wakeup_waiter"]),
            (
                streams.StreamReaderProtocol,
                ["connection_made", "data_received", "eof_received", "_stream_reader"],
            ),
            (streams.StreamWriter, ["drain", "__init__", "__del__"]),
        )
        for name in names
        if name in vars(owner) and (owner is not streams.StreamReader or not name.startswith("__"))
    ],
    stock.has_stock_stream_constructors: [
        (streams, "StreamReader"),
        (streams, "StreamReaderProtocol"),
        (streams.StreamReader, "__init__"),
        (streams.StreamReader, "__setattr__"),
        (streams.StreamReaderProtocol, "__init__"),
        (streams.StreamReaderProtocol, "__setattr__"),
        (streams.StreamReaderProtocol, "_stream_reader"),
        (streams.FlowControlMixin, "__init__"),
    ],
    stock.has_stock_reader_attributes: [(streams.StreamReader, "__init__")],
    stock.has_stock_writer_attributes: [(streams.StreamWriter, "__init__")],
    has_stock_protocol_attributes: [
        (streams.StreamReader, "__init__"),
        (streams.StreamReaderProtocol, "__init__"),
    ],
    has_stock_end_of_data: [(streams.StreamReaderProtocol, "eof_received")],
    is_stock_server_factory: [],
    is_stock_client_factory: [],
    is_stock_submit: [(ThreadPoolExecutor, "submit")],
    stock.has_stock_executor_methods: [
        (ThreadPoolExecutor, "submit"),
        (thread._WorkItem, "run"),
        (Future, "set_result"),
    ],
    stock.has_stock_future_chain: [(futures, "_chain_future")],
    is_stock_executor: [
        (ThreadPoolExecutor, "submit"),
        (thread._WorkItem, "run"),
        (Future, "set_result"),
        (futures, "_chain_future"),
    ],
    stock.has_stock_sockets: [
        (socket, "socket"),
        *((socket.socket, name) for name in ("accept", "connect", "recv", "recv_into", "send", "sendmsg")),
    ],
    is_stock_socket: [],
    has_stock_connection_methods: [(whorl.EventLoop, name) for name in stock.CONNECTION_METHODS],
}


@pytest.mark.parametrize("question", ASSUMPTIONS, ids=lambda question: question.__name__)
def test_this_python_is_as_assumed(question: Question) -> None:
    assert question()


@pytest.mark.parametrize(
    ("question", "owner", "name"),
    [
        pytest.param(question, owner, name, id=f"{question.__name__}-{owner.__name__}.{name}")
        for question, replaceable in ASSUMPTIONS.items()
        for owner, name in replaceable
    ],
)
def test_a_replacement_is_noticed_until_it_is_taken_back(
    question: Question, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert question()
    monkeypatch.setattr(owner, name, and_one_more(getattr(owner, name)))
    assert not question()
    monkeypatch.undo()
    assert question()


def test_other_factories_are_not_taken_for_asyncios() -> None:
    factory = server_factory()
    elsewhere = FunctionType(factory.__code__, globals(), closure=factory.__closure__)
    for other in (elsewhere, answer, streams.StreamReaderProtocol, None):
        assert not stock.is_stock_server_factory(other)


def test_another_submit_is_not_taken_for_the_known_one() -> None:
    assert not stock.is_stock_submit(ThreadPoolExecutor.shutdown)


def test_other_executors_are_not_taken_for_the_known_one() -> None:
    class Own(ThreadPoolExecutor):
        """A program's own."""

    with Own(1) as own, ThreadPoolExecutor(1) as patched:
        patched.submit = mock.Mock()  # type: ignore[method-assign]
        for executor in (own, patched, None):
            assert not stock.is_stock_executor(executor)


def test_other_sockets_are_not_taken_for_cpythons() -> None:
    class Own(socket.socket):
        """A program's own."""

    with Own() as own:
        assert not stock.is_stock_socket(own)
