"""A build tree: a folder with a complete, compiled copy of the package, brought up to date in place.

`python -m build_tools.tree --config checked` makes `build/<tag>-checked/whorl`. Files are replaced by
renaming, so that a process which has loaded the old ones keeps them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from build_tools import extensions, profiles
from build_tools.extensions import BuildError, tag
from build_tools.locks import alone_in
from build_tools.sources import ROOT, SOURCES, compiled_modules


def tree_folder(config: str) -> Path:
    """Return the folder with the tree of this interpreter; it belongs on `sys.path`."""
    return ROOT / "build" / f"{tag()}-{config}"


def build_tree(config: str) -> Path:
    """Make the tree agree with the sources; returns the folder to be put on `sys.path`.

    One of the configuration `profiled` records its profile first, unless there is one of these sources.
    """
    if config == "profiled" and not profiles.is_current():
        profiles.record(build_tree("recording"))
    tree = tree_folder(config)
    with alone_in(tree):
        built = extensions.build(compiled_modules(), config)
        wanted = {path.relative_to(SOURCES): path for path in _source_files()}
        wanted[extensions.file_name()] = built
        for name, path in wanted.items():
            _copy(path, tree / name)
        _delete_all_but(tree, wanted)
    return tree


def _source_files() -> list[Path]:
    return [
        path
        for path in (SOURCES / "whorl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    ]


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


def _delete_all_but(tree: Path, names: Iterable[Path]) -> None:
    kept = {tree / name for name in names}
    folders = {parent for path in kept for parent in path.parents}
    for path in sorted(tree.rglob("*"), reverse=True):
        if path.is_dir():
            if path not in folders and path.name != "__pycache__":
                shutil.rmtree(path)
        elif path not in kept and path.parent.name != "__pycache__":
            path.unlink()


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
