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
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from build_tools.sources import ROOT

DIST = ROOT / "dist"
GOAL = 3_000_000  # bytes of a wheel
LARGEST = 5_000_000  # one that is larger is an error
SLOWEST_IMPORT_MS = 60
MINORS = range(11, 16)
EXAMPLES = ("protocol_echo.py", "machine_timer.py", "machine_tcp_echo.py")
# Prints the least processor time of each import in a process of its own, without that of Python itself.
IMPORT_TIMES = """
import resource, subprocess, sys
def once(code):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000
codes = ["pass", *("import " + name for name in sys.argv[1:])]
nothing, *times = map(min, zip(*([once(code) for code in codes] for _ in range(20))))
for name, time in zip(sys.argv[1:], times):
    print(name, round(time - nothing, 1))
"""

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
    parser.add_argument(
        "--demo", action="store_true", help="run the demo from each wheel, which needs an index"
    )
    return parser.parse_args()


def _release(scratch: Path, options: argparse.Namespace) -> None:
    pythons = [shlex.split(python) for python in options.python or []] or found_pythons()
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _output(["git", "log", "-1", "--format=%ct"]).strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    environment.pop("WHORL_PROFILE", None)  # each Python has a profile of its own
    environment.setdefault("WHORL_CACHE", str(ROOT / "build"))
    sdist = _sdist(scratch, environment)
    copies = [_unpacked(sdist, scratch / name) for name in ("first", "second/with/a/longer/path")]
    builders = [_builder(python) for python in pythons]
    wheels = [(pythons[0], _twice(builders[0], "pure", copies, environment, options.fresh))]
    profiles: list[Path] = []
    for python, builder in zip(pythons, builders, strict=True):
        profile = _profile(builder, environment)
        profiled = environment | {"WHORL_PROFILE": str(profile)}
        wheel = _twice(builder, "compiled", copies, profiled, options.fresh)
        if wheel in (path for _, path in wheels):
            raise Failed(f"{shlex.join(python)}: another of these Pythons has made {wheel.name}")
        wheels.append((python, wheel))
        profiles.append(profile)
    for _, wheel in wheels:
        _check_names(wheel)
    _check(["twine", "check", "--strict", *map(str, sorted(DIST.iterdir()))])
    _check(["check_wheel_contents", *[str(wheel) for _, wheel in wheels]])
    for number, (python, wheel) in enumerate(wheels):
        _try(python, wheel, scratch / f"try{number}", options.demo)
    _write_bill_of_materials(sdist, [wheel for _, wheel in wheels], epoch)
    for (_, wheel), profile in zip(wheels[1:], profiles, strict=True):
        _pack_profile(wheel, profile, int(epoch))
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>10,}  {sha256(path.read_bytes()).hexdigest()[:16]}  {path.name}")


def found_pythons() -> list[Command]:
    """Return one Python for each minor version: this one, those in the path, those of pyenv.

    A free-threaded one counts as a version of its own.
    """
    candidates = [sys.executable, *(f"python3.{minor}{kind}" for minor in MINORS for kind in ("", "t"))]
    candidates += map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")))
    found: dict[tuple[int, bool], Command] = {}
    for candidate in filter(shutil.which, candidates):
        answer = subprocess.run(
            [candidate, "-c", "import sys, venv; print(sys.version_info.minor, 't' in sys.abiflags)"],
            capture_output=True,
            text=True,
        )
        minor, _, is_free_threaded = answer.stdout.strip().partition(" ")
        if answer.returncode == 0 and int(minor) in MINORS:
            found.setdefault((int(minor), is_free_threaded == "True"), [candidate])
    print("not found:", *(f"Python 3.{minor}" for minor in MINORS if (minor, False) not in found))
    return [found[minor] for minor in sorted(found)]


# Building.


def _sdist(scratch: Path, environment: dict[str, str]) -> Path:
    """Make the source distribution twice, with the times of the epoch; return it."""
    made = []
    for name in ("sdist1", "sdist2"):
        code = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
        (scratch / name).mkdir()
        tree = _copied_sources(scratch / f"{name}-sources")  # setuptools writes into them
        _run([sys.executable, "-c", code, str(scratch / name)], tree, environment | {"WHORL_BUILD": "pure"})
        (path,) = (scratch / name).glob("*.tar.gz")
        made.append(_with_times(path, int(environment["SOURCE_DATE_EPOCH"])))
    if made[0].read_bytes() != made[1].read_bytes():
        raise Failed("two source distributions differ")
    return Path(shutil.copy(made[0], DIST))


def _copied_sources(folder: Path) -> Path:
    """Copy what MANIFEST.in and pyproject.toml name, without what builds left there; return `folder`."""
    leftover = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "build_tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=leftover)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, folder)
    return folder


def _with_times(path: Path, epoch: int) -> Path:
    """Write a source distribution anew: sorted, with one time, and without the user's names."""
    with tarfile.open(path) as archive:
        members = [(item, archive.extractfile(item)) for item in archive.getmembers() if item.isfile()]
        contents = [(item, file.read()) for item, file in members if file is not None]
    bare = io.BytesIO()
    with tarfile.open(fileobj=bare, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for old, content in sorted(contents, key=lambda pair: pair[0].name):
            item = tarfile.TarInfo(old.name)
            item.size, item.mtime, item.mode = len(content), epoch, 0o755 if old.mode & 0o100 else 0o644
            archive.addfile(item, io.BytesIO(content))
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as packed:
        packed.write(bare.getvalue())
    return path


def _unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return unpacked


def _builder(python: Command) -> Command:
    """Return the Python of an environment that has what the build needs."""
    code = "from build_tools.environments import ensure; print(ensure(['build']))"
    return [*python[:-1], _output([*python, "-c", code]).strip().splitlines()[-1]]


def _profile(builder: Command, environment: dict[str, str]) -> Path:
    """Record a profile for this Python; return its folder."""
    _run([*builder, "-m", "build_tools.tree", "--config", "profiled"], ROOT, environment)
    code = "from build_tools.extensions import profile_folder; print(profile_folder())"
    return Path(_run([*builder, "-c", code], ROOT, environment).strip().splitlines()[-1])


def _pack_profile(wheel: Path, folder: Path, epoch: int) -> None:
    """Pack the profile of a wheel beside it: with it, anybody can build the same bytes."""
    bare = io.BytesIO()
    with tarfile.open(fileobj=bare, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.iterdir()):
            item = tarfile.TarInfo(path.name)
            item.size, item.mtime = path.stat().st_size, epoch
            archive.addfile(item, io.BytesIO(path.read_bytes()))
    wheel.with_suffix(".profile.tar.xz").write_bytes(lzma.compress(bare.getvalue()))


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


def _check_names(wheel: Path) -> None:
    """Raise Failed unless the tags of a wheel fit its content, and it is small."""
    with zipfile.ZipFile(wheel) as archive:
        shared = [name for name in archive.namelist() if name.endswith(".so")]
        data = [archive.read(name) for name in shared]
    match = re.fullmatch(r"whorl_loop-[\w.]+-(cp3\d+)-(\1t?)-([\w.]+)\.whl", wheel.name)
    if match is None:
        if not wheel.name.endswith("-py3-none-any.whl") or shared:
            raise Failed(f"{wheel.name}: wrong tags")
        return
    if "manylinux" not in match[3] and "musllinux" not in match[3]:
        raise Failed(f"{wheel.name}: no tag of auditwheel's")
    if len(shared) != 1 or f".cpython-{match[2][2:]}-" not in shared[0]:
        raise Failed(f"{wheel.name}: holds {shared}")
    if b".symtab" in data[0]:
        raise Failed(f"{wheel.name}: has symbols")
    size = wheel.stat().st_size
    if size > LARGEST:
        raise Failed(f"{wheel.name}: {size:,} bytes are more than {LARGEST:,}")
    if size > GOAL:
        print(f"{wheel.name}: {size:,} bytes, the goal is {GOAL:,}", flush=True)


def _try(python: Command, wheel: Path, folder: Path, runs_demo: bool) -> None:
    """Install a wheel into an empty environment, and run the smoke tests, examples and commands from it."""
    _run([*python, "-m", "venv", str(folder)], ROOT, dict(os.environ))
    own = [*python[:-1], str(folder / "bin" / "python")]
    extras = "aiohttp" if runs_demo else ""
    _run([*own, "-m", "pip", "install", "--quiet", str(wheel), *extras.split()], folder)
    variables = (f"PATH={folder / 'bin'}", "CC=/nonexistent", "LANG=C.UTF-8")
    bare = [*python[:-1], "/usr/bin/env", "-i", *variables, own[-1]]  # what starts that Python keeps its path
    build = "pure" if wheel.name.endswith("none-any.whl") else "compiled"
    print(_run([*bare, str(ROOT / "build_tools" / "smoke.py"), "--expect", build], folder).strip())
    facts = json.loads(_run([*bare, "-m", "whorl", "info", "--json"], folder))
    if facts["build"] != build or not facts["location"].startswith(str(folder)):
        raise Failed(f"{wheel.name}: whorl info says {facts}")
    for example in EXAMPLES:
        _run([*bare, str(ROOT / "examples" / example)], folder)
    if runs_demo:
        demo = [
            str(ROOT / "examples" / "demo"),
            "--loops",
            "whorl,asyncio",
            "--seconds",
            "1",
            "--rounds",
            "1",
        ]
        print(_run([*bare, *demo], folder).strip())
    pip = [*own, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "uvloop"]
    has_uvloop = subprocess.run(pip, cwd=folder, capture_output=True).returncode == 0
    names = ("whorl", "asyncio", *(("uvloop",) if has_uvloop else ()))
    lines = _run([*bare, "-c", IMPORT_TIMES, *names], folder).splitlines()
    times = {name: float(time) for name, time in map(str.split, lines)}
    shown = ", ".join(f"{name} {time} ms" for name, time in times.items())
    print(f"{wheel.name}: import of {shown}", flush=True)
    if build == "compiled" and times["whorl"] > SLOWEST_IMPORT_MS:
        print(f"{wheel.name}: slower than {SLOWEST_IMPORT_MS} ms")


def _write_bill_of_materials(sdist: Path, wheels: Sequence[Path], epoch: str) -> None:
    """Write what a release is made of, in CycloneDX's format: what Whorl needs, and what its build needed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = sdist.name.removeprefix("whorl_loop-").removesuffix(".tar.gz")
    code = "import sys, importlib.metadata as m\nfor name in sys.argv[1:]: print(name, m.version(name))"
    needed = [re.split(r"[<>=!~ ]", one)[0] for one in project["project"]["dependencies"]]
    tools = [re.split(r"[<>=!~ ]", one)[0] for one in project["build-system"]["requires"]]
    versions = [line.split() for line in _output([sys.executable, "-c", code, *needed, *tools]).splitlines()]
    files = [sdist, *wheels]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ''.join(map(_digest, files)))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "name": "whorl-loop",
                "version": version,
                "purl": f"pkg:pypi/whorl-loop@{version}",
                "licenses": [{"license": {"id": "MIT"}}],
                "properties": [{"name": "source-date-epoch", "value": epoch}],
            }
        },
        "components": [
            *(
                {
                    "type": "library",
                    "name": name,
                    "version": of,
                    "purl": f"pkg:pypi/{name.lower()}@{of}",
                    "scope": "required" if name in needed else "excluded",
                }
                for name, of in versions
            ),
            *(
                {"type": "file", "name": path.name, "hashes": [{"alg": "SHA-256", "content": _digest(path)}]}
                for path in files
            ),
        ],
        "dependencies": [
            {
                "ref": f"pkg:pypi/whorl-loop@{version}",
                "dependsOn": [f"pkg:pypi/{name.lower()}@{of}" for name, of in versions if name in needed],
            }
        ],
    }
    path = DIST / f"whorl_loop-{version}.cdx.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


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


def _output(command: Command) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
