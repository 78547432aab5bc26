"""Good and bad arguments in all combinations once more: for `start_tls`, files, sockets, and all the rest."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.aio.arguments import (
    ADDRESSES,
    BOOLEANS,
    FAMILIES,
    FLAGS,
    ODD,
    PORTS,
    SOCKETS,
    TIMES,
    TLS,
    Call,
    Maker,
    Silent,
    client_context,
    differences,
    it,
    many,
)

#: How many combinations of each call are tried.
COMBINATIONS = int(os.environ.get("WHORL_COMBINATIONS", "100"))

#: A wait that is longer waits for ever, in seconds: all events happen on this machine.
SHORT = 0.1


def function(*args: Any) -> Any:
    """Return a function to call."""
    return "called", args


async def coroutine() -> str:
    return "awaited"


def fails(*args: Any) -> Any:
    raise ZeroDivisionError("made up")


TRANSPORTS: list[Maker] = [
    *ODD,
    lambda place: place.transport(),
    lambda place: place.closed_transport(),
    lambda place: place.datagrams(),
    lambda place: place.read_pipe(),
    lambda place: place.write_pipe(),
    lambda place: asyncio.Transport(),
]
PROTOCOLS: list[Maker] = [
    *many(None, 5, Silent, object()),
    lambda place: Silent(),
    lambda place: asyncio.BufferedProtocol(),
    lambda place: asyncio.DatagramProtocol(),
]
FILES: list[Maker] = [
    *ODD,
    lambda place: place.file("rb"),
    lambda place: place.file("r"),
    lambda place: place.file("ab"),
    lambda place: closed(place.file("rb")),
    lambda place: place.pipe(1),
]
SIZES = many(None, 0, 1, 5, -1, "1", 1.5, 2**70, True)
COUNTS = many(None, 0, 1, 5, -1, "1", 1.5, True)  # asyncio has refused very high ones until 3.12
BUFFERS = [*ODD, *many(memoryview(b"fixed"), "text"), lambda place: bytearray(4), lambda place: bytearray()]
DATA = [*ODD, *many(b"data", bytearray(b"data"), memoryview(b"data"), memoryview(b"datadata")[::2], "text")]
CALLBACKS = many(function, function, None, 5, fails, coroutine, print, "text", signal.SIGINT, len)
DESCRIPTORS: list[Maker] = [
    *ODD,
    *many("1", True, 10**6),
    lambda place: place.pair(),
    lambda place: place.pair().fileno(),
    lambda place: place.pipe(0),
    lambda place: place.pipe(1),
    lambda place: place.file("rb"),
    lambda place: closed(place.pair()),
    lambda place: place.datagrams(),
]
CONTEXTS = [*many(None, 5, "context"), lambda place: contextvars.copy_context()]
NUMBERS = many(
    signal.SIGUSR1, signal.SIGUSR2, int(signal.SIGWINCH), 0, -1, 9, 65, 2**40, "SIGUSR1", None, 1.5
)
DELAYS = many(0, 0.0, -1, 1e-9, 1000, 1e30, "1", None, True, float("inf"), -0.0, [])


def closed(thing: Any) -> Any:
    thing.close()
    return thing


def listening(place: Any) -> Any:
    place.connected()
    return place.listener


def bound(place: Any) -> Any:
    sock = place.open_socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.sendto(b"datagram", sock.getsockname())
    return sock


def told(place: Any) -> Any:
    """Return a socket that has data to receive."""
    sock = place.pair()
    place.opened[-1].send(b"something")
    return sock


TOLD = [*SOCKETS, told, bound]

CALLS = {
    "TLS on a connection": Call(
        "start_tls",
        {
            "transport": lambda place: place.transport(),
            "protocol": lambda place: Silent(),
            "sslcontext": lambda place: client_context(),
            "ssl_handshake_timeout": it(0.05),
        },
        {
            "transport": TRANSPORTS,
            "protocol": PROTOCOLS,
            "sslcontext": TLS,
            "server_side": BOOLEANS,
            "server_hostname": many(None, "localhost", "", 5, b"localhost", "a" * 300, "a\0b"),
            "ssl_handshake_timeout": TIMES,
            "ssl_shutdown_timeout": TIMES,
        },
        "transport",
        "protocol",
        "sslcontext",
    ),
    "file over a transport": Call(
        "sendfile",
        {"transport": lambda place: place.transport(), "file": lambda place: place.file("rb")},
        {
            "transport": TRANSPORTS,
            "file": FILES,
            "offset": SIZES,
            "count": COUNTS,
            "fallback": BOOLEANS,
        },
        "transport",
        "file",
        patience=SHORT,
    ),
    "file over a socket": Call(
        "sock_sendfile",
        {"sock": lambda place: place.connected(), "file": lambda place: place.file("rb")},
        {"sock": SOCKETS, "file": FILES, "offset": SIZES, "count": COUNTS, "fallback": BOOLEANS},
        "sock",
        "file",
        patience=SHORT,
    ),
    "receive": Call(
        "sock_recv",
        {"sock": told, "n": it(5)},
        {"sock": TOLD, "n": [*SIZES, *ODD]},
        "sock",
        "n",
        patience=SHORT,
    ),
    "receive into a buffer": Call(
        "sock_recv_into",
        {"sock": told, "buf": lambda place: bytearray(4)},
        {"sock": TOLD, "buf": BUFFERS},
        "sock",
        "buf",
        patience=SHORT,
    ),
    "receive a datagram": Call(
        "sock_recvfrom",
        {"sock": bound, "bufsize": it(5)},
        {"sock": TOLD, "bufsize": [*SIZES, *ODD]},
        "sock",
        "bufsize",
        patience=SHORT,
    ),
    "receive a datagram into a buffer": Call(
        "sock_recvfrom_into",
        {"sock": bound, "buf": lambda place: bytearray(4)},
        {"sock": TOLD, "buf": BUFFERS, "nbytes": SIZES},
        "sock",
        "buf",
        "nbytes",
        patience=SHORT,
    ),
    "send": Call(
        "sock_sendall",
        {"sock": told, "data": it(b"data")},
        {"sock": SOCKETS, "data": DATA},
        "sock",
        "data",
        patience=SHORT,
    ),
    "send a datagram": Call(
        "sock_sendto",
        {"sock": bound, "data": it(b"data"), "address": lambda place: bound(place).getsockname()},
        {"sock": [*SOCKETS, bound], "data": DATA, "address": ADDRESSES},
        "sock",
        "data",
        "address",
        patience=SHORT,
    ),
    "connect": Call(
        "sock_connect",
        {
            "sock": lambda place: place.open_socket(socket.AF_INET, socket.SOCK_STREAM),
            "address": lambda place: ("127.0.0.1", place.port),
        },
        {"sock": SOCKETS, "address": ADDRESSES},
        "sock",
        "address",
        patience=SHORT,
    ),
    "accept": Call("sock_accept", {"sock": listening}, {"sock": SOCKETS}, "sock", patience=SHORT),
    **{
        f"add a {what}": Call(
            f"add_{what}",
            {"fd": lambda place: place.pair(), "callback": it(function)},
            {"fd": DESCRIPTORS, "callback": CALLBACKS},
            "fd",
            "callback",
        )
        for what in ("reader", "writer")
    },
    **{
        f"remove a {what}": Call(
            f"remove_{what}", {"fd": lambda place: place.pair()}, {"fd": DESCRIPTORS}, "fd"
        )
        for what in ("reader", "writer")
    },
    "signal handler": Call(
        "add_signal_handler",
        {"sig": it(signal.SIGUSR1), "callback": it(function)},
        {"sig": NUMBERS, "callback": CALLBACKS},
        "sig",
        "callback",
    ),
    "no signal handler": Call("remove_signal_handler", {"sig": it(signal.SIGUSR1)}, {"sig": NUMBERS}, "sig"),
    "soon": Call(
        "call_soon",
        {"callback": it(function)},
        {"callback": CALLBACKS, "argument": ODD, "context": CONTEXTS},
        "callback",
        "argument",
    ),
    "soon, from a thread": Call(
        "call_soon_threadsafe",
        {"callback": it(function)},
        {"callback": CALLBACKS, "argument": ODD, "context": CONTEXTS},
        "callback",
        "argument",
    ),
    "later": Call(
        "call_later",
        {"delay": it(0), "callback": it(function)},
        {"delay": DELAYS, "callback": CALLBACKS, "context": CONTEXTS},
        "delay",
        "callback",
    ),
    "at": Call(
        "call_at",
        {"when": it(0), "callback": it(function)},
        {
            "when": many(0, -1, 1e-9, 1e30, None, True, float("inf")),
            "callback": CALLBACKS,
            "context": CONTEXTS,
        },
        "when",
        "callback",
    ),
    "task": Call(
        "create_task",
        {"coro": lambda place: coroutine()},
        {
            "coro": [*ODD, *many(coroutine, function)],
            "name": many(None, "name", 5, "", object),
            "context": CONTEXTS,
            "no such argument": many(1),
            **({"eager_start": BOOLEANS} if sys.version_info >= (3, 14) else {}),
        },
        "coro",
    ),
    "task factory": Call("set_task_factory", {"factory": it(None)}, {"factory": ODD}, "factory"),
    "exception handler": Call(
        "set_exception_handler", {"handler": it(None)}, {"handler": CALLBACKS}, "handler"
    ),
    "exception": Call(
        "call_exception_handler",
        {"context": it({"message": "made up"})},
        {"context": [*ODD, *many({}, {"exception": 5}, {"message": 5, "exception": ValueError("made up")})]},
        "context",
    ),
    "exception, by default": Call(
        "default_exception_handler",
        {"context": it({"message": "made up"})},
        {"context": [*ODD, *many({}, {"exception": 5}, {"message": 5}, {1: 2, "message": "x"})]},
        "context",
    ),
    "debug mode": Call("set_debug", {"enabled": it(True)}, {"enabled": [*BOOLEANS, *ODD]}, "enabled"),
    "executor": Call(
        "run_in_executor",
        {"executor": it(None), "func": it(function)},
        {"executor": [*ODD, lambda place: closed_pool()], "func": CALLBACKS, "argument": ODD},
        "executor",
        "func",
        "argument",
    ),
    "default executor": Call(
        "set_default_executor",
        {"executor": lambda place: closed_pool()},
        {"executor": [*ODD, *many(ThreadPoolExecutor)]},
        "executor",
    ),
    "no executor any more": Call(
        "shutdown_default_executor",
        {},
        {"timeout": many(None, 0, 1, 1.5, -1, "1")} if sys.version_info >= (3, 12) else {},
    ),
    "addresses": Call(
        "getaddrinfo",
        {"host": it("127.0.0.1"), "port": it(80)},
        {
            "host": many("127.0.0.1", "::1", "", None, "localhost", "256.0.0.1", b"127.0.0.1", 5, "*", ()),
            "port": PORTS,
            "family": FAMILIES,
            "type": many(0, socket.SOCK_STREAM, socket.SOCK_DGRAM, None, -1, "stream", 99),
            "proto": many(0, 6, 17, -1, None, "tcp"),
            "flags": FLAGS,
        },
        "host",
        "port",
    ),
    "names": Call(
        "getnameinfo",
        {"sockaddr": it(("127.0.0.1", 80))},
        {
            "sockaddr": [*ADDRESSES, *many(("::1", 80, 0, 0), ("127.0.0.1", "80"), ("127.0.0.1", -1))],
            "flags": many(0, socket.NI_NUMERICHOST, socket.NI_NUMERICSERV, None, "1", -1, 2**40),
        },
        "sockaddr",
        "flags",
    ),
}


def closed_pool() -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor()
    pool.shutdown()
    return pool


@pytest.mark.slow
@pytest.mark.usefixtures("unwarned")
@pytest.mark.parametrize("name", CALLS)
def test_all_combinations_give_what_they_give_in_asyncio(name: str, tmp_path: Path) -> None:
    different = differences(CALLS, name, tmp_path, COMBINATIONS)
    assert not different, "\n".join(different)
