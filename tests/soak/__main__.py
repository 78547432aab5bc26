"""Run everything together for a while, on Whorl and beside it on asyncio.

usage: python -m tests.soak [--seconds N] [--loops whorl,asyncio] [--picture FILE]

HTTP, TLS, WebSockets, UDP, children, signals, names, threads, cancellations and restarts share one loop.
The exit status is 1 if on Whorl an operation failed, or if a descriptor or a task was left at the end. It is
also 1 if memory grew after the first quarter of the time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.soak import picture

ROOT = Path(__file__).parents[2]
GROWTH = 1.05  # of memory in use, from the second quarter of the time to the last one
GROWTH_BYTES = 2**20
GRACE = 60  # seconds after the end


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--loops", type=lambda names: names.split(","), default=["whorl", "asyncio"])
    parser.add_argument("--picture", type=Path, default=ROOT / "build" / "soak.svg")
    options = parser.parse_args()
    found = run(options.loops, options.seconds)
    print(table(found))
    problems = {name: problems_of(figures) for name, figures in found.items()}
    for name, figures in found.items():
        memory = [used for _, used in figures["memory"]]
        print(f"{name}: {memory[0] >> 20} MB at first, {memory[-1] >> 20} MB at the end, ", end="")
        print(f"{figures['after'][0]} descriptors of {figures['before'][0]}: ", end="")
        print("; ".join(problems[name]) or "nothing was left, nothing failed")
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(picture.draw(found))
    print(f"picture: {options.picture}")
    return int(bool(problems.get("whorl", [])))


def run(loops: Sequence[str], seconds: float) -> dict[str, Any]:
    """Run a worker for each loop, all at the same time; return their figures."""
    workers = {
        name: subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.soak.worker", name, str(seconds)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in loops
    }
    found = {}
    try:
        for name, worker in workers.items():
            output, _ = worker.communicate(timeout=seconds + GRACE)
            if worker.returncode:
                raise SystemExit(f"{name}: the worker ended with {worker.returncode}")
            found[name] = json.loads(output)
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    return found


def problems_of(figures: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a loop's figures, in words."""
    problems = [*figures["errors"]]
    used = [used for _, used in figures["memory"]]
    quarter = len(used) // 4
    early, late = statistics.median(used[quarter : 2 * quarter]), statistics.median(used[-quarter:])
    if late > early * GROWTH + GROWTH_BYTES:
        problems.append(f"memory grew from {early / 2**20:.1f} to {late / 2**20:.1f} MB")
    for index, what in enumerate(("descriptors", "tasks")):
        left = figures["after"][index] - figures["before"][index]
        if left > 0:
            problems.append(f"{left} {what} are left")
    problems += [f"{name}: no operation" for name, each in figures["latencies"].items() if not each["count"]]
    return problems


def table(found: Mapping[str, Any]) -> str:
    """Return the latencies of all loads on all loops, in milliseconds."""
    lines = [f"{'milliseconds':24}{'loop':10}{'count':>9}{'50 %':>9}{'99 %':>9}{'99.9 %':>9}{'longest':>9}"]
    for load in next(iter(found.values()))["latencies"]:
        for name, figures in found.items():
            each = figures["latencies"][load]
            cells = "".join(f"{seconds * 1000:9.2f}" for seconds in each["percentiles"])
            lines.append(f"{load:24}{name:10}{each['count']:9,}{cells}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
