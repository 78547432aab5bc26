"""Run a program of these tests in many worlds, in a process of its own; say as JSON what was found.

`python -m tests.sim.hunt tests.sim.programs.aiohttp_app --seeds 0:200 --faults swarm`
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import whorl
from whorl import sim
from whorl.sim.chance.faults import MODELS

#: A path that is looked for at the beginning and at the end of what strace is to look at.
MARK = "/whorl-mark"


def main() -> None:
    """Run a module's `main` for each seed and print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", help="a module with a coroutine function `main`, or module:function")
    parser.add_argument("--seeds", default="0:100", help="the first one, and the one after the last")
    parser.add_argument("--faults", default="calm", help="a profile's name")
    parser.add_argument("--tls", default="seeded")
    parser.add_argument("--cpu", choices=list(MODELS), help="how the time of turns is drawn")
    parser.add_argument("--allow", action="append", default=[], help="what is no failure")
    parser.add_argument("--path", action="append", default=[], help="a folder with packages")
    parser.add_argument("--stop", action="store_true", help="stop at the first finding")
    parser.add_argument("--digests", action="store_true", help="say the digest of each run")
    parser.add_argument("--twice", action="store_true", help="run each seed twice, and compare")
    parser.add_argument("--mark", action="store_true", help="run twice; mark the second time for strace")
    options = parser.parse_args()
    sys.path[:0] = options.path
    module, _, name = options.program.partition(":")
    program: Any = getattr(importlib.import_module(module), name or "main")
    first, _, end = options.seeds.partition(":")
    seeds = range(int(first), int(end or int(first) + 1))
    found = hunt(program, seeds, options)
    if options.mark:
        found = hunt(program, seeds, options)
    print(json.dumps(found))


def hunt(program: Any, seeds: range, options: argparse.Namespace) -> dict[str, Any]:
    """Run a program for each seed; return what was found, and how fast."""
    findings: dict[int, str] = {}
    digests: dict[int, str] = {}
    remarks: dict[str, int] = {}
    unequal = []
    first_s = None
    run = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    if options.mark:
        Path(MARK).exists()
    chosen = {"faults": options.faults, "tls": options.tls, "cpu": sim.Cpu(options.cpu)}
    chosen["allow"] = options.allow
    for seed in seeds:
        result = sim.run(program, seed=seed, **chosen)
        run += 1
        for remark in result.remarks:
            remarks[remark] = remarks.get(remark, 0) + 1
        if options.digests:
            digests[seed] = result.digest
        if options.twice:
            again = sim.run(program, seed=seed, **chosen)
            if again.digest != result.digest:
                unequal.append(seed)
        if result.failed:
            findings[seed] = str(result.findings[0])
            if first_s is None:
                first_s = time.perf_counter() - began
            if options.stop:
                break
    if options.mark:
        Path(MARK).exists()
    return {
        "compiled": whorl.compiled,
        "runs": run,
        "runs_a_minute": round(run / max(1e-9, time.process_time() - began_cpu) * 60),
        "first_s": first_s,
        "findings": findings,
        "unequal": unequal,
        "remarks": remarks,
        "digests": digests,
    }


if __name__ == "__main__":
    main()
