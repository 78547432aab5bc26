"""The C programs, compiled when their sources changed."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
BUILD = SOURCES.parent / "build" / "bench"
SOURCE_OF = {"load": "load.c", "tls_load": "load.c", "echo_limit": "echo_limit.c"}
OPTIONS = {"tls_load": ("-DTLS", "-lssl", "-lcrypto")}  # it is done without where OpenSSL is missing
USAGE = 2


class CompileError(Exception):
    """Raised without a C compiler, or if it refused; the message says which."""


def compile_all() -> None:
    """Bring build/bench/ up to date."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in SOURCE_OF:
        try:
            if not _is_current(name):
                _compile(name)
        except CompileError as error:
            if name not in OPTIONS:
                raise
            first = str(error).splitlines()[1:2] or [str(error)]
            print(f"bench: without {name}: {first[0]}", file=sys.stderr)


def is_built(name: str) -> bool:
    """Return whether there is such a program."""
    return (BUILD / name).exists()


def path(name: str) -> str:
    """Return the executable called `name`."""
    return str(BUILD / name)


def _is_current(name: str) -> bool:
    built = BUILD / name
    is_new = built.exists() and built.stat().st_mtime >= (SOURCES / SOURCE_OF[name]).stat().st_mtime
    return is_new and _runs(built)


def _runs(program: Path) -> bool:
    """Return whether the program was built for this C library: without arguments it prints its usage."""
    return subprocess.run([program], capture_output=True).returncode == USAGE


def _compile(name: str) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc")) or ["cc"]  # it may have options, or a cache before it
    if shutil.which(compiler[0]) is None:
        raise CompileError(f"no C compiler: {compiler[0]!r} is not on the PATH (set CC to name another)")
    unfinished = BUILD / f"{name}.{os.getpid()}"
    command = [*compiler, "-O2", "-Wall", "-Wextra", "-o", str(unfinished)]
    command += [str(SOURCES / SOURCE_OF[name]), *OPTIONS.get(name, ())]
    outcome = subprocess.run(command, capture_output=True, text=True)
    if outcome.returncode != 0:
        raise CompileError(f"{' '.join(command)}\n{outcome.stderr}")
    unfinished.replace(BUILD / name)
