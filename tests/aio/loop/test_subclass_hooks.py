"""Subclasses of the loop that override what asyncio's methods call: their calls, on both loops."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import outcome
from tests.aio.sockets_for_tests import socket_pair, turns

pytestmark = pytest.mark.usefixtures("no_leak")


def is_as_on_asyncios(mixin: type, scenario: Callable[[Any], Any]) -> Any:
    """Check that a scenario gives the same on a subclass of each loop; what it gives."""
    expected = outcome(type("Loop", (mixin, asyncio.SelectorEventLoop), {}), scenario)
    ours = outcome(type("Loop", (mixin, whorl.EventLoop), {}), scenario)
    assert ours == expected
    return expected


def noting(*names: str) -> type:
    """Return a class whose methods of these names note their calls, and call the loop's."""

    def method(name: str) -> Any:
        def call(self: Any, *args: Any, **options: Any) -> Any:
            self.__dict__.setdefault("notes", []).append(name)
            return getattr(super(mixin, self), name)(*args, **options)

        return call

    mixin: type = type("Mixin", (), {name: method(name) for name in names})
    return mixin


def test_call_soon_calls_the_one_that_is_overridden() -> None:
    """Loops do so that wake another main loop for scheduled calls."""

    def scenario(loop: Any) -> Any:
        found: list[Any] = []
        loop.notes = []
        handle = loop.call_soon(found.append, 1)
        found.append((list(loop.notes), handle._args, handle.cancelled()))
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        with pytest.raises(RuntimeError, match="closed"):
            loop.call_soon(int)
        return found

    assert is_as_on_asyncios(noting("_call_soon"), scenario)[1] == 1


def test_debug_mode_looks_at_what_goes_by_the_one_that_is_overridden() -> None:
    def scenario(loop: Any) -> Any:
        loop.set_debug(True)
        handle = loop.call_soon(int)
        with pytest.raises(TypeError):
            loop.call_soon(5)
        return any(frame.name == "scenario" for frame in handle._source_traceback)

    assert is_as_on_asyncios(noting("_call_soon"), scenario) is True


def test_calls_from_other_threads_write_to_the_one_that_is_overridden() -> None:
    def scenario(loop: Any) -> Any:
        loop.notes = []
        found: list[int] = []

        def call() -> None:
            loop.call_soon_threadsafe(found.append, 1)
            loop.call_soon_threadsafe(loop.stop)

        thread = threading.Thread(target=call)
        thread.start()
        loop.run_forever()
        thread.join()
        return loop.notes, found

    assert is_as_on_asyncios(noting("_write_to_self"), scenario) == (["_write_to_self"] * 2, [1])


def test_readers_and_writers_go_by_those_that_are_overridden() -> None:
    def scenario(loop: Any) -> Any:
        loop.notes = []
        ours, peer = socket_pair("unix")
        with ours, peer:
            loop.add_reader(ours, int)
            loop.add_writer(ours, loop.stop)
            loop.run_forever()
            found = loop.remove_reader(ours), loop.remove_writer(ours), loop.remove_writer(ours)
            return *found, list(loop.notes)

    names = ("_add_reader", "_add_writer", "_remove_reader", "_remove_writer")
    assert is_as_on_asyncios(noting(*names), scenario)[:3] == (True, True, False)


def test_a_public_method_that_is_overridden_too_stays(loop: whorl.EventLoop) -> None:
    class Loop(noting("_call_soon", "call_soon"), whorl.EventLoop):  # type: ignore[misc]
        pass

    own: Any = Loop()
    own.call_soon(int)
    assert own.notes == ["call_soon"]
    own.close()


def test_names_are_resolved_by_the_one_that_is_overridden() -> None:
    class Elsewhere:
        async def _ensure_resolved(self: Any, address: Any, **options: Any) -> Any:
            if address[0] == "elsewhere":
                address = ("127.0.0.1", address[1])
            return await super()._ensure_resolved(address, **options)  # type: ignore[misc]

    async def scenario(loop: Any) -> Any:
        server = await loop.create_server(asyncio.Protocol, "elsewhere", 0)
        port = server.sockets[0].getsockname()[1]
        client, _ = await loop.create_connection(asyncio.Protocol, "elsewhere", port)
        found = [client.get_extra_info("peername")[0]]
        sender, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("elsewhere", 9)
        )
        found.append(sender.get_extra_info("peername")[0])
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("elsewhere", port))
            found.append(sock.getpeername()[0])
        client.close()
        sender.close()
        await turns(3)
        server.close()
        server.close_clients() if hasattr(server, "close_clients") else None
        await turns(3)
        return found

    assert is_as_on_asyncios(Elsewhere, scenario) == ["127.0.0.1"] * 3


def test_events_go_by_the_one_that_is_overridden() -> None:
    """Loops do so that measure how long they sleep."""

    class Counting:
        found: int

        def _process_events(self, event_list: Any) -> None:
            self.__dict__["found"] = self.__dict__.get("found", 0) + len(event_list)
            super()._process_events(event_list)  # type: ignore[misc]

    async def scenario(loop: Any) -> Any:
        ours, peer = socket_pair("unix")
        reader, writer = await asyncio.open_connection(sock=ours)
        loop.found = 0
        peer.send(b"x")
        data = await reader.read(1)
        found = loop.found
        with peer:
            writer.close()
            await writer.wait_closed()
        return data, found

    assert is_as_on_asyncios(Counting, scenario) == (b"x", 1)


def test_a_time_that_goes_on_when_nothing_is_ready() -> None:
    class VirtualTime:
        now = 0.0

        def time(self) -> float:
            return self.now

        def _run_once(self: Any) -> None:
            if not self._ready and self._scheduled:
                self.now = max(self.now, self._scheduled[0]._when)
            super()._run_once()  # type: ignore[misc]

    async def scenario(loop: Any) -> Any:
        woken: list[Any] = []

        async def sleep(seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append((seconds, loop.time()))

        await asyncio.gather(sleep(3600), sleep(60), sleep(7200))
        return woken

    assert is_as_on_asyncios(VirtualTime, scenario) == [(60, 60.0), (3600, 3600.0), (7200, 7200.0)]


def test_turns_made_by_hand() -> None:
    """Programs do so that run a loop from within: the selector, its events, the timers, the ready queue."""

    def scenario(loop: Any) -> Any:
        called: list[str] = []
        ours, peer = socket_pair("unix")
        with ours, peer:
            loop.add_reader(ours, called.append, "read")
            peer.send(b"x")
            loop.call_soon(called.append, "soon")
            loop._process_events(loop._selector.select(0))
            while loop._ready:
                handle = loop._ready.popleft()
                if not handle._cancelled:
                    handle._run()
            loop.remove_reader(ours)
        return called

    assert is_as_on_asyncios(noting(), scenario) == ["soon", "read"]


def test_events_that_an_override_keeps_are_not_lost() -> None:
    """An event that is not passed on comes all the same: an edge would not come again."""

    class Dropping(whorl.EventLoop):
        def _process_events(self, event_list: Any) -> None:
            pass

    async def main() -> None:
        ours, peer = socket_pair("tcp")
        reader, writer = await asyncio.open_connection(sock=ours)
        peer.send(b"x")
        assert await reader.read(1) == b"x"
        with peer:
            writer.close()
            await writer.wait_closed()

    loop = Dropping()
    loop.run_until_complete(main())
    loop.close()
