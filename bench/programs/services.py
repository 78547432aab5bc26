"""The servers that programs talk to. Each has processes of its own, on the core that no program gets.

apt-get installs a missing server, where root runs this. A server that cannot be installed is named, and the
programs that need it are left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import c_programs
import loops
from measure import FOLDER, START_SECONDS, Cores, MeasurementError, last_line, pinned, started

STOP_SECONDS = 10
APT_SECONDS = 300
UNPRIVILEGED = ("postgres", "nobody")  # PostgreSQL does not run as root


@contextlib.contextmanager
def running(names: Iterable[str], cores: Cores) -> Iterator[Mapping[str, str]]:
    """Start services; yield the addresses of the running ones, by name."""
    addresses = {}
    with contextlib.ExitStack() as stack:
        for name in sorted(names):
            try:
                addresses[name] = stack.enter_context(SERVICES[name](cores))
            except (MeasurementError, OSError) as reason:
                print(f"without {name}: {reason}")
        yield addresses


@contextlib.contextmanager
def _redis(cores: Cores) -> Iterator[str]:
    program = _executable("redis-server", package="redis-server")
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        options = [
            *("--bind", "127.0.0.1", "--port", str(port)),
            *("--dir", folder, "--save", "", "--appendonly", "no"),
        ]
        with _process([program, *options], folder, cores) as process:
            _wait_for(process, folder, lambda: _accepts(port))
            yield f"redis://127.0.0.1:{port}"


@contextlib.contextmanager
def _postgresql(cores: Cores) -> Iterator[str]:
    binaries = Path(_executable("postgres", package="postgresql")).resolve().parent
    port = str(_free_port())
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        options = _as_unprivileged(folder)
        data = str(Path(folder, "data"))
        making = [
            *(str(binaries / "initdb"), "-D", data, "-U", "bench"),
            *("-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync"),
        ]
        outcome = subprocess.run(making, cwd=folder, capture_output=True, text=True, **options)
        if outcome.returncode:
            raise MeasurementError(last_line(outcome.stderr))
        server = [str(binaries / "postgres"), "-D", data, "-h", "127.0.0.1", "-p", port, "-k", folder, "-F"]
        asking = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", port]
        with _process([*server, "-c", "autovacuum=off"], folder, cores, **options) as process:
            _wait_for(process, folder, lambda: subprocess.run(asking).returncode == 0)
            yield f"postgresql://bench@127.0.0.1:{port}/postgres"


@contextlib.contextmanager
def _plain(command: Sequence[str], scheme: str, cores: Cores) -> Iterator[str]:
    """Yield the address of a server of the bench itself: fast, and the same for all loops."""
    with started(command, os.environ, cores.client) as (_, reachable_at):
        yield f"{scheme}127.0.0.1:{reachable_at.removeprefix('tcp:')}"


_SERVERS = (sys.executable, str(FOLDER / "servers.py"))
SERVICES: Mapping[str, Callable[[Cores], AbstractContextManager[str]]] = {
    "redis": _redis,
    "postgresql": _postgresql,
    "http": partial(_plain, (*_SERVERS, "http-for-programs", "asyncio", "tcp"), "http://"),
    "websocket": partial(_plain, (*_SERVERS, "websocket-for-programs", "asyncio", "tcp"), "ws://"),
    "echo": partial(_plain, (c_programs.path("echo_limit"), "tcp"), ""),
}


def _executable(name: str, package: str) -> str:
    """Find a program, or install the package that has it."""
    found = _find(name)
    if found is None:
        _install(package)
        found = _find(name)
    if found is None:
        raise MeasurementError(f"the package {package} has no {name}")
    return found


def _find(name: str) -> str | None:
    """Look on the PATH, and where Debian has PostgreSQL, newest first."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, folders)]))


def _install(package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MeasurementError(f"there is none; on Debian, `apt-get install {package}` as root installs it")
    print(f"installing {package} by apt-get", flush=True)
    _apt_get("update")
    complaints = _apt_get("install", "--yes", "--no-install-recommends", package)
    if complaints:
        raise MeasurementError(f"apt-get could not install it: {last_line(complaints)}")


def _apt_get(*arguments: str) -> str:
    """Run apt-get; return its error message if it failed."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        outcome = subprocess.run(
            ["apt-get", *arguments],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=APT_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end after {APT_SECONDS} s"
    return outcome.stderr if outcome.returncode else ""


def _as_unprivileged(folder: str) -> dict[str, Any]:
    """Give a folder to a user that is not root; return the options that start a process of that user."""
    if os.geteuid() != 0:
        return {}
    import pwd

    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = next(known[name] for name in UNPRIVILEGED if name in known)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def _process(
    command: Sequence[str], folder: str, cores: Cores, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server whose output goes to the file `log`; it is asked to end at the end."""
    with open(Path(folder, "log"), "wb") as log, pinned({cores.client}):
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=loops.die_with_parent, **options,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], folder: str, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise MeasurementError(f"it did not start: {last_line(Path(folder, 'log').read_text())}")
        time.sleep(0.05)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
