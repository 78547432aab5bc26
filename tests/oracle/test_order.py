"""Whorl calls back in the order in which libuv 1.52.1 does: the traces of the C library are the expectation.

`make oracle ARGS="--seed 17"` shows a random script with both traces, if libuv can be fetched.
"""

from __future__ import annotations

import functools

import pytest

from tests.core.conftest import no_hang, no_leak
from tests.oracle import generator, traces
from tests.oracle.performer import perform

__all__ = ["no_hang", "no_leak"]

CHUNK = 100

random_traces = functools.cache(traces.read_random)


@pytest.mark.parametrize("name", traces.scenarios())
def test_a_scenario_has_the_order_of_libuv(name: str) -> None:
    script, expected = traces.read_scenario(name)
    assert expected, "not recorded"
    assert perform(script) == expected


@pytest.mark.parametrize("first", range(0, traces.SEEDS, CHUNK))
def test_random_scripts_have_the_order_of_libuv(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert perform(generator.script(seed)) == random_traces()[seed], f"seed {seed}"


def test_traces_are_as_many_as_promised() -> None:
    assert len(traces.scenarios()) >= 40
    assert len(random_traces()) == traces.SEEDS


def test_random_scripts_are_worth_running() -> None:
    """They call back, in every phase, and few of them end for having done too much."""
    all_lines = [line for trace in random_traces().values() for line in trace]
    called = {line.split()[0].rstrip("0123456789") for line in all_lines if not line.startswith(" ")}
    assert {"t", "i", "p", "c", "a", "w", "s", "k", "holder", "sleep"} <= called
    assert len(all_lines) > 30 * traces.SEEDS
    assert all_lines.count("limit") < traces.SEEDS / 2
    assert "asleep for ever" not in all_lines
