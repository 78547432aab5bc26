"""The memory of an idle connection in a server: the growth of the resident memory by many of them."""

import os
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
    yield "\nbytes that more are resident for each of many idle connections"
    for kind in KINDS:
        for loop in choices:
            if loop.name != LIMIT:
                sizes = [bytes_of_one(kind, loop, cores) for _ in range(rounds)]
                spread = f"({min(sizes):,.0f}..{max(sizes):,.0f})"
                yield f"{kind:10} {loop.name:12} {median(sizes):8,.0f}  {spread}"


def bytes_of_one(kind: str, loop: Choice, cores: Cores) -> float:
    """Return the number of bytes that an idle connection takes."""
    case = EchoCase("tcp", "echo", kind, "1KiB", FIRST, idle=FIRST)
    with running_server(case, loop, cores) as (pid, address):
        before = _resident_bytes(pid, FIRST)
        with idle_connections(MORE, address):
            return (_resident_bytes(pid, FIRST + MORE) - before) / MORE


def _resident_bytes(pid: int, connections: int) -> int:
    """Wait until so many connections are accepted, and for what follows accepting the last of them."""
    deadline = time.monotonic() + ACCEPT_SECONDS
    while len(os.listdir(f"/proc/{pid}/fd")) < connections:
        if time.monotonic() > deadline:
            raise MeasurementError("not all connections were accepted")
        time.sleep(0.05)
    time.sleep(0.2)
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
