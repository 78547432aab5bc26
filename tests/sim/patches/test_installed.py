"""Putting a world into Python's modules: nothing else runs in the midst of it."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from whorl import sim


@pytest.fixture
def always_collecting() -> Iterator[None]:
    """Let the collector run at each chance."""
    former = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*former)


@pytest.mark.usefixtures("always_collecting")
def test_callback_of_the_collector_may_use_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Any] = []

    def look(phase: str, info: dict[str, int]) -> None:
        assert isinstance(time.perf_counter(), float)

    gc.callbacks.append(look)
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    try:
        sim.run(lambda: asyncio.sleep(1)).check()
    finally:
        gc.callbacks.remove(look)
    assert errors == []
