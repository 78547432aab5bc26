"""The production loop and its transports through a whole day of virtual time, on both builds."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import whorl
from build_tools.sources import ROOT, SOURCES
from tests.aio.scenarios import SCENARIOS, World
from tests.sim import day
from whorl import sim
from whorl.core import Host, Kernel
from whorl.sim.process.kernel import SimKernel
from whorl.sim.process.process import SimProcess

SEEDS = 3

#: System calls of the interpreter's own: for memory and locks; asyncio asks for the process before 3.12.
HARMLESS = {"brk", "mmap", "munmap", "mremap", "madvise", "futex", "getpid"}


def in_a_process(*options: str, sources: str | None = None, prefix: tuple[str, ...] = ()) -> str:
    """Return the output of a day in a process of its own, with the build under test or with other sources."""
    environment = dict(os.environ)
    if sources is not None:
        environment["PYTHONPATH"] = sources
    environment.pop("PYTHONHASHSEED", None)
    command = [*prefix, sys.executable, "-m", "tests.sim.day", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_byte_arrives(scenario: Callable[[World], Awaitable[Any]], kind: str, seed: int) -> None:
    assert day.live(scenario, kind, seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_seed_gives_the_same_calls(seed: int) -> None:
    for kind in ("tcp", "unix"):
        for scenario in SCENARIOS:
            assert day.live(scenario, kind, seed) == day.live(scenario, kind, seed)


def test_another_seed_gives_another_day() -> None:
    assert day.day(1) != day.day(2)


@pytest.mark.slow
def test_simulated_day_is_the_same_on_both_builds() -> None:
    build, digest = in_a_process("--guarded", "7").split()
    assert build == ("compiled" if whorl.compiled else "pure")
    assert in_a_process("--guarded", "7", sources=str(SOURCES)).split() == ["pure", digest]
    assert day.day(7) == digest


def test_the_guard_sees_what_is_real() -> None:
    script = (
        "import asyncio, whorl\nfrom tests.sim import day\nday.forbid(day.FORBIDDEN)\nwhorl.EventLoop()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "was called in the simulated world" in done.stderr


def can_trace() -> bool:
    """Return whether processes can be traced here."""
    strace = shutil.which("strace")
    return strace is not None and subprocess.run([strace, "-o", "/dev/null", "true"]).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace")
def test_simulated_day_makes_no_system_call(tmp_path: Path) -> None:
    log = tmp_path / "strace"
    in_a_process("--marked", "3", prefix=("strace", "-f", "-o", str(log)))
    before, _, rest = log.read_text().partition(day.BEGIN.decode().strip())
    during, _, after = rest.partition(day.END.decode().strip())
    assert "openat" in calls_in(before)
    assert "exit_group" in calls_in(after)
    assert calls_in(during) - HARMLESS - {"write"} == set()
    assert during.count("write(") == 1  # that of the second mark


def calls_in(log: str) -> set[str]:
    """Return the system calls in a part of a trace."""
    return set(re.findall(r"^\d+ +(\w+)\(", log, re.MULTILINE))


def test_day_of_timers_has_a_turn_for_each_step() -> None:
    async def main() -> None:
        await day.heartbeats(World("tcp", 1))

    result = sim.run(main, faults=sim.Faults.none(), limit_s=48 * 3600)
    result.check()
    assert result.elapsed_s == pytest.approx(24 * 3600 + 1, abs=0.01)
    assert result.turns <= 2 * 24 * 60 + 60  # for each beat: a timer, then the task it wakes


#: Calls that take a socket object and call its methods, so that the real kernel's code serves simulated ones.
BY_OBJECT = {
    *("bind", "listen", "accept", "connect", "socket_error", "set_option", "get_option", "socket_name"),
    *("peer_name", "shutdown", "close_socket", "close_file", "recvfrom", "recvfrom_into", "sendto"),
    *("receive_error", "receive_descriptors", "receive_descriptors_into", "send_descriptors"),
}
#: Calls for sockets without an object, which a world does not have; and of inotify, which it refuses.
NEVER_MADE = {
    *("accept_descriptor", "may_accept", "open_descriptor", "connect_descriptor", "names_of_descriptor"),
    *("descriptor_error", "name_of", "socket_of", "inotify_add", "inotify_remove", "known_mounts"),
}


def test_simulated_kernel_answers_every_call_of_the_real_one() -> None:
    methods = {name for name, _ in inspect.getmembers(Kernel, callable) if not name.startswith("_")}
    own = SimKernel.__mro__[: SimKernel.__mro__.index(Kernel)]
    assert methods - {name for part in own for name in vars(part)} == BY_OBJECT | NEVER_MADE


def test_simulated_process_answers_every_call_of_the_real_one() -> None:
    methods = {name for name, _ in inspect.getmembers(Host, callable) if not name.startswith("_")}
    assert methods - vars(SimProcess).keys() == set()
