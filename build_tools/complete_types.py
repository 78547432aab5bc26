"""Checks that each public name has a type that all type checkers take for the same: `make types`.

pyright judges that (`pyright --verifytypes`). Names of private modules and with an underscore are left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

VERSIONS = ("3.11", "3.14")  # the oldest Python, and the newest one that pyright knows

PYRIGHT = [sys.executable, "-m", "pyright"]
ENVIRONMENT = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}


def main() -> None:
    if not is_there():
        print("NOT INSTALLED: pyright, so nothing says whether the public types are complete")
        return
    problems = {version: incomplete(version) for version in VERSIONS}
    for version, found in problems.items():
        for line in found:
            print(f"Python {version}: {line}")
    if any(problems.values()):
        sys.exit("*** declare these types where the names are first assigned")


def is_there() -> bool:
    """Return whether pyright can run: it needs a package of npm's, which it fetches itself."""
    if importlib.util.find_spec("pyright") is None:
        return False
    return subprocess.run([*PYRIGHT, "--version"], env=ENVIRONMENT, stdout=subprocess.DEVNULL).returncode == 0


def incomplete(version: str) -> list[str]:
    """Return what pyright does not know of the public names, one line each, for a version of Python."""
    report = verified(version)
    known = report["exportedSymbolCounts"]["withKnownType"]
    print(f"Python {version}: {known} names, {100 * report['completenessScore']:.2f} % have known types")
    if not known:
        return ["pyright found no names"]
    return [
        f"{symbol['name']}: {' '.join(diagnostic['message'].split())}"
        for symbol in report["symbols"]
        if symbol["isExported"] and not (symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"])
        for diagnostic in symbol["diagnostics"]
    ]


def verified(version: str) -> dict[str, Any]:
    """Return pyright's report on Whorl for a version of Python. Exits with its words if it fails."""
    command = [*PYRIGHT, "--verifytypes", "whorl", "--ignoreexternal", "--outputjson"]
    command += ["--pythonpath", sys.executable, "--pythonversion", version]
    answer = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    try:
        return dict(json.loads(answer.stdout)["typeCompleteness"])
    except (ValueError, KeyError):
        sys.exit(f"*** pyright: {answer.stdout}{answer.stderr}")


if __name__ == "__main__":
    main()
