"""Good and bad arguments in all combinations: Whorl's loop gives the same outcomes as asyncio's.

Each call has arguments that are good together, and other values for each argument. Up to three of these are
put in at random, from a seed. The tests compare the exception's type and text, or the visible attributes of
the result.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.arguments import (
    ADDRESSES,
    BOOLEANS,
    FACTORIES,
    FAMILIES,
    FLAGS,
    HOSTS,
    ODD,
    PATHS,
    PORTS,
    PROGRAM_FACTORIES,
    SOCKETS,
    TIMES,
    TLS,
    Call,
    Silent,
    differences,
    it,
    many,
)

#: How many combinations of each call are tried.
COMBINATIONS = int(os.environ.get("WHORL_COMBINATIONS", "150"))


CLIENT_TLS = {
    "ssl": TLS,
    "server_hostname": many(None, "localhost", "", 5, b"localhost", "a" * 300, "a\0b"),
    "ssl_handshake_timeout": TIMES,
    "ssl_shutdown_timeout": TIMES,
}
SERVER_TLS = {"ssl": TLS, "ssl_handshake_timeout": TIMES, "ssl_shutdown_timeout": TIMES}
BACKLOGS = many(0, 1, 7, -1, 100, None, "1", 2**40, 1.5)
TCP = {"host": it("127.0.0.1"), "port": lambda place: place.port}

CALLS = {
    "connection": Call(
        "create_connection",
        {"factory": it(Silent), **TCP},
        {
            "factory": FACTORIES,
            "host": HOSTS,
            "port": PORTS,
            "sock": SOCKETS,
            "family": FAMILIES,
            "proto": many(0, None, 6, 17, -1, "tcp", 999),
            "flags": FLAGS,
            "local_addr": ADDRESSES,
            # Since 3.14, asyncio puts the error of a text into a group.
            "happy_eyeballs_delay": many(None, 0, 0.01, -1, *(["1"] if sys.version_info < (3, 14) else [])),
            "interleave": many(None, 0, 1, 2, -1, "1"),
            **({"all_errors": BOOLEANS} if sys.version_info >= (3, 12) else {}),
            **CLIENT_TLS,
        },
        "factory",
        "host",
        "port",
    ),
    "connection over a socket": Call(
        "create_connection",
        {"factory": it(Silent), "sock": lambda place: place.connected()},
        {"factory": FACTORIES, "sock": SOCKETS, "family": FAMILIES, "host": many(None, "", 0), **CLIENT_TLS},
        "factory",
    ),
    "server": Call(
        "create_server",
        {"factory": it(Silent), "host": it("127.0.0.1"), "port": it(0)},
        {
            "factory": FACTORIES,
            "host": [
                *HOSTS,
                *many(["127.0.0.1", "::1"], [], ["127.0.0.1", "127.0.0.1"], [None], [5], {"127.0.0.1"}),
            ],
            "port": PORTS,
            "family": FAMILIES,
            "flags": FLAGS,
            "sock": SOCKETS,
            "backlog": BACKLOGS,
            "reuse_address": BOOLEANS,
            "reuse_port": BOOLEANS,
            "start_serving": BOOLEANS,
            **({"keep_alive": BOOLEANS} if sys.version_info >= (3, 13) else {}),
            **SERVER_TLS,
        },
        "factory",
        "host",
        "port",
    ),
    "server on a socket": Call(
        "create_server",
        {"factory": it(Silent), "sock": lambda place: place.open_socket(socket.AF_INET, socket.SOCK_STREAM)},
        {
            "sock": SOCKETS,
            "backlog": BACKLOGS,
            "reuse_port": BOOLEANS,
            "host": many(None, "", "::1"),
            **SERVER_TLS,
        },
        "factory",
    ),
    "UNIX connection": Call(
        "create_unix_connection",
        {"factory": it(Silent), "path": lambda place: place.unix_path},
        {"factory": FACTORIES, "path": PATHS, "sock": SOCKETS, **CLIENT_TLS},
        "factory",
        "path",
    ),
    "UNIX connection over a socket": Call(
        "create_unix_connection",
        {"factory": it(Silent), "sock": lambda place: place.pair()},
        {"sock": SOCKETS, "path": many(None, "", "x"), **CLIENT_TLS},
        "factory",
    ),
    "UNIX server": Call(
        "create_unix_server",
        {"factory": it(Silent), "path": lambda place: str(place.folder / "new")},
        {
            "path": PATHS,
            "sock": SOCKETS,
            "backlog": BACKLOGS,
            "start_serving": BOOLEANS,
            **({"cleanup_socket": BOOLEANS} if sys.version_info >= (3, 13) else {}),
            **SERVER_TLS,
        },
        "factory",
        "path",
    ),
    "UNIX server on a socket": Call(
        "create_unix_server",
        {"factory": it(Silent), "sock": lambda place: place.open_socket(socket.AF_UNIX, socket.SOCK_STREAM)},
        {"sock": SOCKETS, "path": many(None, "", "x"), "backlog": BACKLOGS, **SERVER_TLS},
        "factory",
    ),
    "datagram endpoint": Call(
        "create_datagram_endpoint",
        {"factory": it(Silent), "local_addr": it(("127.0.0.1", 0))},
        {
            "factory": FACTORIES,
            "local_addr": ADDRESSES,
            "remote_addr": ADDRESSES,
            "family": FAMILIES,
            "proto": many(0, None, 17, 6, -1, "udp"),
            "flags": FLAGS,
            "reuse_port": BOOLEANS,
            "allow_broadcast": BOOLEANS,
            "sock": SOCKETS,
        },
        "factory",
    ),
    "datagram endpoint on a socket": Call(
        "create_datagram_endpoint",
        {"factory": it(Silent), "sock": lambda place: place.open_socket(socket.AF_INET, socket.SOCK_DGRAM)},
        {
            "sock": SOCKETS,
            "reuse_port": BOOLEANS,
            "flags": FLAGS,
            "remote_addr": ADDRESSES,
            "family": FAMILIES,
        },
        "factory",
    ),
    "accepted socket": Call(
        "connect_accepted_socket",
        {"factory": it(Silent), "sock": lambda place: place.connected()},
        {"factory": FACTORIES, "sock": SOCKETS, **SERVER_TLS},
        "factory",
    ),
    "read pipe": Call(
        "connect_read_pipe",
        {"factory": it(Silent), "pipe": lambda place: place.pipe(0)},
        {
            "factory": FACTORIES,
            "pipe": [*SOCKETS, *ODD, lambda place: place.pipe(1), lambda place: place.file("rb")],
        },
        "factory",
        "pipe",
    ),
    "write pipe": Call(
        "connect_write_pipe",
        {"factory": it(Silent), "pipe": lambda place: place.pipe(1)},
        {
            "factory": FACTORIES,
            "pipe": [*SOCKETS, *ODD, lambda place: place.pipe(0), lambda place: place.file("wb")],
        },
        "factory",
        "pipe",
    ),
    "program": Call(
        "subprocess_exec",
        {"factory": it(Silent), "program": it("/bin/true")},
        {
            "factory": PROGRAM_FACTORIES,
            "program": [*ODD, *many("/does/not/exist", b"/bin/true", Path("/bin/true"), "a\0b", "/")],
            "stdin": many(None, subprocess.DEVNULL, subprocess.PIPE, -7, "x", 2**40),
            "stdout": many(None, subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT, -7, "x"),
            "stderr": many(None, subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT, -7),
            "universal_newlines": BOOLEANS,
            "shell": BOOLEANS,
            "bufsize": many(0, 1, -1, None, "0"),
            "encoding": many(None, "utf-8", "", 5),
            "errors": many(None, "strict"),
            "text": many(None, True, False, ""),
            "cwd": many(None, "/", "/does/not/exist", 5, b"/", "a\0b"),
            "env": many(None, {}, {"A": "b"}, {"A": 5}, 5, {"A=B": "c"}),
            "executable": many(None, "/bin/true", "/does/not/exist", 5),
            "close_fds": BOOLEANS,
            "pass_fds": many((), (0,), ("x",), 5, (-1,)),
            "start_new_session": BOOLEANS,
            "umask": many(-1, 0o22, "x"),
            "no such argument": many(1),
        },
        "factory",
        "program",
    ),
    "shell": Call(
        "subprocess_shell",
        {"factory": it(Silent), "command": it("true")},
        {
            "factory": PROGRAM_FACTORIES,
            "command": [*ODD, *many(b"true", Path("true"), ["true"], "a\0b", "exit 3")],
            "stdin": many(None, subprocess.DEVNULL, subprocess.PIPE, -7),
            "universal_newlines": BOOLEANS,
            "shell": BOOLEANS,
            "bufsize": many(0, 1, None),
            "encoding": many(None, "utf-8"),
            "text": many(None, True),
            "errors": many(None, "strict"),
        },
        "factory",
        "command",
    ),
}


@pytest.mark.usefixtures("unwarned")
@pytest.mark.parametrize("name", CALLS)
def test_all_combinations_give_what_they_give_in_asyncio(name: str, tmp_path: Path) -> None:
    different = differences(CALLS, name, tmp_path, COMBINATIONS)
    assert not different, "\n".join(different)


NEWER = {("shutdown_default_executor", "timeout")} if sys.version_info < (3, 12) else set()


@pytest.mark.parametrize("name", [name for name in dir(asyncio.AbstractEventLoop) if name[0] != "_"])
def test_a_method_has_the_name_and_the_arguments_that_asyncios_has(name: str) -> None:
    method = getattr(whorl.EventLoop, name)
    expected = parameters(getattr(asyncio.SelectorEventLoop, name))
    # Keywords of newer Pythons are taken on older ones, too.
    newer = [
        one
        for one in parameters(method)
        if one not in expected and (one.kind is one.KEYWORD_ONLY or (name, one.name) in NEWER)
    ]
    assert method.__name__ == name
    assert [one for one in parameters(method) if one not in newer] == expected


def parameters(method: Any) -> list[inspect.Parameter]:
    """Return the parameters of a method after the loop, without their annotations."""
    found = list(inspect.signature(method).parameters.values())
    return [one.replace(annotation=one.empty) for one in found[1:]]
