"""Runs CPython's own tests of asyncio on our loop: ``python tests/conformance [MODULE ...]``."""

import argparse
import platform
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import report
import skips
import suite
from baseline import Baseline
from runs import Runner

# A module waits for two thirds of its time; the longest begin first, and the rest fills what they leave.
AT_ONCE = 4
LONGEST = ("test_tasks", "test_subprocess", "test_events", "test_ssl")

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
    reports = list(run_modules(options.modules or suite.modules(), runner, baseline))
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
    """Return the loop and the Python under test, for the first line of the report and for the file."""
    facts = {"python": platform.python_version(), "loop": loop}
    if loop == "whorl":
        import whorl

        build = "compiled" if whorl.compiled else "pure"
        facts["loop"] = f"whorl {whorl.__version__} ({build}) from {Path(whorl.__file__).parent}"
    return facts


def run_modules(modules: Sequence[str], runner: Runner, baseline: Baseline) -> Iterator[report.ModuleReport]:
    """Run some modules at once; the reports are printed in the order of `modules`."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {
            module: pool.submit(run_module, module, runner, baseline)
            for module in sorted(modules, key=lambda module: module not in LONGEST)
        }
        for module in modules:
            one = running[module].result()
            seconds = sum(outcome.seconds for outcome in one.run.outcomes.values())
            report.print_line(module, one.numbers(), f"{seconds:8.1f} s")
            yield one


def run_module(module: str, runner: Runner, baseline: Baseline) -> report.ModuleReport:
    run = runner.run(module)
    failed = [outcome.id for outcome in run.with_outcome("failed")]
    return report.ModuleReport(run, baseline.failing(module, failed) if failed else set())


if __name__ == "__main__":
    sys.exit(main())
