"""A short run of each fuzzer, the same every time."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import run


@pytest.mark.parametrize("seed", [1, 2])
def test_no_call_of_anything_with_anything_crashes(seed: int) -> None:
    calls, problem = run(seed, steps=400)
    assert not problem, problem
    assert calls > 300
