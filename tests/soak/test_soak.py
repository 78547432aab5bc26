"""A short soak, and the judgement of a soak's figures."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.soak.__main__ import problems_of, run
from tests.soak.picture import draw

MEGABYTE = 2**20


def figures(**changes: Any) -> dict[str, Any]:
    """Return the figures of a soak in which nothing was wrong, with changes."""
    calm = {
        "latencies": {"HTTP": {"count": 10, "percentiles": [0.001, 0.002, 0.003, 0.004]}},
        "memory": [(float(at), 50 * MEGABYTE) for at in range(40)],
        "before": (9, 1),
        "after": (9, 1),
        "errors": [],
    }
    return {**calm, **changes}


def test_a_calm_soak_has_no_problem() -> None:
    assert problems_of(figures()) == []


def test_memory_that_grows_is_a_problem() -> None:
    growing = [(float(at), (50 + at) * MEGABYTE) for at in range(40)]
    assert problems_of(figures(memory=growing)) == ["memory grew from 64.5 to 84.5 MB"]


def test_memory_of_the_first_quarter_is_not_looked_at() -> None:
    warm = [(float(at), min(at, 10) * 5 * MEGABYTE) for at in range(40)]
    assert problems_of(figures(memory=warm)) == []


def test_descriptors_and_tasks_that_are_left_are_problems() -> None:
    assert problems_of(figures(after=(11, 2))) == ["2 descriptors are left", "1 tasks are left"]


def test_a_load_without_operations_is_a_problem() -> None:
    idle = {"HTTP": {"count": 0, "percentiles": [0.0, 0.0, 0.0, 0.0]}}
    assert problems_of(figures(latencies=idle)) == ["HTTP: no operation"]


def test_the_picture_has_each_loop() -> None:
    drawn = draw({"whorl": figures(), "asyncio": figures()})
    assert drawn.count("<polyline") == 2
    assert ">HTTP<" in drawn


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="aiohttp is not installed")
def test_all_loads_run_together_and_leave_nothing() -> None:
    found = run(["whorl"], 2)["whorl"]
    assert found["errors"] == []
    assert found["after"] == found["before"]
    assert all(each["count"] for each in found["latencies"].values())
