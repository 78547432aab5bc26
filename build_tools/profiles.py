"""Profiles: how often each line of the C code ran under loads, which the compiler then optimizes for.

GCC writes one file for each module (`-fprofile-generate`) and reads it when it compiles the module again
(`-fprofile-use`). Code that ran often is made fast, and lies close together; the rest is made small.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from build_tools import extensions
from build_tools.extensions import BuildError
from build_tools.sources import ROOT, Module, compiled_modules

EXAMPLES = ("protocol_echo.py", "machine_timer.py", "machine_tcp_echo.py")


def record(tree: Path) -> None:
    """Run loads with a tree of the configuration `recording`; keep what they leave as the profile.

    Raises BuildError if a load fails.
    """
    modules = compiled_modules()
    for path in extensions.recordings(modules).values():
        path.unlink(missing_ok=True)
    environment = {**os.environ, **extensions.counting(), "PYTHONPATH": str(tree), "WHORL_BUILD": "compiled"}
    with tempfile.TemporaryDirectory(prefix="whorl-") as folder:
        _run_loads({**environment, "TMPDIR": folder})
    keep(modules)


def _run_loads(environment: dict[str, str]) -> None:
    programs = [["-m", "build_tools.training"], *([str(ROOT / "examples" / name)] for name in EXAMPLES)]
    simulated = ["-m", "build_tools.training", "simulated"]
    for program in (*programs, simulated):
        command = [sys.executable, "-W", "ignore", *program]
        if program is simulated and sysconfig.get_config_var("Py_GIL_DISABLED"):
            command[1:1] = ["-X", "gil=1"]
        answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if answer.returncode:
            raise BuildError(f"{' '.join(command)}\n{answer.stdout}{answer.stderr}")


def keep(modules: Sequence[Module]) -> None:
    """Make a profile of what modules of the configuration `recording` have counted."""
    folder = extensions.profile_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.gcda"):
        path.unlink()
    for name, path in extensions.recordings(modules).items():
        if not path.exists():
            raise BuildError(f"{path}: the loads left no profile; GCC makes this file, and no other compiler")
        shutil.copyfile(path, folder / f"{name}.gcda")
    (folder / extensions.MADE_FOR).write_text(extensions.made_for(modules), encoding="utf-8")
