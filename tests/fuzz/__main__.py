"""Runs the fuzzers for a while: `python -m tests.fuzz --seconds 60 --seed 1`. What fails can be replayed."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3000  # of one process
LIMIT = 150  # seconds for one process


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="the first seed; the next ones follow it")
    parser.add_argument("--steps", type=int, default=STEPS, help="calls made for each seed")
    parser.add_argument("--runs", type=int, default=None, help="how many seeds, however long it takes")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    began = time.monotonic()
    calls = runs = 0
    failed = []
    while runs < options.runs if options.runs else time.monotonic() - began < options.seconds:
        made, problem = run(seed + runs, options.steps)
        calls += made
        if problem:
            failed.append(seed + runs)
            print(
                f"--- seed {seed + runs}: {problem}\n    replay: {replay(seed + runs, options.steps)}",
                flush=True,
            )
        runs += 1
    took = time.monotonic() - began
    print(f"seeds {seed} to {seed + runs - 1}: {calls} calls in {took:.0f} s, {len(failed)} of {runs} failed")
    return int(bool(failed))


def replay(seed: int, steps: int) -> str:
    """The command that makes the same calls again."""
    build, config = os.environ.get("WHORL_BUILD", "compiled"), os.environ.get("WHORL_CONFIG", "checked")
    how = "--build pure" if build == "pure" else f"--config {config}"
    return f"python -m build_tools {how} --with test -- -m tests.fuzz --runs 1 --seed {seed} --steps {steps}"


def run(seed: int, steps: int) -> tuple[int, str]:
    """One process: how many calls it made, and what went wrong."""
    with tempfile.TemporaryDirectory(prefix="whorl-fuzz-") as folder:
        journal = Path(folder, "journal")
        program = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.hostile"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        try:
            ran = subprocess.run(
                [*program, str(seed), str(steps), str(journal)],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return 0, f"it hangs\n{last_calls(journal)}"
        lines = ran.stdout.split("\n")
        calls = int(lines[0]) if lines[0].isdigit() else 0
        odd = [line for line in lines[1:] if line]
        if ran.returncode == 0 and not odd:
            return calls, ""
        return calls, "\n".join(
            [f"exit code {ran.returncode}", *odd, ran.stderr[-6000:], last_calls(journal)]
        )


def last_calls(journal: Path, count: int = 25) -> str:
    """The end of the journal."""
    if not journal.exists():
        return ""
    lines = journal.read_bytes().rstrip(b"\0").decode(errors="replace").splitlines()
    return "\n".join(["the last calls:", *lines[-count:]])


if __name__ == "__main__":
    sys.exit(main())
