"""The cases: every case by name, and the selection of the short run."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

import crowds
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

_PROTOCOL = [
    EchoCase(transport, "echo", "protocol", size, connections, is_short)
    for transport, size, connections, is_short in (
        ("tcp", "1KiB", 1, True),
        ("tcp", "1KiB", 10, True),
        ("tcp", "1KiB", 100, True),
        ("tcp", "1KiB", 1000, True),
        ("tcp", "10KiB", 10, False),
        ("tcp", "10KiB", 100, False),
        ("tcp", "10KiB", 1000, False),
        ("tcp", "100KiB", 10, False),
        ("tcp", "100KiB", 100, True),
        ("tcp", "100KiB", 1000, False),
        ("unix", "1KiB", 10, True),
        ("unix", "1KiB", 100, True),
        ("unix", "10KiB", 10, False),
        ("unix", "10KiB", 100, False),
        ("unix", "100KiB", 10, False),
        ("unix", "100KiB", 100, False),
    )
]
_OTHER_KINDS = [
    EchoCase(transport, "echo", kind, "1KiB", connections, is_short=transport == "tcp" and connections == 100)
    for transport in ("tcp", "unix")
    for kind, connections in (("buffered", 100), ("streams", 10), ("streams", 100), ("sock", 100))
] + [EchoCase(transport, "echo", "streams", "100KiB", 10) for transport in ("tcp", "unix")]
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
# The machine's own face, with libuv's callbacks, compared with libuv itself.
MACHINE: tuple[Case, ...] = (
    *(
        EchoCase(transport, "echo", "machine", size, connections)
        for transport in ("tcp", "unix")
        for size, connections in (("1KiB", 10), ("1KiB", 100), ("100KiB", 10))
    ),
    *(MicroCase(f"machine/{name}") for name in ("timers", "asyncs", "threads")),
)
# Whole programs: unmodified libraries, and what asyncio is used for.
PROGRAMS: tuple[Case, ...] = (
    *clients.PROGRAMS,
    *connections.PROGRAMS,
    *local.PROGRAMS,
    *(
        EchoCase("tcp", "http", kind, "", 100)
        for kind in ("uvicorn", "fastapi", "hypercorn", "aiohttp", "httptools")
    ),
)
_MICRO = [
    MicroCase(f"micro/{name}", is_short=not name.startswith("files/") or "/fs-" in name)
    for name in micro.CASES
    if not crowds.is_one(name)
]

# How the cost of one event grows with the number of everything: a curve for each subject, by that number.
SCALES: dict[str, dict[int, Case]] = {
    "an echo, all connections busy": {
        count: EchoCase("tcp", "echo", "protocol", "1KiB", count) for count in crowds.CONNECTIONS
    },
    "an echo on 10 connections, others idle": {
        count: EchoCase("tcp", "echo", "protocol", "1KiB", 10, idle=count) for count in crowds.CONNECTIONS
    },
    "a timer, others waiting": {count: MicroCase(f"micro/timers-among/{count}") for count in crowds.TIMERS},
    "a task's switch, all tasks ready": {count: MicroCase(f"micro/tasks/{count}") for count in crowds.TASKS},
}
ALL: tuple[EchoCase | MicroCase, ...] = (
    *_PROTOCOL,
    *_OTHER_KINDS,
    *_TLS,
    *_CHURN,
    *_DATAGRAMS,
    *_HTTP,
    *_MICRO,
)


def packages(case: Case) -> tuple[str, ...]:
    """Return the packages without which a case cannot run."""
    if isinstance(case, Program):
        return case.packages
    return web_servers.PACKAGES[case.kind] if isinstance(case, EchoCase) and case.mode == "http" else ()


def choose(patterns: list[str], everything: bool) -> list[Case]:
    """Return the cases that match a pattern (a glob or a part of a name), by default the short selection."""
    if not patterns:
        return [case for case in ALL if everything or case.is_short]
    return choose_from(ALL, patterns)


def choose_from(group: tuple[Case, ...], patterns: list[str]) -> list[Case]:
    """Return the cases of a group that match a pattern; without patterns all."""
    return [case for case in group if not patterns or any(_matches(case.name, one) for one in patterns)]


def choose_scales(patterns: list[str]) -> list[Case]:
    """Return the cases of all curves, or of those whose subject contains one of the patterns."""
    return [
        case
        for subject, curve in SCALES.items()
        if not patterns or any(pattern in subject for pattern in patterns)
        for case in curve.values()
    ]


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or pattern in name
