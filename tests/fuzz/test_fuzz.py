"""A short run of each fuzzer, the same every time."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz.__main__ import run


@pytest.mark.parametrize("seed", [1, 2])
def test_no_call_of_anything_with_anything_crashes(seed: int) -> None:
    operations, problem = run("hostile", seed, steps=400)
    assert not problem, problem
    assert operations > 300


@pytest.mark.skipif(sys.version_info[:2] != (3, 13), reason="the details are those of Python 3.13's asyncio")
@pytest.mark.parametrize("seed", [1, 2])
def test_random_programs_see_the_same_on_both_loops(seed: int) -> None:
    operations, problem = run("twins", seed, steps=480)
    assert not problem, problem
    assert operations == 120
