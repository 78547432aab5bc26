"""Compares the outcome of a suite on Whorl with its outcome on stock asyncio."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runs import Run

ATTEMPTS = 2  # How often a test that fails on Whorl only is run again, on each loop.


@dataclass
class Comparison:
    """The tests of a suite whose outcomes differ, and which of them say something of Whorl."""

    asyncio: Run
    whorl: Run
    only_on_whorl: dict[str, str] = field(default_factory=dict)  # With the reasons.
    flaky: dict[str, str] = field(default_factory=dict)
    differences: frozenset[str] = frozenset()  # Tests that are listed, as Whorl is not to pass them.

    @property
    def failed_on_both(self) -> set[str]:
        others = set(self.only_on_whorl) | set(self.flaky) | self.differences
        return self.whorl.with_outcome("failed") - others

    @property
    def outdated(self) -> set[str]:
        """Return the listed tests that Whorl passes, and those that are not there any more."""
        missing = self.differences - set(self.whorl.outcomes)
        return missing | (self.differences & self.whorl.with_outcome("passed"))

    @property
    def holds(self) -> bool:
        """True if tests were run, on the right loops, and none fails on Whorl only."""
        ran = bool(self.whorl.outcomes) and self.whorl.on("whorl") > 0 and self.asyncio.on("asyncio") > 0
        return ran and not self.only_on_whorl and not self.outdated and not self.whorl.complaints


def suspects(asyncio: Run, whorl: Run) -> set[str]:
    """Return the tests that fail on Whorl only, and those that pass on asyncio and do not run on Whorl."""
    failed = whorl.with_outcome("failed") - asyncio.with_outcome("failed")
    return failed | (asyncio.with_outcome("passed") - whorl.with_outcome("passed", "failed"))


def compare(
    asyncio: Run,
    whorl: Run,
    run_again: Callable[[str, Collection[str]], Run],
    differences: Collection[str] = (),
) -> Comparison:
    """Compare two runs; `run_again` runs some tests on a given loop."""
    found = Comparison(asyncio, whorl, differences=frozenset(differences))
    suspected = suspects(asyncio, whorl) - found.differences
    if not suspected:
        return found
    on_whorl = [run_again("whorl", suspected) for _ in range(ATTEMPTS)]
    failed = {test for again in on_whorl for test in suspected - again.with_outcome("passed")}
    on_asyncio = [run_again("asyncio", failed) for _ in range(ATTEMPTS)] if failed else []
    failed_there = {test for again in on_asyncio for test in failed - again.with_outcome("passed")}
    for test in sorted(suspected - failed_there):
        runs = [*on_whorl, whorl] if test in failed else [whorl]
        reasons = [one.outcomes[test] for one in runs if test in one.outcomes]
        reason = next(
            (f"{one.outcome}\n{one.reason}" for one in reasons if one.outcome != "passed"), "not run"
        )
        (found.only_on_whorl if test in failed else found.flaky)[test] = reason
    return found
