"""Known bugs of released libraries: a few seeds find them, and the repaired versions pass."""

from __future__ import annotations

import sys

import pytest

from tests.sim.hunting import hunted

AIOHTTP, HTTPCORE = ("aiohttp==3.14.5",), ("httpcore==1.0.9", "anyio==4.14.2")

BAD = [
    ("redis_cancel", ("redis==4.5.1",), "v:k"),
    ("httpcore_pool", HTTPCORE, "PoolTimeout"),
    ("aiohttp_connector", AIOHTTP, "TimeoutError"),
    ("anyio_lock", ("anyio==4.13.0",), "deadlock"),
]
GOOD = [
    ("redis_cancel", ("redis==4.5.5",)),
    ("redis_cancel", ("redis==8.1.0",)),
    ("anyio_lock", ("anyio==4.14.2",)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "versions", "text"), BAD, ids=[each[0] for each in BAD])
def test_known_bug_is_found_in_a_few_hundred_seeds(
    program: str, versions: tuple[str, ...], text: str
) -> None:
    found = hunted(f"tests.sim.bugs.{program}", "0:1000", *versions, "--stop", allow="leaks")
    assert len(found["findings"]) == 1
    assert text in next(iter(found["findings"].values()))


@pytest.mark.slow
@pytest.mark.parametrize(("program", "versions", "text"), BAD, ids=[each[0] for each in BAD])
def test_turns_up_to_the_edges_of_time_find_each_known_bug(
    program: str, versions: tuple[str, ...], text: str
) -> None:
    found = hunted(f"tests.sim.bugs.{program}", "0:5000", *versions, "--stop", cpu="edge", allow="leaks")
    assert text in next(iter(found["findings"].values()))


@pytest.mark.slow
@pytest.mark.parametrize(("program", "versions"), GOOD, ids=[each[1][0] for each in GOOD])
def test_version_without_the_bug_has_no_finding(program: str, versions: tuple[str, ...]) -> None:
    found = hunted(f"tests.sim.bugs.{program}", "0:100", *versions)
    assert found["runs"] == 100
    assert found["findings"] == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "versions"),
    [("httpcore_pool", HTTPCORE), ("aiohttp_connector", AIOHTTP)],
    ids=["httpcore", "aiohttp"],
)
def test_bug_that_needs_time_for_code_is_not_found_without_it(
    program: str, versions: tuple[str, ...]
) -> None:
    found = hunted(f"tests.sim.bugs.{program}", "0:100", *versions, faults="none")
    assert found["findings"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["random", "grid", "edge"])
def test_wait_for_of_python_311_hides_a_cancellation(cpu: str) -> None:
    found = hunted("tests.sim.bugs.wait_for", "0:300", "--stop", cpu=cpu)
    if sys.version_info < (3, 12):
        assert "a cancellation was hidden" in next(iter(found["findings"].values()))
    else:
        assert found["findings"] == {}
