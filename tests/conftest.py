"""What every test run says first, and needs to be true: which build of Whorl it tests."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given, strategies

import whorl
from build_tools.environments import missing_packages
from whorl.core import loop_life


def pytest_configure() -> None:
    """Let Ctrl-C work: what a shell starts in the background without job control ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if name := os.environ.get("WHORL_TEST_POLLER"):
        use_by_default(name)


def use_by_default(name: str) -> None:
    """Have every loop that asks for no poller of its own wait with this one, where its kernel allows that."""
    make_poller = loop_life.make_poller
    loop_life.make_poller = lambda wanted, kernel: make_poller(name if wanted is None else wanted, kernel)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Hide all that pytest has collected from the collector: who looks for cycles need not go through it.

    Hypothesis asks the collector who refers to the random numbers it is to manage, its own before its first
    example: that is what the example of nothing is for.
    """
    given(strategies.none())(lambda nothing: None)()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Show the collector everything again: what is left is its own to take apart when Python ends."""
    gc.unfreeze()


def pytest_report_header() -> list[str]:
    """Which build is tested, and which packages the environment had to do without."""
    config = os.environ.get("WHORL_CONFIG", "not started by make")
    build = "compiled" if whorl.compiled else "pure"
    lines = [f"whorl: {whorl.__version__}, {build} build ({config}) in {Path(whorl.__file__).parent}"]
    lines += [f"NOT INSTALLED: {name}: {reason}" for name, reason in missing_packages().items()]
    return lines


@pytest.fixture(scope="session")
def expected_build() -> str:
    """The build this run is about, "compiled" or "pure", as the one who started it said."""
    asked_for = os.environ.get("WHORL_BUILD", "auto")
    if asked_for == "auto":
        return "compiled" if whorl.compiled else "pure"
    return asked_for
