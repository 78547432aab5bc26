"""Programs of other projects, which are installed below `build/` when a test first asks for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import whorl
from build_tools.environments import tag
from build_tools.sources import ROOT, alone_in

Install = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def wanted() -> None:
    """Skip on the pure build, which has the same processes and names, and unless asked for."""
    if os.environ.get("WHORL_RECIPES") != "1" or not whorl.compiled:
        pytest.skip("installs servers and clusters: set WHORL_RECIPES=1, with the compiled build")


@pytest.fixture
def install() -> Install:
    """Return the function that installs packages, and returns an environment to find them by."""
    return environment_with


def environment_with(*packages: str) -> dict[str, str]:
    """Return the environment; skip the test if the packages cannot be installed here."""
    folder = ROOT / "build" / "recipes" / tag() / "-".join(packages)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--retries", "0", "--timeout", "20", "--only-binary", ":all:", "--target", str(folder)]
    with alone_in(folder):
        if not (folder / "complete").exists():
            answer = subprocess.run([*pip, *options, *packages], capture_output=True, text=True)
            if answer.returncode:
                pytest.skip(f"{' '.join(packages)} cannot be installed: {answer.stderr.strip()[-200:]}")
            (folder / "complete").touch()
    paths = [*filter(None, sys.path), str(folder), str(ROOT)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WHORL_")}
    clean.pop("PYTHONMALLOC", None)  # of the tests, which makes large programs slow
    return {**clean, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the file in which `numbered_app` notes each request that it begins."""
    (tmp_path / "begun").touch()
    return tmp_path / "begun"
