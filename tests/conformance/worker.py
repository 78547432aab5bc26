"""Runs one module of the suite on one kind of loop, and writes the outcome of each test, line by line."""

# ruff: noqa: N802 - unittest names the methods of a result.

import argparse
import faulthandler
import importlib
import json
import resource
import signal
import time
import traceback
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import replacement
import skips
import suite

MEMORY = 4 << 30  # bytes; there are tests that write gigabytes


class Result(unittest.TestResult):
    """Writes a line when a test starts and one when it is over: a test without the second never returned."""

    def __init__(self, lines: TextIO, timeout: float) -> None:
        super().__init__()
        self._lines = lines
        self._timeout = timeout
        self._running: unittest.TestCase | None = None
        self._outcome: dict[str, Any] = {}
        self._began = 0.0
        self._turns_before = (0, 0)

    def say(self, **line: Any) -> None:
        print(json.dumps(line), file=self._lines, flush=True)

    def note_absent(self, method: str) -> None:
        """Note that the running test, or a child process of its, asked for a method that is not there."""
        if self._running is not None:
            self.say(event="absent", id=suite.short_id(self._running.id()), method=method)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        end_when_stuck(self._timeout)
        self._running = test
        self._outcome = {"outcome": "passed"}
        self._began = time.perf_counter()
        self._turns_before = (replacement.turns.ours, replacement.turns.stock)
        self.say(event="start", id=suite.short_id(test.id()))

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        if self._running is not test:
            return  # Python 3.12.1 stops tests of skipped classes without starting them.
        self._running = None
        self.say(
            event="stop",
            id=suite.short_id(test.id()),
            seconds=round(time.perf_counter() - self._began, 3),
            turns=replacement.turns.ours - self._turns_before[0],
            stock_turns=replacement.turns.stock - self._turns_before[1],
            **self._outcome,
        )

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._settle(test, "skipped by CPython", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._fail(test, err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._fail(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._fail(test, err)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self._settle(test, "failed", "passes, but is expected to fail")

    def _fail(self, test: unittest.TestCase, err: Any) -> None:
        self._settle(test, "failed", "".join(traceback.format_exception(*err)))

    def _settle(self, test: unittest.TestCase, outcome: str, reason: str) -> None:
        """Note an outcome; a failure stays one whatever else the test's clean-up reports."""
        if test is not self._running:  # A class or a module could not be set up, or is skipped as a whole.
            self.say(event="stop", id=suite.short_id(test.id()), outcome=outcome, reason=reason)
        elif self._outcome["outcome"] == "failed":
            self._outcome["reason"] += reason if outcome == "failed" else ""
        else:
            self._outcome = {"outcome": outcome, "reason": reason}


def flatten(tests: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def end_when_stuck(timeout: float) -> None:
    """End the process with every thread's stack on stderr, unless called again in time."""
    faulthandler.dump_traceback_later(timeout, exit=True)


def set_up_process(timeout: float) -> None:
    """Prepare this process for tests that may fail in any way."""
    faulthandler.enable()
    end_when_stuck(timeout)
    # A shell without job control lets what it starts in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Mocks note each call: a test that turns for ever would take all memory before its time is up.
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY if most < 0 else min(MEMORY, most), most))


def load(module: str, loop: str) -> dict[str, unittest.TestCase]:
    """Import a module of the suite and return its tests by their short ids, in their order."""
    imported = importlib.import_module(f"{suite.PACKAGE}.{module}")
    if loop == "whorl":
        import own_classes

        own_classes.add_to(imported)
    tests = flatten(unittest.defaultTestLoader.loadTestsFromModule(imported))
    return {suite.short_id(test.id()): test for test in tests}


def skipped_tests(module: str, tests: dict[str, unittest.TestCase], say: Callable[..., None]) -> set[str]:
    """Report the tests that the list of skips names, and the errors of the list."""
    listed = skips.for_module(module)
    for complaint in skips.complaints(listed, tests):
        say(event="complaint", text=complaint)
    names = {test_id: skip.name for skip in listed for test_id in tests if skip.matches(test_id)}
    for test_id, name in names.items():
        say(event="skip", id=test_id, name=name)
    return set(names)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("--loop", required=True)
    parser.add_argument("--lines", required=True, type=Path, help="where to append the outcomes")
    parser.add_argument("--timeout", type=float, required=True, help="seconds that one test may take")
    parser.add_argument("--only", type=Path, help="a file with the ids of the tests to run")
    parser.add_argument("--with-skipped", action="store_true", help="run what the list of skips names")
    options = parser.parse_args()

    set_up_process(options.timeout)
    loop_class = replacement.install(options.loop)
    if options.loop == "whorl" and options.module == "test_streams":
        replacement.install_streams()
    with options.lines.open("a") as lines:
        result = Result(lines, options.timeout)
        try:
            tests = load(options.module, options.loop)
        except unittest.SkipTest as skip:
            result.say(event="found", ids=[options.module])
            result.say(event="stop", id=options.module, outcome="skipped by CPython", reason=str(skip))
            return
        replacement.report_absent_methods(loop_class, result.note_absent)
        if options.only:
            wanted = set(options.only.read_text().split())
        else:
            wanted = set(tests)
            result.say(event="found", ids=list(tests))
            skipped = skipped_tests(options.module, tests, result.say) if options.loop == "whorl" else set()
            wanted -= set() if options.with_skipped else skipped
        chosen = unittest.TestSuite(test for name, test in tests.items() if name in wanted)
        tests.clear()  # A test that was run is let go, with its loop.
        chosen.run(result)
    end_when_stuck(options.timeout)  # While the interpreter waits for threads that a test left behind.


if __name__ == "__main__":
    main()
