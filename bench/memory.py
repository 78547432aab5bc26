"""The memory of an idle connection in a server: the growth of the resident memory by many of them."""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from cases import EchoCase
from loops import LIMIT, Choice
from measure import Cores, MeasurementError, idle_connections, running_server

KINDS = ("protocol", "streams")
FIRST = 500  # connections that come before, so that what grows once has grown
MORE = 5_000
ACCEPT_SECONDS = 30


def table(choices: Sequence[Choice], cores: Cores, rounds: int) -> Iterator[str]:
    """Yield a line for each kind of server and loop: the median of the rounds, lowest and highest."""
    for kind in KINDS:
        found: dict[str, list[float]] = {loop.name: [] for loop in choices if loop.name != LIMIT}
        for _ in range(rounds):
            for loop in choices:
                if loop.name in found:
                    found[loop.name].append(bytes_of_one(kind, loop, cores))
        for name, sizes in found.items():
            yield f"{kind:10} {name:12} {median(sizes):8,.0f}  ({min(sizes):,.0f}..{max(sizes):,.0f})"


def bytes_of_one(kind: str, loop: Choice, cores: Cores) -> float:
    """Return the number of bytes that an idle connection takes."""
    case = EchoCase("tcp", "echo", kind, "1KiB", FIRST)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        running_server(case, loop, cores, folder) as (pid, address),
    ):
        alone = _sockets(pid)
        with idle_connections(FIRST, address, cores):
            _wait_for_sockets(pid, alone + FIRST)
            before = _resident_bytes(pid)
            with idle_connections(MORE, address, cores):
                _wait_for_sockets(pid, alone + FIRST + MORE)
                return (_resident_bytes(pid) - before) / MORE


def _sockets(pid: int) -> int:
    links = (os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    return sum(link.startswith("socket:") for link in links)


def _wait_for_sockets(pid: int, count: int) -> None:
    deadline = time.monotonic() + ACCEPT_SECONDS
    while _sockets(pid) < count:
        if time.monotonic() > deadline:
            raise MeasurementError("not all connections were accepted")
        time.sleep(0.05)
    time.sleep(0.2)  # for what follows accepting the last of them


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
