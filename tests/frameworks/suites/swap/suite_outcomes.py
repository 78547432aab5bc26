"""A pytest plugin: writes what becomes of each test, line by line, and ends a process in which one hangs."""

import faulthandler
import gc
import json
import os
import sys
from pathlib import Path

import pytest

sitecustomize = sys.modules["sitecustomize"]
LINES = Path(os.environ["WHORL_SUITE_LINES"])
ONLY = os.environ.get("WHORL_SUITE_ONLY")
SECONDS = float(os.environ["WHORL_SUITE_SECONDS"])
STDERR = os.dup(2)  # Imported before pytest catches what is written.


def say(**line):
    with LINES.open("a") as lines:
        print(json.dumps(line), file=lines)


def pytest_collection_modifyitems(config, items):
    if ONLY is None:
        return
    wanted = set(Path(ONLY).read_text().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = [item for item in items if item.nodeid in wanted]


def pytest_collection_finish(session):
    if not hasattr(session.config, "workerinput"):
        say(event="found", ids=[item.nodeid for item in session.items])
    gc.freeze()  # Suites that collect garbage after each test need not look at all tests each time.


def pytest_sessionfinish():
    gc.unfreeze()  # Hypothesis asks who refers to something, when it is first imported at the end.


def pytest_collectreport(report):
    if report.failed:
        say(event="uncollected", id=report.nodeid, reason=str(report.longrepr)[-4000:])


def pytest_runtest_logstart(nodeid):
    say(event="start", id=nodeid)


def end_when_stuck():
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=STDERR)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact():
    end_when_stuck()  # Once more, for what is torn down after a failure: pytest has taken it back.


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    end_when_stuck()
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    turns = sitecustomize.turns
    report.whorl_turns, report.asyncio_turns = turns.whorl, turns.asyncio
    turns.whorl = turns.asyncio = 0
    return report


def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # The process that started it hears of it too.
    say(
        event="report",
        id=report.nodeid,
        phase=report.when,
        outcome="expected failure" if hasattr(report, "wasxfail") and report.skipped else report.outcome,
        reason=report.longreprtext[-8000:] if report.failed else "",
        turns=(getattr(report, "whorl_turns", 0), getattr(report, "asyncio_turns", 0)),
    )
