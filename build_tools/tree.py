"""A build tree: a folder with a complete, compiled copy of the package, brought up to date in place.

`python -m build_tools.tree --config checked` makes `build/<tag>-checked/whorl`. Files are replaced by
renaming, so that a process which has loaded the old ones keeps them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from build_tools import extensions, profiles
from build_tools.extensions import BuildError, tag
from build_tools.sources import ROOT, SOURCES, alone_in, compiled_modules


def build_tree(config: str) -> Path:
    """Make the tree agree with the sources; returns the folder to be put on `sys.path`.

    One of the configuration `profiled` records its profile first, unless there is one of these sources.
    """
    if config == "profiled" and not extensions.is_profile_of(compiled_modules()):
        profiles.record(build_tree("recording"))
    tree = ROOT / "build" / f"{tag()}-{config}"
    with alone_in(tree):
        built = extensions.build(compiled_modules(), config)
        sources = [path for path in (SOURCES / "whorl").rglob("*") if _is_source(path)]
        wanted = {tree / path.relative_to(SOURCES): path for path in sources}
        wanted[tree / extensions.file_name()] = built
        for target, path in wanted.items():
            _copy(path, target)
        for path in set(tree.rglob("*")) - set(wanted):
            if _is_source(path) or path.suffix == ".so":
                path.unlink()
    return tree


def _is_source(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".pyc", ".so")


def _copy(source: Path, target: Path) -> None:
    """Copy `source` with its time stamp, unless that was done before."""
    wanted = source.stat()
    if target.exists():
        present = target.stat()
        if (present.st_mtime_ns, present.st_size) == (wanted.st_mtime_ns, wanted.st_size):
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"unfinished-{target.name}")
    shutil.copy2(source, unfinished)
    unfinished.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m build_tools.tree", description=__doc__.splitlines()[0])
    parser.add_argument("--config", choices=extensions.CONFIGS, default="release")
    options = parser.parse_args()
    try:
        print(build_tree(options.config))
    except BuildError as error:
        sys.exit(f"{error}\n\nWhorl could not be compiled; what the tools said stands above.")


if __name__ == "__main__":
    main()
