"""Worlds for tests: one in which nothing varies, so that virtual times are exact."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from whorl import sim

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _has_the_lock() -> None:
    """Skip a test where the GIL is off: there, no world opens."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("a world needs the GIL: set PYTHON_GIL=1")


@pytest.fixture(autouse=True)
def no_hang() -> None:
    """Set no alarm: a world that stands still raises."""


@pytest.fixture
def exact() -> Run:
    """Return a function that runs a program in a world in which nothing varies, and returns its value."""

    def run(main: Any, **options: Any) -> Any:
        return sim.run(main, faults=sim.Faults.none(), **options).check()

    return run


@pytest.fixture
def world() -> Iterator[sim.World]:
    """Yield a world in which nothing varies, for a test that runs the main host's loop itself."""
    with sim.open_world(faults=sim.Faults.none()) as opened:
        yield opened
