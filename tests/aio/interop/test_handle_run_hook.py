"""Callbacks are run by `asyncio.Handle._run` where a tool has put its own function there."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from unittest import mock

import pytest

from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.sockets_for_tests import socket_pair

pytestmark = pytest.mark.usefixtures("no_leak")


def watched(calls: list[Any], show: Any) -> Any:
    """Return a replacement of `Handle._run` as a tool installs it."""
    former: Any = asyncio.Handle._run

    def run(self: Any) -> None:
        calls.append(show(self))
        former(self)

    return mock.patch.object(asyncio.Handle, "_run", run)


def test_handle_run_hook_is_called_for_callbacks_timers_and_task_steps() -> None:
    def scenario(loop: Any) -> Any:
        async def main() -> None:
            loop.call_soon(int)
            loop.call_later(0, str).cancel()
            loop.call_later(0, str)
            await asyncio.sleep(0.001)

        calls: list[Any] = []
        with watched(calls, lambda handle: getattr(handle._callback, "__name__", type(handle._callback))):
            loop.run_until_complete(main())
        seen = [call for call in calls if call in ("int", "str")], len(calls) > 4
        calls.clear()
        loop.run_until_complete(main())
        return seen, calls

    assert is_as_in_asyncio(scenario) == ((["int", "str"], True), [])


def test_errors_are_reported_as_ever() -> None:
    def scenario(loop: Any) -> Any:
        reported: list[Any] = []
        loop.set_exception_handler(lambda loop, context: reported.append(repr(context["exception"])))
        calls: list[Any] = []
        with watched(calls, type):
            loop.call_soon(int, "no number")
            cancelled = loop.call_soon(int, "not called")
            cancelled.cancel()
            loop.call_soon(loop.stop)
            loop.run_forever()
        return reported, len(calls)

    assert len(is_as_in_asyncio(scenario)[0]) == 1


def test_exits_leave_the_run() -> None:
    def scenario(loop: Any) -> Any:
        with watched([], type):
            loop.call_soon(exit, 3)
            loop.run_forever()

    assert is_as_in_asyncio(scenario) == (SystemExit, "3")


@pytest.mark.parametrize("how", ["reader", "transport", "thread"])
def test_events_are_shown_in_handles_too(how: str) -> None:
    async def main(loop: Any) -> Any:
        ours, peer = socket_pair("unix")
        with ours, peer:
            peer.send(b"data")
            if how == "reader":
                readable = asyncio.Event()
                loop.add_reader(ours, readable.set)
                await readable.wait()
                loop.remove_reader(ours)
            elif how == "thread":
                await asyncio.to_thread(int)
            else:
                reader, writer = await asyncio.open_connection(sock=ours)
                writer.write(await reader.readexactly(4))
                peer.setblocking(True)
                assert peer.recv(10) == b"data"
                peer.shutdown(socket.SHUT_WR)
                assert await reader.read() == b""
                writer.close()
                await writer.wait_closed()

    def scenario(loop: Any) -> Any:
        calls: list[Any] = []
        with watched(calls, lambda handle: (isinstance(handle, asyncio.Handle), handle._loop is loop)):
            loop.run_until_complete(main(loop))
        return set(calls)

    assert is_as_in_asyncio(scenario) == {(True, True)}
