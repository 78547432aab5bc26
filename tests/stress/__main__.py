"""Runs storms for a while: `python -m tests.stress --seconds 60`. Each has 2, 4 or 8 loops.

Six storms in turn are followed by six in a restless Python: it changes threads, and collects, inside of most
calls.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.stress.storm import KINDS, Storm, restless

SECONDS = 5.0  # of one storm
PATIENCE = (
    600.0  # seconds more, after which it is stuck: with ThreadSanitizer on a busy machine it takes minutes
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the next ones follow it")
    parser.add_argument("--loops", type=int, action="append", help="how many at once; 2, 4 and 8 in turn")
    parser.add_argument("--tasks", choices=("cpython", "compiled"), action="append")
    parser.add_argument("--only", choices=KINDS, action="append", help="one kind of traffic")
    options = parser.parse_args()
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"{sys.version.split()[0]}, the GIL is {'on' if has_gil else 'off'}", flush=True)
    sizes = itertools.cycle(options.loops or (2, 4, 8))
    tasks = itertools.cycle(options.tasks or ("cpython", "compiled"))
    end = time.monotonic() + options.seconds
    for seed in itertools.count(options.seed):
        seconds = min(SECONDS, end - time.monotonic())
        if seconds <= 0:
            break
        loops, kind = next(sizes), next(tasks)
        faulthandler.dump_traceback_later(seconds + PATIENCE, exit=True)
        around = restless() if seed // 6 % 2 else contextlib.nullcontext()
        with tempfile.TemporaryDirectory() as folder, around:
            storm = Storm(loops, seconds, Path(folder), seed, kind, tuple(options.only or KINDS))
            counts = storm.run()
        faulthandler.cancel_dump_traceback_later()
        words = ", ".join(f"{name} {count}" for name, count in counts.items())
        print(f"seed {seed}, {loops} loops, {kind} tasks: {words}", flush=True)


if __name__ == "__main__":
    main()
