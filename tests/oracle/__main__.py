"""Record the traces anew: fetch and build libuv, run every script on it, print the differences from before.

`make oracle ARGS="--seed 17"` shows one random script with both traces; with `--compare`
nothing is written, and Whorl is compared with libuv.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from build_tools import libuv
from build_tools.sources import ROOT
from tests.oracle import generator, traces

PROGRAM = ROOT / "build" / "oracle" / "interpreter"


def main() -> int:
    options = _options()
    try:
        libuv.compile_program(Path(__file__).parent / "interpreter.c", PROGRAM)
    except libuv.LibuvProblem as problem:
        print(problem, file=sys.stderr)
        return 2
    if options.seed is not None:
        return _show(generator.script(options.seed))
    if options.script is not None:
        return _show(options.script.read_text(encoding="utf-8").partition(f"{traces.SEPARATOR}\n")[0])
    changed = _record_scenarios(options.compare) + _record_random(options.compare, options.seeds)
    print(f"{changed} traces differ" if changed else "all traces are the same")
    return 1 if changed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make oracle", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="show this random script, and both traces")
    parser.add_argument("--script", type=Path, help="show both traces of the script in this file")
    parser.add_argument("--seeds", type=int, default=traces.SEEDS, help="how many random scripts")
    parser.add_argument("--compare", action="store_true", help="write nothing: compare Whorl with libuv")
    return parser.parse_args()


def _show(script: str) -> int:
    [(_, expected)] = record(iter([("script", script)]))
    print(script, traces.SEPARATOR, *expected, sep="\n")
    return _compare("", script, expected)


def _compare(name: str, script: str, expected: list[str]) -> int:
    """Run a script on Whorl, and show the differences."""
    from tests.oracle.performer import perform

    found = perform(script)
    if found == expected:
        return 0
    print(
        f"{traces.MARK}{name}",
        *difflib.unified_diff(expected, found, "libuv", "whorl", lineterm="", n=4),
        sep="\n",
    )
    return 1


def record(scripts: Iterator[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the traces of scripts, from libuv."""
    answer = subprocess.run([PROGRAM], input=traces.join(scripts), capture_output=True, text=True, check=True)
    print(answer.stderr, end="", file=sys.stderr)
    return traces.split(answer.stdout)


def _record_scenarios(compare: bool) -> int:
    texts = {name: traces.read_scenario(name) for name in traces.scenarios()}
    changed = 0
    for name, trace in record((name, script) for name, (script, _) in texts.items()):
        script, former = texts[name]
        if compare:
            changed += _compare(name, script, trace)
        elif trace != former:
            traces.write_scenario(name, script, trace)
            _tell_change(name, former, trace)
            changed += 1
    return changed


def _record_random(compare: bool, seeds: int) -> int:
    scripts = {seed: generator.script(seed) for seed in range(seeds)}
    found = {int(name): trace for name, trace in record((str(seed), text) for seed, text in scripts.items())}
    if compare:
        return sum(_compare(str(seed), scripts[seed], trace) for seed, trace in found.items())
    former = traces.read_random()
    changed = [seed for seed, trace in found.items() if trace != former.get(seed)]
    for seed in changed[:5]:
        _tell_change(f"seed {seed}", former.get(seed, []), found[seed])
    if changed or len(former) != len(found):
        traces.write_random(found)
    return len(changed)


def _tell_change(name: str, former: list[str], trace: list[str]) -> None:
    if not former:
        print(f"{name}: recorded")
        return
    print(*difflib.unified_diff(former, trace, f"{name}, before", f"{name}, now", lineterm="", n=2), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
