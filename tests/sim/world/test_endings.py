"""Ends of runs: by an exit, an interrupt, an error of a job, or with tasks that go on."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import whorl
from tests.sim.conftest import Run
from whorl import sim
from whorl.sim.errors import ParallelThreads
from whorl.sim.patches import installed


def test_exit_in_a_program_is_a_finding() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        sys.exit(3)

    [finding] = sim.run(main).findings
    assert isinstance(finding.exception, SystemExit)


def test_python_with_parallel_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(ParallelThreads, match="PYTHON_GIL=1"):
        sim.run(asyncio.sleep)


@pytest.mark.skipif(whorl.compiled, reason="a subinterpreter refuses the import of compiled modules")
def test_subinterpreter_is_refused() -> None:
    inside = f"""
import sys
sys.path[:] = {sys.path!r}
import asyncio
from whorl import sim
try:
    sim.run(asyncio.sleep)
except RuntimeError as error:
    print(type(error).__name__, error)
"""
    program = f"""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
print(interpreters.run_string(interpreters.create(), {inside!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Subinterpreter a world was opened in a subinterpreter, at " in done.stdout
    assert "Run it in the main interpreter" in done.stdout


def test_interrupt_ends_the_run_and_leaves_no_world() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, interrupt)
        await asyncio.sleep(10)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sim.run(main)
    assert sim.current() is None


def test_tasks_that_are_left_are_cancelled_as_asyncio_run_does(exact: Run) -> None:
    ended: list[str] = []

    async def stay(name: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append(name)

    async def main() -> None:
        tasks = [asyncio.ensure_future(stay(name)) for name in "ab"]
        await asyncio.sleep(1)
        assert not any(task.done() for task in tasks)

    exact(main)
    assert sorted(ended) == ["a", "b"]


def test_main_that_is_no_coroutine_function_is_refused() -> None:
    with pytest.raises(TypeError, match="a coroutine"):
        sim.run(lambda: 5)  # type: ignore[arg-type, return-value]
    assert sim.current() is None


def test_unknown_profile_of_faults_is_refused() -> None:
    async def main() -> None:
        """Do nothing."""

    with pytest.raises(ValueError, match="there is no profile 'wild'"):
        sim.run(main, faults="wild")
    assert sim.current() is None


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Let the collector run only where a world runs it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


Worlds = list[weakref.ref[Any]]


def takes_turns(worlds: Worlds, fails: bool = False) -> Callable[[sim.World], Coroutine[Any, Any, None]]:
    """Return a program of three hosts that take turns; it notes its world and one of them."""

    async def spin() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def main(world: sim.World) -> None:
        world.history.begin("client", "ask", None)
        hosts = [world.host(name) for name in "abc"]
        worlds.extend((weakref.ref(world), weakref.ref(hosts[-1])))
        await asyncio.gather(*(host.run(spin) for host in hosts))
        if fails:
            raise ValueError("it fails")

    return main


@pytest.mark.usefixtures("no_collector")
def test_world_is_let_go_with_its_result() -> None:
    worlds: Worlds = []
    for seed in range(10):
        assert not sim.run(takes_turns(worlds), seed=seed).failed
    assert [each() for each in worlds] == [None] * 20


@pytest.mark.usefixtures("no_collector")
def test_result_does_not_hold_the_hosts_of_its_world() -> None:
    worlds: Worlds = []
    results = [sim.run(takes_turns(worlds), seed=seed) for seed in range(10)]
    assert any(place[0] == "turn" for result in results for place in result.moments)
    assert [each() for each in worlds[1::2]] == [None] * 10


@pytest.mark.usefixtures("no_collector")
def test_garbage_of_failed_runs_is_collected_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "OLD_AFTER", 20)
    worlds: Worlds = []
    for seed in range(40):
        assert sim.run(takes_turns(worlds, fails=True), seed=seed).failed
    assert all(each() is None for each in worlds[:20])
