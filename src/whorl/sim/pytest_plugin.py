"""A plugin of pytest: options for `sim.test`, and tests that run in a world.

A test that is a coroutine function and has the fixture `sim_world` runs in a world of one seed. The mark
`sim` gives it options of `run`: `@pytest.mark.sim(faults="swarm", allow={"leaks"})`. The fixture
`sim_loop_factory` is for plugins that run a test on a loop that a function makes.
"""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from whorl.sim.chance.tape import tape_of
from whorl.sim.running.result import SimulationFailed
from whorl.sim.running.run import open_world, replay
from whorl.sim.running.testing import SETTINGS


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("whorl.sim", "simulated worlds")
    group.addoption("--sim-seed", type=int, metavar="N", help="run simulated tests with this seed only")
    group.addoption("--sim-seeds", type=int, metavar="N", help="run simulated tests with so many seeds")
    group.addoption("--sim-first", type=int, metavar="N", help="run simulated tests from this seed on")
    group.addoption("--sim-jobs", type=int, metavar="N", help="let so many processes run the seeds of a test")
    group.addoption(
        "--sim-replay", metavar="TAPE", help="run simulated tests from a seed, a tape or its file"
    )
    group.addoption(
        "--sim-seconds", type=float, metavar="S", help="stop each simulated test after so many seconds"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell `sim.test` what the options say."""
    config.addinivalue_line("markers", "sim(**options): options of whorl.sim.run for a test with sim_world")
    seed = config.getoption("--sim-seed")
    SETTINGS.seeds = config.getoption("--sim-seeds") if seed is None else [seed]
    SETTINGS.first = config.getoption("--sim-first")
    SETTINGS.jobs = config.getoption("--sim-jobs")
    SETTINGS.seconds = config.getoption("--sim-seconds")
    SETTINGS.replay = config.getoption("--sim-replay")
    if SETTINGS.replay is not None:
        try:
            tape_of(SETTINGS.replay)
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"--sim-replay: {error}") from None


@pytest.fixture
def sim_world() -> Any:
    """Return the world that the test runs in; only tests that are coroutine functions have one."""
    return _Later()


@pytest.fixture
def sim_loop_factory(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Return a function that returns the loop of a world of one seed, while the test and its fixtures run.

    The test may write real files, as pytest's own fixtures do. It fails for an error that nobody handles.
    """
    mark = request.node.get_closest_marker("sim")
    options = {"allow": {"files"}, **(mark.kwargs if mark is not None else {})}
    seed = request.config.getoption("--sim-seed") or 0
    with open_world(seed, **options) as world:
        loop = world.main.loop
        yield lambda: loop
    if world.findings:
        pytest.fail(f"seed {seed}: {world.findings[0]}", pytrace=False)


class _Later:
    """The place of a world before there is one."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("the test has no world: write it as a coroutine function (async def)")


class InWorld(pytest.Function):
    """A test that a world runs. It is a plain function for other plugins that run coroutine functions."""

    def _getobj(self) -> Any:
        found = super()._getobj()  # type: ignore[no-untyped-call]
        return _in_a_world(self, found) if inspect.iscoroutinefunction(found) else found

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Any, pytest.Mark]]:
        """Yield the marks of the test, without those that ask other plugins to run it."""
        for node, mark in super().iter_markers_with_node(name):
            if mark.name not in ("anyio", "asyncio"):
                yield node, mark


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> list[InWorld] | None:
    """Collect coroutine functions that have the fixture `sim_world`, and the tests of `sim.test`."""
    if not collector.istestfunction(obj, name):
        return None
    has_world = inspect.iscoroutinefunction(obj) and "sim_world" in inspect.signature(obj).parameters
    if not has_world and not hasattr(obj, "sim_main"):
        return None
    return [
        InWorld.from_parent(
            each.parent,
            name=each.name,
            callspec=getattr(each, "callspec", None),
            fixtureinfo=each._fixtureinfo,
            keywords=each.keywords,
            originalname=each.originalname,
        )
        for each in collector._genfunctions(name, obj)
    ]


def _in_a_world(item: pytest.Function, function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that runs a coroutine function in a world."""

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        __tracebackhide__ = True

        async def main(world: Any) -> None:
            await function(**{**arguments, "sim_world": world})

        seed = item.config.getoption("--sim-seed")
        mark = item.get_closest_marker("sim")
        chosen = SETTINGS.replay if SETTINGS.replay is not None else seed or 0
        result = replay(main, chosen, **(mark.kwargs if mark is not None else {}))
        if result.failed:
            word = shlex.quote(result.tape.token())
            first = result.findings[0]
            command = f"pytest {shlex.quote(item.nodeid)} --sim-replay {word}"
            raise SimulationFailed(f"{first}\nReplay it with:\n  {command}") from first.exception

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let the report of a test of `sim.test` name the command of pytest that replays it."""
    __tracebackhide__ = True
    SETTINGS.command = _command_of(item.nodeid)
    try:
        return (yield)
    finally:
        SETTINGS.command = None


def _command_of(nodeid: str) -> Callable[[Callable[..., Any]], str]:
    shown = shlex.quote(nodeid).replace("{", "{{").replace("}", "}}")
    return lambda _: f"pytest {shown} --sim-replay {{tape}}"
