"""A simulated socket takes the addresses that a socket of the system takes, and refuses the others alike."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.sim.conftest import Run

FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
CALLS = {
    socket.SOCK_STREAM: ("bind", "connect", "connect_ex"),
    socket.SOCK_DGRAM: ("bind", "connect", "connect_ex", "sendto", "sendmsg"),
}


class Number:
    """A port that is no int."""

    def __index__(self) -> int:
        return 9


NO_ADDRESSES: tuple[Any, ...] = (None, "x", 5, ["127.0.0.1", 9])
WRONG_SHAPES: tuple[Any, ...] = (
    (),
    ("127.0.0.1",),
    ("127.0.0.1", 9, 0),
    ("::1", 9, 0, 0, 0),
    ("::1", 9, -1),
    ("::1", 9, 2**20),
    ("::1", 9, "x"),
    ("::1", 9, 0, "x"),
)
HOSTS: tuple[Any, ...] = (
    None,
    5,
    "",
    "127.0.0.1",
    b"127.0.0.1",
    bytearray(b"127.0.0.1"),
    "127.0.0.1\0",
    "::1",
    "::ffff:127.0.0.1",
    "<broadcast>",
    "255.255.255.255",
    "a\udc80",
    "ä" * 70,
)
PORTS: tuple[Any, ...] = (9, True, Number(), "9", 9.0, None, -1, 65536, 2**40, -(2**70))
ADDRESSES = [
    *NO_ADDRESSES,
    *WRONG_SHAPES,
    *((host, 9) for host in HOSTS),
    *((host, port) for host in ("127.0.0.1", "::1") for port in PORTS),
]


def answer(family: int, kind: int, call: str, address: Any) -> Any:
    """Return what a call with this address raises, or that the address was taken."""
    with socket.socket(family, kind) as sock:
        sock.setblocking(False)
        try:
            if call == "sendto":
                sock.sendto(b"x", address)
            elif call == "sendmsg":
                sock.sendmsg([b"x"], [], 0, address)
            else:
                getattr(sock, call)(address)
        except OSError as error:
            is_about_address = isinstance(error, socket.gaierror) or error.errno is None
            return (type(error), str(error)) if is_about_address else "taken"
        except Exception as error:
            return type(error), str(error)
        return "taken"


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_address_is_refused_as_the_system_refuses_it(
    exact: Run, family: int, kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # "x" is a good name for a UNIX socket

    def answers() -> list[Any]:
        return [(call, at, answer(family, kind, call, at)) for call in CALLS[kind] for at in ADDRESSES]

    async def main() -> list[Any]:
        return answers()

    assert exact(main) == answers()


@pytest.mark.parametrize(("family", "other"), [(socket.AF_INET, "::1"), (socket.AF_INET6, "127.0.0.1")])
def test_a_datagram_for_the_other_family_is_an_error_that_the_protocol_hears_of(
    exact: Run, family: socket.AddressFamily, other: str
) -> None:
    class Protocol(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.failed = asyncio.get_running_loop().create_future()

        def error_received(self, exc: Exception) -> None:
            self.failed.set_result((type(exc), str(exc)))

    async def main() -> Any:
        own = "127.0.0.1" if family == socket.AF_INET else "::1"
        make = asyncio.get_running_loop().create_datagram_endpoint
        transport, protocol = await make(Protocol, family=family, local_addr=(own, 0))
        transport.sendto(b"x", (other, 9))
        try:
            return await protocol.failed
        finally:
            transport.close()

    assert exact(main) == whorl.run(main())
