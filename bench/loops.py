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
from typing import Any, TypeAlias, cast

LIMIT = "C"
LIBUV = "libuv"
PEERS = {  # what makes a loop, by the name of the package on PyPI
    "uvloop": "new_event_loop",
    "rloop": "new_event_loop",
    "veloxloop": "new_event_loop",
    "zloop": "new_event_loop",
    "zuvloop": "new_event_loop",
    "rsloop": "new_event_loop",
    "blazio": "new_event_loop",
    "aiofastnet": "loop_factory",
}
SPIN_NS = 100_000
CONFIGURED: dict[str, dict[str, Any]] = {  # their options (`configure`)
    "whorl-spinning": {"spin_ns": SPIN_NS},
    "whorl-server": {"collect_writes": True},
}
TASKS = "whorl-tasks"
CPYTHON_TASKS = "whorl-cpython-tasks"
KINDS_OF_TASKS = {TASKS: "compiled", CPYTHON_TASKS: "cpython"}
NAMES = ("whorl", "whorl-server", "whorl-pure", *PEERS, "asyncio", LIMIT)
FOR_PROGRAMS = ("whorl", "uvloop", "rloop", "zloop", "zuvloop", "rsloop", "blazio", "asyncio")
DESCRIPTIONS = {
    "whorl": "Whorl, compiled: the tree on PYTHONPATH, else build/cpXY-*-release; whorl@DIR: another tree",
    "whorl-pure": "Whorl, not compiled: src/",
    "whorl-spinning": f"Whorl, compiled, that spins for {SPIN_NS // 1000} µs before it sleeps",
    "whorl-server": "Whorl, compiled, that collects the answers of a turn (whorl.server_loop)",
    ", ".join(PEERS): "other people's, where they are installed",
    TASKS: 'Whorl, compiled, with tasks of its own (tasks="compiled")',
    CPYTHON_TASKS: 'Whorl, compiled, with CPython\'s tasks (tasks="cpython")',
    "asyncio": "the standard library's loop",
    LIMIT: "a minimal epoll echo server in C: the limit (echo and churn only)",
}
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
    if name in (LIMIT, LIBUV):
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
    if name in PEERS:
        make: Any = getattr(importlib.import_module(name), PEERS[name])
        return cast(Factory, make() if PEERS[name] == "loop_factory" else make)
    import whorl

    _check_build(name, whorl.compiled)
    if kind := KINDS_OF_TASKS.get(name.partition("@")[0]):
        return functools.partial(whorl.new_event_loop, tasks=kind)
    options = CONFIGURED.get(name.partition("@")[0])
    return cast(Factory, functools.partial(_configured, options) if options else whorl.new_event_loop)


def _configured(options: Mapping[str, Any]) -> Any:
    import whorl

    loop = whorl.new_event_loop()
    loop.configure(**options)
    return loop


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _environment(name: str) -> dict[str, str]:
    environment = dict(os.environ)
    family, _, tree = name.partition("@")
    known = {*NAMES, *CONFIGURED, *KINDS_OF_TASKS}
    if family not in known:
        raise UnavailableError(f"unknown loop; known are {', '.join(sorted(known))}")
    if family == "whorl-pure":
        environment["PYTHONPATH"] = tree or str(ROOT / "src")
    elif tree:
        environment["PYTHONPATH"] = tree
    elif family in ("whorl", *CONFIGURED, TASKS) and not _names_whorl(environment.get("PYTHONPATH", "")):
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


def _check_build(name: str, compiled: bool) -> None:
    if compiled == name.startswith("whorl-pure"):
        raise ImportError(f"found a whorl that is {'compiled' if compiled else 'not compiled'}")


def _version(name: str) -> str:
    if name == "asyncio":
        return sys.version.split()[0]
    module = importlib.import_module(name if name in PEERS else "whorl")
    version = metadata.version(name) if name in PEERS else module.__version__
    return f"{version} ({Path(str(module.__file__)).parent})"


if __name__ == "__main__":
    factory(sys.argv[1])().close()
    print(json.dumps(_version(sys.argv[1])))
