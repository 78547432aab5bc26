"""One measurement: a server and its load generator, a program or a micro case, in processes of their own."""

import contextlib
import dataclasses
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import c_programs
from cases import Case, EchoCase
from loops import LIMIT, Choice
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
    if isinstance(case, EchoCase):
        return _measure_echo(case, loop, cores, seconds)
    spare, used = SPARE_SECONDS, {cores.server, cores.client}
    command = _python("micro.py", case.name.removeprefix("micro/"), loop.name, seconds)
    if isinstance(case, Program):
        spare = PROGRAM_SPARE_SECONDS
        used = {cores.server} if case.service else used
        address = addresses.get(case.service, "")
        command = _python("run_program.py", case.name, loop.name, seconds, address)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:  # what is left behind goes with it
        told = dataclasses.replace(loop, environment={**loop.environment, "TMPDIR": folder})
        found = _run(command, told, used, seconds, spare)
    return Sample(
        rate=found["operations"] / found["seconds"],
        cpu_us=found["busy_seconds"] / found["operations"] * 1e6,
        is_disturbed=found["waited_seconds"] > DISTURBED_SHARE * found["seconds"],
    )


def is_applicable(case: Case, loop: Choice) -> bool:
    """Return whether this loop can run this case at all."""
    if isinstance(case, EchoCase) and case.transport == "tls":
        return loop.name != LIMIT and c_programs.is_built("tls_load")
    return loop.name != LIMIT or (isinstance(case, EchoCase) and case.mode != "http")


def _measure_echo(case: EchoCase, loop: Choice, cores: Cores, seconds: float) -> Sample:
    with running_server(case, loop, cores) as (pid, address):
        found = running_load(case, loop, cores, address, seconds, WARM_UP_SECONDS, pid)
    requests, elapsed = found["requests"], found["seconds"]
    if requests == 0:
        raise MeasurementError("not one request was answered")
    return Sample(
        rate=requests / elapsed,
        p50_us=found["p50_us"],
        p99_us=found["p99_us"],
        errors=found["errors"],
        cpu_us=found["server_run_ns"] / requests / 1e3 or None,
        is_disturbed=max(found["server_wait_ns"], found["client_wait_ns"]) / 1e9 > DISTURBED_SHARE * elapsed,
        client_busy=found["client_run_ns"] / 1e9 / elapsed,
    )


def running_load(
    case: EchoCase, loop: Choice, cores: Cores, address: str, seconds: float, warm_up: float, server: int
) -> dict[str, Any]:
    """Let the load generator talk to a server; what it found."""
    load = (case.mode, address, case.connections, case.message_bytes, seconds, warm_up, server)
    program = "tls_load" if case.transport == "tls" else "load"
    return _run([c_programs.path(program), *map(str, load)], loop, {cores.client}, seconds)


@contextlib.contextmanager
def running_server(case: EchoCase, loop: Choice, cores: Cores) -> Iterator[tuple[int, str]]:
    """Yield the process id and the address of a server on its core, with the case's idle connections."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        address = f"unix:{folder}/socket" if case.transport == "unix" else case.transport
        if loop.name == LIMIT:
            command = [c_programs.path("echo_limit"), address]
        else:
            command = _python("servers.py", case.kind, loop.name, address)
        with (
            started(command, loop.environment, cores.server) as (pid, reachable_at),
            idle_connections(case.idle, reachable_at),
        ):
            yield pid, reachable_at


@contextlib.contextmanager
def idle_connections(count: int, address: str) -> Iterator[None]:
    """Keep silent connections open meanwhile."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            where = "127.0.0.1", int(address.removeprefix("tcp:"))
            stack.enter_context(socket.create_connection(where))
        yield


def _python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, str(FOLDER / program), *map(str, arguments)]


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
