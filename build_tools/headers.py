"""Compiles each C header by itself, with all warnings as errors: `python -m build_tools.headers`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig

from build_tools.sources import SOURCES

WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]


def main() -> None:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    folders = ["-isystem", sysconfig.get_path("include"), f"-I{SOURCES}"]
    headers = sorted(SOURCES.rglob("*.h"))
    command = [*compiler, *WARNINGS, *folders, "-x", "c", os.devnull, "-include"]
    failed = [path for path in headers if subprocess.call([*command, str(path)])]
    if failed:
        sys.exit(f"{len(failed)} of {len(headers)} headers have errors or warnings")
    print(f"{len(headers)} headers have no warnings")


if __name__ == "__main__":
    main()
