"""A real aiohttp service under load, on Whorl and on the other loops: `python examples/demo --help`."""

import argparse
import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

FOLDER = Path(__file__).resolve().parent
LOOPS = ("whorl", "asyncio", "uvloop")
REFERENCE = "asyncio"
START_SECONDS = 20.0
STOP_SECONDS = 5.0
SPARE_SECONDS = 20.0  # beyond its own time, before a client is given up
BUSY = 0.95  # a client with this share of its core is the limit itself
INTERRUPTED = 130


class ServiceError(Exception):
    """The service or the client did not do its work; the message says why."""


@dataclass
class Outcome:
    """The results of all rounds on one loop."""

    seconds: float = 0.0
    latencies_us: list[int] = field(default_factory=list)
    errors: int = 0
    complaints: list[str] = field(default_factory=list)
    loop: dict[str, int] = field(default_factory=dict)
    client_busy: float = 0.0  # the busiest client's share of its core

    @property
    def rate(self) -> float:
        return len(self.latencies_us) / self.seconds if self.seconds else 0.0

    def add(self, seen: dict[str, Any]) -> None:
        self.seconds += seen["seconds"]
        self.latencies_us += seen["latencies_us"]
        self.errors += seen["errors"]
        self.client_busy = max(self.client_busy, seen["client_busy"])
        if seen["first_error"]:
            self.complaints.append(seen["first_error"])
        for name, count in (seen["loop"] or {}).items():
            self.loop[name] = self.loop.get(name, 0) + count

    def fail(self, error: ServiceError) -> None:
        self.errors += 1
        self.complaints.append(str(error))

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_us)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1e3 if ordered else 0.0


def main() -> int:
    options = _parse_arguments()
    _require_dependencies(options.loops)
    loops = [name for name in options.loops if _is_installed(name)]
    outcomes = {name: Outcome() for name in loops}
    print(
        f"An aiohttp service on {', '.join(loops)}: {options.connections} connections, "
        f"{options.rounds} x {options.seconds:g} s each, every reply checked.",
        flush=True,
    )
    for _ in range(options.rounds):  # loops alternate, so that each meets the same machine
        for name, outcome in outcomes.items():
            _run_round(name, outcome, options)
    _print_table(outcomes)
    _print_what_the_loop_did(outcomes)
    return _print_errors(outcomes)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python examples/demo", description=__doc__)
    parser.add_argument("--loops", type=lambda text: text.split(","), default=list(LOOPS), metavar="NAME,...")
    parser.add_argument("--seconds", type=float, default=3.0, help="of load, in each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    if unknown := set(options.loops) - set(LOOPS):
        parser.error(f"unknown loop {', '.join(sorted(unknown))}; there are {', '.join(LOOPS)}")
    if options.seconds <= 0 or options.rounds < 1 or options.connections < 1:
        parser.error("--seconds, --rounds and --connections must be positive")
    return options


def _require_dependencies(loops: Sequence[str]) -> None:
    if importlib.util.find_spec("aiohttp") is None:
        sys.exit("The demo needs aiohttp: `make demo` installs it, or `pip install aiohttp`.")
    if "whorl" in loops and importlib.util.find_spec("whorl") is None:
        sys.exit("Whorl is not importable: `make demo` builds it, or `pip install .`, or PYTHONPATH=src.")


def _is_installed(loop: str) -> bool:
    if loop == REFERENCE or importlib.util.find_spec(loop) is not None:
        return True
    print(f"Without {loop}, which is not installed.")
    return False


# ---- one round: a service and its client, each in a process and on a core of its own ----


def _run_round(loop: str, outcome: Outcome, options: argparse.Namespace) -> None:
    cores = sorted(os.sched_getaffinity(0))
    try:
        with _running_service(loop, cores[0]) as port:
            outcome.add(_run_client(port, cores[-1], options))
    except ServiceError as error:
        outcome.fail(error)


@contextlib.contextmanager
def _running_service(loop: str, core: int) -> Iterator[str]:
    """Yield the port of a service on `loop`."""
    with _child([str(FOLDER / "service.py"), loop], core) as (service, complaints):
        yield _wait_until_ready(service, complaints)
        service.terminate()
        try:
            service.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ServiceError(f"the service did not stop within {STOP_SECONDS:g} s") from None
        if service.returncode != 0 or _last_line(complaints):
            raise ServiceError(f"the service ended with {service.returncode}: {_last_line(complaints)}")


def _wait_until_ready(service: subprocess.Popen[str], complaints: IO[str]) -> str:
    assert service.stdout is not None
    is_readable, _, _ = select.select([service.stdout], [], [], START_SECONDS)
    words = service.stdout.readline().split() if is_readable else []
    if len(words) != 2 or words[0] != "READY":
        raise ServiceError(f"the service did not start: {_last_line(complaints)}")
    return words[1]


def _run_client(port: str, core: int, options: argparse.Namespace) -> dict[str, Any]:
    command = [str(FOLDER / "client.py"), port, str(options.connections), str(options.seconds)]
    with _child(command, core) as (client, complaints):
        try:
            output, _ = client.communicate(timeout=options.seconds + SPARE_SECONDS)
        except subprocess.TimeoutExpired:
            raise ServiceError("the client did not come to an end") from None
        if client.returncode != 0:
            raise ServiceError(f"the client ended with {client.returncode}: {_last_line(complaints)}")
    seen: dict[str, Any] = json.loads(output)
    return seen


@contextlib.contextmanager
def _child(command: Sequence[str], core: int) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Yield a Python process on one core, and its standard error; it does not outlive the block."""
    usable = os.sched_getaffinity(0)
    with tempfile.TemporaryFile("w+") as complaints:
        os.sched_setaffinity(0, {core})  # children inherit it
        child = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent alone
        )
        os.sched_setaffinity(0, usable)
        with child:
            try:
                yield child, complaints
            finally:
                child.kill()


def _last_line(complaints: IO[str]) -> str:
    complaints.seek(0)
    return (complaints.read().strip().splitlines() or [""])[-1]


# ---- printing ----


def _print_table(outcomes: dict[str, Outcome]) -> None:
    reference = outcomes.get(REFERENCE)
    print(f"\n{'loop':<10}{'requests/s':>12}{'p50 ms':>10}{'p90 ms':>10}{'p99 ms':>10}{'max ms':>10}", end="")
    print(f"{'errors':>9}{'/ asyncio':>12}")
    for name, outcome in outcomes.items():
        ratio = f"{outcome.rate / reference.rate:.2f}" if reference and reference.rate else ""
        percentiles = "".join(f"{outcome.percentile_ms(share):>10.2f}" for share in (0.5, 0.9, 0.99, 1.0))
        print(f"{name:<10}{outcome.rate:>12,.0f}{percentiles}{outcome.errors:>9}{ratio:>12}")
    print("\nRequests: 60 % small JSON, 20 % a page of 16 KiB, 15 % an upload of 4 KiB and its checksum,")
    print("5 % with a sleep of 10 ms, which is not counted as latency.")
    if any(outcome.client_busy > BUSY for outcome in outcomes.values()):
        print("The client's core was busy nearly all the time: the services may be faster than this shows.")


def _print_what_the_loop_did(outcomes: dict[str, Outcome]) -> None:
    for name, outcome in outcomes.items():
        if not outcome.loop or not outcome.latencies_us:
            continue
        requests = len(outcome.latencies_us)
        idle = outcome.loop["idle_ns"] / 1e9
        print(f"\nWhat {name}'s loop did in these {outcome.seconds:.1f} s ({_build(name)}):")
        for counter in ("turns", "events", "callbacks"):
            count = outcome.loop[counter]
            print(f"  {counter:<10}{count:>12,}   {count / requests:.2f} for each request")
        print(f"  {'idle':<10}{idle:>10.2f} s   {idle / outcome.seconds:.1%} of the time")


def _build(loop: str) -> str:
    module = importlib.import_module(loop)
    return f"{loop} {module.__version__}, {'compiled' if module.compiled else 'plain Python'}"


def _print_errors(outcomes: dict[str, Outcome]) -> int:
    for name, outcome in outcomes.items():
        for complaint in outcome.complaints:
            print(f"ERROR on {name}: {complaint}", file=sys.stderr)
    return 1 if any(outcome.errors for outcome in outcomes.values()) else 0


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:
            signal.signal(ending, _interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
