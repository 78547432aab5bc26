"""Whorl in the place of uvloop, for programs that import uvloop by name."""

from __future__ import annotations

import os
import sys

IMPORT_PATH = os.path.join(os.path.dirname(os.path.realpath(__file__)), "import_path")


def as_uvloop() -> None:
    """Make `import uvloop` give Whorl under uvloop's names, in this process and in its children.

    It puts a folder with a package `uvloop` in front of `sys.path` and of the variable PYTHONPATH. A child
    with another environment, or one that ignores it (`python -E`, `python -I`), does not see the folder. A
    child with a Python that has no Whorl imports the real uvloop.

    Call it before uvloop is imported. Raises RuntimeError if the real one was imported before.
    """
    imported = sys.modules.get("uvloop")
    if imported is not None and not (imported.__file__ or "").startswith(IMPORT_PATH):
        raise RuntimeError(
            f"the real uvloop has been imported already, from {imported.__file__}:"
            " call whorl.as_uvloop() before anything imports it"
        )
    if IMPORT_PATH not in sys.path:
        # After the folder of the script, as PYTHONPATH is.
        sys.path.insert(0 if sys.flags.safe_path else 1, IMPORT_PATH)
    inherited = os.environ.get("PYTHONPATH", "")
    if IMPORT_PATH not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [IMPORT_PATH, inherited]))


def as_environment_says() -> None:
    """Do so if WHORL_AS_UVLOOP is set, to anything but "0"."""
    if os.environ.get("WHORL_AS_UVLOOP", "0") not in ("", "0"):
        as_uvloop()
