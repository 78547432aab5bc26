"""A short run of each fuzzer, the same every time."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz import surface
from tests.fuzz.__main__ import run


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_call_of_anything_with_anything_crashes(seed: int) -> None:
    operations, problem = run("hostile", seed, steps=400)
    assert not problem, problem
    assert operations > 300


def test_every_public_handle_and_request_is_called_with_what_it_takes() -> None:
    for kind in surface.HANDLES:
        assert "loop" in surface.parameters(kind, "__init__").by_place, f"what does {kind.__name__} take?"
    for item in surface.REQUESTS:
        if not isinstance(item, type):
            assert surface.parameters_of(item) is not surface.UNKNOWN, f"what does {item.__name__} take?"


SUBJECTS = ["connections", "datagrams", "files", "programs", "servers", "streams", "timers", "tls"]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 13), reason="the details are those of Python 3.13's asyncio")
@pytest.mark.parametrize("subject", SUBJECTS)
def test_random_programs_see_the_same_on_both_loops(subject: str) -> None:
    operations, problem = run("twins", 1, 160, subject)
    assert not problem, problem
    assert operations == 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_random_programs_on_the_machine_do_what_libuvs_rules_say(seed: int) -> None:
    operations, problem = run("machine", seed, 480)
    assert not problem, problem
    assert operations == 240
