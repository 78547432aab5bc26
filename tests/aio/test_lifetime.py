"""A loop that is closed is freed with the last reference to it, not by a later garbage collection.

asyncio's is. Programs that make many loops live from it, and tests that look for reference cycles.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.tls_contexts import client_context, server_context


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def sleep(_: Path) -> None:
    await asyncio.sleep(0.001)


async def use_threads(_: Path) -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, loop.call_soon_threadsafe, int)
    await loop.shutdown_default_executor()


async def watch(_: Path) -> None:
    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    with ours, theirs:
        loop.add_reader(ours, int)
        loop.add_writer(ours, int)
        await asyncio.sleep(0)
        loop.remove_reader(ours)
        loop.remove_writer(ours)


async def use_sockets(_: Path) -> None:
    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        reading = asyncio.create_task(loop.sock_recv(ours, 10))
        await asyncio.sleep(0)
        theirs.send(b"x")
        assert await reading == b"x"


async def serve(address: Any, connect: Any, start: Any, **options: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await start(answer, *address, **options.get("server", {}))
    target = server.sockets[0].getsockname()
    reader, writer = await connect(
        *(target if isinstance(target, tuple) else [target]), **options.get("client", {})
    )
    writer.write(b"line\n")
    assert await reader.read() == b"line\n"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def serve_tcp(_: Path) -> None:
    await serve(("127.0.0.1", 0), asyncio.open_connection, asyncio.start_server)


async def serve_tls(_: Path) -> None:
    options = {
        "server": {"ssl": server_context()},
        "client": {"ssl": client_context(), "server_hostname": "localhost"},
    }
    await serve(("127.0.0.1", 0), asyncio.open_connection, asyncio.start_server, **options)


async def serve_unix(folder: Path) -> None:
    await serve((str(folder / "s"),), asyncio.open_unix_connection, asyncio.start_unix_server)


async def send_datagrams(_: Path) -> None:
    loop = asyncio.get_running_loop()
    endpoint, _protocol = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    endpoint.sendto(b"x", endpoint.get_extra_info("sockname"))
    await asyncio.sleep(0.001)
    endpoint.close()
    await asyncio.sleep(0)


async def run_program(_: Path) -> None:
    process = await asyncio.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)
    await process.communicate()


async def take_signals(_: Path) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, int)
    loop.remove_signal_handler(signal.SIGUSR1)


async def leave_callbacks(_: Path) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(100, loop.create_future().cancel)
    loop.call_soon(int)


USES = [
    sleep,
    use_threads,
    watch,
    use_sockets,
    serve_tcp,
    serve_tls,
    serve_unix,
    send_datagrams,
    run_program,
    take_signals,
    leave_callbacks,
]


@pytest.mark.parametrize("make", [asyncio.SelectorEventLoop, whorl.EventLoop], ids=["asyncio", "whorl"])
@pytest.mark.parametrize("use", USES)
def test_a_loop_that_is_closed_is_freed_at_once(
    make: Callable[[], asyncio.AbstractEventLoop], use: Callable[[Path], Awaitable[None]], tmp_path: Path
) -> None:
    with asyncio.Runner(loop_factory=make) as runner:
        loop = weakref.ref(runner.get_loop())
        runner.run(use(tmp_path))  # type: ignore[arg-type]
    del runner
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio-waitpid"):
            thread.join()  # Before Python 3.12 asyncio waits for children in threads, which know the loop.
    assert loop() is None


def test_a_loop_that_never_ran_is_freed_at_once() -> None:
    loop = whorl.EventLoop()
    freed = weakref.ref(loop)
    loop.close()
    del loop
    assert freed() is None


def test_a_machine_is_freed_at_once() -> None:
    loop = whorl.Loop()
    loop.call_soon(int)
    loop.run()
    freed = weakref.ref(loop)
    loop.close()
    del loop
    assert freed() is None
