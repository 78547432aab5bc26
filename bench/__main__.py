"""Compare event loops in one run: `python bench --help`."""

import argparse
import importlib.util
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import c_programs
import calls
import cases
import loops
import memory
import page
import plot
import report
from cases import Case, EchoCase, MicroCase
from loops import Choice
from measure import NOWHERE, Cores, MeasurementError, NoEndError, Sample, is_applicable, measure
from programs import services
from programs.program import Program
from report import CaseResult

OVERHEAD_SECONDS = 0.6  # to start processes and warm up, about
MICRO_SHARE = 0.3  # micro cases have no clients to average over and need less time


def main() -> int:
    options = _parse_arguments()
    if options.page is not None:
        return _write_pages(options.page)
    if options.sim:
        return _measure_worlds(options.seconds)
    if options.clusters:
        return _measure_clusters(options)
    if options.inspector:
        return _measure_watching(options)
    if options.threads:
        return _measure_threads(options)
    chosen = _choose_cases(options)
    if options.list:
        _print_list(chosen)
        return 0
    if not chosen:
        return _no_case(options)
    try:
        c_programs.compile_all()
        if options.machine:
            c_programs.compile_for_libuv()
            report.compare_with(loops.LIBUV)
            options.loops = ["whorl", loops.LIBUV]
    except c_programs.CompileError as error:
        print(error, file=sys.stderr)
        return 2
    choices = _choose_loops(options.loops or (loops.FOR_PROGRAMS if options.programs else loops.NAMES))
    if not choices:
        return 2
    if options.calls:
        return _count_calls(chosen, choices, options)
    if options.memory:
        return _measure_memory(choices, options)
    results = _run_programs(chosen, choices, options) if options.programs else _run(chosen, choices, options)
    versions = {loop.name: loop.version for loop in choices}
    report.save(options.json, results, versions, {"rounds": options.rounds, "seconds": options.seconds})
    print(f"\nwritten to {options.json}")
    if options.plot:
        plot.draw(options.plot, results, [loop.name for loop in choices])
        print(f"drawn in {options.plot}")
    return 1 if any(result.has_errors for result in results) else 0


def _no_case(options: argparse.Namespace) -> int:
    print(f"no case matches {', '.join(options.cases)}", file=sys.stderr)
    return 2


def _choose_cases(options: argparse.Namespace) -> list[Case]:
    if options.scale:
        _allow_many_descriptors()
        return cases.choose_scales(options.cases)
    if options.programs:
        return cases.choose_from(cases.PROGRAMS, options.cases)
    if options.machine:
        return cases.choose_from(cases.MACHINE, options.cases)
    return cases.choose(options.cases, options.all)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python bench",
        description="Compare event loops in one run. Without --cases or --all a short selection is measured.",
        epilog="Loops: " + "; ".join(f"{name}: {text}" for name, text in loops.DESCRIPTIONS.items()),
    )
    parser.add_argument(
        "--cases", type=_names, default=[], metavar="PATTERN,…", help="globs or parts of names"
    )
    parser.add_argument("--all", action="store_true", help="every case (--list --all shows them)")
    parser.add_argument(
        "--machine", action="store_true", help="the machine's own face, compared with libuv from C"
    )
    parser.add_argument(
        "--programs", action="store_true", help="whole programs: client libraries, connections, web servers"
    )
    parser.add_argument(
        "--scale", action="store_true", help="how the cost of one event grows with the number of everything"
    )
    parser.add_argument(
        "--sim", action="store_true", help="runs a minute of small programs in simulated worlds"
    )
    parser.add_argument(
        "--threads", action="store_true", help="a loop for each core, in threads; for free-threaded Pythons"
    )
    parser.add_argument(
        "--inspector", action="store_true", help="what the inspector costs: programs with it and without it"
    )
    parser.add_argument("--clusters", action="store_true", help="Dask and Ray, each in processes of its own")
    parser.add_argument("--calls", action="store_true", help="count the system calls, by strace")
    parser.add_argument("--memory", action="store_true", help="what an idle connection takes of it")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="with --scale: draw it (.svg, .png)")
    parser.add_argument("--loops", type=_names, default=[], metavar="NAME,…", help="see below")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case on each loop")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help=f"per measurement; {MICRO_SHARE:g} of it for micro"
    )
    parser.add_argument("--json", type=Path, default=c_programs.BUILD / "result.json", metavar="FILE")
    parser.add_argument(
        "--page", nargs="?", const="", metavar="RESULT",
        help="measure nothing: write the published numbers into the documents, with RESULT those of that run",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    if options.calls and not calls.is_possible():
        parser.error("--calls needs strace")
    if options.plot and not (options.scale and plot.is_possible()):
        parser.error("--plot needs --scale and matplotlib")
    return options


def _write_pages(result: str) -> int:
    try:
        if result:
            page.publish(Path(result))
    except (OSError, page.IncompleteError) as error:
        print(error, file=sys.stderr)
        return 2
    page.write()
    print(f"written: {', '.join(str(path.relative_to(page.ROOT)) for path in (*page.PAGES, page.CHART))}")
    return 0


def _count_calls(chosen: Sequence[Case], choices: Sequence[Choice], options: argparse.Namespace) -> int:
    print(f"\n{'case':30} {'loop':12} calls for each request")
    echoes = [case for case in chosen if isinstance(case, EchoCase)]
    for line in calls.table(echoes, choices, Cores.of_this_machine(), options.seconds):
        print(line, flush=True)
    return 0


def _measure_memory(choices: Sequence[Choice], options: argparse.Namespace) -> int:
    _allow_many_descriptors()
    print("\nbytes that more are resident for each of many idle connections")
    for line in memory.table(choices, Cores.of_this_machine(), options.rounds):
        print(line, flush=True)
    return 0


def _measure_worlds(seconds: float) -> int:
    import worlds  # whorl.sim is needed for nothing else here

    for line in worlds.table(seconds):
        print(line, flush=True)
    return 0


def _measure_watching(options: argparse.Namespace) -> int:
    import watching  # it needs the inspector

    chosen = cases.choose_from(watching.CASES, options.cases)
    if not chosen:
        return _no_case(options)
    try:
        c_programs.compile_all()
        for line in watching.table(chosen, options.rounds, options.seconds):
            print(line, flush=True)
    except (c_programs.CompileError, MeasurementError, loops.UnavailableError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _measure_threads(options: argparse.Namespace) -> int:
    import threads

    wanted = [name for name in threads.CASES if not options.cases or name in options.cases]
    if not wanted:
        return _no_case(options)
    choices = _choose_loops(options.loops or threads.LOOPS)
    is_on = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"\n{sys.version.split()[0]}; the GIL is {'on' if is_on else 'off'} without a loop")
    print(f"{'case':12} {'loop':12} {'one a second':>12} {'a core each':>12}    gain")
    for line in threads.table(choices, wanted, options.rounds, options.seconds):
        print(line, flush=True)
    return 0


def _measure_clusters(options: argparse.Namespace) -> int:
    import clusters

    choices = _choose_loops(options.loops or clusters.LOOPS)
    wanted = [name for name in clusters.ENGINES if not options.cases or name in options.cases]
    print(f"\n{'case':16} {'loop':8} {'a second':>12} {'/ ' + clusters.BASE:>10}")
    for line in clusters.table(choices, wanted, options.rounds, options.seconds):
        print(line, flush=True)
    return 0


def _allow_many_descriptors() -> None:
    """Let the processes that are started have as many descriptors as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _print_list(chosen: Sequence[Case]) -> None:
    for case in chosen:
        print(case.name)


def _choose_loops(names: Sequence[str]) -> list[Choice]:
    choices = []
    for name in dict.fromkeys(names):
        try:
            choices.append(loops.choose(name))
        except loops.UnavailableError as error:
            print(f"without {name}: {error}")
    for choice in choices:
        print(f"{choice.name}: {choice.version}")
    return choices


def _run_programs(
    chosen: Sequence[Case], choices: Sequence[Choice], options: argparse.Namespace
) -> list[CaseResult]:
    """Measure the programs whose packages and services are here; the others are named."""
    cores = Cores.of_this_machine()
    installed = [case for case in chosen if _is_installed(case)]
    needed = {case.service for case in installed if isinstance(case, Program)} - {""}
    with services.running(needed, cores) as addresses:
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
    minutes = sum(_expected_seconds(case, choices, options) for case in chosen) / 60
    print(f"{len(chosen)} cases, {options.rounds} rounds, about {minutes:.0f} min\n")
    print(report.header(), flush=True)
    results = []
    for case in chosen:
        results.append(_run_case(case, choices, cores, options, addresses))
        print("\n".join(report.rows(results[-1])), flush=True)
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


def _expected_seconds(case: Case, choices: Sequence[Choice], options: argparse.Namespace) -> float:
    seconds = _seconds(case, options) + OVERHEAD_SECONDS
    rounds: int = options.rounds
    return rounds * seconds * sum(is_applicable(case, loop) for loop in choices)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
