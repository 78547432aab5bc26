"""What every test run says first, and needs to be true: which build it tests; how much memory it took."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies

import whorl
from build_tools.environments import missing_packages
from tests import memory
from whorl.core.pollers import choose

#: The most memory that a run of all tests may still take when it ends, in bytes.
MOST_MEMORY = 500_000_000


def pytest_configure() -> None:
    """Let Ctrl-C work: what a shell starts in the background without job control ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if name := os.environ.get("WHORL_TEST_POLLER"):
        use_by_default(name)


def use_by_default(name: str) -> None:
    """Have every loop that asks for no poller of its own wait with this one, where its kernel allows that."""
    make_poller = choose.make_poller
    choose.make_poller = lambda wanted, kernel: make_poller(name if wanted is None else wanted, kernel)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Hide all that pytest has collected from the collector: who looks for cycles need not go through it.

    Hypothesis asks the collector who refers to the random numbers it is to manage, its own before its first
    example: that is what the example of nothing is for.
    """
    given(strategies.none())(lambda nothing: None)()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Show the collector everything again: what is left is its own to take apart when Python ends.

    A run of all tests that took too much memory fails.
    """
    gc.unfreeze()
    if takes_too_much(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How much memory the run took."""
    peak, rest = memory.peak() // 1_000_000, memory.in_use() // 1_000_000
    terminalreporter.write_line(f"memory of the test process: {peak} MB at most, {rest} MB at the end")
    if takes_too_much(config):
        limit = MOST_MEMORY // 1_000_000
        terminalreporter.write_line(f"FAILED: more than {limit} MB are in use at the end", red=True)


def takes_too_much(config: pytest.Config) -> bool:
    """Return whether this was a run of all tests that has passed the limit; sanitizers take more."""
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    is_whole = is_whole and not config.option.keyword and not config.option.markexpr
    is_sanitized = os.environ.get("WHORL_CONFIG") == "sanitized"
    return is_whole and not is_sanitized and memory.in_use() > MOST_MEMORY


@pytest.fixture(scope="module", autouse=True)
def memory_is_given_back() -> Iterator[None]:
    """What the tests of a module leave to the collector and to the C library is gone before the next one."""
    yield
    gc.collect()
    memory.give_back()


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
