"""Lay released versions of libraries into a folder of their own, outside the tree, with pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

#: Where they lie: WHORL_CACHE, or the user's cache.
_ROOT = Path(os.environ.get("WHORL_CACHE") or Path.home() / ".cache" / "whorl") / "released"

LIMIT = 120  # seconds for pip


@cache
def folder_with(*requirements: str) -> Path | None:
    """Return a folder with packages of these versions and what they need; None without a package index."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name = "-".join(requirement.replace("==", "") for requirement in requirements)
    target = _ROOT / f"{python}-{name}"
    if target.exists():
        return target
    _ROOT.mkdir(parents=True, exist_ok=True)
    laid = Path(tempfile.mkdtemp(prefix="laying-", dir=_ROOT))
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
    ]
    try:
        subprocess.run(
            [*command, "--target", str(laid), *requirements], capture_output=True, check=True, timeout=LIMIT
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        shutil.rmtree(laid)
        return None
    try:
        laid.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(laid)
    return target
