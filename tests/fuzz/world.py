"""A loop and what a program does with it: the same operations on another loop must give the same.

Every operation is a method `do_...`. What it returns or raises is its answer; what callbacks are told
stands in the diaries, one for each connection and one for the loop. Bytes that arrive one after the other
count as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import socket
import struct
import zlib
from collections.abc import Callable
from typing import Any

Effect = tuple[Any, ...]

ERRORS: dict[str, type[BaseException]] = {
    "ValueError": ValueError,
    "OSError": OSError,
    "Cancelled": asyncio.CancelledError,
    "Interrupt": KeyboardInterrupt,
    "Exit": SystemExit,
}
#: What an operation names, so that it can be shown.
VALUES: dict[str, Any] = {
    "@empty": b"",
    "@short": b"some bytes",
    "@kilobyte": bytes(range(250)) * 4,
    "@huge": bytes(range(256)) * 12_000,
    "@mutable": bytearray(b"mutable"),
    "@view": memoryview(b"a view"),
    "@parts": memoryview(b"every other byte")[::2],
    "@text": "text",
    "@nan": math.nan,
    "@buffer": bytearray(10),
    "@object": object(),
    "@print": print,
}
TURNS = 8  # enough for what an operation sets off to come to rest


class Diary(asyncio.Protocol):
    """A protocol that notes what it is told, and reacts as it was told to."""

    def __init__(self, world: World, number: int, reactions: dict[str, Effect]) -> None:
        self.world = world
        self.number = number
        self.reactions = reactions
        self.lines: list[Any] = []

    def note(self, event: str, *details: Any) -> Any:
        self.lines.append((event, *details))
        effect = self.reactions.get(event)
        if event == "eof" and effect in (("raise", "Interrupt"), ("raise", "Exit")):
            return False  # asyncio would call it again in every turn
        return None if effect is None else self.world.effect(effect, self.number)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.note("made")

    def data_received(self, data: bytes) -> None:
        if self.lines and self.lines[-1][0] == "data":
            data = self.lines.pop()[1] + data
        self.note("data", data)

    def eof_received(self) -> Any:
        return self.note("eof")

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.note("lost", type(error))


class World:
    """One loop with its connections, callbacks, futures and tasks."""

    def __init__(self, make_loop: Callable[[], Any]) -> None:
        self.loop = make_loop()
        self.loop.set_exception_handler(self.reported)
        self.lines: list[Any] = []
        self.diaries: list[Diary] = []
        self.transports: list[Any] = []
        self.peers: list[socket.socket] = []
        self.received: list[bytearray] = []
        self.handles: list[Any] = []
        self.futures: list[Any] = []
        self.watched: list[socket.socket] = []

    def reported(self, loop: Any, context: dict[str, Any]) -> None:
        self.lines.append(
            (
                "reported",
                context["message"].split(" <")[0].split(" in callback ")[0],
                type(context.get("exception")),
            )
        )

    def do(self, operation: tuple[Any, ...]) -> Any:
        """What an operation answers, in a form that can be compared."""
        name, *arguments = operation
        if name == "settle" and self.loop.is_running():
            return None
        try:
            return plain(getattr(self, f"do_{name}")(*map(meant, arguments)))
        except BaseException as error:
            return type(error)

    def state(self) -> Any:
        """All that has been noted."""
        return {
            "loop": list(self.lines),
            "diaries": [[tuple(map(brief, line)) for line in diary.lines] for diary in self.diaries],
            "received": [brief(bytes(data)) for data in self.received],
            "closing": [None if item is None else item.is_closing() for item in self.transports],
            "cancelled": [handle.cancelled() for handle in self.handles],
            "futures": [outcome(future) for future in self.futures],
        }

    # Effects: what callbacks do.

    def effect(self, effect: Effect, number: int = 0) -> Any:
        kind, *details = effect
        if kind == "raise":
            raise ERRORS[details[0]]
        if kind == "return":
            return details[0]
        if kind == "do":
            self.lines.append(("inside", self.do(details[0])))
        return None

    def callback(self, tag: int, effect: Effect) -> None:
        self.lines.append(("called", tag))
        self.effect(effect)

    # The loop.

    def do_settle(self) -> None:
        """Let everything come to rest. Not from inside: there it is an error, as in asyncio."""
        for _ in range(TURNS):
            try:
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
            except (KeyboardInterrupt, SystemExit) as error:
                self.lines.append(("left", type(error)))

    def do_run(self, number: int) -> Any:
        return self.loop.run_until_complete(self.any_future(number))

    def do_run_forever(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def do_stop(self) -> None:
        self.loop.stop()

    def do_debug(self, on: bool) -> None:
        self.loop.slow_callback_duration = 100
        self.loop.set_debug(on)

    def do_is(self) -> Any:
        return self.loop.is_running(), self.loop.is_closed(), self.loop.get_debug()

    def do_collect(self) -> None:
        gc.collect()

    def do_close(self) -> None:
        self.loop.close()

    # Callbacks, futures and tasks.

    def do_soon(self, tag: int, effect: Effect, threadsafe: bool) -> None:
        call = self.loop.call_soon_threadsafe if threadsafe else self.loop.call_soon
        self.handles.append(call(self.callback, tag, effect))

    def do_later(self, delay: Any, tag: int, effect: Effect) -> None:
        self.handles.append(self.loop.call_later(delay, self.callback, tag, effect))

    def do_odd_call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        getattr(self.loop, method)(*arguments)

    def do_cancel_handle(self, number: int) -> None:
        if self.handles:
            self.handles[number % len(self.handles)].cancel()

    def any_future(self, number: int) -> Any:
        if not self.futures:
            self.futures.append(self.loop.create_future())
        return self.futures[number % len(self.futures)]

    def do_future(self, tag: int, effect: Effect) -> None:
        future = self.loop.create_future()
        future.add_done_callback(lambda future: self.callback(tag, effect))
        self.futures.append(future)

    def do_set_result(self, number: int, value: int) -> None:
        self.any_future(number).set_result(value)

    def do_cancel(self, number: int) -> Any:
        return self.any_future(number).cancel()

    def do_task(self, turns: int, effect: Effect) -> None:
        async def work() -> Any:
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
            finally:
                self.lines.append(("worked", turns))
            return self.effect(effect)

        self.futures.append(self.loop.create_task(work()))

    # Connections.

    def do_connect(self, kind: str, reactions: dict[str, Effect]) -> None:
        if self.loop.is_running() or len(self.diaries) > 6:
            return
        ours, peer = connected(kind)
        diary = Diary(self, len(self.diaries), reactions)
        try:
            transport, _ = self.loop.run_until_complete(
                self.loop.connect_accepted_socket(lambda: diary, ours)
            )
        except BaseException:
            transport = self.loop._transports.get(ours.fileno())
            if transport is not None:
                transport.abort()
            self.do_settle()
            ours.close()
            peer.close()
            raise
        self.diaries.append(diary)
        self.transports.append(transport)
        self.peers.append(peer)
        self.received.append(bytearray())

    def do_transport(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of a transport; sizes of buffers are looked at when nothing waits only."""
        if not self.transports:
            return None
        transport = self.transports[number % len(self.transports)]
        if method.startswith(("write", "abort")) and transport.is_closing():
            return None  # asyncio's falls over what is not there any more, or sends it after the end
        if arguments and arguments[0] is VALUES["@huge"] and transport.get_extra_info("peername"):
            arguments = (VALUES["@kilobyte"],)  # how much the kernel takes of it varies over TCP
        answer = getattr(transport, method)(*arguments)
        return None if method == "get_write_buffer_size" and answer else answer

    def do_extra(self, number: int, name: str) -> Any:
        if not self.transports:
            return None
        return self.transports[number % len(self.transports)].get_extra_info(name, "none") == "none"

    def do_peer(self, number: int, action: str, data: bytes) -> Any:
        if not self.peers:
            return None
        peer = self.peers[number % len(self.peers)]
        if action == "send":
            return peer.send(data)
        if action == "shut":
            peer.shutdown(socket.SHUT_WR)
        elif action == "close":
            peer.close()
        elif action == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        else:
            self.drain(number % len(self.peers))
        return None

    def drain(self, number: int) -> None:
        """Read all that a transport has to send, if nobody runs the loop at the moment."""
        idle = 0
        while idle < 3:
            try:
                data = self.peers[number].recv(1 << 20)
            except BlockingIOError:
                data = b""
            self.received[number] += data
            idle = 0 if data else idle + 1
            if self.loop.is_running():
                break
            self.do_settle()

    # Sockets of the user's.

    def do_watch(self, number: int, method: str, effect: Effect) -> Any:
        if not self.watched:
            self.watched += connected("unix")
        sock = self.watched[number % len(self.watched)]
        if method.startswith("remove"):
            return getattr(self.loop, method)(sock)
        return getattr(self.loop, method)(sock, self.once, sock, method, effect)

    def once(self, sock: socket.socket, method: str, effect: Effect) -> None:
        self.loop.remove_reader(sock) if method == "add_reader" else self.loop.remove_writer(sock)
        self.lines.append(method)
        self.effect(effect)

    def do_sock(self, number: int, method: str, argument: Any) -> None:
        if not self.watched:
            self.watched += connected("unix")
        sock = self.watched[number % len(self.watched)]
        self.futures.append(self.loop.create_task(getattr(self.loop, method)(sock, argument)))

    # The end.

    def end(self) -> None:
        """Close everything."""
        for future in self.futures:
            future.cancel()
        if not self.loop.is_closed():
            for transport in self.transports:
                with contextlib.suppress(AttributeError):  # of asyncio's, once it is lost
                    transport.abort()
            for sock in self.watched:
                self.loop.remove_reader(sock)
                self.loop.remove_writer(sock)
            self.do_settle()
            self.loop.close()
        for sock in [*self.peers, *self.watched]:
            sock.close()
        for future in self.futures:
            if future.done() and not future.cancelled():
                future.exception()
            future._log_destroy_pending = False


def connected(kind: str) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that do not block."""
    if kind == "unix":
        pair = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            peer = socket.create_connection(listener.getsockname())
            pair = (listener.accept()[0], peer)
        for sock in pair:  # asyncio forgets it for an accepted socket without a protocol number
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    for sock in pair:
        sock.setblocking(False)
    return pair


def meant(value: Any) -> Any:
    """What stands for a name, also inside tuples and lists."""
    if isinstance(value, str):
        return VALUES.get(value, value)
    if isinstance(value, tuple | list):
        return type(value)(map(meant, value))
    return value


def brief(value: Any) -> Any:
    """Many bytes as their number and a checksum."""
    return (len(value), zlib.crc32(value)) if isinstance(value, bytes) and len(value) > 20 else value


def plain(value: Any) -> Any:
    """A value that can be compared: of what is not plain data, that it is there."""
    if value is None or isinstance(value, bool | int | str | bytes | tuple | list):
        return value
    return "something"


def outcome(future: Any) -> Any:
    if not future.done():
        return "pending"
    if future.cancelled():
        return "cancelled"
    with contextlib.suppress(BaseException):
        return type(future.exception()) if future.exception() else plain(future.result())
    return "failed"
