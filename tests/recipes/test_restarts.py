"""Servers of four processes, killed and restarted while clients ask: no request that began is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import whorl
from build_tools.sources import ROOT
from tests.recipes.clients import Clients
from tests.recipes.conftest import Install

pytestmark = pytest.mark.slow

APP = "tests.recipes.numbered_app:app"
RUN = ("-m", "whorl", "run", "--as-uvloop", "-m")
SERVERS = {
    "uvicorn": ("-m", "uvicorn", "--loop", "whorl:new_event_loop", "--no-access-log", "--port", "{port}"),
    "gunicorn-asgi": (*RUN, "gunicorn", "--worker-class", "asgi", "--bind", "127.0.0.1:{port}"),
    "gunicorn-uvicorn": (
        *(*RUN, "gunicorn", "--worker-class", "uvicorn.workers.UvicornWorker"),
        *("--bind", "127.0.0.1:{port}"),
    ),
    "granian": (
        *(*RUN, "granian", "--interface", "asgi", "--loop", "uvloop", "--port", "{port}"),
        *("--respawn-failed-workers", "--respawn-interval", "0.2"),
    ),
}
PACKAGES = {"uvicorn": ["uvicorn"], "granian": ["granian"]}


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("server", SERVERS)
def test_server_loses_no_request_when_a_worker_is_killed_and_all_are_restarted(
    install: Install, log: Path, server: str
) -> None:
    port = free_port()
    environment = {**install(*PACKAGES.get(server, ["uvicorn", "gunicorn>=25"])), "NUMBERED_LOG": str(log)}
    command = [word.format(port=port) for word in SERVERS[server]]
    with open(log.with_name("errors"), "w") as errors:
        process = subprocess.Popen(
            [sys.executable, *command, "--workers", "4", APP],
            cwd=ROOT,
            env={**environment, "HOME": str(log.parent)},
            stdout=errors,
            stderr=errors,
        )
    try:
        whorl.run(kill_and_restart(process, port, log))
    except BaseException:
        print(log.with_name("errors").read_text()[-3000:])
        raise
    finally:
        process.kill()
        process.wait()


async def kill_and_restart(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    clients = Clients(port)
    await clients.connected()
    async with clients.running():
        await clients.until(lambda: len(set(clients.seen)) >= 4)
        killed = clients.seen[-1]
        os.kill(killed, signal.SIGKILL)
        await clients.until(lambda: len(set(clients.seen)) >= 5)

        before = set(clients.seen)
        process.send_signal(signal.SIGHUP)
        await clients.until(lambda: len(set(clients.seen) - before) >= 4)
        await clients.until(lambda: not set(clients.seen[-200:]) & before)
    assert clients.lost(log) <= {killed}
    assert clients.outcomes["refused"] == 0
    assert clients.outcomes["broken"] <= 8  # on the connections of the one that was killed
    assert clients.loops == {"whorl.aio.loop.event_loop"}
    process.terminate()
    assert process.wait(30) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
