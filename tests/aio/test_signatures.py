"""The classes that stand for asyncio's have its methods, with the same names, arguments and defaults."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import whorl
from whorl.aio.connections.datagram_transport import DatagramTransport
from whorl.aio.connections.pipes import ReadPipeTransport, WritePipeTransport
from whorl.aio.connections.server import Server
from whorl.aio.connections.subprocesses import SubprocessTransport
from whorl.aio.futures.future import Future
from whorl.aio.futures.task import Task
from whorl.aio.streams.reader_writer import StreamReader, StreamWriter
from whorl.aio.transports.public import SocketTransport
from whorl.aio.transports.tls import TLSTransport
from whorl.core import Callback, TimedCallback

# Futures and tasks are compared with those that asyncio has in Python: C's have no names of arguments.
PAIRS: dict[str, tuple[Any, Any]] = {
    "Callback": (Callback, asyncio.Handle),
    "DatagramTransport": (DatagramTransport, asyncio.DatagramTransport),
    "Future": (Future, asyncio.futures._PyFuture),  # type: ignore[attr-defined]
    "ReadPipeTransport": (ReadPipeTransport, asyncio.ReadTransport),
    "Runner": (whorl.Runner, asyncio.Runner),
    "Server": (Server, asyncio.Server),
    "SocketTransport": (SocketTransport, asyncio.Transport),
    "StreamReader": (StreamReader, asyncio.StreamReader),
    "StreamWriter": (StreamWriter, asyncio.StreamWriter),
    "SubprocessTransport": (SubprocessTransport, asyncio.SubprocessTransport),
    "TLSTransport": (TLSTransport, asyncio.Transport),
    "Task": (Task, asyncio.tasks._PyTask),  # type: ignore[attr-defined]
    "TimedCallback": (TimedCallback, asyncio.TimerHandle),
    "WritePipeTransport": (WritePipeTransport, asyncio.WriteTransport),
}
# Some of their methods take the argument by position only, as CPython's compiled classes do.
BY_POSITION = ("Future", "Task")


def parameters(method: Any) -> list[inspect.Parameter]:
    """Return the parameters of a method after the object, without their annotations."""
    found = list(inspect.signature(method).parameters.values())[1:]
    return [one.replace(annotation=one.empty) for one in found]


def named_or_not(found: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return parameters of which those by position only cannot be told from those by name, too."""
    both = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [one.replace(kind=both) if one.kind is one.POSITIONAL_ONLY else one for one in found]


@pytest.mark.parametrize("name", PAIRS)
def test_class_has_the_methods_and_arguments_of_asyncios(name: str) -> None:
    ours, theirs = PAIRS[name]
    methods = [key for key in dir(theirs) if key[0] != "_" and callable(getattr(theirs, key))]
    assert methods
    differences = []
    for method in methods:
        found, expected = parameters(getattr(ours, method)), parameters(getattr(theirs, method))
        if name in BY_POSITION:
            found, expected = named_or_not(found), named_or_not(expected)
        if found != expected:
            differences.append(f"{method}: {[*map(str, found)]}, asyncio: {[*map(str, expected)]}")
    assert differences == []


def test_loop_has_the_methods_and_arguments_of_asyncios() -> None:
    methods = [key for key, value in inspect.getmembers(asyncio.SelectorEventLoop, callable) if key[0] != "_"]
    assert "create_connection" in methods
    for method in methods:
        expected = parameters(getattr(asyncio.SelectorEventLoop, method))
        names = [one.name for one in expected]
        found = parameters(getattr(whorl.EventLoop, method))  # and arguments of newer Pythons
        assert (method, [one for one in found if one.name in names]) == (method, expected)


def test_functions_for_streams_take_what_asyncios_take() -> None:
    for name in ("open_connection", "open_unix_connection", "start_server", "start_unix_server"):
        found = inspect.signature(getattr(whorl, name)).parameters.values()
        expected = inspect.signature(getattr(asyncio, name)).parameters.values()
        assert [(one.kind, one.default) for one in found] == [(one.kind, one.default) for one in expected]


def test_run_takes_the_arguments_of_asyncios_run() -> None:
    ours, theirs = inspect.signature(whorl.run).parameters, inspect.signature(asyncio.run).parameters
    assert {name: one.kind for name, one in ours.items() if name in theirs} == {
        name: one.kind for name, one in theirs.items()
    }
