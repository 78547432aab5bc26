"""Check that a program's runs depend on their seeds only: over processes, hash seeds, builds and repetitions.

`python -m tests.sim.determinism PROGRAM` with a build of Whorl on PYTHONPATH; PROGRAM is a module for
`tests.sim.hunt`. It compares that build with the plain sources. strace, if there is one, shows system calls.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sim.hunt import MARK

_TREE = Path(__file__).parents[2]
#: The system calls that only get memory or wake threads; asyncio asks for the process before 3.12.
HARMLESS = {"mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "futex", "getpid"}


def digests(
    program: str, seeds: str, *arguments: str, hash_seed: str = "0", pure: bool = False, faults: str = "swarm"
) -> dict[str, str]:
    """Return the digest of each seed's run in a new process."""
    paths = [str(_TREE / "src")] if pure else []
    paths += [*(each for each in sys.path if each), str(_TREE)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": hash_seed}
    command = [
        sys.executable,
        "-m",
        "tests.sim.hunt",
        program,
        "--seeds",
        seeds,
        "--faults",
        faults,
        "--digests",
    ]
    done = subprocess.run(
        [*command, *arguments], cwd=_TREE, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])["digests"]  # type: ignore[no-any-return]


def system_calls(program: str, seeds: str, *arguments: str) -> collections.Counter[str] | None:
    """Return the system calls that runs make, without those for memory; None if nothing can be traced."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*(each for each in sys.path if each), str(_TREE)]),
    }
    with tempfile.NamedTemporaryFile() as file:
        traced = [strace, "-f", "-o", file.name, sys.executable, "-m", "tests.sim.hunt", program]
        done = subprocess.run(
            [*traced, "--seeds", seeds, "--faults", "swarm", "--mark", *arguments],
            cwd=_TREE,
            env=environment,
            capture_output=True,
            check=False,
        )
        text = Path(file.name).read_text(encoding="utf-8", errors="replace")
    parts = re.split(rf'^.*"{MARK}".*$', text, flags=re.MULTILINE)
    if done.returncode or len(parts) != 5:
        return None
    names = re.findall(r"^\d+ +(\w+)\(", parts[3], flags=re.MULTILINE)
    return collections.Counter(name for name in names if name not in HARMLESS)


def main() -> None:
    """Make the checks, say what came out, and exit with 1 if a run differed or left its world."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--alone", type=int, default=100, help="how many seeds run in a process of their own")
    options, arguments = parser.parse_known_args()
    seeds = f"0:{options.seeds}"
    ways = [(hash_seed, pure) for pure in (False, True) for hash_seed in ("0", "1", "random")]
    found = [digests(options.program, seeds, *arguments, hash_seed=h, pure=pure) for h, pure in ways]
    equal = sum(len({each[seed] for each in found}) == 1 for seed in found[0])
    print(f"{equal} of {options.seeds} seeds: equal in {len(ways)} processes, two builds, three hash seeds")
    twice = digests(options.program, f"0:{options.seeds}", "--mark", *arguments)
    again = sum(twice[seed] == found[0][seed] for seed in twice)
    print(f"{again} of {options.seeds} seeds: the same the second time in one process")
    alone = sum(
        digests(options.program, f"{seed}:{seed + 1}", *arguments, hash_seed="random")[str(seed)]
        == found[0][str(seed)]
        for seed in range(options.alone)
    )
    print(f"{alone} of {options.alone} seeds: the same alone in a process")
    calls = system_calls(options.program, "0:3", *arguments)
    print(
        "strace cannot trace here"
        if calls is None
        else f"system calls in three runs: {dict(calls) or 'none'}"
    )
    sys.exit(bool(equal < options.seeds or again < options.seeds or alone < options.alone or calls))


if __name__ == "__main__":
    main()
