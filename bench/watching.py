"""The price of the inspector: each program with it and without it, by processor time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import loops
import micro
from cases import Case, EchoCase, MicroCase
from measure import Cores, MeasurementError, last_line, pinned, running_load, running_server

BATCH = "call_soon/batch-1000"
WITHOUT = ("files", "subprocess", "streams", "run/")  # which threads, children and files take the most of
MICRO_GOAL, BATCH_GOAL = 30, 20  # the most that watching may add, in percent
ECHO_GOAL = 3
CASES: tuple[Case, ...] = (
    *(MicroCase(f"micro/{name}") for name in micro.CASES if not name.startswith(WITHOUT)),
    *(
        EchoCase("tcp", "echo", kind, "1KiB", connections)
        for kind, connections in (("protocol", 10), ("protocol", 100), ("protocol", 1000), ("streams", 10))
    ),
)
WATCHED = {"WHORL_INSPECT": "1"}
TURNS = 10  # of each server in a round
SLICE = 0.1  # of the seconds of a measurement
SLICE_WARM_UP_SECONDS = 0.05


def table(cases: Sequence[Case], rounds: int, seconds: float) -> Iterator[str]:
    """Measure each of these cases in so many rounds; yield a line for each."""
    cores, choice = Cores.of_this_machine(), loops.choose("whorl")
    yield f"{'case':32} {'CPU µs':>9} {'watched':>9} {'more':>8}  quartiles        goal"
    for case in cases:
        if isinstance(case, EchoCase):
            yield _line(case.name, _measure_echo(case, choice, cores, rounds, seconds), ECHO_GOAL)
        else:
            name = case.name.removeprefix("micro/")
            pairs = _measure_micro(name, choice, cores, rounds, seconds)
            yield _line(case.name, pairs, BATCH_GOAL if name == BATCH else MICRO_GOAL)


def _line(name: str, pairs: Sequence[Sequence[float]], goal: int) -> str:
    """Show pairs of processor times: of one operation in nanoseconds, without the inspector and with it."""
    more = [(watched / plain - 1) * 100 for plain, watched in pairs]
    low, middle, high = statistics.quantiles(more, n=4) if len(more) > 1 else more * 3
    plain, watched = (statistics.median(column) / 1e3 for column in zip(*pairs, strict=True))
    return f"{name:32} {plain:9.3f} {watched:9.3f} {middle:+7.1f} %  {low:+5.1f} to {high:+5.1f}  {goal:4} %"


def _measure_micro(
    name: str, choice: loops.Choice, cores: Cores, rounds: int, seconds: float
) -> list[list[float]]:
    command = [sys.executable, __file__, name, str(rounds), str(seconds * 0.3)]
    with pinned({cores.server, cores.client}):
        ran = subprocess.run(command, env=choice.environment, capture_output=True, text=True)
    if ran.returncode:
        raise MeasurementError(last_line(ran.stderr))
    pairs: list[list[float]] = json.loads(ran.stdout)
    return pairs


def _measure_echo(
    case: EchoCase, choice: loops.Choice, cores: Cores, rounds: int, seconds: float
) -> list[list[float]]:
    """Return a pair for each turn. Each round starts a server of each kind, and loads both in many turns.

    By chance a server lies in memory so that it is some percent slower than another one. So each round
    has new ones. Both live at once: an unwatched one has a single thread, which the system serves faster.
    """
    watched = dataclasses.replace(choice, environment={**choice.environment, **WATCHED})
    pairs: list[list[float]] = []
    for _ in range(rounds):
        with contextlib.ExitStack() as stack:
            servers = []
            for loop in (choice, watched):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
                servers.append(stack.enter_context(running_server(case, loop, cores, folder)))
            pairs.extend(_echo_in_turns(case, choice, cores, servers, seconds * SLICE))
    return pairs


def _echo_in_turns(
    case: EchoCase, choice: loops.Choice, cores: Cores, servers: Sequence[tuple[int, str]], seconds: float
) -> Iterator[list[float]]:
    """Load these servers by turns; yield how many nanoseconds an echo took in each, all threads together.

    The load of other programs comes and goes within seconds. So neighbours in time are compared.
    """
    for turn in range(TURNS):
        spent = [0.0] * len(servers)
        for place in range(len(servers))[:: -1 if turn % 2 else 1]:
            pid, address = servers[place]
            before, began = _nanoseconds_of_other_threads(pid), time.monotonic()
            found = running_load(case, choice, cores, address, seconds, SLICE_WARM_UP_SECONDS, pid)
            others = _nanoseconds_of_other_threads(pid) - before
            measured = found["seconds"] / (time.monotonic() - began)  # The generator starts, and warms up.
            if not found["requests"] or found["errors"] or found["lost"]:
                raise MeasurementError(f"{case.name}: a reply was wrong or missing")
            if found["server_run_ns"] is None:
                raise MeasurementError("this system does not tell what a thread used of processors")
            spent[place] = (found["server_run_ns"] + others * measured) / found["requests"]
        yield spent


def _in_turn(rounds: int, *measure: Callable[[], float]) -> list[list[float]]:
    """Measure each of them in each round, and in every other round in the opposite order."""
    found = []
    for number in range(rounds + 1):  # The first one warms up.
        order = range(len(measure))[:: -1 if number % 2 else 1]
        spent = {place: measure[place]() for place in order}
        found.append([spent[place] for place in sorted(spent)])
    return found[1:]


def _nanoseconds_of_other_threads(pid: int) -> int:
    """Return what the watchdog's threads have used of processors; the load generator reads the loop's."""
    threads = (thread for thread in Path(f"/proc/{pid}/task").iterdir() if thread.name != str(pid))
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def _measure_in_this_process(name: str, rounds: int, seconds: float) -> list[list[float]]:
    """Repeat a micro case on one loop, which is watched in every other measurement."""
    import whorl
    from whorl import inspector

    chosen = micro.CASES[name]
    with asyncio.Runner(loop_factory=whorl.new_event_loop) as runner:

        def nanoseconds() -> float:
            found = micro.repeat(lambda: runner.run(chosen.batch()), chosen.operations, seconds)
            assert found["busy_seconds"] is not None
            assert found["operations"] is not None
            return found["busy_seconds"] / found["operations"] * 1e9

        def watched() -> float:
            with inspector.start():
                return nanoseconds()

        return _in_turn(rounds, nanoseconds, watched)


if __name__ == "__main__":
    loops.die_with_parent()
    print(json.dumps(_measure_in_this_process(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
