"""Runs the fuzzers for a while: `python -m tests.fuzz --seconds 60 --seed 1`. Failures can be replayed."""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUZZERS = ("hostile", "twins", "machine")
STEPS = 3000  # of one process
LIMIT = 150  # seconds for one process


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="the first seed; the next ones follow it")
    parser.add_argument("--steps", type=int, default=STEPS, help="operations for each seed")
    parser.add_argument("--runs", type=int, default=None, help="how many seeds, however long it takes")
    parser.add_argument("--only", choices=FUZZERS, action="append", help="one of the fuzzers")
    parser.add_argument(
        "--subject", action="append", default=[], help="of the twins; otherwise the seed chooses"
    )
    options = parser.parse_args()
    first = int(time.time()) if options.seed is None else options.seed
    fuzzers = options.only or FUZZERS
    began = time.monotonic()
    done = failed = 0
    for seed in itertools.count(first):
        if seed - first == options.runs or (
            options.runs is None and time.monotonic() - began > options.seconds
        ):
            break
        for fuzzer in fuzzers:
            operations, problem = run(fuzzer, seed, options.steps, *options.subject)
            done += operations
            if problem:
                failed += 1
                print(f"--- {fuzzer}, seed {seed}: {problem}")
                print(f"    replay: {replay(fuzzer, seed, options.steps, *options.subject)}", flush=True)
    seeds = f"{', '.join(fuzzers)}: seeds {first} to {seed - 1}"
    print(f"{seeds}, {done} operations in {time.monotonic() - began:.0f} s, {failed} failed")
    return int(failed > 0)


def replay(fuzzer: str, seed: int, steps: int, *subjects: str) -> str:
    """Return the command that repeats a run."""
    build, config = os.environ.get("WHORL_BUILD", "compiled"), os.environ.get("WHORL_CONFIG", "checked")
    how = "--build pure" if build == "pure" else f"--config {config}"
    what = f"--only {fuzzer} --runs 1 --seed {seed} --steps {steps}"
    what += "".join(f" --subject {subject}" for subject in subjects)
    return f"python -m build_tools {how} --with test -- -m tests.fuzz {what}"


def run(fuzzer: str, seed: int, steps: int, *subjects: str) -> tuple[int, str]:
    """Run one process; return the number of its operations, and its failure."""
    with tempfile.TemporaryDirectory(prefix="whorl-fuzz-") as folder:
        journal = Path(folder, "journal")
        program = [sys.executable, "-W", "ignore", "-m", f"tests.fuzz.{fuzzer}"]
        try:
            ran = subprocess.run(
                [*program, str(seed), str(steps), str(journal), *subjects],
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return 0, f"it hangs\n{last_calls(journal)}"
        lines = ran.stdout.split("\n")
        operations = int(lines[0]) if lines[0].isdigit() else 0
        odd = [line for line in lines[1:] if line]
        if ran.returncode == 0 and not odd:
            return operations, ""
        problem = [f"exit code {ran.returncode}", *odd, ran.stderr[-6000:], last_calls(journal)]
        return operations, "\n".join(problem)


def last_calls(journal: Path, count: int = 25) -> str:
    """Return the end of the journal."""
    if not journal.exists():
        return ""
    lines = journal.read_bytes().rstrip(b"\0").decode(errors="replace").splitlines()
    return "\n".join(["the last calls:", *lines[-count:]])


if __name__ == "__main__":
    sys.exit(main())
