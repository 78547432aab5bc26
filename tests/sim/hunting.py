"""Start `tests.sim.hunt` in a process of its own, with libraries of chosen versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sim.bugs.versions import folder_with

_TREE = Path(__file__).parents[2]


def hunted(program: str, seeds: str, *needs: str, **options: str) -> dict[str, Any]:
    """Run a program for seeds and return what the process says. Skip the test if a library cannot be had.

    `needs` are requirements of pip; those that begin with a dash are arguments of `tests.sim.hunt`.
    """
    arguments = [f"--{name}={value}" for name, value in options.items()]
    arguments += [need for need in needs if need.startswith("-")]
    requirements = [need for need in needs if not need.startswith("-")]
    if requirements:
        folder = folder_with(*requirements)
        if folder is None:
            pytest.skip("there is no package index")
        arguments.append(f"--path={folder}")
    paths = [*(each for each in sys.path if each), str(_TREE)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.hunt", program, "--seeds", seeds, *arguments],
        cwd=_TREE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]
