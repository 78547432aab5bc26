"""Guest mode: a program on a Whorl loop in a host's thread."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import socket_pair
from tests.children import bare_environment
from whorl.core.limits import IDLE_EVENTS

pytestmark = pytest.mark.usefixtures("no_leak")


class Host:
    """A host as simple as can be: a queue of functions, which one thread calls."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.outcomes: list[Future[Any]] = []
        self.calls = 0

    def start(self, main: Any, loop: Any = None) -> whorl.EventLoop:
        return whorl.start_guest_run(
            main,
            run_sync_soon_threadsafe=self.queue.put,
            done_callback=self.outcomes.append,
            loop=loop,
        )

    def serve(self) -> Future[Any]:
        """Call functions until a guest is done; its outcome."""
        while not self.outcomes:
            self.queue.get(timeout=20)()
            self.calls += 1
        return self.outcomes.pop(0)

    def run(self, main: Any) -> Any:
        self.start(main)
        return self.serve().result()


def test_a_guest_runs_to_its_end_in_the_hosts_thread() -> None:
    async def main() -> list[Any]:
        ours, peer = socket_pair("tcp")
        loop = asyncio.get_running_loop()
        with ours, peer:
            reading = asyncio.create_task(loop.sock_recv(ours, 100))
            await asyncio.sleep(0.001)
            await loop.sock_sendall(peer, b"data")
            return [await reading, await asyncio.to_thread(lambda: "thread"), threading.get_ident()]

    before = set(threading.enumerate())
    assert Host().run(main()) == [b"data", "thread", threading.get_ident()]
    assert set(threading.enumerate()) <= before


def test_a_guest_goes_on_after_a_socket_was_closed_whose_duplicate_lives() -> None:
    """Its watch lives on in the kernel, until the poller watches everything anew."""

    async def main() -> int:
        ours, peer = socket_pair("unix")
        loop = asyncio.get_running_loop()
        receiving = asyncio.create_task(loop.sock_recv(ours, 10))
        await asyncio.sleep(0)
        peer.send(b"x")
        await receiving
        with peer, ours.dup():
            ours.close()
            for _ in range(2 * IDLE_EVENTS):
                peer.send(b"y")
                await asyncio.sleep(0)
        return max([await asyncio.to_thread(lambda: 7) for _ in range(20)])

    assert Host().run(main()) == 7


def test_guest_runs_nothing_before_the_hosts_turn() -> None:
    host = Host()
    began: list[int] = []

    async def main() -> None:
        began.append(1)

    loop = host.start(main())
    assert began == []
    assert loop.is_running()
    host.serve().result()
    assert began == [1]
    assert loop.is_closed()


def test_the_host_works_while_the_guest_sleeps() -> None:
    host = Host()

    async def main() -> str:
        answer = asyncio.get_running_loop().create_future()
        threading.Timer(0.001, host.queue.put, [lambda: answer.set_result("from the host")]).start()
        return str(await answer)

    assert host.run(main()) == "from the host"


def test_a_sleeping_guest_costs_the_host_nothing() -> None:
    host = Host()

    async def main() -> int:
        before = host.calls
        await asyncio.sleep(0.05)
        return host.calls - before

    assert host.run(main()) <= 3


def test_the_host_sees_what_the_guest_raised() -> None:
    async def fail() -> None:
        raise LookupError("here")

    host = Host()
    host.start(fail())
    with pytest.raises(LookupError, match="here"):
        host.serve().result()


def test_the_host_may_cancel_the_guest() -> None:
    cleaned_up: list[int] = []

    async def main() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned_up.append(1)

    host = Host()
    loop = host.start(main())
    [task] = asyncio.all_tasks(loop)
    host.queue.get()()
    host.queue.put(task.cancel)
    with pytest.raises(CancelledError):
        host.serve().result()
    assert cleaned_up == [1]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_guest_outcome_is_the_exit_that_leaves_the_run(kind: type[BaseException]) -> None:
    async def main() -> None:
        raise kind

    host = Host()
    host.start(main())
    with pytest.raises(kind):
        host.serve().result()


def test_exit_from_a_callback_cancels_the_guests_program() -> None:
    cleaned_up: list[int] = []

    def leave() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(leave)
        try:
            await loop.create_future()
        finally:
            cleaned_up.append(1)

    host = Host()
    host.start(main())
    with pytest.raises(KeyboardInterrupt):
        host.serve().result()
    assert cleaned_up == [1]


def test_a_guest_that_was_stopped_too_early_says_so() -> None:
    cleaned_up: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.stop()
        try:
            await loop.create_future()
        finally:
            await asyncio.sleep(0)
            cleaned_up.append(1)

    host = Host()
    host.start(main())
    with pytest.raises(RuntimeError, match="stopped before the end"):
        host.serve().result()
    assert cleaned_up == [1]


def test_guest_ends_remaining_tasks_and_generators_as_asyncio_run_does() -> None:
    ended: list[str] = []

    async def other() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("task")

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            ended.append("generator")

    generator = numbers()

    async def main() -> asyncio.Task[None]:
        await anext(generator)
        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        return task

    task = Host().run(main())
    assert task.cancelled()
    assert ended == ["task", "generator"]


def test_an_error_of_a_task_that_is_cancelled_in_the_end_is_reported() -> None:
    reported: list[Any] = []

    async def other() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise LookupError

    async def main() -> asyncio.Task[None]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        return task

    task = Host().run(main())
    [context] = reported
    assert context["task"] is task
    assert type(context["exception"]) is LookupError


def test_a_loop_of_the_hosts_own_is_left_open() -> None:
    loop = whorl.EventLoop()
    host = Host()
    for answer in (1, 2):
        assert host.start(asyncio.sleep(0, answer), loop) is loop
        assert host.serve().result() == answer
    assert not loop.is_closed()
    loop.close()


def test_a_loop_that_cannot_be_used_is_refused() -> None:
    loop = whorl.EventLoop()
    loop.close()
    main = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        Host().start(main, loop)
    main.close()


def test_a_guest_that_the_host_cannot_start_leaves_a_loop_that_can_run() -> None:
    def refuse(function: Callable[[], object]) -> None:
        raise LookupError

    async def main() -> None:
        ran.append(1)

    ran: list[int] = []
    loop = whorl.EventLoop()
    before = set(threading.enumerate())
    with pytest.raises(LookupError):
        whorl.start_guest_run(main(), run_sync_soon_threadsafe=refuse, done_callback=ran.append, loop=loop)
    assert not loop.is_running()
    loop.run_forever()  # The begun coroutine stops it when it has ended.
    assert ran == [1]
    for thread in set(threading.enumerate()) - before:
        thread.join()
    loop.close()


def test_several_guests_share_a_host() -> None:
    host = Host()

    async def main(number: int) -> int:
        for _ in range(number):
            await asyncio.sleep(0.001)
        return number

    for number in range(5):
        host.start(main(number))
    assert {host.serve().result() for _ in range(5)} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("make_host", [asyncio.SelectorEventLoop, whorl.EventLoop])
def test_a_loop_of_asyncios_is_the_host(make_host: Callable[[], Any]) -> None:
    async def visit() -> Any:
        await asyncio.sleep(0.001)
        return asyncio.get_running_loop()

    async def receive() -> bool:
        host = asyncio.get_running_loop()
        done: asyncio.Future[Future[Any]] = host.create_future()
        guest = whorl.start_guest_run(
            visit(), run_sync_soon_threadsafe=host.call_soon_threadsafe, done_callback=done.set_result
        )
        return (await done).result() is guest is not host

    host = make_host()
    assert host.run_until_complete(receive())
    host.close()


def test_a_host_that_goes_away_does_not_keep_the_interpreter() -> None:
    program = """
import asyncio, queue, whorl
host = queue.SimpleQueue()
whorl.start_guest_run(asyncio.sleep(3600), run_sync_soon_threadsafe=host.put, done_callback=print)
host.get()()
print("left")
"""
    answer = run_program(program)
    assert (answer.returncode, answer.stdout) == (0, "left\n"), answer.stderr


def run_program(program: str) -> Any:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=20,
    )
