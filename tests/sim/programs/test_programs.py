"""Real libraries, unmodified, in worlds with and without faults."""

from __future__ import annotations

import pytest

from tests.sim.hunting import hunted

#: Each program, what it needs beside the frameworks of the test environment, and how its TLS is treated.
PROGRAMS = [
    ("aiohttp_app", (), "seeded"),
    ("aiohttp_tls", (), "seeded"),
    ("websockets_echo", (), "seeded"),
    ("uvicorn_httpx", ("httpx",), "seeded"),
    ("redis_commands", ("redis",), "seeded"),
    ("asyncpg_queries", ("asyncpg",), "seeded"),
    ("asyncssh_echo", ("asyncssh",), "real"),
]


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["calm", "light", "swarm"])
@pytest.mark.parametrize(("program", "needs", "tls"), PROGRAMS, ids=[each[0] for each in PROGRAMS])
def test_program_of_a_real_library_runs_in_a_world(
    program: str, needs: tuple[str, ...], tls: str, faults: str
) -> None:
    found = hunted(f"tests.sim.programs.{program}", "0:20", *needs, faults=faults, tls=tls)
    assert found["runs"] == 20
    assert found["findings"] == {}


@pytest.mark.slow
@pytest.mark.parametrize(("program", "needs", "tls"), PROGRAMS, ids=[each[0] for each in PROGRAMS])
def test_program_of_a_real_library_runs_the_same_way_twice(
    program: str, needs: tuple[str, ...], tls: str
) -> None:
    found = hunted(f"tests.sim.programs.{program}", "0:10", *needs, "--twice", faults="swarm", tls=tls)
    assert found["unequal"] == []
