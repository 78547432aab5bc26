"""The attributes that programs set on asyncio's objects, and the methods that they replace in its classes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import turns
from tests.aio.tls_contexts import client_context, server_context

pytestmark = pytest.mark.usefixtures("no_leak")

#: Names that programs have set, and one that only this test knows.
INVENTED = {"data", "handle", "loop", "ref", "serial", "set_by_this_test"}
#: asyncio's public classes, in which programs replace methods.
BASES = (
    asyncio.BaseTransport,
    asyncio.ReadTransport,
    asyncio.WriteTransport,
    asyncio.Transport,
    asyncio.DatagramTransport,
    asyncio.SubprocessTransport,
    asyncio.AbstractEventLoop,
    asyncio.AbstractServer,
)
LOOPS: dict[str, Callable[[], Any]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "whorl": whorl.EventLoop,
    "own tasks": lambda: whorl.new_event_loop(tasks="compiled"),
}

Look = Callable[[dict[str, Any]], Any]


def seen_on(make_loop: Callable[[], Any], look: Look) -> Any:
    """Return the findings of `look` among one object of each kind."""

    async def use() -> Any:
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            found = {"loop": loop, **await objects(loop, stack)}
            return look(found)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(use())


async def objects(loop: Any, stack: contextlib.AsyncExitStack) -> dict[str, Any]:
    """Return an object of each kind by name; all are closed with the stack."""
    found: dict[str, Any] = {}
    found["server"] = await stack.enter_async_context(await loop.create_server(Closing, "127.0.0.1", 0))
    secure = await loop.create_server(Closing, "127.0.0.1", 0, ssl=server_context())
    await stack.enter_async_context(secure)
    stack.push_async_callback(turns, 10)  # Transports and protocols hear of the end.

    def closed(transport: Any) -> Any:
        stack.callback(lambda: type(transport).close(transport))
        return transport

    address = found["server"].sockets[0].getsockname()
    found["socket"] = closed((await loop.create_connection(Closing, *address))[0])
    reader, writer = await asyncio.open_connection(*address)
    closed(writer.transport)
    found |= {"reader": reader, "writer": writer, "socket object": writer.get_extra_info("socket")}
    tls = {"ssl": client_context(), "server_hostname": "localhost"}
    found["tls"] = closed((await loop.create_connection(Closing, *secure.sockets[0].getsockname(), **tls))[0])
    endpoint = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    found["datagrams"] = closed(endpoint[0])
    ends = os.pipe()
    found["read pipe"] = closed((await loop.connect_read_pipe(Closing, os.fdopen(ends[0], "rb", 0)))[0])
    found["write pipe"] = closed((await loop.connect_write_pipe(Closing, os.fdopen(ends[1], "wb", 0)))[0])
    process = await asyncio.create_subprocess_exec("true", stdin=asyncio.subprocess.PIPE)
    await process.communicate()
    found |= {"process": process, "program": process._transport}  # type: ignore[attr-defined]
    found["future"] = loop.create_future()
    found["task"] = loop.create_task(asyncio.sleep(3600))
    stack.callback(found["task"].cancel)
    found["handle"] = loop.call_soon(int)
    found["timer"] = loop.call_later(3600, int)
    stack.callback(type(found["timer"]).cancel, found["timer"])
    return found


class Closing(asyncio.Protocol):
    """A protocol that ends with its peer."""


def public_names(thing: Any) -> set[str]:
    """Return the public names of an object."""
    return {name for name in dir(thing) if not name.startswith("_")}


def set_and_deleted(found: dict[str, Any]) -> dict[tuple[str, str], bool]:
    """Return which attributes can be set, read back, and deleted again."""
    answers = {}
    for kind, thing in found.items():
        for name in public_names(thing) | INVENTED:
            mark = object()
            try:
                setattr(thing, name, mark)
                is_set = getattr(thing, name) is mark
                delattr(thing, name)
            except (AttributeError, TypeError):
                is_set = False
            answers[kind, name] = is_set
    return answers


@pytest.mark.parametrize("loop_name", ["whorl", "own tasks"])
def test_attributes_that_asyncio_lets_programs_set_can_be_set(loop_name: str) -> None:
    expected = seen_on(LOOPS["asyncio"], set_and_deleted)
    ours = seen_on(LOOPS[loop_name], set_and_deleted)
    assert len({kind for kind, _ in expected}) == 16
    can_be_set = {place for place, is_set in expected.items() if is_set}
    assert {("socket", "loop"), ("datagrams", "loop"), ("read pipe", "loop")} <= can_be_set
    assert {place for place in can_be_set if not ours.get(place, True)} == set()


@pytest.mark.parametrize("kind", ["socket", "datagrams", "read pipe", "write pipe"])
def test_a_transports_loop_is_its_own_after_a_program_has_used_the_name(kind: str) -> None:
    def look(found: dict[str, Any]) -> None:
        thing = found[kind]
        assert thing.loop is found["loop"]
        thing.loop = "mine"
        assert thing.loop == "mine"
        assert repr(thing)
        del thing.loop
        assert thing.loop is found["loop"]

    seen_on(whorl.EventLoop, look)


def replaced(found: dict[str, Any]) -> dict[tuple[str, str, str], bool]:
    """Return for each class, kind and name whether a function that is put into the class is the method."""
    answers = {}
    for kind, thing in found.items():
        for base in BASES:
            for name in public_names(base) | {"__aenter__", "__aexit__"}:
                if hasattr(thing, name):
                    answers[base.__name__, kind, name] = is_replaced_by(base, thing, name)
    return answers


def is_replaced_by(base: Any, thing: Any, name: str) -> bool:
    """Return whether a function in a class is the method of an object; once it is gone, it must not be."""

    def function(*args: object) -> None:
        """Do nothing."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, name, function, raising=False)
        is_seen = getattr(getattr(thing, name, None), "__func__", None) is function
    assert getattr(getattr(thing, name, None), "__func__", None) is not function
    return is_seen


def test_methods_replaced_in_asyncios_classes_are_called() -> None:
    expected = seen_on(LOOPS["asyncio"], replaced)
    ours = seen_on(LOOPS["whorl"], replaced)
    are_replaced = {place for place, is_seen in expected.items() if is_seen}
    assert ("Transport", "socket", "get_extra_info") in are_replaced
    assert ("AbstractServer", "server", "__aenter__") in are_replaced
    missed = {place for place in are_replaced if not ours.get(place, True)}
    if sys.version_info < (3, 12):  # The method of asyncio's socket transports came with Python 3.12.
        missed -= {(base.__name__, "socket", "writelines") for base in BASES}
        missed -= {(base.__name__, "datagrams", "writelines") for base in BASES}
    assert missed == set()


def test_a_replaced_method_of_asyncios_class_gets_the_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(found: dict[str, Any]) -> Any:
        monkeypatch.setattr(asyncio.Transport, "get_extra_info", lambda *args: args)
        answer = found["socket"].get_extra_info("sockname")
        monkeypatch.undo()
        assert isinstance(found["socket"].get_extra_info("socket").fileno(), int)
        return answer == (found["socket"], "sockname")

    assert seen_on(whorl.EventLoop, ask) is seen_on(asyncio.SelectorEventLoop, ask) is True


async def test_a_connection_that_cannot_be_watched_is_lost_with_the_error(
    loop: whorl.EventLoop, tmp_path: Any
) -> None:
    class Odd(socket.socket):
        """A socket whose descriptor is a file's."""

        def fileno(self) -> int:
            return opened.fileno()

    class Noting(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(exc)

    lost: list[Exception | None] = []
    ours, peer = socket.socketpair()
    with (tmp_path / "file").open("wb") as opened, peer, Odd(fileno=ours.detach()) as odd:
        with pytest.raises(PermissionError) as caught:
            await loop.create_connection(Noting, sock=odd)
        while not lost:
            await asyncio.sleep(0)
        assert lost == [caught.value]
