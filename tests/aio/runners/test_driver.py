"""A loop that is driven one turn at a time."""

from __future__ import annotations

import asyncio
import select
import selectors
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.sockets_for_tests import socket_pair
from whorl import Driver

pytestmark = pytest.mark.usefixtures("no_leak")


@pytest.fixture
def guest(no_leak: None) -> Iterator[whorl.EventLoop]:
    """Yield a loop to be driven."""
    loop = whorl.EventLoop()
    yield loop
    loop.close()


def drive(driver: Driver, longest: float = 20) -> None:
    """Act as a host: sleep by the descriptor and the timeout, then make a step."""
    host = select.poll()
    host.register(driver, select.POLLIN)
    while driver.step():
        timeout = driver.timeout()
        host.poll(None if timeout is None else timeout * 1000)


def run(loop: whorl.EventLoop, main: Any) -> Any:
    """Drive a loop until a coroutine is done; its result."""
    task = loop.create_task(main)
    task.add_done_callback(lambda task: loop.stop())
    with Driver(loop) as driver:
        drive(driver)
    return task.result()


def is_awake(driver: Driver) -> bool:
    """Return whether the descriptor says that there is something to do."""
    return bool(select.select([driver], [], [], 0)[0])


def test_a_program_runs_to_its_end(guest: whorl.EventLoop) -> None:
    async def main() -> list[Any]:
        ours, peer = socket_pair("tcp")
        with ours, peer:
            reading = asyncio.create_task(guest.sock_recv(ours, 100))
            await asyncio.sleep(0.001)
            await guest.sock_sendall(peer, b"data")
            return [await reading, await asyncio.to_thread(lambda: "thread"), asyncio.get_running_loop()]

    assert run(guest, main()) == [b"data", "thread", guest]
    assert not guest.is_running()


def test_a_step_does_not_sleep_and_runs_what_is_ready(guest: whorl.EventLoop) -> None:
    ran: list[int] = []
    guest.call_soon(ran.append, 1)
    guest.call_later(3600, ran.append, 2)
    with Driver(guest) as driver:
        assert driver.step()
        assert driver.step()
    assert ran == [1]


def test_the_timeout_is_that_of_the_next_thing_to_do(guest: whorl.EventLoop) -> None:
    with Driver(guest) as driver:
        assert driver.timeout() is None
        guest.call_later(3, print)
        assert driver.timeout() == pytest.approx(3, abs=0.5)
        guest.call_soon(int)
        assert driver.timeout() == 0
        driver.step()
        assert driver.timeout() == pytest.approx(3, abs=0.5)


def fired(driver: Driver, ask: Callable[[], object]) -> bool:
    """Return whether a call of the loop between two steps ends its sleep."""
    driver.step()
    driver.timeout()
    assert not is_awake(driver)
    ask()
    return is_awake(driver)


@pytest.mark.parametrize(
    "name", ["call_soon", "call_soon_threadsafe", "call_later", "call_at", "stop", "timer"]
)
def test_driver_sleep_ends_if_the_host_schedules_between_two_steps(guest: whorl.EventLoop, name: str) -> None:
    timer = whorl.handles.Timer(guest)
    ask: dict[str, Callable[[], object]] = {
        "call_soon": lambda: guest.call_soon(int),
        "call_soon_threadsafe": lambda: guest.call_soon_threadsafe(int),
        "call_later": lambda: guest.call_later(0.001, int),
        "call_at": lambda: guest.call_at(guest.time(), int),
        "stop": guest.stop,
        "timer": lambda: timer.start(lambda timer: None, 1),
    }
    with Driver(guest) as driver:
        for _ in range(3):
            assert fired(driver, ask[name])
            if name == "stop":
                break
    timer.close()
    guest.stop()
    guest.run_forever()


def test_driver_sleep_ends_if_another_thread_schedules(guest: whorl.EventLoop) -> None:
    def ask() -> None:
        thread = threading.Thread(target=guest.call_soon_threadsafe, args=(int,))
        thread.start()
        thread.join()

    with Driver(guest) as driver:
        for _ in range(3):
            assert fired(driver, ask)


def test_data_ends_the_sleep(guest: whorl.EventLoop) -> None:
    ours, peer = socket_pair("unix")
    seen: list[bytes] = []
    with ours, peer, Driver(guest) as driver:
        guest.add_reader(ours, lambda: seen.append(ours.recv(100)))
        assert fired(driver, lambda: peer.send(b"data"))
        driver.step()
        guest.remove_reader(ours)
    assert seen == [b"data"]


def test_stop_ends_the_drive_and_the_loop_can_be_used_again(guest: whorl.EventLoop) -> None:
    guest.call_soon(guest.stop)
    driver = Driver(guest)
    assert guest.is_running()
    assert not driver.step()
    assert not guest.is_running()
    with pytest.raises(RuntimeError, match="the driver is closed"):
        driver.step()
    with pytest.raises(RuntimeError, match="the driver is closed"):
        driver.timeout()
    driver.close()
    assert guest.run_until_complete(asyncio.sleep(0, "again")) == "again"


def test_a_driven_loop_is_run_by_nobody_else(guest: whorl.EventLoop) -> None:
    with Driver(guest):
        with pytest.raises(RuntimeError, match="already running"):
            guest.run_forever()
        with pytest.raises(RuntimeError, match="already running"):
            Driver(guest)
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            guest.close()
    guest.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        Driver(guest)


def test_a_loop_without_a_descriptor_cannot_be_driven() -> None:
    loop = whorl.EventLoop(selectors.SelectSelector())
    with pytest.raises(RuntimeError, match="no descriptor"):
        Driver(loop)
    loop.close()


def test_turns_do_not_nest(guest: whorl.EventLoop) -> None:
    caught: list[str] = []

    def nest() -> None:
        for turn in (driver.step, guest._run_once):
            try:
                turn()
            except RuntimeError as error:
                caught.append(str(error))

    with Driver(guest) as driver:
        guest.call_soon(nest)
        driver.step()
    guest.call_soon(nest)
    guest.call_soon(guest.stop)
    guest.run_forever()
    assert caught == ["This event loop is in the middle of a turn"] * 2 + [
        "the driver is closed",
        "This event loop is in the middle of a turn",
    ]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_driver_step_raises_the_exit_of_a_callback(guest: whorl.EventLoop, kind: type[BaseException]) -> None:
    ran: list[str] = []

    def leave() -> None:
        raise kind

    guest.call_soon(leave)
    guest.call_soon(ran.append, "after it")
    with Driver(guest) as driver:
        with pytest.raises(kind):
            driver.step()
        assert ran == []
        driver.step()
    assert ran == ["after it"]


def test_a_loop_is_the_running_one_only_in_its_steps(guest: whorl.EventLoop) -> None:
    seen: list[Any] = []

    async def numbers() -> AsyncGenerator[int, None]:
        yield 1

    async def look() -> None:
        seen.append(asyncio.get_running_loop())
        seen.append(asyncio.current_task())
        await anext(numbers())
        guest.stop()

    before = sys.get_asyncgen_hooks()
    task = guest.create_task(look())
    with Driver(guest) as driver:
        while driver.step():
            assert asyncio._get_running_loop() is None
            assert sys.get_asyncgen_hooks() == before
    assert seen == [guest, task]
    guest.run_until_complete(guest.shutdown_asyncgens())


@pytest.mark.parametrize("make_host", [asyncio.SelectorEventLoop, whorl.EventLoop])
def test_another_loop_of_asyncios_can_be_the_host_even_in_a_task(
    guest: whorl.EventLoop, make_host: Callable[[], Any]
) -> None:
    async def visit() -> Any:
        await asyncio.sleep(0.001)
        return asyncio.get_running_loop()

    async def receive() -> list[Any]:
        own = asyncio.current_task()
        host = asyncio.get_running_loop()
        task = guest.create_task(visit())
        task.add_done_callback(lambda task: guest.stop())
        with Driver(guest) as driver:
            while driver.step():
                assert asyncio.get_running_loop() is host
                assert asyncio.current_task() is own
                awake = asyncio.Event()
                host.add_reader(driver, awake.set)
                try:
                    await asyncio.wait_for(awake.wait(), driver.timeout())
                except TimeoutError:
                    pass
                host.remove_reader(driver)
        return [task.result()]

    host = make_host()
    try:
        assert host.run_until_complete(receive()) == [guest]
    finally:
        host.close()


def test_signals_are_handled_in_a_step(guest: whorl.EventLoop) -> None:
    seen: list[str] = []
    with Driver(guest) as driver:
        guest.add_signal_handler(signal.SIGUSR1, seen.append, "signal")
        assert fired(driver, lambda: signal.raise_signal(signal.SIGUSR1))
        driver.step()
        driver.step()
        guest.remove_signal_handler(signal.SIGUSR1)
    assert seen == ["signal"]
    assert signal.set_wakeup_fd(-1) == -1


# By asyncio's private names.


def test_run_once_makes_one_turn(guest: whorl.EventLoop) -> None:
    ran: list[int] = []
    guest.call_soon(ran.append, 1)
    guest.call_soon(guest.call_soon, ran.append, 2)
    guest._run_forever_setup()
    assert asyncio.get_running_loop() is guest
    guest._run_once()
    assert ran == [1]
    guest._run_once()
    guest._run_forever_cleanup()
    assert ran == [1, 2]
    assert asyncio._get_running_loop() is None


def test_a_turn_that_was_replaced_is_the_one_that_runs() -> None:
    class Counting(whorl.EventLoop):
        turns = 0

        def _run_once(self) -> None:
            self.turns += 1
            super()._run_once()

    loop = Counting()  # type: ignore[abstract]
    assert loop.run_until_complete(asyncio.sleep(0, "done")) == "done"
    assert loop.turns == loop.metrics().turns
    with mock.patch.object(loop, "_run_once", side_effect=loop.stop) as run_once:
        loop.run_forever()
    run_once.assert_called_once_with()
    loop.close()
