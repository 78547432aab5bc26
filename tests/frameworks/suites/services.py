"""Servers that suites talk to: started from what the system has installed, with data of their own."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

START_SECONDS = 30


class NotInstalled(Exception):
    """The system does not have the program; the message names its package."""


@contextlib.contextmanager
def running(names: tuple[str, ...]) -> Iterator[None]:
    """Start servers, wait until they answer, and end them."""
    with contextlib.ExitStack() as stack:
        for name in names:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-")))
            command, port = STARTERS[name](folder)
            log = stack.enter_context((folder / "log").open("w"))
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
            stack.callback(_end, process)
            _wait_for(port, process)
        yield


def _redis(folder: Path) -> tuple[list[str], int]:
    return [
        _find("redis-server"),
        "--port",
        "6379",
        "--save",
        "",
        "--dir",
        str(folder),
        "--enable-debug-command",
        "yes",
    ], 6379


def _mosquitto(folder: Path) -> tuple[list[str], int]:
    return [_find("mosquitto"), "-p", "1883"], 1883


def _nats(folder: Path) -> tuple[list[str], int]:
    return [_find("nats-server"), "-p", "4222"], 4222


STARTERS: dict[str, Callable[[Path], tuple[list[str], int]]] = {
    "redis": _redis,
    "mosquitto": _mosquitto,
    "nats": _nats,
}


def _find(program: str) -> str:
    path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")
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
