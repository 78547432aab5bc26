"""Servers that take uvloop by name, or sockets of their parent, and then run on Whorl."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import whorl
from build_tools.sources import ROOT
from tests.recipes.clients import Clients
from tests.recipes.conftest import Install
from tests.recipes.test_restarts import APP, RUN, free_port

pytestmark = pytest.mark.slow

BY_NAME = {
    "uvicorn": ("uvicorn", "--loop", "uvloop", "--port", "{port}", APP),
    "uvicorn-auto": ("uvicorn", "--workers", "2", "--port", "{port}", APP),
    "hypercorn": ("hypercorn", "--worker-class", "uvloop", "-w", "2", "--bind", "127.0.0.1:{port}", APP),
    "granian": ("granian", "--interface", "asgi", "--loop", "uvloop", "--port", "{port}", APP),
    "gunicorn": ("gunicorn", "--worker-class", "asgi", "--bind", "127.0.0.1:{port}", APP),
}
BY_DESCRIPTOR = {
    "uvicorn": ("uvicorn", "--loop", "uvloop", "--fd", "{fd}", APP),
    "hypercorn": ("hypercorn", "--worker-class", "uvloop", "--bind", "fd://{fd}", APP),
    "gunicorn": ("gunicorn", "--worker-class", "asgi", "--bind", "fd://{fd}", APP),
}
SANIC = """
import asyncio
from sanic import Sanic, text

app = Sanic("numbered")

@app.get("/<number:int>")
async def answer(request, number):
    return text(f"{number} 1 {type(asyncio.get_running_loop()).__module__}")

if __name__ == "__main__":
    app.run(port=PORT, single_process=True, access_log=False, motd=False)
"""


@contextmanager
def started(command: list[str], environment: dict[str, str], log: Path, fd: int = -1) -> Iterator[None]:
    """Run a server, show its log if the block fails, and end it in order."""
    with open(log.with_name("errors"), "w") as errors:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**environment, "HOME": str(log.parent), "NUMBERED_LOG": str(log)},
            stdout=errors,
            stderr=errors,
            pass_fds=() if fd < 0 else (fd,),
        )
    try:
        yield
        process.terminate()
        process.wait(30)
    except BaseException:
        print(log.with_name("errors").read_text()[-3000:])
        raise
    finally:
        process.kill()
        process.wait()


async def loops_behind(port: int) -> set[str]:
    """Return the modules of the loops that answer there."""
    clients = Clients(port)
    await clients.connected()
    async with clients.running(4):
        await clients.until(lambda: len(clients.seen) > 20)
    return clients.loops


@pytest.mark.parametrize("server", BY_NAME)
def test_server_that_asks_for_uvloop_runs_on_whorl(install: Install, log: Path, server: str) -> None:
    port = free_port()
    package = "gunicorn>=25" if server == "gunicorn" else server.partition("-")[0]
    command = [word.format(port=port) for word in (*RUN, *BY_NAME[server])]
    with started(command, install(package), log):
        assert whorl.run(loops_behind(port)) == {"whorl.aio.loop.event_loop"}


def test_sanic_runs_on_whorl(install: Install, log: Path) -> None:
    port = free_port()
    program = log.with_name("sanic_app.py")
    program.write_text(SANIC.replace("PORT", str(port)))
    command = ["-m", "whorl", "run", "--as-uvloop", str(program)]
    with started(command, install("sanic"), log):
        assert whorl.run(loops_behind(port)) == {"whorl.aio.loop.event_loop"}


@pytest.mark.parametrize("server", BY_DESCRIPTOR)
def test_server_serves_a_socket_that_its_parent_opened(install: Install, log: Path, server: str) -> None:
    package = "gunicorn>=25" if server == "gunicorn" else server
    environment = install(package)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        command = [word.format(fd=sock.fileno()) for word in (*RUN, *BY_DESCRIPTOR[server])]
        with started(command, environment, log, sock.fileno()):
            assert whorl.run(loops_behind(port)) == {"whorl.aio.loop.event_loop"}


def test_gunicorn_serves_a_socket_of_systemds(install: Install, log: Path) -> None:
    environment = install("gunicorn>=25")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        # systemd passes descriptor 3, and the number of the process that it starts.
        program = [sys.executable, *RUN, "gunicorn", "--worker-class", "asgi", APP]
        code = (
            f"import os; os.dup2({sock.fileno()}, 3);"
            "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()));"
            f"os.execv({sys.executable!r}, {program!r})"
        )
        with started(["-c", code], environment, log, sock.fileno()):
            assert whorl.run(loops_behind(port)) == {"whorl.aio.loop.event_loop"}


SHARER = """
import asyncio, os, sys, whorl

async def main():
    def client(reader, writer):
        writer.write(str(os.getpid()).encode())
        writer.close()
    server = await asyncio.start_server(client, "127.0.0.1", int(sys.argv[1]), reuse_port=True)
    print("listening", flush=True)
    await server.serve_forever()

whorl.run(main())
"""


def test_processes_share_a_port_by_reuse_port() -> None:
    async def answers(port: int) -> set[bytes]:
        found = set()
        async with asyncio.timeout(30):
            while len(found) < 2:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                found.add(await reader.read())
                writer.close()
        return found

    # The port stays taken by a socket that does not listen.
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        command = [sys.executable, "-c", SHARER, str(port)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(2)]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == b"listening\n"
            assert whorl.run(answers(port)) == {str(process.pid).encode() for process in processes}
        finally:
            for process in processes:
                process.kill()
                process.communicate()
