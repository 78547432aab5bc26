"""Dask distributed on Whorl: scheduler, nannies, workers and clients, by threads, processes and commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.recipes.conftest import Install
from tests.recipes.test_restarts import RUN, free_port

pytestmark = pytest.mark.slow

ON_WHORL = {"DASK_DISTRIBUTED__ADMIN__EVENT_LOOP": "uvloop"}

LOOPS = """
import asyncio

def loop(server):
    return type(server.loop.asyncio_loop).__module__.partition(".")[0]

async def loops_of(client):
    found = await client.run(lambda dask_worker: loop(dask_worker))
    found["scheduler"] = await client.run_on_scheduler(lambda dask_scheduler: loop(dask_scheduler))
    return sorted(found.values())

def increment(x):
    return x + 1
"""

LOCAL = """
import asyncio, sys
import loops
from distributed import Client, LocalCluster

async def main():
    options = dict(n_workers=2, threads_per_worker=1, asynchronous=True, dashboard_address=None)
    async with LocalCluster(processes=sys.argv[1] == "processes", **options) as cluster:
        async with Client(cluster, asynchronous=True) as client:
            print(*await loops.loops_of(client), type(asyncio.get_running_loop()).__module__)
            futures = client.map(loops.increment, range(100))
            print(sum(await client.gather(futures)))
            (data,) = await client.scatter([bytes(3_000_000)], broadcast=True)
            print(await client.submit(len, data))

if __name__ == "__main__":
    asyncio.run(main())
"""

REMOTE = """
import asyncio, sys
import loops
from distributed import Client

async def main():
    async with Client(sys.argv[1], asynchronous=True) as client:
        await client.wait_for_workers(2)
        print(*await loops.loops_of(client))
        print(sum(await client.gather(client.map(loops.increment, range(100)))))
        await client.shutdown()

asyncio.run(main())
"""


def answer(folder: Path, environment: dict[str, str], *command: str) -> list[str]:
    """Run Python in the folder to its end, and return the lines of its output."""
    result = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**environment, **ON_WHORL},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loops.py").write_text(LOOPS)
    (tmp_path / "local.py").write_text(LOCAL)
    (tmp_path / "remote.py").write_text(REMOTE)
    return tmp_path


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_local_cluster_runs_on_whorl(install: Install, folder: Path, kind: str) -> None:
    lines = answer(folder, install("distributed"), *RUN[:-1], "local.py", kind)
    assert lines == ["whorl whorl whorl whorl.aio.loop.event_loop", "5050", "3000000"]


def test_commands_of_dask_run_on_whorl(install: Install, folder: Path) -> None:
    environment = {**install("distributed"), **ON_WHORL}
    # The commands are found by the folder of the installed package, also in their children.
    environment["PYTHONPATH"] += f":{folder}"
    address = f"tcp://127.0.0.1:{free_port()}"
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--no-dashboard"],
        ["worker", address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"],
    ]
    with open(folder / "errors", "w") as errors:
        processes = [
            subprocess.Popen(
                [sys.executable, *RUN, "dask", *command], env=environment, cwd=folder, stderr=errors
            )
            for command in commands
        ]
    try:
        lines = answer(folder, environment, *RUN[:-1], "remote.py", address)
        assert lines == ["whorl whorl whorl", "5050"]
        for process in processes:
            process.wait(60)
    except BaseException:
        print((folder / "errors").read_text()[-3000:])
        raise
    finally:
        for process in processes:
            process.terminate()
            process.wait(60)
