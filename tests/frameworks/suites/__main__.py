"""Runs other projects' own tests on asyncio and on Whorl: ``python tests/frameworks/suites [SUITE ...]``."""

import argparse
import platform
import sys
from pathlib import Path

import definitions
import report
import services
from comparison import Comparison, compare
from definitions import Suite
from environments import CannotBeRun, Environment, prepare
from runs import Run, run

import whorl

WHORL = Path(whorl.__file__).parents[1]


def main() -> int:
    options = parse_arguments()
    suites = definitions.read()
    if unknown := set(options.suites) - set(suites):
        print(f"frameworks: there is no suite {', '.join(sorted(unknown))}; there are {', '.join(suites)}")
        return 2
    chosen = [one for one in suites.values() if one.name in options.suites or chosen_by_kind(one, options)]
    build = "compiled" if whorl.compiled else "pure"
    print(f"CPython {platform.python_version()}; whorl {whorl.__version__} ({build}) from {WHORL}")
    report.print_heading()
    failures = [one.name for one in chosen if not run_suite(one, options)]
    if failures:
        print(f"\nNot as on asyncio: {', '.join(failures)}")
    return int(bool(failures))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="frameworks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="all of them if none is named")
    parser.add_argument("--quick", action="store_true", help="only those that take some seconds")
    parser.add_argument("--known", action="store_true", help="use what asyncio's last run told")
    return parser.parse_args()


def chosen_by_kind(suite: Suite, options: argparse.Namespace) -> bool:
    return not options.suites and (suite.quick or not options.quick)


def run_suite(suite: Suite, options: argparse.Namespace) -> bool:
    """Run one suite on both loops and print what came out; whether it is the same, where it can be run."""
    if suite.no_tests:
        report.print_note(suite.name, suite.no_tests)
        return True
    try:
        environment = prepare(suite)
        with services.running(suite.services):
            comparison = compare_loops(environment, options)
    except services.NotInstalled as problem:
        report.print_note(suite.name, f"NOT RUN: {problem}")
        return True
    except CannotBeRun as problem:
        if options.quick:  # Which is run wherever the project is: there may be no network.
            report.print_note(suite.name, f"not run: it cannot be prepared: {str(problem).splitlines()[-1]}")
            return True
        report.print_note(suite.name, f"could not be prepared: {problem}")
        return False
    report.print_comparison(environment, comparison)
    return comparison.holds


def compare_loops(environment: Environment, options: argparse.Namespace) -> Comparison:
    known = environment.folder / "asyncio.json"
    on_asyncio = (
        report.load(known) if options.known and known.exists() else run(environment, "asyncio", WHORL)
    )
    report.save(known, on_asyncio)
    on_whorl = run(environment, "whorl", WHORL)
    report.save(environment.folder / "whorl.json", on_whorl)

    def run_again(loop: str, tests: set[str]) -> Run:
        return run(environment, loop, WHORL, tests)

    return compare(on_asyncio, on_whorl, run_again, environment.suite.not_to_pass)


if __name__ == "__main__":
    sys.exit(main())
