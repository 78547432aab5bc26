"""One measurement: a server and its load generator, a program or a micro case, in processes of their own."""

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import c_programs
from cases import Case, EchoCase, MicroCase
from loops import LIBUV, LIMIT, Choice
from programs.program import Program

FOLDER = Path(__file__).resolve().parent
WARM_UP_SECONDS = 0.2
START_SECONDS = 20  # a server that has not said READY by then is broken
SPARE_SECONDS = 60  # beyond its own time, before a measurement is given up
PROGRAM_SPARE_SECONDS = 20  # it is programs that other loops hang in
DISTURBED_SHARE = 0.05
NOWHERE: Mapping[str, str] = {}


class MeasurementError(Exception):
    """A server, generator, program or micro case did not do its work; the message says why."""


class NoEndError(MeasurementError):
    """A measurement had to be ended."""


@dataclass(frozen=True)
class Sample:
    """The results of one measurement."""

    rate: float  # requests or operations per second
    cpu_us: float | None  # processor time of the server or micro case, for each of them
    is_disturbed: bool  # another process took a core of the benchmark
    errors: int = 0
    p50_us: float | None = None  # latencies: echo cases only
    p99_us: float | None = None
    p999_us: float | None = None
    client_busy: float | None = None  # the generator's share of its core; near 1, it may be the limit itself


@dataclass(frozen=True)
class Cores:
    """The core of the server (and of micro cases) and the core of the load generator."""

    server: int
    client: int

    @classmethod
    def of_this_machine(cls) -> "Cores":
        """Return the first and the last usable core, never two threads of one core if there are two."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[0], usable[-1])

    @property
    def are_shared(self) -> bool:
        return self.server == self.client


def measure(
    case: Case, loop: Choice, cores: Cores, seconds: float, addresses: Mapping[str, str] = NOWHERE
) -> Sample:
    """Measure `case` on `loop` once; `addresses` are those of the services that programs talk to."""
    if isinstance(case, MicroCase):
        return _measure_micro(case, loop, cores, seconds)
    if isinstance(case, Program):
        return _measure_program(case, loop, cores, seconds, addresses.get(case.service, ""))
    return _measure_echo(case, loop, cores, seconds)


def is_applicable(case: Case, loop: Choice) -> bool:
    """Return whether this loop can run this case at all."""
    if isinstance(case, EchoCase) and case.transport == "tls":
        return loop.name != LIMIT and c_programs.is_built("tls_load")
    return loop.name != LIMIT or (isinstance(case, EchoCase) and case.mode != "http")


def _measure_micro(case: MicroCase, loop: Choice, cores: Cores, seconds: float) -> Sample:
    name = case.name.removeprefix("micro/")
    command = [sys.executable, str(FOLDER / "micro.py"), name, loop.name, str(seconds)]
    if name.startswith("machine/"):
        command = [*_machine(loop), name.removeprefix("machine/"), str(seconds)]
    return _read_batches(_run(command, loop, {cores.server, cores.client}, seconds))


def _measure_program(program: Program, loop: Choice, cores: Cores, seconds: float, address: str) -> Sample:
    command = [sys.executable, str(FOLDER / "run_program.py"), program.name, loop.name, str(seconds), address]
    core = {cores.server} if program.service else {cores.server, cores.client}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:  # what a program leaves behind goes with it
        told = dataclasses.replace(loop, environment={**loop.environment, "TMPDIR": folder})
        return _read_batches(_run(command, told, core, seconds, PROGRAM_SPARE_SECONDS))


def _read_batches(found: dict[str, Any]) -> Sample:
    waited = found["waited_seconds"] or 0.0
    return Sample(
        rate=found["operations"] / found["seconds"],
        cpu_us=found["busy_seconds"] / found["operations"] * 1e6,
        is_disturbed=waited > DISTURBED_SHARE * found["seconds"],
    )


def _measure_echo(case: EchoCase, loop: Choice, cores: Cores, seconds: float) -> Sample:
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        running_server(case, loop, cores, folder) as (pid, address),
    ):
        return _read_sample(running_load(case, loop, cores, address, seconds, WARM_UP_SECONDS, pid))


def running_load(
    case: EchoCase, loop: Choice, cores: Cores, address: str, seconds: float, warm_up: float, server: int
) -> dict[str, Any]:
    """Let the load generator talk to a server; what it found."""
    load = (case.mode, address, case.connections, case.message_bytes, seconds, warm_up, server)
    program = "tls_load" if case.transport == "tls" else "load"
    return _run([c_programs.path(program), *map(str, load)], loop, {cores.client}, seconds)


def _read_sample(found: dict[str, Any]) -> Sample:
    requests, seconds = found["requests"], found["seconds"]
    if requests == 0:
        raise MeasurementError("not one request was answered")
    counts_time = found["server_run_ns"] is not None and found["client_run_ns"] is not None
    waited_ns = max(found["server_wait_ns"], found["client_wait_ns"]) if counts_time else 0
    return Sample(
        rate=requests / seconds,
        p50_us=found["p50_us"],
        p99_us=found["p99_us"],
        p999_us=found["p999_us"],
        errors=found["errors"] + found["lost"],
        cpu_us=found["server_run_ns"] / requests / 1e3 if counts_time else None,
        is_disturbed=waited_ns / 1e9 > DISTURBED_SHARE * seconds,
        client_busy=found["client_run_ns"] / 1e9 / seconds if counts_time else None,
    )


@contextlib.contextmanager
def running_server(case: EchoCase, loop: Choice, cores: Cores, folder: str) -> Iterator[tuple[int, str]]:
    """Yield the process id and the address of a server on its core, with the case's idle connections."""
    address = f"unix:{folder}/socket" if case.transport == "unix" else case.transport
    if case.kind == "machine":
        command = [*_machine(loop), "echo", address]
    elif loop.name == LIMIT:
        command = [c_programs.path("echo_limit"), address]
    else:
        command = [sys.executable, str(FOLDER / "servers.py"), case.kind, loop.name, address]
    with (
        started(command, loop.environment, cores.server) as (pid, reachable_at),
        idle_connections(case.idle, reachable_at, cores),
    ):
        yield pid, reachable_at


@contextlib.contextmanager
def started(command: Sequence[str], environment: Mapping[str, str], core: int) -> Iterator[tuple[int, str]]:
    """Yield the process id of a server on a core, and the address that it prints."""
    with tempfile.TemporaryFile("w+") as complaints:
        with pinned({core}):
            server = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=complaints, text=True
            )
        with server:
            try:
                yield server.pid, _wait_until_ready(server, complaints)
            finally:
                server.kill()


@contextlib.contextmanager
def idle_connections(count: int, address: str, cores: Cores) -> Iterator[None]:
    """Keep silent connections open meanwhile."""
    if not count:
        yield
        return
    command = [sys.executable, str(FOLDER / "crowds.py"), address, str(count)]
    with pinned({cores.client}):
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with holder:
        try:
            assert holder.stdout is not None
            if not holder.stdout.readline():
                raise MeasurementError(f"{count} idle connections could not be made")
            yield
        finally:
            holder.kill()


def _machine(loop: Choice) -> list[str]:
    """Return the program with libuv's names: in C on libuv, in Python on Whorl."""
    if loop.name == LIBUV:
        return [c_programs.path("uv_bench")]
    return [sys.executable, str(FOLDER / "machine_face.py")]


def _wait_until_ready(server: subprocess.Popen[str], complaints: Any) -> str:
    assert server.stdout is not None
    is_readable, _, _ = select.select([server.stdout], [], [], START_SECONDS)
    words = server.stdout.readline().split() if is_readable else []
    if len(words) != 2 or words[0] != "READY":
        complaints.seek(0)
        raise MeasurementError(f"the server did not start: {last_line(complaints.read())}")
    return words[1]


def _run(
    command: list[str], loop: Choice, cores: set[int], seconds: float, spare: float = SPARE_SECONDS
) -> dict[str, Any]:
    """Run a command that prints one line of JSON."""
    with pinned(cores):
        process = subprocess.Popen(
            command, env=loop.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    with process:
        try:
            output, complaints = process.communicate(timeout=seconds + spare)
        except subprocess.TimeoutExpired:
            raise NoEndError(f"no end after {seconds + spare:.0f} s") from None
        finally:
            process.kill()
    if not output:
        raise MeasurementError(last_line(complaints))
    found: dict[str, Any] = json.loads(output)
    if complaints:
        print(complaints, end="", file=sys.stderr)
    return found


@contextlib.contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Let processes that are started meanwhile inherit these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
