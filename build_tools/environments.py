"""The virtual environments of a checkout: made when needed, and made again when the requirements change.

Each interpreter and C library has its own, in `.venv/<tag>/`. It holds what Whorl is built, tested and
compared with, never Whorl itself, which is found through `PYTHONPATH`. Each extra of `pyproject.toml` is
installed when a verb first asks for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from build_tools.extensions import tag
from build_tools.sources import ROOT, alone_in

# Whorl is built and tested without these where they cannot be installed; what needs them is skipped, aloud.
DISPENSABLE_EXTRAS = ("frameworks", "jupyter", "bench", "peers", "programs", "recipes", "types")
MISSING_FILE = "missing.json"


class EnvironmentProblem(Exception):
    """The environment could not be made; the message says what to do."""


def ensure(extras: Sequence[str]) -> Path:
    """Return the interpreter of an environment that has `extras`; make or complete the environment."""
    folder = ROOT / ".venv" / tag()
    with alone_in(folder):
        _make_if_stale(folder)
        for extra in extras:
            _install_extra(folder, extra)
    return folder / "bin" / "python"


def missing_packages() -> dict[str, str]:
    """Return the packages that could not be installed in this interpreter's environment, and why."""
    path = ROOT / ".venv" / tag() / MISSING_FILE
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _make_if_stale(folder: Path) -> None:
    stamp = folder / "made-for"
    wanted = hashlib.sha256(f"{_requirements()} {sys.version} {sys.base_prefix}".encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    _say(f"making the environment .venv/{folder.name} for Python {sys.version.split()[0]}")
    # Not `sys.executable -m venv` inside another virtual environment: it would be chained to that one.
    python = getattr(sys, "_base_executable", sys.executable)
    answer = subprocess.run([python, "-m", "venv", str(folder)], capture_output=True, text=True)
    if answer.returncode:
        raise EnvironmentProblem(f"{python} -m venv failed:\n{answer.stdout}{answer.stderr}")
    _install_extra(folder, "build")
    stamp.write_text(wanted)


def _install_extra(folder: Path, extra: str) -> None:
    installed = folder / f"has-{extra}"
    if installed.exists():
        return
    requirements = _requirements()[extra]
    _say(f"installing into .venv/{folder.name}: {' '.join(requirements)}")
    problem = _pip_install(folder, requirements)
    if problem and extra in DISPENSABLE_EXTRAS:
        _install_what_can_be(folder, requirements)
    elif problem:
        raise EnvironmentProblem(f"pip could not install {' '.join(requirements)}:\n{problem}")
    installed.touch()


def _install_what_can_be(folder: Path, requirements: Sequence[str]) -> None:
    path = folder / MISSING_FILE
    missing: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    for requirement in requirements:
        if problem := _pip_install(folder, [requirement]):
            missing[requirement] = problem.strip().splitlines()[-1]
            _say(f"\n*** {requirement} cannot be installed here; what needs it is left out.")
            _say(f"*** {missing[requirement]}\n")
    path.write_text(json.dumps(missing, indent=1))


def _pip_install(folder: Path, requirements: Sequence[str]) -> str:
    """Install `requirements` if there are wheels or they can be compiled; returns what went wrong, or ''."""
    command = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(
        [*command, "--prefer-binary", *requirements], env=environment, capture_output=True, text=True
    )
    return (answer.stdout + answer.stderr) if answer.returncode else ""


def _requirements() -> dict[str, list[str]]:
    """Return the requirements by extra; `build` has those of the build itself, and those of Whorl."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    always = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    return {"build": always, **project["project"]["optional-dependencies"]}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
