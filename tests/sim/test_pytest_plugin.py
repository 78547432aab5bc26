"""The plugin of pytest, in a pytest of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str]]

TESTS = """
import asyncio
import pytest
from whorl import sim

@sim.test(seeds=40, shrink_s=5)
async def test_chooses(world, tmp_path):
    assert tmp_path.is_dir()
    assert world.choose(4, "way") != 2

@pytest.mark.parametrize("number", [3])
@sim.test(seeds=3)
async def test_passes(world, number):
    await asyncio.sleep(3600 / number)

async def test_in_a_world(sim_world, tmp_path):
    began = sim_world.now()
    await asyncio.sleep(100)
    assert 100 <= sim_world.now() - began < 101
    print("SEED", sim_world.seed, tmp_path.is_dir())

async def test_fails_in_a_world(sim_world):
    assert sim_world.seed == 5

@pytest.mark.sim(faults="none", allow={"leaks"})
async def test_leaves(sim_world):
    global kept
    kept = await asyncio.start_server(print, "10.0.0.1", 80)

def test_has_no_world(sim_world):
    with pytest.raises(AttributeError, match="async def"):
        sim_world.now()
"""


#: The plugins of others that run in the same pytest, where they are installed.
OTHERS = ("anyio.pytest_plugin", "pytest_asyncio.plugin", "xdist.plugin")

BESIDE_OTHERS = """
import asyncio
import sys
import pytest
from whorl import sim

# Of the tests that run in a world, some have the marks of other plugins.

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def sleeps(world):
    began = world.now()
    await asyncio.sleep(1000)
    assert 1000 <= world.now() - began < 1001

@pytest.mark.anyio
async def test_of_anyio():
    await asyncio.sleep(0)

@pytest.mark.asyncio
async def test_of_asyncio():
    await asyncio.sleep(0)

@pytest.mark.anyio
async def test_of_anyio_in_a_world(sim_world):
    await sleeps(sim_world)

@pytest.mark.asyncio
@pytest.mark.parametrize("number", [1, 2])
async def test_of_asyncio_in_a_world(sim_world, number):
    await sleeps(sim_world)

@pytest.mark.asyncio
@sim.test(seeds=3)
async def test_of_asyncio_with_seeds(world):
    await sleeps(world)

@pytest.mark.anyio
@sim.test(seeds=3)
async def test_of_anyio_with_seeds(world):
    await sleeps(world)

class TestMethods:
    @pytest.fixture
    def here(self):
        self.number = 5

    async def test_method(self, here, sim_world):
        assert self.number == 5
        await sleeps(sim_world)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest on tests, those above by default: its exit code and its output."""

    def run(*options: str, tests: str = TESTS) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(tests, encoding="utf-8")
        plugins = ["-p", "no:cacheprovider", "-p", "whorl.sim.pytest_plugin"]
        plugins += [word for name in OTHERS if find_spec(name.split(".")[0]) for word in ("-p", name)]
        plugins += ["-o", "asyncio_default_fixture_loop_scope=function", "-W", "error"]
        command = [sys.executable, "-m", "pytest", *plugins, *options]
        environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a build's egg-info names the plugin, too
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_tests_in_worlds_pass_and_fail(run: Run) -> None:
    code, output = run("-s")
    assert code == 1
    assert "2 failed, 4 passed" in output
    assert "SEED 0 True" in output


def test_a_failing_test_shows_the_command_that_replays_it(run: Run) -> None:
    _, output = run("-k", "chooses")
    assert "the program's choice 'way' was 2" in output
    shown = re.search(r"pytest (test_it.py::test_chooses --sim-replay .*)", output)
    assert shown
    code, again = run(*shlex.split(shown[1]))
    assert code == 1
    assert "AssertionError" in again


def test_a_failing_test_with_a_world_shows_the_command_that_replays_it(run: Run) -> None:
    _, output = run("-k", "fails_in")
    assert re.search(r"pytest test_it.py::test_fails_in_a_world --sim-replay '?0:calm:", output)


def test_a_seed_is_taken_from_the_options(run: Run) -> None:
    code, _ = run("-k", "fails_in", "--sim-seed", "5")
    assert code == 0


def test_a_number_of_seeds_is_taken_from_the_options(run: Run) -> None:
    code, output = run("-k", "chooses", "--sim-seeds", "1")
    assert code == 0, output


def test_the_first_seed_is_taken_from_the_options(run: Run) -> None:
    code, output = run("-k", "chooses", "--sim-first", "100")
    assert code == 1
    assert re.search("runs? of seeds? 100", output), output


def test_a_replay_that_is_none_is_refused(run: Run) -> None:
    code, output = run("--sim-replay", "1:calm:x:y")
    assert code == 4
    assert "--sim-replay: '1:calm:x:y' is no tape" in output


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_tests_of_anyio_and_pytest_asyncio_run_beside_those_in_worlds(run: Run, mode: str) -> None:
    pytest.importorskip("anyio", reason="anyio is not installed")
    pytest.importorskip("pytest_asyncio", reason="pytest-asyncio is not installed")
    code, output = run(f"--asyncio-mode={mode}", tests=BESIDE_OTHERS)
    assert code == 0, output
    assert "8 passed" in output


def test_processes_of_xdist_share_the_tests(run: Run) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    code, output = run("-n", "2", "--sim-jobs", "2", "-k", "chooses or in_a_world")
    assert code == 1
    assert "2 failed, 1 passed" in output
    shown = re.search(r"pytest (test_it.py::test_chooses --sim-replay .*)", output)
    assert shown
    code, again = run("-n", "2", *shlex.split(shown[1]))
    assert code == 1
    assert "AssertionError" in again


WITH_A_FACTORY = """
import asyncio
import pytest

@pytest.fixture
def anyio_backend(sim_loop_factory):
    return "asyncio", {"loop_factory": sim_loop_factory}

@pytest.fixture
async def here():
    await asyncio.sleep(1000)
    return asyncio.get_running_loop()

@pytest.mark.anyio
@pytest.mark.parametrize("number", [1, 2])
async def test_of_anyio(here, number, tmp_path):
    began = here.time()
    async with asyncio.timeout(2000):
        await asyncio.sleep(1000)
    assert 1000 <= here.time() - began < 1001
    (tmp_path / "file").write_text("real")

@pytest.mark.anyio
async def test_fails(here):
    here.call_exception_handler({"message": "nobody has handled this"})
"""


def test_a_plugin_of_others_runs_a_test_on_the_loop_of_a_world(run: Run) -> None:
    if not find_spec("anyio"):
        pytest.skip("anyio is not installed")
    code, output = run("--sim-seed=3", tests=WITH_A_FACTORY)
    assert code == 1
    assert "3 passed, 1 error" in output
    assert "seed 3: unhandled" in output
    assert "nobody has handled this" in output
