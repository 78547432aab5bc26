"""The event loops that are compared: their names, where each is found, how one is made."""

import asyncio
import ctypes
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

LIMIT = "C"
PEERS = ("uvloop", "rloop", "zloop", "zuvloop", "rsloop", "blazio", "aiofastnet")  # their packages, too
SPIN_NS = 100_000
TASKS = {"whorl-tasks": "compiled", "whorl-cpython-tasks": "cpython"}
WHORLS = ("whorl", "whorl-server", "whorl-pure", "whorl-spinning", "whorl-inspected", *TASKS)
NAMES = (*WHORLS[:3], *PEERS, "asyncio", LIMIT)  # without --loops
FOR_PROGRAMS = tuple(name for name in NAMES if name not in ("whorl-pure", "aiofastnet", LIMIT))
Factory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
ROOT = Path(__file__).resolve().parent.parent
PROBE_SECONDS = 30
PR_SET_PDEATHSIG = 1


class UnavailableError(Exception):
    """This loop cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Choice:
    """A loop that can be measured: its name as given, and the environment its processes need."""

    name: str
    environment: Mapping[str, str]
    version: str


def choose(name: str) -> Choice:
    """Find the loop called `name`; raise UnavailableError if it is not here."""
    if name == LIMIT:
        return Choice(name, dict(os.environ), "cc -O2")
    environment = _environment(name)
    probe = subprocess.run(
        [sys.executable, __file__, name],
        env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS,
    )  # fmt: skip
    if probe.returncode != 0:
        raise UnavailableError((probe.stderr.strip().splitlines() or ["no reason given"])[-1])
    return Choice(name, environment, json.loads(probe.stdout))


def factory(name: str) -> Factory:
    """Return the factory of loops called `name`, in a process that was started for it alone."""
    if name == "asyncio":
        return asyncio.SelectorEventLoop
    make: Factory
    if name in PEERS:
        module = importlib.import_module(name)
        make = module.loop_factory() if name == "aiofastnet" else module.new_event_loop
        return make
    import whorl

    family = name.partition("@")[0]
    if whorl.compiled == (family == "whorl-pure"):
        raise ImportError(f"found a whorl that is {'compiled' if whorl.compiled else 'not compiled'}")
    if family == "whorl-spinning":
        make = _spinning
    elif family == "whorl-server":
        make = whorl.server_loop
    else:
        make = functools.partial(whorl.new_event_loop, tasks=TASKS.get(family))
    return make


def _spinning() -> Any:
    import whorl

    loop = whorl.new_event_loop()
    loop.configure(spin_ns=SPIN_NS)
    return loop


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _environment(name: str) -> dict[str, str]:
    environment = dict(os.environ)
    family, _, tree = name.partition("@")
    known = {*NAMES, *WHORLS}
    if family not in known:
        raise UnavailableError(f"unknown loop; known are {', '.join(sorted(known))}")
    if family == "whorl-inspected":
        environment["WHORL_INSPECT"] = "1"
    if family == "whorl-pure":
        environment["PYTHONPATH"] = tree or str(ROOT / "src")
    elif tree:
        environment["PYTHONPATH"] = tree
    elif family in WHORLS and not _names_whorl(environment.get("PYTHONPATH", "")):
        environment["PYTHONPATH"] = str(_newest_release_tree())
    return environment


def _names_whorl(pythonpath: str) -> bool:
    return any((Path(folder) / "whorl").is_dir() for folder in pythonpath.split(os.pathsep) if folder)


def _newest_release_tree() -> Path:
    pattern = f"cp{sys.version_info.major}{sys.version_info.minor}-*-release"
    trees = sorted((ROOT / "build").glob(pattern), key=lambda tree: tree.stat().st_mtime)
    if not trees:
        raise UnavailableError(f"no PYTHONPATH with a whorl in it, and no build/{pattern}")
    return trees[-1]


def _version(name: str) -> str:
    if name == "asyncio":
        return sys.version.split()[0]
    module = importlib.import_module(name if name in PEERS else "whorl")
    version = metadata.version(name) if name in PEERS else module.__version__
    return f"{version} ({Path(str(module.__file__)).parent})"


if __name__ == "__main__":
    factory(sys.argv[1])().close()
    print(json.dumps(_version(sys.argv[1])))
