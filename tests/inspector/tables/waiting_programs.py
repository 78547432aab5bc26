"""Coroutines that wait for something, each with what the inspector is to say of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import whorl

Begin = Callable[[contextlib.AsyncExitStack], Awaitable[Coroutine[Any, Any, Any]]]

#: By name: the kind, a pattern for the text, and a function that prepares and returns the coroutine.
PROGRAMS: dict[str, tuple[str, str, Begin]] = {}

PORT = r"127\.0\.0\.1:\d+"


def program(kind: str, text: str) -> Callable[[Begin], Begin]:
    """Add a program under its name."""

    def add(begin: Begin) -> Begin:
        PROGRAMS[begin.__name__] = (kind, text, begin)
        return begin

    return add


def silent_server(stack: contextlib.AsyncExitStack) -> tuple[str, int]:
    """Return the address of a server that accepts nobody and reads nothing."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    host, port = listener.getsockname()
    return host, port


def socket_pair(stack: contextlib.AsyncExitStack) -> socket.socket:
    """Return a socket that gets nothing."""
    ours, theirs = socket.socketpair()
    stack.enter_context(ours)
    stack.enter_context(theirs)
    ours.setblocking(False)
    return ours


@program("timer", r"a sleep, due in 1 min \d+ s")
async def sleep(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.sleep(100)


@program("timer", r"a timer, due in \d\d s")
async def future_set_by_a_timer(stack: contextlib.AsyncExitStack) -> Any:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    stack.callback(loop.call_later(50, future.set_result, None).cancel)
    return wait_for_it(future)


async def wait_for_it(awaitable: Any) -> Any:
    return await awaitable


@program("future", "a future")
async def future(stack: contextlib.AsyncExitStack) -> Any:
    return wait_for_it(asyncio.get_running_loop().create_future())


@program("lock", r"Lock 0x\w+, 1 task waits")
async def lock(stack: contextlib.AsyncExitStack) -> Any:
    taken = asyncio.Lock()
    await taken.acquire()
    return taken.acquire()


@program("event", r"Event 0x\w+, 1 task waits")
async def event(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.Event().wait()


@program("condition", r"Condition 0x\w+, 1 task waits")
async def condition(stack: contextlib.AsyncExitStack) -> Any:
    async def wait() -> None:
        notified = asyncio.Condition()
        async with notified:
            await notified.wait()

    return wait()


@program("semaphore", r"Semaphore 0x\w+, 1 task waits")
async def semaphore(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.Semaphore(0).acquire()


@program("barrier", r"Barrier 0x\w+, 1 of 3 are there")
async def barrier(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.Barrier(3).wait()


@program("queue", r"an item of Queue 0x\w+, 1 task waits")
async def queue_get(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.Queue[int]().get()


@program("queue", r"room in PriorityQueue 0x\w+, full with 1, 1 task waits")
async def queue_put(stack: contextlib.AsyncExitStack) -> Any:
    queue = asyncio.PriorityQueue[int](1)
    queue.put_nowait(1)
    return queue.put(2)


@program("queue", r"task_done of Queue 0x\w+, 2 items left")
async def queue_join(stack: contextlib.AsyncExitStack) -> Any:
    queue = asyncio.Queue[int]()
    queue.put_nowait(1)
    queue.put_nowait(2)
    return queue.join()


@program("descriptor", rf"data from {PORT} \(fd \d+\)")
async def stream_reader(stack: contextlib.AsyncExitStack) -> Any:
    reader, writer = await asyncio.open_connection(*silent_server(stack))
    stack.callback(writer.close)
    return reader.readline()


@program("descriptor", rf"data from {PORT} \(fd \d+\)")
async def stream_reader_of_any_data(stack: contextlib.AsyncExitStack) -> Any:
    reader, writer = await asyncio.open_connection(*silent_server(stack))
    stack.callback(writer.close)
    return reader.read(5)


@program("descriptor", rf"data from {PORT} \(fd \d+\)")
async def own_stream_reader(stack: contextlib.AsyncExitStack) -> Any:
    reader, writer = await whorl.open_connection(*silent_server(stack))
    stack.callback(writer.close)
    return reader.readexactly(9)


@program("descriptor", rf"room to write to {PORT} \(fd \d+\)")
async def drain(stack: contextlib.AsyncExitStack) -> Any:
    _, writer = await whorl.open_connection(*silent_server(stack))
    stack.callback(writer.transport.abort)
    writer.write(b"x" * 50_000_000)
    return writer.drain()


@program("descriptor", r"data from a UNIX socket \(fd \d+\)")
async def sock_recv(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.get_running_loop().sock_recv(socket_pair(stack), 10)


@program("descriptor", r"data from a UNIX socket \(fd \d+\)")
async def sock_recv_into(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.get_running_loop().sock_recv_into(socket_pair(stack), bytearray(10))


@program("descriptor", rf"data from {PORT} \(fd \d+\)")
async def sock_recv_of_a_connection(stack: contextlib.AsyncExitStack) -> Any:
    client = stack.enter_context(socket.create_connection(silent_server(stack)))
    client.setblocking(False)
    return asyncio.get_running_loop().sock_recv(client, 10)


@program("descriptor", r"room to write to a UNIX socket \(fd \d+\)")
async def sock_sendall(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.get_running_loop().sock_sendall(socket_pair(stack), b"x" * 10_000_000)


@program("descriptor", rf"a connection to {PORT} \(fd \d+\)")
async def sock_accept(stack: contextlib.AsyncExitStack) -> Any:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    listener.setblocking(False)
    return asyncio.get_running_loop().sock_accept(listener)


def full_server(stack: contextlib.AsyncExitStack) -> tuple[str, int]:
    """Return the address of a server whose queue is full, so that a connect waits."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    for _ in range(3):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    host, port = listener.getsockname()
    return host, port


@program("descriptor", rf"the connection to {PORT} \(fd \d+\)")
async def connect(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.open_connection(*full_server(stack))


@program("descriptor", rf"the connection to {PORT} \(fd \d+\)")
async def sock_connect(stack: contextlib.AsyncExitStack) -> Any:
    client = stack.enter_context(socket.socket())
    client.setblocking(False)
    return asyncio.get_running_loop().sock_connect(client, full_server(stack))


@program("job", r"a thread of an executor: Event.wait")
async def executor(stack: contextlib.AsyncExitStack) -> Any:
    over = threading.Event()
    stack.callback(over.set)
    return wait_for_it(asyncio.get_running_loop().run_in_executor(None, over.wait))


@program("job", r"a thread of an executor: Event.wait")
async def to_thread(stack: contextlib.AsyncExitStack) -> Any:
    over = threading.Event()
    stack.callback(over.set)
    return asyncio.to_thread(over.wait)


@program("task", "the task inner")
async def task(stack: contextlib.AsyncExitStack) -> Any:
    inner = asyncio.create_task(asyncio.sleep(50), name="inner")
    stack.callback(inner.cancel)
    return wait_for_it(inner)


@program("task", "the task inner, shielded")
async def shield(stack: contextlib.AsyncExitStack) -> Any:
    inner = asyncio.create_task(asyncio.sleep(50), name="inner")
    stack.callback(inner.cancel)
    return wait_for_it(asyncio.shield(inner))


@program("gather", "a gather: 2 tasks not done")
async def gather(stack: contextlib.AsyncExitStack) -> Any:
    return wait_for_it(asyncio.gather(asyncio.sleep(50), asyncio.sleep(60)))


@program("wait", "asyncio.wait: 1 task not done")
async def wait(stack: contextlib.AsyncExitStack) -> Any:
    inner = asyncio.create_task(asyncio.sleep(50))
    stack.callback(inner.cancel)
    return asyncio.wait([inner], timeout=30)


FOR_A_QUEUE = ("queue", r"an item of Queue 0x\w+, 1 task waits")


@program(*FOR_A_QUEUE if sys.version_info >= (3, 12) else ("task", "the task .*"))
async def wait_for(stack: contextlib.AsyncExitStack) -> Any:
    return asyncio.wait_for(asyncio.Queue[int]().get(), 30)


@program("event", r"Event 0x\w+, 1 task waits")
async def event_with_a_timeout(stack: contextlib.AsyncExitStack) -> Any:
    async def wait() -> None:
        async with asyncio.timeout(30):
            await asyncio.Event().wait()

    return wait()


@program("group", "a TaskGroup: 2 tasks not done")
async def task_group(stack: contextlib.AsyncExitStack) -> Any:
    async def wait() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(50))
            group.create_task(asyncio.sleep(60))

    return wait()


@program("event", r"Event 0x\w+, 1 task waits")
async def asynchronous_generator(stack: contextlib.AsyncExitStack) -> Any:
    async def generator() -> Any:
        await asyncio.Event().wait()
        yield

    async def wait() -> None:
        async with contextlib.aclosing(generator()) as values:
            async for _ in values:
                pass

    return wait()


@program("event", r"Event 0x\w+, 1 task waits")
async def awaitable_of_the_program(stack: contextlib.AsyncExitStack) -> Any:
    class Awaitable:
        def __await__(self) -> Any:
            return asyncio.Event().wait().__await__()

    return wait_for_it(Awaitable())


@program("server", rf"the end of the server at {PORT}")
async def serve_forever(stack: contextlib.AsyncExitStack) -> Any:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    stack.callback(server.close)
    return server.serve_forever()


@program("process", r"the end of the process \d+")
async def process(stack: contextlib.AsyncExitStack) -> Any:
    child = await asyncio.create_subprocess_exec("sleep", "50")
    stack.push_async_callback(child.wait)
    stack.callback(child.kill)
    return child.wait()


@program("file", "a thread: Opening.__aenter__ .*/fifo")
async def opened_file(stack: contextlib.AsyncExitStack) -> Any:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    os.mkfifo(folder / "fifo")

    async def wait() -> None:
        async with whorl.fs.open(folder / "fifo"):
            pass

    def release() -> None:
        with contextlib.suppress(OSError):
            os.close(os.open(folder / "fifo", os.O_RDWR | os.O_NONBLOCK))

    stack.callback(release)
    return wait()
