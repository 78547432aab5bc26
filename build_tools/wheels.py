"""Makes a release in dist/, and tries it: `python -m build_tools.wheels --help`.

Each wheel is built twice, from copies of the sources in two folders, and must have the same bytes. It is
installed into an empty environment, where no compiler is in the path.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import lzma
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from build_tools.profiles import EXAMPLES
from build_tools.sources import ROOT

DIST = ROOT / "dist"
GOAL = 3_000_000  # bytes of a wheel
LARGEST = 5_000_000  # one that is larger is an error
SLOWEST_IMPORT_MS = 60
IMPORTS = 20  # of which the quickest counts
MINORS = range(11, 16)

Command = list[str]


class Failed(Exception):
    """A check of the release failed; the message says which."""


def main() -> None:
    options = _options()
    os.environ.pop("PYTHONPATH", None)  # which would hide whether a wheel is installed
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory(prefix="whorl-release-") as scratch:
        try:
            _release(Path(scratch), options)
        except Failed as problem:
            sys.exit(f"*** {problem}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="build_tools.wheels", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", metavar="COMMAND", help="a Python; default: all found")
    parser.add_argument("--fresh", action="store_true", help="compile the second time without a cache")
    return parser.parse_args()


def _release(scratch: Path, options: argparse.Namespace) -> None:
    pythons = [shlex.split(python) for python in options.python or []] or found_pythons()
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    environment.pop("WHORL_PROFILE", None)  # each Python has a profile of its own
    environment.setdefault("WHORL_CACHE", str(ROOT / "build"))
    sdist = _sdist(scratch, environment)
    copies = [_unpacked(sdist, scratch / name) for name in ("first", "second/with/a/longer/path")]
    builders = [_builder(python) for python in pythons]
    wheels = [(pythons[0], _twice(builders[0], "pure", copies, environment, options.fresh))]
    for python, builder in zip(pythons, builders, strict=True):
        profile = _profile(builder, environment)
        profiled = environment | {"WHORL_PROFILE": str(profile)}
        wheel = _twice(builder, "compiled", copies, profiled, options.fresh)
        wheels.append((python, wheel))
        _pack(profile, scratch / f"{wheel.stem}.profile.tar.xz", int(epoch))
    for _, wheel in wheels:
        _check_content(wheel)
    _check(["twine", "check", "--strict", *map(str, sorted(DIST.iterdir()))])
    _check(["check_wheel_contents", *[str(wheel) for _, wheel in wheels]])
    for number, (python, wheel) in enumerate(wheels):
        _try(python, wheel, scratch / f"try{number}")
    _write_bill_of_materials(scratch / "try0", sdist)
    for path in scratch.glob("*.profile.tar.xz"):
        shutil.copy(path, DIST)
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>10,}  {sha256(path.read_bytes()).hexdigest()[:16]}  {path.name}")


def found_pythons() -> list[Command]:
    """Return a Python of each version and kind: this one, those in the path, those of pyenv."""
    names = [f"{minor}{kind}" for minor in MINORS for kind in ("", "t")]
    candidates = [sys.executable, *(f"python3.{name}" for name in names)]
    candidates += map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")))
    found: dict[str, Command] = {}
    code = "import sys, venv; print(f'{sys.version_info.minor}{sys.abiflags}')"
    for candidate in filter(shutil.which, candidates):
        answer = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
        if answer.returncode == 0:
            found.setdefault(answer.stdout.strip(), [candidate])
    print("not found:", *(f"Python 3.{minor}" for minor in MINORS if str(minor) not in found))
    return [found[name] for name in names if name in found]


# Building.


def _sdist(scratch: Path, environment: dict[str, str]) -> Path:
    """Make the source distribution, with the time of the epoch; return it."""
    code = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
    made, tree = scratch / "sdist", _copied_sources(scratch / "sources")  # setuptools writes into them
    made.mkdir()
    _run([sys.executable, "-c", code, str(made)], tree, environment | {"WHORL_BUILD": "pure"})
    (path,) = made.glob("*.tar.gz")
    folder = _unpacked(path, scratch / "unpacked")
    _pack(folder.parent, DIST / path.name, int(environment["SOURCE_DATE_EPOCH"]))
    return DIST / path.name


def _copied_sources(folder: Path) -> Path:
    """Copy what MANIFEST.in and pyproject.toml name, without what builds left there; return `folder`."""
    leftover = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "build_tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=leftover)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, folder)
    return folder


def _pack(folder: Path, target: Path, epoch: int) -> None:
    """Pack what a folder holds: sorted, with one time, and without the user's names."""

    def plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
        item.mtime, item.uid, item.gid, item.uname, item.gname = epoch, 0, 0, "", ""
        item.mode = 0o755 if item.mode & 0o100 else 0o644
        return item

    bare = io.BytesIO()
    with tarfile.open(fileobj=bare, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.add(path, str(path.relative_to(folder)), filter=plain)
    data = bare.getvalue()
    target.write_bytes(lzma.compress(data) if target.suffix == ".xz" else gzip.compress(data, mtime=epoch))


def _unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return unpacked


def _builder(python: Command) -> Command:
    """Return the Python of an environment that has what the build needs."""
    code = "from build_tools.environments import ensure; print(ensure(['build']))"
    return [*python[:-1], _run([*python, "-c", code], ROOT).strip().splitlines()[-1]]


def _profile(builder: Command, environment: dict[str, str]) -> Path:
    """Record a profile for this Python; return its folder."""
    _run([*builder, "-m", "build_tools.tree", "--config", "profiled"], ROOT, environment)
    code = "from build_tools.extensions import profile_folder; print(profile_folder())"
    return Path(_run([*builder, "-c", code], ROOT, environment).strip().splitlines()[-1])


def _twice(
    builder: Command, build: str, copies: Sequence[Path], environment: dict[str, str], is_fresh: bool
) -> Path:
    """Build a wheel from each copy; return it. Raises Failed if they differ."""
    made: list[Path] = []
    for copy in copies:
        cache = {"WHORL_CACHE": str(copy / "build")} if is_fresh and made else {}
        made.append(_wheel(builder, build, copy, environment | cache))
    if made[0].name != made[1].name or made[0].read_bytes() != made[1].read_bytes():
        raise Failed(f"two builds differ: {made[0]} and {made[1]}")
    print(f"{made[0].name}: the same bytes twice", flush=True)
    return Path(shutil.copy(made[0], DIST))


def _wheel(builder: Command, build: str, copy: Path, environment: dict[str, str]) -> Path:
    """Return a wheel of a copy of the sources, with the platform's tag that auditwheel finds."""
    raw, final = copy / "raw", copy / "wheels"
    for folder in (raw, final):
        shutil.rmtree(folder, ignore_errors=True)
    tools = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
    pip = [*builder, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    variables = environment | {"PATH": tools, "WHORL_BUILD": build}
    _run([*pip, "--wheel-dir", str(raw), str(copy)], ROOT, variables)
    (wheel,) = raw.glob("*.whl")
    if build == "pure":
        return wheel
    _run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(final), str(wheel)],
        copy,
        environment | {"AUDITWHEEL_ZIP_COMPRESSION_LEVEL": "9"},  # of 9
    )
    (wheel,) = final.glob("*.whl")
    return wheel


# Checking.


def _check_content(wheel: Path) -> None:
    """Raise Failed unless a compiled wheel has auditwheel's tag and no symbols, and each is small."""
    with zipfile.ZipFile(wheel) as archive:
        shared = [archive.read(name) for name in archive.namelist() if name.endswith(".so")]
    if len(shared) != ("manylinux" in wheel.name or "musllinux" in wheel.name):
        raise Failed(f"{wheel.name}: {len(shared)} shared objects do not fit the tag")
    if any(b".symtab" in data for data in shared):
        raise Failed(f"{wheel.name}: has symbols")
    size = wheel.stat().st_size
    if size > LARGEST:
        raise Failed(f"{wheel.name}: {size:,} bytes are more than {LARGEST:,}")
    if size > GOAL:
        print(f"{wheel.name}: {size:,} bytes, the goal is {GOAL:,}", flush=True)


def _try(python: Command, wheel: Path, folder: Path) -> None:
    """Install a wheel into an empty environment, and run the smoke tests, examples and commands from it."""
    _run([*python, "-m", "venv", str(folder)], ROOT)
    own = [*python[:-1], str(folder / "bin" / "python")]
    _run([*own, "-m", "pip", "install", "--quiet", str(wheel)], folder)
    variables = (f"PATH={folder / 'bin'}", "CC=/nonexistent", "LANG=C.UTF-8")
    bare = [*python[:-1], "/usr/bin/env", "-i", *variables, own[-1]]  # what starts that Python keeps its path
    build = "pure" if wheel.name.endswith("none-any.whl") else "compiled"
    print(_run([*bare, str(ROOT / "build_tools" / "smoke.py"), "--expect", build], folder).strip())
    facts = json.loads(_run([*bare, "-m", "whorl", "info", "--json"], folder))
    if facts["build"] != build or not facts["location"].startswith(str(folder)):
        raise Failed(f"{wheel.name}: whorl info says {facts}")
    for example in EXAMPLES:
        _run([*bare, str(ROOT / "examples" / example)], folder)
    time = _import_ms(bare, "whorl")
    print(f"{wheel.name}: import in {time:.1f} ms, asyncio in {_import_ms(bare, 'asyncio'):.1f}", flush=True)
    if build == "compiled" and time > SLOWEST_IMPORT_MS:
        print(f"{wheel.name}: slower than {SLOWEST_IMPORT_MS} ms")


def _import_ms(python: Command, module: str) -> float:
    """Return the least processor time of an import, in milliseconds, without that of Python itself."""

    def once(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run([*python, "-I", "-c", code], ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000

    times = [(once(f"import {module}"), once("pass")) for _ in range(IMPORTS)]
    return min(time for time, _ in times) - min(nothing for _, nothing in times)


def _write_bill_of_materials(environment: Path, sdist: Path) -> None:
    """Write what is installed in an environment that has a wheel alone, in CycloneDX's format."""
    target = DIST / sdist.name.replace(".tar.gz", ".cdx.json")
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "-o", str(target)]
    _check(["cyclonedx_py", "environment", *options, str(environment / "bin" / "python")])


def _check(command: Command) -> None:
    _run([sys.executable, "-m", *command], ROOT)


def _run(command: Command, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """Run a command; return its output. Raises Failed with it."""
    answer = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if answer.returncode:
        raise Failed(f"{shlex.join(command)}\n{answer.stdout}")
    return answer.stdout


if __name__ == "__main__":
    main()
