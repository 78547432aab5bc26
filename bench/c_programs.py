"""The C programs, compiled when their sources changed."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
BUILD = SOURCES.parent / "build" / "bench"
NAMES = ("load", "echo_limit")
LIBRARIES = {"tls_load": ("-lssl", "-lcrypto")}  # programs that are done without where the library is missing
USAGE = 2


class CompileError(Exception):
    """Raised without a C compiler, or if it refused; the message says which."""


def compile_all() -> None:
    """Bring build/bench/ up to date."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        if not _is_current(name):
            _compile(name)
    for name in LIBRARIES:
        if not _is_current(name):
            try:
                _compile(name)
            except CompileError as error:
                first = str(error).splitlines()[1:2] or [str(error)]
                print(f"bench: without {name}: {first[0]}", file=sys.stderr)


def compile_for_libuv() -> None:
    """Bring what runs on libuv up to date, and libuv: fetched when it is not there."""
    sys.path.append(str(SOURCES.parent))
    from build_tools import libuv

    try:
        libuv.compile_program(SOURCES / "uv_bench.c", BUILD / "uv_bench")
    except libuv.LibuvProblem as problem:
        raise CompileError(str(problem)) from None


def is_built(name: str) -> bool:
    """Return whether there is such a program."""
    return (BUILD / name).exists()


def path(name: str) -> str:
    """Return the executable called `name`."""
    return str(BUILD / name)


def _is_current(name: str) -> bool:
    built = BUILD / name
    is_new = built.exists() and built.stat().st_mtime >= (SOURCES / f"{name}.c").stat().st_mtime
    return is_new and _runs(built)


def _runs(program: Path) -> bool:
    """Return whether the program was built for this C library: without arguments it prints its usage."""
    return subprocess.run([program], capture_output=True).returncode == USAGE


def _compile(name: str) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc")) or ["cc"]  # it may have options, or a cache before it
    if shutil.which(compiler[0]) is None:
        raise CompileError(f"no C compiler: {compiler[0]!r} is not on the PATH (set CC to name another)")
    unfinished = BUILD / f"{name}.{os.getpid()}"
    command = [*compiler, "-O2", "-Wall", "-Wextra", "-o", str(unfinished), str(SOURCES / f"{name}.c")]
    command += LIBRARIES.get(name, ())
    outcome = subprocess.run(command, capture_output=True, text=True)
    if outcome.returncode != 0:
        raise CompileError(f"{' '.join(command)}\n{outcome.stderr}")
    unfinished.replace(BUILD / name)
