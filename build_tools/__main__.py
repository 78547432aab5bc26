"""Run something with Whorl: makes the environment and the build that it needs first, when they are not there.

`python -m build_tools --with test --config checked -- -m pytest tests` is what `make test` calls.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build_tools.environments import EnvironmentProblem, ensure
from build_tools.extensions import CONFIGS, run_time
from build_tools.sources import ROOT, SOURCES


def main() -> None:
    options = _options()
    try:
        python = ensure([])
        with ThreadPoolExecutor(1) as pool:  # pip installs the extras while Whorl is compiled
            installed = pool.submit(ensure, options.extras)
            folder = _whorl_for(python, options.build, options.config)
        installed.result()
    except EnvironmentProblem as problem:
        sys.exit(f"{problem}")
    if not options.command:
        print(folder)
        return
    environment = dict(os.environ)
    if environment.pop("PYTHONDONTWRITEBYTECODE", ""):  # none beside the sources; without any much is slow
        environment["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "bytecode")
    environment["PYTHONPATH"] = str(folder)
    environment["PATH"] = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    environment["WHORL_BUILD"] = options.build
    environment["WHORL_CONFIG"] = options.config if options.build == "compiled" else "pure"
    if options.build == "compiled":
        environment.update(run_time(options.config))
    sys.stdout.flush()
    os.execve(python, [str(python), *options.command], environment)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m build_tools", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--build", choices=("compiled", "pure"), default="compiled")
    parser.add_argument("--config", choices=CONFIGS, default="release")
    parser.add_argument(
        "--with", dest="extras", type=lambda text: text.split(","), default=[], metavar="EXTRA,..."
    )
    parser.add_argument(
        "command", nargs="*", metavar="ARGUMENT", help="what Python is to run; none: only build"
    )
    return parser.parse_args()


def _whorl_for(python: Path, build: str, config: str) -> Path:
    """Return the folder with the requested build; ends with an error if it cannot be compiled."""
    if build == "pure":
        return SOURCES
    command = [str(python), "-m", "build_tools.tree", "--config", config]
    answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return Path(answer.stdout.strip()) if answer.returncode == 0 else sys.exit(1)


if __name__ == "__main__":
    main()
