"""A busy loop skips some polls; what that may delay, and by how many turns at most."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import turns
from whorl.core import Kernel, RunMode
from whorl.core.limits import (
    EMPTY_POLLS_BEFORE_SKIP,
    LONGEST_WITHOUT_POLL_NS,
    SAMPLED_TURNS,
    TURNS_WITHOUT_POLL,
)
from whorl.handles import Check, Idle, Prepare

pytestmark = pytest.mark.usefixtures("no_leak")


class CountingKernel(Kernel):
    """The real kernel with a clock that only tests move; counts polls, and looks at the clock.

    `meanwhile` is called once, by another thread, when the loop is about to sleep.
    """

    def __init__(self, may_skip_polls: bool = True) -> None:
        super().__init__()
        self.may_skip_polls = may_skip_polls
        self.polls = 0
        self.clock = 10**12
        self.clock_reads = 0
        self.meanwhile: Callable[[], object] | None = None

    def now(self) -> int:
        self.clock_reads += 1
        return self.clock

    def ticks(self) -> int:
        return self.clock

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        self.polls += 1
        if timeout_ns != 0 and self.meanwhile is not None:
            thread = threading.Thread(target=self.meanwhile)
            self.meanwhile = None
            thread.start()
            thread.join()
        return super().epoll_wait(epfd, timeout_ns, events)


@pytest.fixture
def kernel() -> CountingKernel:
    return CountingKernel()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        yield near, far


async def polls_in(kernel: CountingKernel, count: int) -> int:
    """Return how many of the next `count` turns poll."""
    before = kernel.polls
    await turns(count)
    return kernel.polls - before


# When polls are skipped.


async def test_the_first_busy_turns_all_poll(loop: whorl.EventLoop, kernel: CountingKernel) -> None:
    assert await polls_in(kernel, EMPTY_POLLS_BEFORE_SKIP - 2) == EMPTY_POLLS_BEFORE_SKIP - 2


async def test_later_one_turn_in_a_few_polls(loop: whorl.EventLoop, kernel: CountingKernel) -> None:
    await turns(EMPTY_POLLS_BEFORE_SKIP)
    assert await polls_in(kernel, 10 * (TURNS_WITHOUT_POLL + 1)) == 10


async def test_a_long_turn_is_followed_by_a_poll(loop: whorl.EventLoop, kernel: CountingKernel) -> None:
    await turns(EMPTY_POLLS_BEFORE_SKIP)
    for _ in range(10):
        kernel.clock += LONGEST_WITHOUT_POLL_NS + 1
        assert await polls_in(kernel, 1) == 1


async def test_a_counter_that_jumps_back_is_followed_by_a_poll(
    loop: whorl.EventLoop, kernel: CountingKernel
) -> None:
    await turns(EMPTY_POLLS_BEFORE_SKIP)
    for _ in range(10):
        kernel.clock -= 1
        assert await polls_in(kernel, 1) == 1


async def test_an_event_lets_every_turn_poll_again(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    loop.add_reader(near, near.recv, 1)
    await turns(EMPTY_POLLS_BEFORE_SKIP + 2)
    far.send(b"x")
    await turns(TURNS_WITHOUT_POLL + 1)
    assert (
        await polls_in(kernel, EMPTY_POLLS_BEFORE_SKIP - TURNS_WITHOUT_POLL - 2)
        == EMPTY_POLLS_BEFORE_SKIP - TURNS_WITHOUT_POLL - 2
    )
    loop.remove_reader(near)


async def test_a_new_watch_is_polled_in_the_next_turn(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    far.send(b"x")
    await turns(EMPTY_POLLS_BEFORE_SKIP + 2)
    arrived: list[bytes] = []
    loop.add_reader(near, lambda: arrived.append(near.recv(10)))
    await turns(2)
    assert arrived == [b"x"]
    loop.remove_reader(near)


async def test_transport_data_to_the_same_loop_arrives_in_the_next_turn(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    arrived: list[bytes] = []

    class Listening(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            arrived.append(data)

    reading, _ = await loop.connect_accepted_socket(Listening, near)
    writing, _ = await loop.connect_accepted_socket(asyncio.Protocol, far)
    await turns(EMPTY_POLLS_BEFORE_SKIP + 2)
    writing.write(b"x")
    await turns(2)
    assert arrived == [b"x"]
    reading.close()
    writing.close()
    await turns(2)


# After a sleep that another thread ended.


async def polls_until_woken(
    loop: whorl.EventLoop, kernel: CountingKernel, *calls: Callable[[], object]
) -> int:
    """Return the number of polls until a task goes on that another thread wakes after these calls."""
    woken = loop.create_future()

    def wake() -> None:
        for call in calls:
            call()
        loop.call_soon_threadsafe(woken.set_result, None)

    kernel.meanwhile = wake
    before = kernel.polls
    await woken
    return kernel.polls - before


async def test_the_turn_after_a_wakeup_does_without_a_poll(
    loop: whorl.EventLoop, kernel: CountingKernel
) -> None:
    for _ in range(2):
        assert await polls_until_woken(loop, kernel) == 1
        assert await polls_in(kernel, EMPTY_POLLS_BEFORE_SKIP - 2) == EMPTY_POLLS_BEFORE_SKIP - 2


async def test_the_turn_after_a_wakeup_polls_if_there_was_an_event_as_well(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    loop.add_reader(near, near.recv, 1)
    assert await polls_until_woken(loop, kernel, lambda: far.send(b"x")) == 2
    loop.remove_reader(near)


async def test_the_turn_after_a_wakeup_polls_if_an_event_ended_the_sleep(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    woken = loop.create_future()
    loop.add_reader(near, lambda: (near.recv(1), woken.set_result(None)))
    kernel.meanwhile = lambda: far.send(b"x")
    before = kernel.polls
    await woken
    assert kernel.polls - before == 2
    loop.remove_reader(near)


async def test_the_turn_after_a_wakeup_polls_if_something_new_is_watched(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    arrived: list[bytes] = []
    far.send(b"x")

    def watch() -> None:
        loop.add_reader(near, lambda: arrived.append(near.recv(10)))

    assert await polls_until_woken(loop, kernel, lambda: loop.call_soon_threadsafe(watch)) == 2
    await turns(1)
    assert arrived == [b"x"]
    loop.remove_reader(near)


async def test_the_turn_after_a_wakeup_polls_if_a_transport_has_sent_something(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    loop.add_reader(near, near.recv, 10)
    writing, _ = await loop.connect_accepted_socket(asyncio.Protocol, far)
    write = partial(loop.call_soon_threadsafe, writing.write, b"x")
    assert await polls_until_woken(loop, kernel, write) == 2
    loop.remove_reader(near)
    writing.close()
    await turns(2)


async def test_a_long_turn_after_a_wakeup_is_followed_by_a_poll(
    loop: whorl.EventLoop, kernel: CountingKernel
) -> None:
    def take_long() -> None:
        kernel.clock += LONGEST_WITHOUT_POLL_NS + 1

    assert await polls_until_woken(loop, kernel, lambda: loop.call_soon_threadsafe(take_long)) == 2


async def test_data_that_comes_after_a_wakeup_waits_for_a_turn_at_most(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    arrived: list[bytes] = []
    loop.add_reader(near, lambda: arrived.append(near.recv(10)))
    assert await polls_until_woken(loop, kernel, lambda: loop.call_soon_threadsafe(far.send, b"x")) == 1
    await turns(2)  # One poll, and a turn to run in.
    assert arrived == [b"x"]
    loop.remove_reader(near)


# After a sleep that one event ended.


class Waking(asyncio.Protocol):
    """Wakes a future by the data that comes, after a call."""

    def __init__(self, call: Callable[[], object] = int) -> None:
        self.call = call
        self.woken: asyncio.Future[bytes] | None = None

    def data_received(self, data: bytes) -> None:
        self.call()
        assert self.woken is not None
        self.woken.set_result(data)


async def polls_until_data(
    loop: whorl.EventLoop, kernel: CountingKernel, far: socket.socket, protocol: Waking
) -> int:
    """Return the number of polls until a task goes on that waits for the protocol's data."""
    protocol.woken = loop.create_future()
    kernel.meanwhile = lambda: far.send(b"x")
    before = kernel.polls
    assert await protocol.woken == b"x"
    return kernel.polls - before


@contextlib.asynccontextmanager
async def connected(loop: whorl.EventLoop, near: socket.socket, protocol: Waking) -> AsyncIterator[Any]:
    """Give a transport of a socket, whose protocol is this one."""
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, near)
    await turns(2)
    yield transport
    transport.close()
    await turns(2)


@pytest.fixture
def other_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        yield near, far


async def test_the_turn_after_data_of_one_transport_does_without_a_poll(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    protocol = Waking()
    async with connected(loop, near, protocol):
        for _ in range(3):
            assert await polls_until_data(loop, kernel, far, protocol) == 1
            assert await polls_in(kernel, EMPTY_POLLS_BEFORE_SKIP - 2) == EMPTY_POLLS_BEFORE_SKIP - 2


async def test_the_turn_after_data_polls_if_the_protocol_has_sent_something(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    protocol = Waking(lambda: transport.write(b"y"))
    async with connected(loop, near, protocol) as transport:
        assert await polls_until_data(loop, kernel, far, protocol) == 2


async def test_the_turn_after_data_polls_if_that_took_long(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    def take_long() -> None:
        kernel.clock += LONGEST_WITHOUT_POLL_NS + 1

    near, far = pair
    protocol = Waking(take_long)
    async with connected(loop, near, protocol):
        assert await polls_until_data(loop, kernel, far, protocol) == 2


async def test_the_turn_after_data_polls_if_there_was_another_event(
    loop: whorl.EventLoop,
    kernel: CountingKernel,
    pair: tuple[socket.socket, socket.socket],
    other_pair: tuple[socket.socket, socket.socket],
) -> None:
    (near, far), (other, its_far) = pair, other_pair
    protocol = Waking()
    loop.add_reader(other, other.recv, 10)
    async with connected(loop, near, protocol):
        protocol.woken = loop.create_future()
        kernel.meanwhile = lambda: (far.send(b"x"), its_far.send(b"x"))
        before = kernel.polls
        await protocol.woken
        assert kernel.polls - before == 2
    loop.remove_reader(other)


async def test_data_that_comes_with_other_data_waits_for_a_turn_at_most(
    loop: whorl.EventLoop,
    kernel: CountingKernel,
    pair: tuple[socket.socket, socket.socket],
    other_pair: tuple[socket.socket, socket.socket],
) -> None:
    (near, far), (other, its_far) = pair, other_pair
    arrived: list[bytes] = []
    protocol = Waking(lambda: its_far.send(b"y"))
    loop.add_reader(other, lambda: arrived.append(other.recv(10)))
    async with connected(loop, near, protocol):
        assert await polls_until_data(loop, kernel, far, protocol) == 1
        await turns(2)  # One poll, and a turn to run in.
        assert arrived == [b"y"]
    loop.remove_reader(other)


# Events that wait no longer than the bound.


async def test_data_waits_for_a_few_turns_at_most(
    loop: whorl.EventLoop, kernel: CountingKernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    arrived: list[bytes] = []
    loop.add_reader(near, lambda: arrived.append(near.recv(10)))
    for phase in range(TURNS_WITHOUT_POLL + 1):
        await turns(EMPTY_POLLS_BEFORE_SKIP + 1 + phase)
        far.send(b"x")
        await turns(TURNS_WITHOUT_POLL + 2)  # One poll in so many turns, and a turn to run in.
        assert arrived == [b"x"]
        arrived.clear()
    loop.remove_reader(near)


async def test_a_signal_waits_for_a_few_turns_at_most(loop: whorl.EventLoop, kernel: CountingKernel) -> None:
    arrived: list[int] = []
    loop.add_signal_handler(signal.SIGUSR1, arrived.append, 1)
    for phase in range(TURNS_WITHOUT_POLL + 1):
        await turns(EMPTY_POLLS_BEFORE_SKIP + 1 + phase)
        os.kill(os.getpid(), signal.SIGUSR1)
        await turns(TURNS_WITHOUT_POLL + 4)  # From the pipe to the queue is a turn of its own.
        assert arrived == [1]
        arrived.clear()
    loop.remove_signal_handler(signal.SIGUSR1)


async def test_a_timer_that_is_due_does_not_wait(loop: whorl.EventLoop, kernel: CountingKernel) -> None:
    await turns(EMPTY_POLLS_BEFORE_SKIP + 1)
    for _ in range(TURNS_WITHOUT_POLL + 1):
        fired: list[int] = []
        loop.call_later(100e-9, fired.append, 1)
        await turns(1)
        assert fired == []
        kernel.clock += 101
        await turns(2)  # Due timers come after entries that were ready before.
        assert fired == [1]


async def test_a_timer_that_is_far_away_costs_no_look_at_the_clock(
    loop: whorl.EventLoop, kernel: CountingKernel
) -> None:
    timer = loop.call_later(3600, turns, 0)
    await turns(EMPTY_POLLS_BEFORE_SKIP + 1)
    before, polls = kernel.clock_reads, kernel.polls
    await turns(10 * (TURNS_WITHOUT_POLL + 1))
    assert kernel.polls - polls == 10
    timed = 160 // SAMPLED_TURNS + 1  # turns that time their one callback by two looks
    assert 10 <= kernel.clock_reads - before <= 10 + 2 * timed
    timer.cancel()


async def test_a_call_of_another_thread_does_not_wait(loop: whorl.EventLoop, kernel: CountingKernel) -> None:
    for phase in range(TURNS_WITHOUT_POLL + 1):
        await turns(EMPTY_POLLS_BEFORE_SKIP + 1 + phase)
        arrived: list[int] = []
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(arrived.append, 1))
        thread.start()
        thread.join()
        await turns(2)
        assert arrived == [1]


def test_a_busy_run_stops_after_the_turn_in_which_stop_was_called(
    loop: whorl.EventLoop, kernel: CountingKernel
) -> None:
    ran: list[int] = []

    def step(number: int) -> None:
        ran.append(number)
        loop.call_soon(step, number + 1)
        if number == 100:
            loop.stop()

    loop.call_soon(step, 1)
    loop.run_forever()
    assert ran[-1] == 100


# Where every turn polls.


def test_every_run_of_one_turn_polls(loop: whorl.EventLoop, kernel: CountingKernel) -> None:
    before = kernel.polls
    for _ in range(2 * EMPTY_POLLS_BEFORE_SKIP):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert kernel.polls - before == 2 * EMPTY_POLLS_BEFORE_SKIP


@pytest.mark.parametrize("mode", [RunMode.ONCE, RunMode.NOWAIT, RunMode.DEFAULT])
def test_the_turns_of_the_machine_all_poll(
    loop: whorl.EventLoop, kernel: CountingKernel, mode: RunMode
) -> None:
    def step(left: int) -> None:
        if left:
            loop.call_soon(step, left - 1)

    step(2 * EMPTY_POLLS_BEFORE_SKIP)
    turns_before, polls_before = loop.metrics().turns, kernel.polls
    while loop.run(mode):
        pass
    assert kernel.polls - polls_before == loop.metrics().turns - turns_before >= 2 * EMPTY_POLLS_BEFORE_SKIP


@pytest.mark.parametrize("kind", [Idle, Prepare, Check])
async def test_handles_that_run_in_every_turn_see_a_poll_in_every_turn(
    loop: whorl.EventLoop, kernel: CountingKernel, kind: Callable[[Any], Any]
) -> None:
    await turns(EMPTY_POLLS_BEFORE_SKIP + 1)
    handle = kind(loop)
    handle.start(lambda handle: None)
    await turns(1)
    assert await polls_in(kernel, 20) == 20
    handle.close()


async def test_a_replaced_clock_sees_a_poll_in_every_turn(
    loop: whorl.EventLoop, kernel: CountingKernel
) -> None:
    await turns(EMPTY_POLLS_BEFORE_SKIP + 1)
    loop.time = lambda: 1000.0  # type: ignore[method-assign, assignment]
    await turns(1)
    assert await polls_in(kernel, 20) == 20


def test_every_turn_polls_that_is_made_from_outside(loop: whorl.EventLoop, kernel: CountingKernel) -> None:
    before = kernel.polls
    with whorl.Driver(loop) as driver:
        for _ in range(2 * EMPTY_POLLS_BEFORE_SKIP):
            loop.call_soon(int)
            driver.step()
    assert kernel.polls - before == 2 * EMPTY_POLLS_BEFORE_SKIP


def test_other_kernels_poll_in_the_turn_after_a_wakeup() -> None:
    kernel = CountingKernel(may_skip_polls=False)
    loop = whorl.EventLoop(kernel=kernel)
    assert loop.run_until_complete(polls_until_woken(loop, kernel)) == 2
    loop.close()


def test_other_kernels_and_pollers_are_asked_in_every_turn() -> None:
    class Counting(selectors.SelectSelector):
        polls = 0

        def select(self, timeout: float | None = None) -> Any:
            self.polls += 1
            return super().select(timeout)

    kernel, selector = CountingKernel(may_skip_polls=False), Counting()
    for counting, loop in ((kernel, whorl.EventLoop(kernel=kernel)), (selector, whorl.EventLoop(selector))):
        before = counting.polls
        loop.run_until_complete(turns(2 * EMPTY_POLLS_BEFORE_SKIP))
        assert counting.polls - before >= 2 * EMPTY_POLLS_BEFORE_SKIP
        loop.close()


def test_a_kernel_that_is_not_the_real_one_skips_no_polls_by_itself() -> None:
    class Other(Kernel):
        pass

    assert Kernel().may_skip_polls
    assert not Other().may_skip_polls
