"""A loop and a program's operations on it; the same operations on another loop must give the same results.

Every operation is a method `do_...`. Its answer is its result or its exception. The arguments of callbacks
stand in the diaries, one for each connection and one for the loop. Bytes that arrive one after the other
count as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import math
import socket
import struct
import zlib
from collections.abc import Callable
from typing import Any

from tests.fuzz.ends import connected, pipe

Effect = tuple[Any, ...]
MOST_INSIDE = 3
#: From this many bytes on, in how many pieces they come depends on how much a loop reads at once.
LARGE = 8192
RECEIVERS = ("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into")

ERRORS: dict[str, type[BaseException]] = {
    "ValueError": ValueError,
    "OSError": OSError,
    "Cancelled": asyncio.CancelledError,
    "Interrupt": KeyboardInterrupt,
    "Exit": SystemExit,
}
#: The values that an operation names, so that it can be shown.
VALUES: dict[str, Any] = {
    "@empty": b"",
    "@short": b"some bytes",
    "@kilobyte": bytes(range(250)) * 4,
    "@huge": bytes(range(256)) * 12_000,
    "@datagram": bytes(range(250)) * 200,
    "@mutable": bytearray(b"mutable"),
    "@view": memoryview(b"a view"),
    "@parts": memoryview(b"every other byte")[::2],
    "@text": "text",
    "@nan": math.nan,
    "@buffer": bytearray(10),
    "@object": object(),
    "@print": print,
}


class Diary(asyncio.Protocol):
    """A protocol that notes its calls, and reacts to them as planned."""

    def __init__(self, world: World, number: int, reactions: dict[str, Effect]) -> None:
        self.world = world
        self.number = number
        self.reactions = dict(reactions)
        self.lines: list[Any] = []
        self.appears = False  # whether the world learns of the transport when the protocol does

    def note(self, event: str, *details: Any) -> Any:
        self.lines.append((event, *details))
        return self.react(event)

    def react(self, event: str) -> Any:
        effect = self.reactions.get(event)
        if event in ("eof", "resume") and effect in (("raise", "Interrupt"), ("raise", "Exit")):
            return False  # asyncio would call it again in every turn, or write nothing in every turn
        if event == "resume" and effect and ends(effect):
            return None  # asyncio's would fall over what is not there any more
        return None if effect is None else contextvars.Context().run(self.world.effect, effect, self.number)

    def connection_made(self, transport: Any) -> None:
        if self.appears:
            self.world.transports.append(transport)
        self.note("made")

    def data_received(self, data: bytes) -> None:
        """Note what came; of what is large, only the first piece has an effect."""
        self.world.updates += 1
        before = self.lines.pop()[1] if self.lines and self.lines[-1][0] == "data" else b""
        self.lines.append(("data", before + data))
        if len(before) < LARGE:
            self.react("data")

    def eof_received(self) -> Any:
        return self.note("eof")

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.note("lost", type(error))


def ends(effect: Effect) -> bool:
    """Return whether an effect ends a connection."""
    return effect[0] == "do" and not {"close", "abort", "close_clients", "abort_clients"}.isdisjoint(
        effect[1]
    )


class BufferedDiary(Diary, asyncio.BufferedProtocol):
    """The same with a small buffer of its own."""

    def __init__(self, world: World, number: int, reactions: dict[str, Effect]) -> None:
        super().__init__(world, number, reactions)
        self.buffer = bytearray(250)

    def get_buffer(self, size: int) -> Any:
        wanted = self.reactions.pop("buffer", None)  # once: it would come in each turn
        return self.buffer if wanted is None else self.world.effect(wanted, self.number)

    def buffer_updated(self, size: int) -> None:
        self.data_received(bytes(self.buffer[:size]))


class World:
    """One loop with its connections, callbacks, futures and tasks."""

    turns = 8  # enough for what an operation sets off to come to rest, but much data takes longer
    idle_turns = 3  # without data; who sends may have to wait for who reads
    most_turns = 1000
    own_clock = False  # whether time passes only when the program says so

    def __init__(self, make_loop: Callable[[], Any]) -> None:
        self.loop = make_loop()
        self.variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
        self.loop.set_exception_handler(self.reported)
        self.lines: list[Any] = []
        self.diaries: list[Diary] = []
        self.transports: list[Any] = []
        self.peers: list[socket.socket] = []
        self.received: list[bytearray] = []
        self.handles: list[Any] = []
        self.futures: list[Any] = []
        self.never_cancelled: list[Any] = []  # of the futures
        self.watched: list[socket.socket] = []
        self.kept: list[Any] = []  # closed at the end
        self.busy: dict[Any, Any] = {}  # who receives or sends by which socket, or a file by which transport
        self.updates = 0  # how often data came
        self.inside = 0  # operations that callbacks did since the last one from outside

    def reported(self, loop: Any, context: dict[str, Any]) -> None:
        if "never retrieved" in context["message"] or "destroyed" in context["message"]:
            return  # that is told when the collector comes
        if "_call_connection_lost" in context["message"] and isinstance(
            context.get("exception"), asyncio.InvalidStateError
        ):
            return  # asyncio's tells a sendfile of a failed write, and again of the lost connection
        self.lines.append(
            (
                "reported",
                context["message"].split(" <")[0].split(" in")[0],
                type(context.get("exception")),
            )
        )

    def do(self, operation: tuple[Any, ...]) -> Any:
        """Return the answer of an operation, in a form that can be compared."""
        name, *arguments = operation
        if name == "settle" and self.loop.is_running():
            return None
        if not self.loop.is_running():
            self.inside = 0
            # Not from inside: a task of asyncio's that waits for a socket is done a turn later.
            self.busy = {thing: future for thing, future in self.busy.items() if not future.done()}
        try:
            return plain(getattr(self, f"do_{name}")(*map(meant, arguments)))
        except BaseException as error:
            return type(error)

    def state(self) -> Any:
        """Return all notes."""
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
        if kind == "do" and self.inside < MOST_INSIDE:  # two that answer each other would never come to rest
            self.inside += 1
            self.lines.append(("inside", self.do(details[0])))
        if kind == "set":
            self.variable.set(details[0])
        return None

    def callback(self, tag: int, effect: Effect) -> None:
        self.lines.append(("called", tag, self.variable.get()))
        self.effect(effect)

    # The loop.

    def do_settle(self) -> None:
        """Let everything come to rest. Not from inside: there it is an error, as in asyncio."""
        idle = 0
        for turn in range(self.most_turns):
            updates, is_left = self.updates, False
            try:
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
            except (KeyboardInterrupt, SystemExit) as error:
                self.lines.append(("left", type(error)))
                is_left = True  # asyncio reads once more then
            idle = idle + 1 if self.updates == updates else 0
            if turn + 1 >= self.turns and (is_left or idle >= self.idle_turns):
                break

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

    def do_context(self, value: int) -> None:
        self.variable.set(value)

    def do_handler(self, kind: str, effect: Effect) -> None:
        """Choose the handling of errors: they are noted, only logged, or cause another one."""

        def handle(loop: Any, context: dict[str, Any]) -> None:
            self.reported(loop, context)
            if "World.callback" in context["message"]:
                self.lines.append(("in context", self.variable.get()))
                self.effect(effect)
            else:  # a protocol's are called in its connection's, which asyncio's are not always
                contextvars.Context().run(self.effect, effect)

        self.loop.set_exception_handler({"noted": self.reported, "logged": None}.get(kind, handle))

    def do_close(self) -> None:
        self.loop.close()

    # Callbacks, futures and tasks.

    def do_soon(self, tag: int, effect: Effect, threadsafe: bool) -> None:
        call = self.loop.call_soon_threadsafe if threadsafe else self.loop.call_soon
        self.handles.append(call(self.callback, tag, effect))

    def do_later(self, delay: Any, tag: int, effect: Effect) -> None:
        self.handles.append(self.loop.call_later(delay, self.callback, tag, effect))

    def do_soon_in(self, value: int, tag: int, effect: Effect) -> None:
        context = contextvars.copy_context()
        context.run(self.variable.set, value)
        self.handles.append(self.loop.call_soon(self.callback, tag, effect, context=context))

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
        future = self.any_future(number)
        return None if future in self.never_cancelled else future.cancel()

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

    def do_connect(self, kind: str, reactions: dict[str, Effect], buffered: bool = False) -> None:
        if self.loop.is_running() or len(self.diaries) > 6:
            return
        ours, peer = (pipe if kind.endswith("pipe") else connected)(kind)
        diary = (BufferedDiary if buffered else Diary)(self, len(self.diaries), reactions)
        number = ours.fileno()
        if kind.endswith("pipe"):
            connect = getattr(self.loop, f"connect_{kind.replace('-', '_')}")(lambda: diary, ours)
        else:
            connect = self.loop.connect_accepted_socket(lambda: diary, ours)
        try:
            transport, _ = self.loop.run_until_complete(connect)
        except BaseException:
            transport = self.loop._transports.get(number)
            if transport is not None:
                transport.abort()
            self.do_settle()
            with contextlib.suppress(RuntimeError):  # asyncio's goes on looking at a pipe
                self.loop.remove_reader(number)
            ours.close()
            peer.close()
            raise
        self.add(diary, transport, peer)

    def add(self, diary: Diary, transport: Any, peer: Any) -> None:
        """Add a connection."""
        self.diaries.append(diary)
        self.transports.append(transport)
        if peer is not None:
            self.peers.append(peer)
            self.received.append(bytearray())

    def do_set_protocol(self, number: int, buffered: bool, reactions: dict[str, Effect]) -> None:
        if self.transports:
            transport = self.transports[number % len(self.transports)]
            buffered = buffered and not transport.get_extra_info("sslcontext")
            diary = (BufferedDiary if buffered else Diary)(self, len(self.diaries), reactions)
            self.diaries.append(diary)
            transport.set_protocol(diary)

    def do_transport(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of a transport; sizes of buffers are looked at when nothing waits only."""
        if not self.transports:
            return None
        transport = self.transports[number % len(self.transports)]
        if method.startswith(("write", "abort")) and transport.is_closing():
            return None  # asyncio's falls over what is not there any more, or sends it after the end
        if method == "close" and transport in self.busy:
            return None  # asyncio's tells who sends a file of the end, and falls over telling of the loss
        if transport.get_extra_info("sslcontext") and self.differs_over_tls(method, arguments):
            return None
        if arguments and arguments[0] is VALUES["@huge"] and transport.get_extra_info("peername"):
            arguments = (VALUES["@kilobyte"],)  # how much the kernel takes of it varies over TCP
        answer = getattr(transport, method)(*arguments)
        return None if method == "get_write_buffer_size" and answer else answer

    @staticmethod
    def differs_over_tls(method: str, arguments: tuple[Any, ...]) -> bool:
        """Return whether TLS counts unsent data differently here, or refuses earlier than asyncio's."""
        return method in ("writelines", "set_write_buffer_limits") or VALUES["@huge"] in arguments

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
        """Read all that a transport has to send, if the loop does not run at the moment."""
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
        sock = self.user_socket(number)
        if method.startswith("remove"):
            return getattr(self.loop, method)(sock)
        return getattr(self.loop, method)(sock, self.once, sock, method, effect)

    def once(self, sock: socket.socket, method: str, effect: Effect) -> None:
        self.loop.remove_reader(sock) if method == "add_reader" else self.loop.remove_writer(sock)
        self.lines.append(method)
        self.effect(effect)

    def do_sock(self, number: int, method: str, *arguments: Any) -> None:
        sock = self.user_socket(number)
        direction = "receives" if method in RECEIVERS else "sends"
        self.start_alone((sock, direction), getattr(self.loop, method), sock, *arguments)

    def user_socket(self, number: int) -> socket.socket:
        """Return one of two connected sockets."""
        if not self.watched:
            self.watched += connected("unix")
        return self.watched[number % len(self.watched)]

    def start_alone(self, doer: Any, method: Callable[..., Any], *arguments: Any) -> bool:
        """Begin something, unless it is being done: asyncio's second silently takes the first one's place."""
        if doer in self.busy:
            return False
        self.start(method(*arguments))
        self.busy[doer] = self.futures[-1]
        return True

    def start(self, coroutine: Any) -> None:
        """Begin something; what becomes of it is noted like any future."""
        self.futures.append(self.loop.create_task(coroutine))

    # The end.

    def servers(self) -> list[Any]:
        """Return all listening servers."""
        return []

    def end(self) -> None:
        """Close everything."""
        for future in self.futures:
            with contextlib.suppress(RecursionError):  # of tasks that wait for each other
                future.cancel()
        if not self.loop.is_closed():
            for server in self.servers():
                server.close()
            for transport in self.transports:
                with contextlib.suppress(AttributeError):  # of asyncio's, once it is lost
                    transport.abort()
            for sock in self.watched:
                self.loop.remove_reader(sock)
                self.loop.remove_writer(sock)
            self.do_settle()
            self.loop.close()
        for thing in [*self.peers, *self.watched, *self.kept]:
            thing.close()
        for future in self.futures:
            if future.done() and not future.cancelled():
                future.exception()
            future._log_destroy_pending = False


def meant(value: Any) -> Any:
    """Return the object of a name, also inside tuples and lists."""
    if isinstance(value, str):
        return VALUES.get(value, value)
    if isinstance(value, tuple | list):
        return type(value)(map(meant, value))
    return value


def brief(value: Any) -> Any:
    """Return many bytes as their number and a checksum."""
    return (len(value), zlib.crc32(value)) if isinstance(value, bytes) and len(value) > 20 else value


def plain(value: Any) -> Any:
    """Return a value that can be compared; other objects count as present."""
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
