"""Nothing of a loop can be copied or pickled: it is a TypeError, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import turns
from tests.aio.tls_contexts import tls_pair
from whorl import handles

WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {n}": lambda thing, n=n: pickle.dumps(thing, n) for n in (0, 2, pickle.HIGHEST_PROTOCOL)},
}


@pytest.fixture(params=[None, "compiled"])
def loop(request: pytest.FixtureRequest, no_leak: None) -> Iterator[whorl.EventLoop]:
    loop = whorl.new_event_loop(tasks=request.param)
    yield loop
    gc.collect()  # An object that was made in part would complain.
    loop.close()


def refuses(thing: Any) -> bool:
    """Return whether each way to copy a thing is a TypeError that names its class."""
    for way, copied in WAYS.items():
        with pytest.raises(TypeError, match=f"cannot pickle '([a-z_.]+[.])?{type(thing).__name__}' object"):
            pytest.fail(f"{way}: {copied(thing)}")
    return True


async def test_connections_cannot_be_copied(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    transport, _ = await loop.create_connection(asyncio.Protocol, *address)
    endpoint, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    reader, writer = await whorl.open_connection(*address)
    adopted, asyncios_writer = await asyncio.open_connection(*address)
    for thing in (loop, server, transport, endpoint, reader, writer, adopted, writer.transport):
        assert refuses(thing)
    for each in (transport, writer, asyncios_writer):
        each.close()
    endpoint.close()
    server.close()
    server.abort_clients() if hasattr(server, "abort_clients") else None
    await turns(3)


async def test_tls_cannot_be_copied(loop: whorl.EventLoop) -> None:
    async with tls_pair(loop) as (client, server):
        assert refuses(client.transport)
        assert refuses(server.transport)
        assert refuses(client.transport._ssl_protocol)


async def test_pipes_and_programs_cannot_be_copied(loop: whorl.EventLoop) -> None:
    read_end, write_end = os.pipe()
    reading, _ = await loop.connect_read_pipe(asyncio.Protocol, os.fdopen(read_end, "rb", 0))
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write_end, "wb", 0))
    program, _ = await loop.subprocess_exec(
        asyncio.SubprocessProtocol, "/bin/sh", "-c", "exit", stdin=None, stdout=None, stderr=None
    )
    for thing in (reading, writing, program):
        assert refuses(thing)
    await program._wait()  # type: ignore[attr-defined]
    for each in (writing, reading, program):
        each.close()
    await turns(3)


async def test_callbacks_and_own_tasks_cannot_be_copied(loop: whorl.EventLoop) -> None:
    timer = loop.call_later(1, int)
    task = asyncio.ensure_future(asyncio.sleep(0))
    for thing in (loop.call_soon(int), timer, loop.call_soon_threadsafe(int), loop.create_future(), task):
        assert refuses(thing)
    timer.cancel()
    await task


async def test_open_files_cannot_be_copied(loop: whorl.EventLoop) -> None:
    async with await whorl.fs.open(__file__) as file:
        assert refuses(file)


async def test_handles_cannot_be_copied(loop: whorl.EventLoop) -> None:
    kinds: list[Any] = [
        *(handles.Check, handles.FsEvent, handles.FsPoll, handles.Idle, handles.Pipe, handles.Prepare),
        *(handles.Process, handles.Signal, handles.TCP, handles.TTY, handles.Timer, handles.UDP),
    ]
    made = [kind(loop) for kind in kinds] + [handles.Async(loop, print)]
    for thing in (*made, handles.Work(loop, int, lambda *answer: None), handles.thread_pool(loop)):
        assert refuses(thing)
    for handle in made:
        handle.close()
    await turns(3)


def test_a_machine_and_its_poller_cannot_be_copied() -> None:
    machine = whorl.Loop()
    assert refuses(machine)
    assert refuses(machine._poller)
    machine.close()


async def test_figures_are_copied(loop: whorl.EventLoop) -> None:
    metrics = loop.metrics()
    for copied in (copy.copy(metrics), copy.deepcopy(metrics), pickle.loads(pickle.dumps(metrics))):
        assert copied == metrics


async def test_a_subclass_may_say_how_it_is_pickled(loop: whorl.EventLoop) -> None:
    assert pickle.loads(pickle.dumps(Pickled())).__class__ is Pickled


class Pickled(whorl.handles.Timer):
    """A timer that is made anew, on the running loop."""

    def __init__(self) -> None:
        loop: Any = asyncio.get_running_loop()
        super().__init__(loop)
        self.close()

    def __reduce__(self) -> Any:
        return Pickled, ()
