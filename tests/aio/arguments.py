"""Calls with good and bad arguments, on asyncio's own loop and on Whorl's, and their visible outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import random
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import whorl
from tests.aio.compare_with_asyncio import outcome
from tests.aio.tls_contexts import client_context, server_context

#: A wait that is longer counts as a wait for ever, in seconds.
LONG = 2.0
PATIENT = 5.0

#: asyncio's error until 3.13 where no attempt to connect has failed: later a TimeoutError, as always on
#: Whorl.
NO_ATTEMPT = (IndexError, "list index out of range")

Maker = Callable[["Place"], Any]


class Place:
    """The place of one call: the sockets, files and paths that its arguments name."""

    def __init__(self, folder: Path, loop: Any) -> None:
        self.folder = folder
        self.loop = loop
        self.opened: list[Any] = []
        self.listener = self.open_socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        self.unix_path = str(folder / "listener")
        unix_listener = self.open_socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix_listener.bind(self.unix_path)
        unix_listener.listen()

    def open_socket(self, family: int, kind: int, blocking: bool = False) -> socket.socket:
        # Of TCP by name: ours sets TCP_NODELAY for every TCP socket, asyncio only for those that say it.
        tcp = kind == socket.SOCK_STREAM and family != socket.AF_UNIX
        sock = socket.socket(family, kind, socket.IPPROTO_TCP if tcp else 0)
        sock.setblocking(blocking)
        self.opened.append(sock)
        return sock

    def pair(self, kind: int = socket.SOCK_STREAM) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        self.opened += [ours, theirs]
        for sock in (ours, theirs):
            sock.setblocking(False)
        return ours

    def connected(self) -> socket.socket:
        sock = self.open_socket(socket.AF_INET, socket.SOCK_STREAM, blocking=True)
        sock.connect(("127.0.0.1", self.port))
        sock.setblocking(False)
        return sock

    def pipe(self, end: int) -> Any:
        ends = os.pipe()
        self.opened += [open(ends[0], "rb", 0), open(ends[1], "wb", 0)]
        return self.opened[-2:][end]

    def file(self, mode: str) -> Any:
        (self.folder / "file").write_bytes(b"something")
        self.opened.append((self.folder / "file").open(mode))
        return self.opened[-1]

    async def transport(self) -> Any:
        transport, _ = await self.loop.create_connection(Silent, sock=self.connected())
        return transport

    async def closed_transport(self) -> Any:
        transport = await self.transport()
        transport.abort()
        return transport

    async def datagrams(self) -> Any:
        transport, _ = await self.loop.create_datagram_endpoint(Silent, local_addr=("127.0.0.1", 0))
        return transport

    async def read_pipe(self) -> Any:
        transport, _ = await self.loop.connect_read_pipe(Silent, self.pipe(0))
        return transport

    async def write_pipe(self) -> Any:
        transport, _ = await self.loop.connect_write_pipe(Silent, self.pipe(1))
        return transport

    def close(self) -> None:
        for thing in self.opened:
            with contextlib.suppress(OSError):
                thing.close()
        for path in self.folder.iterdir():
            path.unlink()


class Silent(asyncio.Protocol):
    """A protocol that sends nothing; it serves datagrams and programs, too."""

    def datagram_received(self, data: bytes, address: Any) -> None:
        raise AssertionError("nobody sends anything")

    def error_received(self, error: OSError) -> None:
        """Ignore an ICMP message."""

    def process_exited(self) -> None:
        """Ignore the end of a program."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Ignore a program's output."""

    def pipe_connection_lost(self, fd: int, error: Exception | None) -> None:
        """Ignore the end of a program's pipe."""


def it(value: Any) -> Maker:
    """Return a maker of the same value at every place."""
    return lambda place: value


def many(*values: Any) -> list[Maker]:
    return [it(value) for value in values]


ODD = many(None, object(), b"", "", 0, -1, 2**70, 1.5, [], ())
TLS = [
    *many(None, False, 0, "", object(), "yes", True),
    lambda place: client_context(),
    lambda place: server_context(),
]
TIMES = many(0, -1, 0.05, "1")
FLAGS = many(0, None, socket.AI_PASSIVE, socket.AI_NUMERICHOST, "1", -1, 1.5)
FAMILIES = many(0, socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, None, -1, 99, "inet", socket.AF_UNSPEC)
HOSTS = many(
    "127.0.0.1",
    "::1",
    "",
    None,
    "localhost",
    "256.0.0.1",
    b"127.0.0.1",
    5,
    "a\0b",
    "*",
    ("127.0.0.1",),
    "0.0.0.0",
)
PORTS: list[Maker] = [
    *many(None, 0, "0", -1, 70000, "no such service", b"0", 1.5, (), 2**40),
    lambda place: str(place.port),
]
SOCKETS: list[Maker] = [
    it(None),
    it(object()),
    it(5),
    it("socket"),
    lambda place: place.open_socket(socket.AF_INET, socket.SOCK_STREAM),
    lambda place: place.open_socket(socket.AF_INET, socket.SOCK_STREAM, blocking=True),
    lambda place: place.open_socket(socket.AF_INET, socket.SOCK_DGRAM),
    lambda place: place.open_socket(socket.AF_INET6, socket.SOCK_STREAM),
    lambda place: place.open_socket(socket.AF_UNIX, socket.SOCK_STREAM),
    lambda place: place.open_socket(socket.AF_UNIX, socket.SOCK_DGRAM),
    lambda place: place.pair(),
    lambda place: place.pair(socket.SOCK_DGRAM),
    lambda place: place.pair(socket.SOCK_SEQPACKET),
    lambda place: place.connected(),
    lambda place: place.listener,
    lambda place: closed(place),
]
BOOLEANS = many(None, True, False, 0, 1, "yes", [])
FACTORIES: list[Maker] = [
    it(Silent),
    it(Silent),
    it(None),
    it(5),
    it(lambda: None),
    it(lambda: 1 / 0),
    it(lambda x: x),
]
PROGRAM_FACTORIES = [*FACTORIES[:4], *FACTORIES[5:]]  # the end of a program is told to its protocol
PATHS: list[Maker] = [
    *many(None, "", b"", "a\0b", 5, "/does/not/exist", "x" * 200, object(), []),
    lambda place: place.unix_path,
    lambda place: place.unix_path.encode(),
    lambda place: Path(place.unix_path),
    lambda place: str(place.folder / "new"),
    lambda place: str(place.folder),
]
ADDRESSES: list[Maker] = [
    *many(
        None,
        ("127.0.0.1", 0),
        ("::1", 0),
        ("localhost", 0),
        ("127.0.0.1",),
        "127.0.0.1",
        (),
        5,
        ("8.8.8.8", 0),
    ),
    *many(
        ("127.0.0.1", "x"),
        ("127.0.0.1", None),
        (None, 0),
        ("127.0.0.1", 0, 0),
        ("", 0),
        ["127.0.0.1", 0],
        b"x",
        "",
    ),
    lambda place: ("127.0.0.1", place.port),
    lambda place: str(place.folder / "datagrams"),
    lambda place: place.unix_path,
]


def closed(place: Place) -> socket.socket:
    sock = place.open_socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.close()
    return sock


class Call:
    """A method of the loop, arguments that are good together, and what else may stand in their places."""

    def __init__(
        self,
        method: str,
        good: dict[str, Maker],
        others: dict[str, list[Maker]],
        *names: str,
        patience: float = LONG,
    ) -> None:
        self.method = method
        self.good = good
        self.others = others
        self.positional = names
        self.patience = patience

    async def make(self, loop: Any, place: Place, dice: random.Random) -> Any:
        arguments = dict(self.good)
        for name in dice.sample(sorted(self.others), min(len(self.others), dice.choice((0, 1, 1, 2, 2, 3)))):
            arguments[name] = dice.choice(self.others[name])
        if "ssl" in arguments:
            arguments.setdefault("ssl_handshake_timeout", it(0.05))  # Nobody answers.
        values = {name: await made(maker(place)) for name, maker in arguments.items()}
        first = [values.pop(name) for name in self.positional if name in values]
        return await made(getattr(loop, self.method)(*first, **values))


async def made(value: Any) -> Any:
    """Return the result of a function, or of the coroutine that it returned."""
    return await value if inspect.iscoroutine(value) or isinstance(value, asyncio.Future) else value


# The visible attributes of results.


def option(sock: Any, level: int, name: int) -> Any:
    try:
        return sock.getsockopt(level, name)
    except OSError as error:
        return error.errno


def seen_of_socket(sock: Any) -> Any:
    """Return the kind of a socket and its options; ports that the kernel chose are left out."""
    options = [
        option(sock, level, name)
        for level, name in (
            (socket.SOL_SOCKET, socket.SO_REUSEADDR),
            (socket.SOL_SOCKET, socket.SO_REUSEPORT),
            (socket.SOL_SOCKET, socket.SO_BROADCAST),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            (socket.SOL_SOCKET, socket.SO_ACCEPTCONN),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY),
            (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY),
        )
    ]
    backlog = None
    if options[4] == 1 and sock.family != socket.AF_UNIX:
        backlog = int.from_bytes(
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[28:32], sys.byteorder
        )
    names = []
    for name_of in (sock.getsockname, sock.getpeername):
        try:
            name = name_of()
        except OSError as error:
            name = error.errno
        names.append(name[0] if isinstance(name, tuple) else name)
    return sock.family, sock.type, names, options, backlog


def seen_of_value(value: Any) -> Any:
    """Return the visible attributes of any other value."""
    if isinstance(value, asyncio.Handle):
        when = value.when() if isinstance(value, asyncio.TimerHandle) else None
        return "handle", when if when is None or when < 100 else "later", value.cancelled()
    if isinstance(value, asyncio.BaseTransport):
        names = ("sockname", "sslcontext", "ssl_object", "peercert")
        extra = [type(value.get_extra_info(name)) for name in names]
        return "transport", extra, value.is_closing(), type(value.get_protocol())
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], socket.socket):
        return "accepted", value[0].gettimeout(), type(value[1])
    return type(value), plain(repr(value))


async def seen(made: Any) -> Any:
    """Return the visible attributes of a server, or of a transport and its protocol."""
    if isinstance(made, asyncio.AbstractServer):
        sockets = [seen_of_socket(sock) for sock in made.sockets]
        is_serving = made.is_serving()
        made.close()
        return "server", sorted(sockets, key=repr), is_serving
    if not isinstance(made, tuple) or not isinstance(made[0], asyncio.BaseTransport):
        return seen_of_value(made)
    transport, protocol = made
    extra = {name: transport.get_extra_info(name) for name in ("sockname", "peername", "sslcontext", "pipe")}
    sock = transport.get_extra_info("socket")
    found = [
        type(protocol),
        None if sock is None else seen_of_socket(sock),
        {name: type(value) for name, value in extra.items()},
        isinstance(transport, asyncio.Transport),
        isinstance(transport, asyncio.DatagramTransport) and sys.version_info >= (3, 12),  # 3.11 forgot it
        transport.is_closing(),
    ]
    if isinstance(transport, asyncio.SubprocessTransport):
        found = [type(protocol), [transport.get_pipe_transport(fd) is None for fd in range(3)]]
        with contextlib.suppress(AttributeError):
            found.append(await transport._wait())
        transport.close()
    elif hasattr(transport, "abort"):
        transport.abort()
    else:
        transport.close()
    return found


def plain(text: str) -> str:
    """Return a message without the parts that change each time: addresses, descriptors, ports."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"fd=-?\d+", "fd", text)
    text = re.sub(r"name=\d+", "name", text)
    text = re.sub(r"'\d{4,5}'\)", "a port)", text)
    text = re.sub(r"\w+\(\) takes", "a function takes", text)
    return re.sub(r"\('([0-9.:]+)', \d+", r"('\1', port", text)


def run(
    method: Call, seed: str, folder: Path, make_loop: Callable[[], Any], patience: float | None = None
) -> Any:
    """Return the outcome of one combination on a new loop."""
    patience = method.patience if patience is None else patience
    folder.mkdir(exist_ok=True)
    places: list[Place] = []
    reported: list[str] = []

    async def scenario(loop: Any) -> Any:
        place = Place(folder, loop)
        places.append(place)
        try:
            async with asyncio.timeout(patience):
                return await seen(await method.make(loop, place, random.Random(seed)))
        except Exception as error:
            return type(error), plain(str(error)).replace(str(folder), "folder")
        finally:
            for _ in range(3):
                await asyncio.sleep(0)

    def with_handler(loop: Any) -> Any:
        loop.set_exception_handler(
            lambda loop, context: reported.append(plain(str(context.get("exception"))))
        )
        return scenario(loop)

    try:
        return outcome(make_loop, with_handler), reported
    finally:
        for place in places:
            place.close()


def differences(calls: dict[str, Call], name: str, folder: Path, combinations: int) -> list[str]:
    """Return the outcomes of one call's combinations that differ between Whorl's loop and asyncio's."""
    different = []
    for number in range(combinations):
        seed = f"{name} {number}"
        expected = run(calls[name], seed, folder / "a", asyncio.SelectorEventLoop)
        ours = run(calls[name], seed, folder / "a", whorl.EventLoop)
        if expected[0] == NO_ATTEMPT and ours[0][0] is TimeoutError:
            continue
        if ours != expected and TimeoutError in (ours[0][0], expected[0][0]):  # perhaps the machine was busy
            expected = run(calls[name], seed, folder / "a", asyncio.SelectorEventLoop, patience=PATIENT)
            ours = run(calls[name], seed, folder / "a", whorl.EventLoop, patience=PATIENT)
        if ours != expected:
            different.append(f"{seed}: {ours!r} is not asyncio's {expected!r}")
    return different
