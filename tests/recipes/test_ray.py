"""Ray on Whorl: its workers import uvloop by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.recipes.conftest import Install
from tests.recipes.test_restarts import RUN

ACTOR = """
import asyncio
import ray

@ray.remote
class Actor:
    async def loop(self):
        return type(asyncio.get_running_loop()).__module__

    async def echo(self, x):
        await asyncio.sleep(0)
        return x

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
actors = [Actor.remote() for _ in range(2)]
print({ray.get(actor.loop.remote()) for actor in actors})
print(sum(ray.get([actor.echo.remote(x) for x in range(100) for actor in actors])))
ray.shutdown()
"""


@pytest.mark.slow
def test_rays_async_actors_run_on_whorl(install: Install, tmp_path: Path) -> None:
    environment = install("ray")
    (tmp_path / "actor.py").write_text(ACTOR)
    # Ray keeps a token in the home folder, and reports its use to its makers unless told otherwise.
    private = {"HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    result = subprocess.run(
        [sys.executable, *RUN[:-1], "actor.py"],
        cwd=tmp_path,
        env={**environment, **private},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines() == ["{'whorl.aio.loop.event_loop'}", "9900"]
