"""Runs CPython's own tests of asyncio on our loop: ``python tests/conformance [MODULE ...]``."""

import argparse
import platform
import sys
from pathlib import Path

import report
import skips
import suite
from baseline import Baseline
from runs import Runner

BUILD = Path(__file__).parents[2] / "build" / "conformance"


def main() -> int:
    options = parse_arguments()
    python = f"CPython {platform.python_version()}"
    if not suite.is_installed():
        print(f"conformance: not run: {python} at {sys.executable} came without its tests (package test).")
        return 0
    try:
        skips.read()
    except ValueError as error:
        print(f"conformance: {error}")
        return 2
    facts = describe(options.loop)
    print(f"{python}'s {suite.PACKAGE} on {facts['loop']}")
    runner = Runner(options.loop, options.timeout, with_skipped=options.with_skipped)
    baseline = Baseline(
        BUILD / f"asyncio-{platform.python_version()}.json", Runner("asyncio", options.timeout)
    )
    report.print_heading(options.loop)
    reports = [run_module(module, runner, baseline) for module in options.modules or suite.modules()]
    report.print_summary(options.loop, reports, verbose=options.verbose)
    if options.json:
        report.write_json(options.json, facts, reports)
    return int(any(one.failures or one.run.complaints for one in reports))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="default: all")
    parser.add_argument("--loop", choices=("whorl", "asyncio", "uvloop"), default="whorl")
    parser.add_argument("--with-skipped", action="store_true", help="run what the list of skips names, too")
    parser.add_argument("--verbose", action="store_true", help="print the traceback of every failure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every test's outcome to a file")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that one test may take")
    return parser.parse_args()


def describe(loop: str) -> dict[str, str]:
    """Say what is tested, for the first line of the report and for the file."""
    facts = {"python": platform.python_version(), "loop": loop}
    if loop == "whorl":
        import whorl

        build = "compiled" if whorl.compiled else "pure"
        facts["loop"] = f"whorl {whorl.__version__} ({build}) from {Path(whorl.__file__).parent}"
    return facts


def run_module(module: str, runner: Runner, baseline: Baseline) -> report.ModuleReport:
    run = runner.run(module)
    failed = [outcome.id for outcome in run.with_outcome("failed")]
    one = report.ModuleReport(run, baseline.failing(module, failed) if failed else set())
    seconds = sum(outcome.seconds for outcome in run.outcomes.values())
    report.print_line(module, one.numbers(), f"{seconds:8.1f} s")
    return one


if __name__ == "__main__":
    sys.exit(main())
