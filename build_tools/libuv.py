"""libuv, the C library: fetched and built in `build/libuv/`, to be compared with; none of it is in the tree.

It comes from the source distribution of uvloop, which carries it, by the package index's ordinary client.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build_tools.sources import ROOT, alone_in

VERSION = "1.52.1"
PACKAGE = "uvloop"
PACKAGE_VERSION = "0.23.0"
ARCHIVE = f"{PACKAGE}-{PACKAGE_VERSION}.tar.gz"
SHA256 = "28d160f51ab4da3b187063652e643dea6831072add4adc1e6d62afbe73b6be27"
FOLDER = ROOT / "build" / "libuv"
SOURCES = FOLDER / "source" / f"{PACKAGE}-{PACKAGE_VERSION}" / "vendor" / "libuv"
LIBRARY = FOLDER / f"libuv-{VERSION}.a"
# As libuv's own CMakeLists.txt names them for Linux, besides those for all systems.
UNIX = (
    "async core dl fs getaddrinfo getnameinfo linux loop-watcher loop pipe poll procfs-exepath process "
    "proctitle random-devurandom random-getentropy random-getrandom random-sysctl-linux signal stream tcp "
    "thread tty udp"
).split()
DEFINITIONS = ("_FILE_OFFSET_BITS=64", "_LARGEFILE_SOURCE", "_GNU_SOURCE", "_POSIX_C_SOURCE=200112")


class LibuvProblem(Exception):
    """libuv could not be fetched or built; the message says why."""


def ensure() -> Path:
    """Return the static library; fetch and build it if it is missing."""
    with alone_in(FOLDER):
        if not LIBRARY.exists():
            _fetch()
            _build()
    return LIBRARY


def compile_program(source: Path, program: Path) -> None:
    """Compile a C program against libuv, if its source is newer than it."""
    library = ensure()
    if program.exists() and program.stat().st_mtime > max(path.stat().st_mtime for path in (source, library)):
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    include = SOURCES / "include"
    _run([*_compiler(), "-Wall", "-Wextra", f"-I{include}", source, library, "-lpthread", "-o", program])


def _fetch() -> None:
    archive = FOLDER / ARCHIVE
    if not archive.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        download = ("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
        wanted = ("--no-binary", PACKAGE, "--dest", FOLDER, f"{PACKAGE}=={PACKAGE_VERSION}")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        _run([sys.executable, *download, *wanted], environment)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise LibuvProblem(f"{archive} is not the file that was expected; delete it and try again")
    with tarfile.open(archive) as contents:
        contents.extractall(FOLDER / "source", filter="data")


def _build() -> None:
    objects = FOLDER / "objects"
    objects.mkdir(exist_ok=True)
    sources = [
        *sorted((SOURCES / "src").glob("*.c")),
        *(SOURCES / "src" / "unix" / f"{name}.c" for name in UNIX),
    ]
    flags = [*(f"-D{name}" for name in DEFINITIONS), f"-I{SOURCES / 'include'}", f"-I{SOURCES / 'src'}"]

    def compile_one(source: Path) -> Path:
        target = objects / f"{source.parent.name}-{source.stem}.o"
        _run([*_compiler(), *flags, "-c", source, "-o", target])
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(compile_one, sources))
    _run(["ar", "rcs", LIBRARY, *built])


def _compiler() -> list[str]:
    return [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-g", "-std=gnu11"]


def _run(command: list[str | Path], environment: dict[str, str] | None = None) -> None:
    words = [str(word) for word in command]
    answer = subprocess.run(words, env=environment, capture_output=True, text=True)
    if answer.returncode:
        raise LibuvProblem(f"{shlex.join(words)}\n{answer.stdout}{answer.stderr}")
