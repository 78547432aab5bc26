"""Servers that suites talk to: started from what the system has installed, with data of their own."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 30


class NotInstalled(Exception):
    """The system does not have the program; the message names it."""


@dataclass(frozen=True)
class Server:
    """The command that starts a server, and its address; `user` runs it instead of root."""

    command: list[str]
    port: int
    user: str | None = None


@contextlib.contextmanager
def running(names: tuple[str, ...]) -> Iterator[None]:
    """Start servers, wait until they answer, and end them."""
    with contextlib.ExitStack() as stack:
        for name in names:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-")))
            server = STARTERS[name](folder)
            log = stack.enter_context((folder / "log").open("w"))
            process = _start(server, folder, log)
            stack.callback(_end, process)
            _wait_for(server.port, process)
        yield


def _start(server: Server, folder: Path, log) -> subprocess.Popen:
    return subprocess.Popen(
        server.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, user=server.user
    )


def _redis(folder: Path) -> Server:
    options = ["--port", "6379", "--save", "", "--dir", str(folder), "--enable-debug-command", "yes"]
    return Server([_find("redis-server"), *options], 6379)


def _mosquitto(folder: Path) -> Server:
    return Server([_find("mosquitto"), "-p", "1883"], 1883)


def _nats(folder: Path) -> Server:
    return Server([_find("nats-server"), "-p", "4222"], 4222)


def _postgres(folder: Path) -> Server:
    """Return a fresh cluster on port 54329, which trusts every user of this machine."""
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    initdb = [
        _find("initdb"),
        "--pgdata",
        "data",
        "--username",
        "postgres",
        "--auth",
        "trust",
        "--encoding",
        "UTF8",
    ]
    subprocess.run(initdb, cwd=folder, user=user, check=True, stdout=subprocess.DEVNULL)
    options = ["-D", "data", "-p", "54329", "-k", str(folder), "-c", "max_connections=200"]
    return Server([_find("postgres"), *options], 54329, user)


STARTERS: dict[str, Callable[[Path], Server]] = {
    "redis": _redis,
    "mosquitto": _mosquitto,
    "nats": _nats,
    "postgres": _postgres,
}


def _find(program: str) -> str:
    elsewhere = [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")]
    path = shutil.which(program, path=os.pathsep.join((os.environ["PATH"], "/usr/sbin", *elsewhere)))
    if path is None:
        raise NotInstalled(f"{program} is not installed")
    return path


def _wait_for(port: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args} did not start")


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait()
