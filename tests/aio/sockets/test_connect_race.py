"""The race of attempts to connect."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import Recorder, turns
from whorl.aio.sockets.connect_race import first_of

pytestmark = pytest.mark.usefixtures("no_leak")

LONG = 3600.0


class Attempts:
    """Attempts that the test ends."""

    def __init__(self, loop: Any, count: int) -> None:
        self.ends = [loop.create_future() for _ in range(count)]
        self.started: list[int] = []
        self.dropped: list[Any] = []
        self.race: asyncio.Task[Any] | None = None
        self._loop = loop

    def start(self, delay: float = LONG) -> asyncio.Task[Any]:
        """Start the race."""
        attempts = [self._attempt(number) for number in range(len(self.ends))]
        self.race = self._loop.create_task(first_of(self._loop, attempts, delay, self.dropped.append))
        return self.race

    def _attempt(self, number: int) -> Callable[[], Coroutine[Any, Any, Any]]:
        async def attempt() -> Any:
            self.started.append(number)
            return await self.ends[number]

        return attempt


async def test_race_starts_the_next_attempt_when_the_last_one_fails(loop: whorl.EventLoop) -> None:
    attempts = Attempts(loop, 3)
    race = attempts.start()
    await turns(5)
    assert attempts.started == [0]
    attempts.ends[0].set_exception(OSError())
    await turns(5)
    assert attempts.started == [0, 1]
    attempts.ends[1].set_result("won")
    assert await race == "won"
    assert attempts.started == [0, 1]


async def test_race_starts_the_next_attempt_after_the_delay(loop: whorl.EventLoop) -> None:
    attempts = Attempts(loop, 3)
    attempts.ends[2].set_result("won")
    assert await attempts.start(delay=0.001) == "won"
    assert attempts.started == [0, 1, 2]
    assert attempts.ends[0].cancelled()
    assert attempts.ends[1].cancelled()


async def test_race_does_not_hurry_when_an_earlier_attempt_than_the_last_one_fails(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = Attempts(loop, 3)
    now = loop.time()
    race = attempts.start()
    await turns(3)
    monkeypatch.setattr(loop, "time", lambda: now + 1.5 * LONG)  # It is time for the second one.
    while attempts.started == [0]:
        await asyncio.sleep(0)
    attempts.ends[0].set_exception(OSError())
    await turns(5)
    assert attempts.started == [0, 1]
    attempts.ends[1].set_result("won")
    assert await race == "won"


async def test_race_without_delay_starts_all_at_once(loop: whorl.EventLoop) -> None:
    attempts = Attempts(loop, 3)
    race = attempts.start(delay=0)
    await turns(3)
    assert attempts.started == [0, 1, 2]
    for end in attempts.ends:
        end.set_exception(OSError())
    assert await race is None


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_race_in_which_all_fail_has_no_result(loop: whorl.EventLoop, count: int) -> None:
    attempts = Attempts(loop, count)
    for end in attempts.ends:
        end.set_exception(OSError())
    assert await attempts.start() is None
    assert attempts.started == [*range(count)]


async def test_race_drops_a_second_success_of_the_same_turn(loop: whorl.EventLoop) -> None:
    attempts = Attempts(loop, 2)
    race = attempts.start(delay=0)
    await turns(3)
    attempts.ends[0].set_result("won")
    attempts.ends[1].set_result("late")
    assert await race == "won"
    assert attempts.dropped == ["late"]


@pytest.mark.parametrize("count", range(6))
async def test_race_that_is_cancelled_drops_what_succeeds_meanwhile(
    loop: whorl.EventLoop, count: int
) -> None:
    attempts = Attempts(loop, 2)
    race = attempts.start(delay=0)
    await turns(3)
    attempts.ends[1].set_result("won")
    await turns(count)
    if not race.cancel():
        assert race.result() == "won"
        return
    with pytest.raises(asyncio.CancelledError):
        await race
    assert attempts.dropped == ["won"]


async def test_race_that_is_cancelled_again_waits_for_its_attempts(loop: whorl.EventLoop) -> None:
    may_end, ended = asyncio.Event(), []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            await may_end.wait()
            ended.append(True)

    race: Any = loop.create_task(first_of(loop, [stubborn], LONG, print))
    for _ in range(3):
        await turns(3)
        race.cancel()
    await turns(3)
    assert not race.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await race
    assert ended == [True]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Let no collection close what was left."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_descriptors() -> set[str]:
    """Return the numbers of all descriptors; the one that reads the folder is gone afterwards."""
    return {number for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("is_eager", [False, True])
@pytest.mark.parametrize("options", [{}, {"local_addr": ("127.0.0.1", 0)}])
async def test_happy_eyeballs_cancelled_at_any_time_leave_no_socket(
    loop: whorl.EventLoop, options: dict[str, Any], is_eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_eager:
        if not hasattr(asyncio, "eager_task_factory"):
            pytest.skip("no eager tasks")
        loop.set_task_factory(asyncio.eager_task_factory)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        info = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", listener.getsockname())
        local = (*info[:4], ("127.0.0.1", 0))
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *_, **__: [info] * 2 if host == "two" else [local]
        )
        for delay in (0, LONG):
            outcomes = set()
            for count in itertools.count():
                before = open_descriptors()
                connecting = loop.create_task(
                    loop.create_connection(Recorder, "two", 80, happy_eyeballs_delay=delay, **options)
                )
                await turns(count)
                connecting.cancel()
                try:
                    transport, protocol = await connecting
                except asyncio.CancelledError:
                    outcomes.add("cancelled")
                    await turns(2)  # A transport calls `connection_lost` first.
                else:
                    outcomes.add("connected")
                    transport.close()
                    await protocol.until_lost()
                assert open_descriptors() == before, f"cancelled after {count} iterations"
                if count >= 30 and "connected" in outcomes:
                    break
            assert "cancelled" in outcomes
