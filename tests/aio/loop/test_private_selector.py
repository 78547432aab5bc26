"""asyncio's private `_selector`: its watches, and a `select` of the program's."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import socket_pair

pytestmark = pytest.mark.usefixtures("no_leak")


@pytest.fixture
def ends() -> Iterator[tuple[Any, Any]]:
    """Yield a pair of sockets that do not block."""
    ours, peer = socket_pair("unix")
    with ours, peer:
        yield ours, peer


def test_private_selector_shows_the_watched_descriptors(ends: tuple[Any, Any]) -> None:
    ours, _ = ends

    def scenario(loop: Any) -> Any:
        selector = loop._selector
        assert isinstance(selector, selectors.BaseSelector)
        assert loop._selector is selector
        before = len(selector.get_map())
        loop.add_reader(ours, print)
        key = selector.get_key(ours)
        found = [key.fileobj is ours, key.fd == ours.fileno(), key.events, key.data[0]._callback, key.data[1]]
        loop.add_writer(ours, print)
        loop.remove_reader(ours)
        found += [selector.get_map()[ours.fileno()].events, len(selector.get_map()) - before]
        assert ours.fileno() in list(selector.get_map())
        loop.remove_writer(ours)
        found += [ours in selector.get_map(), len(selector.get_map()) - before]
        return found

    assert is_as_in_asyncio(scenario)[2:4] == [selectors.EVENT_READ, print]


def test_private_selector_raises_key_error_for_an_unwatched_socket(
    loop: whorl.EventLoop, ends: tuple[Any, Any]
) -> None:
    with pytest.raises(KeyError):
        loop._selector.get_key(ends[0])
    with pytest.raises(KeyError):
        loop._selector.get_map()[ends[0]]


def test_transports_are_watched(loop: whorl.EventLoop, ends: tuple[Any, Any]) -> None:
    async def main() -> None:
        ours, _ = ends
        _, writer = await asyncio.open_connection(sock=ours)
        await asyncio.sleep(0)
        assert loop._selector.get_key(ours.fileno()).events & selectors.EVENT_READ
        writer.close()
        await writer.wait_closed()

    loop.run_until_complete(main())


def test_a_select_in_its_place_moves_the_time() -> None:
    """Helpers do so that let hours pass in no time: the clock goes on when the loop would sleep."""

    async def scenario(loop: Any) -> Any:
        now = 1000.0

        def select(former: Any, timeout: float | None) -> Any:
            nonlocal now
            now += timeout or 0
            return former(0)

        woken: list[tuple[str, int]] = []

        async def sleep(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append((name, round(loop.time())))

        def time() -> float:
            return now

        selector = loop._selector
        with (
            mock.patch.object(selector, "select", partial(select, selector.select)),
            mock.patch.object(loop, "_clock_resolution", 0.001),
            mock.patch.object(loop, "time", time),
        ):
            await asyncio.gather(sleep("an hour", 3600), sleep("a minute", 60))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.sleep(10)
            woken.append(("later", round(now)))
        await asyncio.sleep(0.001)
        return woken

    assert is_as_in_asyncio(scenario) == [("a minute", 1060), ("an hour", 4600), ("later", 4605)]


def test_a_select_that_is_replaced_in_a_turn_is_called_in_the_next_ones() -> None:
    async def scenario(loop: Any) -> Any:
        timeouts: list[float | None] = []

        def select(former: Any, timeout: float | None) -> Any:
            timeouts.append(timeout)
            return former(timeout)

        selector = loop._selector
        with mock.patch.object(selector, "select", partial(select, selector.select)):
            for _ in range(100):  # more than the polls after which a busy loop may leave some out
                await asyncio.sleep(0)
        return timeouts

    assert is_as_in_asyncio(scenario) == [0] * 100


def test_the_whole_of_it_may_be_replaced(ends: tuple[Any, Any]) -> None:
    class Counting:
        def __init__(self, former: Any) -> None:
            self.former = former
            self.polls = 0

        def select(self, timeout: float | None) -> Any:
            self.polls += 1
            return self.former.select(timeout)

    ours, peer = ends

    def scenario(loop: Any) -> Any:
        peer.send(b"da")
        former = loop._selector
        counting = loop._selector = Counting(former)
        assert loop._selector is counting
        data = loop.run_until_complete(loop.sock_recv(ours, 2))
        loop._selector = former
        return data, counting.polls > 0

    assert is_as_in_asyncio(scenario) == (b"da", True)


def test_select_outside_of_a_turn_loses_no_event(loop: whorl.EventLoop, ends: tuple[Any, Any]) -> None:
    ours, peer = ends
    received: list[bytes] = []

    def receive() -> None:
        received.append(ours.recv(10))
        loop.stop()

    loop.add_reader(ours, receive)
    peer.send(b"data")
    ((key, mask),) = loop._selector.select(0)
    assert (key.fileobj, mask) == (ours, selectors.EVENT_READ)
    assert loop._selector.select(None) == [(key, mask)]
    loop.run_forever()
    assert received == [b"data"]
    loop.remove_reader(ours)


def test_failing_select_leaves_its_events_to_the_next_run(
    loop: whorl.EventLoop, ends: tuple[Any, Any]
) -> None:
    ours, peer = ends
    loop.add_reader(ours, loop.stop)
    peer.send(b"data")

    def fail(former: Any, timeout: float | None) -> None:
        assert former(timeout)
        raise ValueError("the select of a test")

    selector = loop._selector
    with (
        mock.patch.object(selector, "select", partial(fail, selector.select)),
        pytest.raises(ValueError, match="of a test"),
    ):
        loop.run_forever()
    loop.run_forever()
    loop.remove_reader(ours)


def test_private_selector_sleeps_until_another_thread_wakes_it(loop: whorl.EventLoop) -> None:
    assert loop._selector
    loop.call_soon(threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,)).start)
    loop.run_forever()
    assert loop.run_until_complete(asyncio.to_thread(int)) == 0


def test_a_wakeup_is_found_by_each_select_of_a_turn() -> None:
    """Helpers do so that look for events first, and sleep if there are none."""

    def scenario(loop: Any) -> Any:
        found: list[bool] = []

        def select(former: Any, timeout: float | None) -> Any:
            if timeout is None:
                thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
                thread.start()
                thread.join()
                found.append(bool(former(0)))
            return former(10 if timeout is None else timeout)

        selector = loop._selector
        with mock.patch.object(selector, "select", partial(select, selector.select)):
            for _ in range(2):
                began = loop.time()
                loop.run_forever()
                found.append(loop.time() - began < 5)
        return found

    assert is_as_in_asyncio(scenario) == [True] * 4


def test_the_selector_that_was_given_is_the_one(ends: tuple[Any, Any]) -> None:
    def scenario(make: Any) -> bool:
        selector = selectors.SelectSelector()
        loop = make(selector)
        try:
            return loop._selector is selector
        finally:
            loop.close()

    assert scenario(whorl.EventLoop) is scenario(asyncio.SelectorEventLoop) is True


def test_a_closed_loop_has_none() -> None:
    def scenario(loop: Any) -> Any:
        assert loop._selector is not None
        loop.close()
        return loop._selector

    assert is_as_in_asyncio(scenario) is None


def test_private_selector_refuses_register_and_unregister(
    loop: whorl.EventLoop, ends: tuple[Any, Any]
) -> None:
    with pytest.raises(RuntimeError, match="add_reader"):
        loop._selector.register(ends[0], selectors.EVENT_READ)
    with pytest.raises(RuntimeError, match="remove_reader"):
        loop._selector.unregister(ends[0])


def test_asking_for_it_changes_nothing_else(loop: whorl.EventLoop) -> None:
    before = loop.poller_name(), loop.backend_fd()
    assert loop._selector
    assert (loop.poller_name(), loop.backend_fd()) == before


def test_a_selector_of_the_users_is_given_what_was_registered(ends: tuple[Any, Any]) -> None:
    """It may know more of an object than its descriptor says, as that of ØMQ's sockets does."""
    ours, _ = ends

    class Recording(selectors.SelectSelector):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[str, bool]] = []

        def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
            self.calls.append(("register", fileobj is ours))
            return super().register(fileobj, events, data)

        def unregister(self, fileobj: Any) -> Any:
            self.calls.append(("unregister", fileobj is ours))
            return super().unregister(fileobj)

    def calls(make: Any) -> Any:
        selector = Recording()
        loop = make(selector)
        try:
            selector.calls.clear()
            loop.add_reader(ours, print)
            loop.add_writer(ours, print)
            assert selector.get_key(ours).events == selectors.EVENT_READ | selectors.EVENT_WRITE
            loop.remove_reader(ours)
            loop.remove_writer(ours)
            return list(dict.fromkeys(selector.calls))
        finally:
            loop.close()

    assert calls(whorl.EventLoop) == [("register", True), ("unregister", True)]
    assert ("register", True) in calls(asyncio.SelectorEventLoop)
