"""A short storm on each number of loops; `make stress` makes longer ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.storm import Storm, restless


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the loops of whorl.run_loops:RuntimeWarning")
@pytest.mark.parametrize("tasks", ["cpython", "compiled"])
@pytest.mark.parametrize("loops", [2, 4, 8])
def test_loops_in_several_threads_lose_and_mix_up_nothing(loops: int, tasks: str, tmp_path: Path) -> None:
    counts = Storm(loops, 0.7, tmp_path, seed=loops, tasks=tasks).run()
    assert all(counts.values()), counts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the loops of whorl.run_loops:RuntimeWarning")
@pytest.mark.parametrize("tasks", ["cpython", "compiled"])
def test_loops_bear_a_restless_python(tasks: str, tmp_path: Path) -> None:
    with restless():
        counts = Storm(8, 5, tmp_path, seed=1, tasks=tasks).run()
    assert all(counts.values()), counts
