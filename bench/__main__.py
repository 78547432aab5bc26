"""Compare event loops in one run: `python bench --help`."""

import argparse
import importlib.util
import resource
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import c_programs
import calls
import cases
import loops
import memory
import page
import report
from cases import Case, MicroCase
from loops import Choice
from measure import NOWHERE, Cores, MeasurementError, NoEndError, Sample, is_applicable, measure
from programs import services
from programs.program import Program
from report import CaseResult

OVERHEAD_SECONDS = 0.6  # to start processes and warm up, about
MICRO_SHARE = 0.3  # micro cases have no clients to average over and need less time


def main() -> int:
    try:
        return _run_as_asked(_parse_arguments())
    except (c_programs.CompileError, MeasurementError, page.IncompleteError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def _run_as_asked(options: argparse.Namespace) -> int:
    if options.page is not None:
        return _write_pages(options.page)
    if options.sim:
        import worlds  # whorl.sim is needed for nothing else here

        return _show(worlds.table(options.seconds))
    if options.threads:
        return _measure_threads(options)
    if options.group or options.all or options.cases:
        chosen = cases.choose(cases.GROUPS[options.group], options.cases)
    else:
        chosen = cases.short()
    if options.list:
        return _show(case.name for case in chosen)
    if not chosen:
        return _no_case(options)
    # Let the processes that are started have as many descriptors as the system allows.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    c_programs.compile_all()
    is_programs = options.group == "programs"
    choices = _choose_loops(options.loops or (loops.FOR_PROGRAMS if is_programs else loops.NAMES))
    if not choices:
        return 2
    cores = Cores.of_this_machine()
    if options.calls:
        return _show(calls.table(chosen, choices, cores, options.seconds))
    if options.memory:
        return _show(memory.table(choices, cores, options.rounds))
    results = (_run_programs if is_programs else _run)(chosen, choices, options)
    versions = {loop.name: loop.version for loop in choices}
    report.save(options.json, results, versions, {"rounds": options.rounds, "seconds": options.seconds})
    print(f"\nwritten to {options.json}")
    return 1 if any(result.has_errors for result in results) else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python bench",
        description="Compare event loops in one run. Without --cases or --all a short selection is measured.",
        epilog=f"Loops: {', '.join((*loops.WHORLS, *loops.PEERS, 'asyncio', loops.LIMIT))}, and whorl@DIR "
        "from the tree DIR. bench/README.md says what they are.",
    )
    flag = partial(parser.add_argument, action="store_true")
    group = partial(parser.add_argument, action="store_const", dest="group", default="")
    names = partial(parser.add_argument, type=_names, default=[])
    names("--cases", metavar="PATTERN,…", help="globs or parts of names")
    names("--loops", metavar="NAME,…", help="see below")
    flag("--all", help="every case (--list --all shows them)")
    flag("--list", help="print the names of the cases and stop")
    group("--programs", const="programs", help="whole programs: client libraries, connections, web servers")
    group("--scale", const="scale", help="how the cost of one event grows with the number of everything")
    flag("--sim", help="runs a minute of small programs in simulated worlds")
    flag("--threads", help="a loop for each core, in threads; for free-threaded Pythons")
    flag("--calls", help="count the system calls, by strace")
    flag("--memory", help="what an idle connection takes of it")
    number = partial(parser.add_argument, type=float)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case on each loop")
    number("--seconds", default=1.0, help=f"per measurement; {MICRO_SHARE:g} of it for micro")
    parser.add_argument("--json", type=Path, default=c_programs.BUILD / "result.json", metavar="FILE")
    parser.add_argument(
        "--page", nargs="?", const="", metavar="RESULT",
        help="measure nothing: write the published numbers into the documents, with RESULT those of that run",
    )  # fmt: skip
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    return options


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _show(lines: Iterable[str]) -> int:
    for line in lines:
        print(line, flush=True)
    return 0


def _no_case(options: argparse.Namespace) -> int:
    print(f"no case matches {', '.join(options.cases)}", file=sys.stderr)
    return 2


def _write_pages(result: str) -> int:
    if result:
        page.publish(Path(result))
    page.write()
    print(f"written: {', '.join(str(path.relative_to(page.ROOT)) for path in (*page.PAGES, page.CHART))}")
    return 0


def _measure_threads(options: argparse.Namespace) -> int:
    import threads

    wanted = [name for name in threads.CASES if not options.cases or name in options.cases]
    if not wanted:
        return _no_case(options)
    choices = _choose_loops(options.loops or threads.LOOPS)
    return _show(threads.table(choices, wanted, options.rounds, options.seconds))


def _choose_loops(names: Sequence[str]) -> list[Choice]:
    choices = []
    for name in dict.fromkeys(names):
        try:
            choices.append(loops.choose(name))
            print(f"{name}: {choices[-1].version}")
        except loops.UnavailableError as error:
            print(f"without {name}: {error}")
    return choices


def _run_programs(
    chosen: Sequence[Case], choices: Sequence[Choice], options: argparse.Namespace
) -> list[CaseResult]:
    """Measure the programs whose packages and services are here; the others are named."""
    installed = [case for case in chosen if _is_installed(case)]
    needed = {case.service for case in installed if isinstance(case, Program)} - {""}
    with services.running(needed, Cores.of_this_machine()) as addresses:
        lacking = needed - set(addresses)
        possible = [case for case in installed if not (isinstance(case, Program) and case.service in lacking)]
        return _run(possible, choices, options, addresses)


def _is_installed(case: Case) -> bool:
    missing = [name for name in cases.packages(case) if importlib.util.find_spec(name) is None]
    if missing:
        print(f"without {case.name}: {', '.join(missing)} cannot be imported")
    return not missing


def _run(
    chosen: Sequence[Case],
    choices: Sequence[Choice],
    options: argparse.Namespace,
    addresses: Mapping[str, str] = NOWHERE,
) -> list[CaseResult]:
    cores = Cores.of_this_machine()
    if cores.are_shared:
        print("only one core: servers and load generator share it, and latencies mean little")
    each = sum(_seconds(case, options) + OVERHEAD_SECONDS for case in chosen)
    print(f"{len(chosen)} cases, {options.rounds} rounds, up to ", end="")
    print(f"{each * options.rounds * len(choices) / 60:.1f} min\n")
    report.compare([loop.name for loop in choices])
    print(report.header(), flush=True)
    results = []
    for case in chosen:
        results.append(_run_case(case, choices, cores, options, addresses))
        _show(report.rows(results[-1]))
    return results


def _run_case(
    case: Case,
    choices: Sequence[Choice],
    cores: Cores,
    options: argparse.Namespace,
    addresses: Mapping[str, str],
) -> CaseResult:
    """Return all rounds of one case. Loops alternate, so a change of the machine meets each of them."""
    applicable = [loop for loop in choices if is_applicable(case, loop)]
    samples: dict[str, list[Sample | None]] = {loop.name: [] for loop in applicable}
    result = CaseResult(case.name, samples)
    hanging: set[str] = set()
    for _ in range(options.rounds):
        for loop in applicable:
            sample = None
            try:
                if loop.name not in hanging:
                    sample = measure(case, loop, cores, _seconds(case, options), addresses)
            except MeasurementError as failure:
                result.failures[loop.name] = str(failure)
                if isinstance(failure, NoEndError):
                    hanging.add(loop.name)
            samples[loop.name].append(sample)
    return result


def _seconds(case: Case, options: argparse.Namespace) -> float:
    seconds: float = options.seconds
    return MICRO_SHARE * seconds if isinstance(case, MicroCase) else seconds


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
