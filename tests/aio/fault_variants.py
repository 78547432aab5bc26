"""The tests of the transports once more, over a kernel that refuses and shortens calls, for many seeds.

Each test of these suites that gets the loop of the fixture has a twin, with the mark `faults`. It is one test
that runs once for each seed. Its checks must hold however few bytes a call moves and whenever it is refused.
A test that counts what faults change (turns, whole messages, what waits) says so with the mark `exact`.

The seeds are those of `tests.seeds`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

import whorl
from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from tests.seeds import seeds_of_run

#: The tests of the data path: each of them runs for all seeds.
DATA_PATH = {
    "streams/test_reader_writer.py",
    "transports/test_buffered_protocol.py",
    "transports/test_flow_control.py",
    "transports/test_transports.py",
}

#: Here the variants of one test share the seeds: it runs for all of them, each variant for some.
AROUND_IT = {
    "connections/test_connect.py",
    "connections/test_datagram_endpoint.py",
    "connections/test_pipes.py",
    "connections/test_sendfile.py",
    "connections/test_server.py",
    "connections/test_start_tls.py",
    "connections/test_subprocesses.py",
    "connections/test_tls_connections.py",
    "sockets/test_sock_methods.py",
    "tls/test_end.py",
    "tls/test_flow.py",
    "tls/test_layers.py",
    "tls/test_tls.py",
}

FOLDER = Path(__file__).parent
assert all((FOLDER / name).exists() for name in DATA_PATH | AROUND_IT), "a file of tests was renamed"

#: Without errors that the `sock_` methods raise, as the tests themselves send and receive by them. Without
#: errors that let a server rest for a second. `test_faults` has both.
RATES = FaultRates(no_buffers=0, exhausted=0, aborted=0)

SUFFIX = "-over-faults"

seeds_of = pytest.StashKey[Sequence[int]]()
seed_of = pytest.StashKey[int]()


def kernel_for(node: pytest.Item) -> FaultKernel | None:
    """Return the kernel that a test runs on, or None for the real one."""
    seed = node.stash.get(seed_of, None)
    if seed is None:
        return None
    kernel = FaultKernel(seed, RATES)
    kernel.keeps_edges = kernel.keeps_edges and seed % 2 == 0  # sockets are watched one way or the other
    return kernel


def twins(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests that run over faults, too."""
    if any(seeds_of in item.stash for item in items):
        return  # They are there: each folder that has this hook is asked once.
    able = [item for item in items if isinstance(item, pytest.Function) and can_run_over_faults(item)]
    of_one_function = Counter((item.path, item.originalname) for item in able)
    met: Counter[object] = Counter()
    for item in able:
        twin: pytest.Function = pytest.Function.from_parent(
            item.parent,
            name=item.name + SUFFIX,
            callspec=getattr(item, "callspec", None),
            callobj=item.obj,
            fixtureinfo=item._fixtureinfo,
            originalname=item.originalname,
        )
        twin._nodeid = item.nodeid + SUFFIX
        twin.add_marker("faults")
        function = (item.path, item.originalname)
        seeds = seeds_of_run(2)
        if name_of(item) in AROUND_IT:
            seeds = seeds[met[function] :: of_one_function[function]] or seeds[:1]
        met[function] += 1
        twin.stash[seeds_of] = seeds
        yield twin


def name_of(item: pytest.Item) -> str:
    """Return the file of a test, in the form of the names above."""
    return item.path.relative_to(FOLDER).as_posix() if item.path.is_relative_to(FOLDER) else ""


def can_run_over_faults(item: pytest.Function) -> bool:
    """Return whether a test has the fixture's loop, on a kernel that is none of the test's own."""
    if name_of(item) not in DATA_PATH | AROUND_IT or item.get_closest_marker("exact"):
        return False
    kernels = item.session._fixturemanager.getfixturedefs("kernel", item) or ()
    return "loop" in item.fixturenames and all("kernel" in kernel.argnames for kernel in kernels[1:])


def run_for_every_seed(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a twin for its seeds, until it fails."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports: list[pytest.TestReport] = []
    seconds: dict[str, float] = defaultdict(float)
    for seed in item.stash[seeds_of]:
        item.stash[seed_of] = seed
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            seconds[str(report.when)] += report.duration
            report.duration = seconds[str(report.when)]  # of all seeds until now
        if not all(report.passed for report in reports):
            for report in reports:
                report.sections.append(("replay", replay(item, seed)))
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def replay(item: pytest.Item, seed: int) -> str:
    """Return the command that repeats a failed test."""
    build = "compiled" if whorl.compiled else "pure"
    test = item.nodeid.removesuffix(SUFFIX)
    return f"WHORL_FAULT_SEED={seed} make faults WHORL_BUILD={build} ARGS=\"'{test}'\""
