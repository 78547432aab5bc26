"""The differences between two runs of a suite that count; and the list of suites can be read."""

import pytest

from tests.frameworks.suites import definitions
from tests.frameworks.suites.comparison import compare
from tests.frameworks.suites.runs import Outcome, Run


def a_run(loop: str = "whorl", **outcomes: str) -> Run:
    turns = {"whorl_turns" if loop == "whorl" else "asyncio_turns": 1}
    return Run({test: Outcome(outcome, **turns) for test, outcome in outcomes.items()})


def on_asyncio(**outcomes: str) -> Run:
    return a_run("asyncio", **outcomes)


def never(loop: str, tests: set[str]) -> Run:
    raise AssertionError("nothing needs to be run again")


def test_a_test_that_fails_on_both_says_nothing() -> None:
    found = compare(on_asyncio(a="passed", b="failed"), a_run(a="passed", b="failed"), never)
    assert found.holds
    assert found.failed_on_both == {"b"}


def test_a_failure_on_whorl_that_repeats_counts() -> None:
    again = {"whorl": a_run(a="failed"), "asyncio": on_asyncio(a="passed")}
    found = compare(on_asyncio(a="passed"), a_run(a="failed"), lambda loop, tests: again[loop])
    assert list(found.only_on_whorl) == ["a"]
    assert not found.holds


def test_a_failure_that_does_not_repeat_is_flaky() -> None:
    found = compare(
        on_asyncio(a="passed", b="passed"),
        a_run(a="failed", b="passed"),
        lambda loop, tests: a_run(a="passed"),
    )
    assert (list(found.flaky), found.only_on_whorl) == (["a"], {})
    assert found.holds


def test_a_failure_that_asyncio_has_at_times_is_no_failure_of_whorl() -> None:
    found = compare(on_asyncio(a="passed"), a_run(a="failed"), lambda loop, tests: a_run(a="failed"))
    assert (found.only_on_whorl, found.flaky, found.failed_on_both) == ({}, {}, {"a"})


@pytest.mark.parametrize("outcome", ["skipped", "expected failure"])
def test_a_test_that_passes_on_asyncio_and_does_not_run_on_whorl_counts(outcome: str) -> None:
    again = {"whorl": a_run(a=outcome), "asyncio": on_asyncio(a="passed")}
    found = compare(
        on_asyncio(a="passed", b="passed"), a_run(a=outcome, b="passed"), lambda loop, tests: again[loop]
    )
    assert list(found.only_on_whorl) == ["a"]


def test_a_test_that_was_not_collected_on_whorl_counts() -> None:
    again = {"whorl": a_run(), "asyncio": on_asyncio(a="passed")}
    found = compare(on_asyncio(a="passed", b="passed"), a_run(b="passed"), lambda loop, tests: again[loop])
    assert found.only_on_whorl == {"a": "not run"}


def test_a_suite_that_collected_nothing_does_not_hold() -> None:
    assert not compare(Run(), Run(), never).holds


def test_a_suite_in_which_whorl_ran_no_turn_does_not_hold() -> None:
    assert not compare(on_asyncio(a="passed"), on_asyncio(a="passed"), never).holds


def test_a_run_that_died_does_not_hold() -> None:
    whorl = a_run(a="passed")
    whorl.complaints.append("died outside of its tests")
    assert not compare(on_asyncio(a="passed"), whorl, never).holds


def test_a_failure_that_is_listed_as_a_difference_holds() -> None:
    found = compare(on_asyncio(a="passed", b="passed"), a_run(a="failed", b="passed"), never, ["a"])
    assert found.holds
    assert (found.only_on_whorl, found.failed_on_both, found.outdated) == ({}, set(), set())


@pytest.mark.parametrize("test", ["b", "none"])
def test_a_listed_difference_that_passes_or_is_missing_does_not_hold(test: str) -> None:
    found = compare(on_asyncio(b="passed"), a_run(b="passed"), never, [test])
    assert not found.holds
    assert found.outdated == {test}


def test_a_listed_difference_that_is_skipped_holds() -> None:
    assert compare(on_asyncio(a="passed", b="passed"), a_run(a="skipped", b="passed"), never, ["a"]).holds


def test_the_list_of_suites_can_be_read_and_gives_a_reason_for_what_it_leaves_out() -> None:
    for suite in definitions.read().values():
        reasons = [*suite.leave_out.values(), *suite.ignore.values(), *suite.differences]
        assert all(len(reason) > 10 for reason in reasons), suite.name


def test_a_suite_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown retries"):
        definitions.make("name", {"retries": 3})
