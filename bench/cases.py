"""The cases: every case by name, and the selection of the short run."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import micro
import web_servers
from programs import clients, connections, local
from programs.program import Program

SIZES = {"1KiB": 1024, "10KiB": 10 * 1024, "100KiB": 100 * 1024}


@dataclass(frozen=True)
class EchoCase:
    """A server under load: `mode` is the load generator's, `kind` the server's."""

    transport: str  # "tcp", "udp", "unix" or "tls"
    mode: str  # "echo", "churn" or "http"
    kind: str  # "protocol", "buffered", "streams" or "sock"; of udp "datagram"; of http what serves it
    size: str  # of http none
    connections: int
    is_short: bool = False
    idle: int = 0  # connections beside those, on which nothing is ever said

    @property
    def name(self) -> str:
        if self.mode == "http":
            return f"http/{self.kind}/{self.connections}"
        kind = f"churn-{self.kind}" if self.mode == "churn" else self.kind
        idle = f"+{self.idle}" if self.idle else ""
        return f"{self.transport}/{kind}/{self.size}/{self.connections}{idle}"

    @property
    def message_bytes(self) -> int:
        return SIZES.get(self.size, 1)


@dataclass(frozen=True)
class MicroCase:
    """A scheduling operation of the loop alone."""

    name: str
    is_short: bool = True


Case = EchoCase | MicroCase | Program

_ECHOES = [
    EchoCase(transport, "echo", "protocol", size, connections, is_short)
    for transport, size, connections, is_short in (
        *(("tcp", "1KiB", connections, True) for connections in (1, 10, 100, 1000)),
        *(("tcp", "10KiB", connections, False) for connections in (10, 100, 1000)),
        *(("tcp", "100KiB", connections, connections == 100) for connections in (10, 100, 1000)),
        *(("unix", size, connections, size == "1KiB") for size in SIZES for connections in (10, 100)),
    )
]
_ECHOES += [
    EchoCase(transport, "echo", kind, "1KiB", connections, is_short=transport == "tcp" and connections == 100)
    for transport in ("tcp", "unix")
    for kind, connections in (("buffered", 100), ("streams", 10), ("streams", 100), ("sock", 100))
]
_ECHOES += [EchoCase(transport, "echo", "streams", "100KiB", 10) for transport in ("tcp", "unix")]
_TLS = [
    EchoCase("tls", "echo", kind, size, connections, is_short=size == "1KiB" and kind == "protocol")
    for kind, size, connections in (
        ("protocol", "1KiB", 10),
        ("protocol", "1KiB", 100),
        ("protocol", "100KiB", 10),
        ("buffered", "1KiB", 100),
        ("streams", "1KiB", 100),
    )
]
_CHURN = [
    EchoCase(transport, "churn", kind, "1KiB", 100, is_short=transport == "tcp")
    for transport in ("tcp", "unix")
    for kind in ("protocol", "streams")
]
_DATAGRAMS = [
    EchoCase("udp", "echo", "datagram", "1KiB", connections, is_short=connections == 10)
    for connections in (1, 10, 50)  # with 100 the server's socket has no room for all messages
]
_HTTP = [
    EchoCase("tcp", "http", kind, "", connections, is_short=connections in (10, 100))
    for kind in ("uvicorn", "aiohttp", "httptools")
    for connections in (1, 10, 100, 1000)
]
_MICRO = [
    MicroCase(f"micro/{name}", is_short=not name.startswith("files/") or "/fs-" in name)
    for name in micro.CASES
    if not name.startswith(micro.SCALE)
]
ALL: tuple[Case, ...] = (*_ECHOES, *_TLS, *_CHURN, *_DATAGRAMS, *_HTTP, *_MICRO)
# Whole programs: unmodified libraries, and what asyncio is used for.
PROGRAMS: tuple[Case, ...] = (
    *clients.PROGRAMS,
    *connections.PROGRAMS,
    *local.PROGRAMS,
    *(EchoCase("tcp", "http", kind, "", 100) for kind in web_servers.PACKAGES),
)
# How the cost of one event grows with the number of everything.
SCALE: tuple[Case, ...] = (
    *(EchoCase("tcp", "echo", "protocol", "1KiB", 10**power) for power in range(5)),
    *(EchoCase("tcp", "echo", "protocol", "1KiB", 10, idle=10**power) for power in range(5)),
    *(MicroCase(f"micro/{name}") for name in micro.CASES if name.startswith(micro.SCALE)),
)
GROUPS = {"": ALL, "programs": PROGRAMS, "scale": SCALE}


def packages(case: Case) -> tuple[str, ...]:
    """Return the packages without which a case cannot run."""
    if isinstance(case, Program):
        return case.packages
    return web_servers.PACKAGES[case.kind] if isinstance(case, EchoCase) and case.mode == "http" else ()


def choose(group: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    """Return the cases of a group that match a pattern (a glob or a part of a name); without patterns all."""
    return [case for case in group if not patterns or any(_matches(case.name, one) for one in patterns)]


def short() -> list[Case]:
    """Return the short selection."""
    return [case for case in ALL if not isinstance(case, Program) and case.is_short]


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or pattern in name
