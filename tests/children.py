"""The environment in which a child process of a test imports the Whorl under test."""

from __future__ import annotations

import sys

import whorl


def bare_environment(**variables: str) -> dict[str, str]:
    """Return an environment with our import path and build, an empty search path, and `variables`."""
    build = "compiled" if whorl.compiled else "pure"
    return {"PYTHONPATH": ":".join(filter(None, sys.path)), "WHORL_BUILD": build, "PATH": "", **variables}
