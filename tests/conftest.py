"""The start and end of every test run: it names its build, leaves out slow tests, and uses all cores."""

from __future__ import annotations

import gc
import os
import signal
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies

import whorl
from build_tools.environments import missing_packages
from tests import memory

#: The most memory that a process may still take at the end of a run of all tests, in bytes.
MOST_MEMORY = 600_000_000

#: The marks of the tests that run only where they are asked for, and how to do that.
ON_REQUEST = {"text": "make check", "slow": "ARGS=--slow"}

#: The report of a test that passed, when nobody will ask for it again.
FORGOTTEN = SimpleNamespace()

#: The account of each process of the run at its end: see `account_of`.
accounts_of = pytest.StashKey[dict[str, dict[str, Any]]]()
left_out_of = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests, too")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run whole folders of tests in as many processes as there are cores, each file in one of them.

    A choice of tests runs in this process, and so does what is watched: it takes less time to begin.
    """
    option = config.option
    is_watched = option.usepdb or option.trace or option.capture == "no" or hasattr(config, "workerinput")
    if not is_watched and not is_choice(config) and getattr(option, "numprocesses", 0) is None:
        option.numprocesses = len(os.sched_getaffinity(0))
        option.dist = "loadfile"


def is_choice(config: pytest.Config) -> bool:
    """Return whether the run is to choose tests by name, by file, or by how they ended before."""
    is_by_name = config.option.keyword or getattr(config.option, "lf", False)
    return bool(is_by_name) or not all(Path(argument).is_dir() for argument in config.args)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs only where it is asked for; a choice of tests is run as it is."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        for item in items:
            if mark := item.get_closest_marker("gil"):
                item.add_marker(pytest.mark.skip(mark.args[0]))
    if is_choice(config) or config.option.markexpr:
        return
    marks = [mark for mark in ON_REQUEST if not getattr(config.option, mark, False)]
    left_out = {item: mark for mark in marks for item in items if item.get_closest_marker(mark)}
    config.stash[left_out_of] = Counter(left_out.values())
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C work: what a shell starts in the background without job control ignores it."""
    config.stash[accounts_of] = {}
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Hide all that pytest has collected from the cyclic collector, which need not go through it.

    Hypothesis asks the collector for the references to the random numbers that it is to manage. It asks for
    its own before its first example, so the first example is empty.
    """
    given(strategies.none())(lambda nothing: None)()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Show the collector everything again: what is left is its own to take apart when Python ends.

    A run of all tests fails if one of its processes takes too much memory then.
    """
    gc.unfreeze()
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["account"] = account_of(config)
        return
    if not getattr(config.option, "numprocesses", None):
        config.stash[accounts_of]["the test process"] = account_of(config)
    if takes_too_much(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def account_of(config: pytest.Config) -> dict[str, Any]:
    """Return the account of a process that ran tests: the memory it took, and the tests it left out."""
    left_out = dict(config.stash.get(left_out_of, {}))
    return {"peak": memory.peak(), "rest": memory.in_use(), "left out": left_out}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Note what one of several processes says; one that crashed says nothing."""
    if account := getattr(node, "workeroutput", {}).get("account"):
        node.config.stash[accounts_of][node.gateway.id] = account


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the memory of the run, and the number of tests that it left out."""
    left_out: dict[str, int] = {}
    for name, account in sorted(config.stash[accounts_of].items()):
        peak, rest = account["peak"] // 1_000_000, account["rest"] // 1_000_000
        terminalreporter.write_line(f"memory of {name}: {peak} MB at most, {rest} MB at the end")
        left_out = account["left out"]  # the same in each process
    for mark, count in left_out.items():
        terminalreporter.write_line(f"left out: {count} tests with the mark {mark} ({ON_REQUEST[mark]})")
    if takes_too_much(config):
        limit = MOST_MEMORY // 1_000_000
        terminalreporter.write_line(f"FAILED: more than {limit} MB are in use at the end", red=True)


def takes_too_much(config: pytest.Config) -> bool:
    """Return whether a process has passed the limit in a run of all tests.

    Sanitizers take more, and so does a Python without the GIL.
    """
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    is_whole = is_whole and not config.option.keyword and not config.option.markexpr
    takes_more = os.environ.get("WHORL_CONFIG") == "sanitized" or sysconfig.get_config_var("Py_GIL_DISABLED")
    most = max((account["rest"] for account in config.stash[accounts_of].values()), default=0)
    return is_whole and not takes_more and most > MOST_MEMORY


@pytest.fixture(scope="module", autouse=True)
def memory_is_given_back(pytestconfig: pytest.Config) -> Iterator[None]:
    """Free the objects that the tests of a module leave to the collector and to the C library."""
    yield
    forget_passed_tests(pytestconfig)
    gc.collect()
    memory.give_back()


def forget_passed_tests(config: pytest.Config) -> None:
    """Drop the reports of what passed, and keep their number, unless they are shown at the end.

    They would be most of the objects in the process, and each full collection would go through them.
    """
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or config.option.durations is not None or set("pPA") & set(config.option.reportchars):
        return
    passed = terminal.stats.get("passed", [])
    passed[:] = [FORGOTTEN] * len(passed)
    around = terminal.stats.get("", [])  # of what happened before and after each test
    around[:] = [report for report in around if report.sections]


def pytest_report_header() -> list[str]:
    """Return the build under test, and the packages that are missing in the environment."""
    config = os.environ.get("WHORL_CONFIG", "not started by make")
    build = "compiled" if whorl.compiled else "pure"
    lines = [f"whorl: {whorl.__version__}, {build} build ({config}) in {Path(whorl.__file__).parent}"]
    lines += [f"NOT INSTALLED: {name}: {reason}" for name, reason in missing_packages().items()]
    return lines


@pytest.fixture(scope="session")
def expected_build() -> str:
    """Return the requested build of this run, "compiled" or "pure"."""
    asked_for = os.environ.get("WHORL_BUILD", "auto")
    if asked_for == "auto":
        return "compiled" if whorl.compiled else "pure"
    return asked_for
