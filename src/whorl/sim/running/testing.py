"""`sim.test`: a coroutine function as a test that runs with many seeds, with pytest and without."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whorl.sim.chance.strategies import Delay
from whorl.sim.running.check import check
from whorl.sim.running.run import Main, replay


@dataclass
class Settings:
    """The wishes of a front end, such as pytest, for all tests; None: as each test says."""

    seeds: int | Iterable[int] | None = None
    first: int | None = None  #: the first seed
    jobs: int | None = None
    seconds: float | None = None  #: real ones, for each test
    replay: str | None = None  #: a seed, a tape's word, or its path: run only this
    command: Callable[[Callable[..., Any]], str] | None = (
        None  #: the command that replays a test, with {tape}
    )


SETTINGS = Settings()


def test(
    seeds: int = 200,  # noqa: PT028
    *,
    jobs: int | None = None,  # noqa: PT028
    **options: Any,
) -> Callable[[Main[Any]], Callable[..., None]]:
    """Make a coroutine function a test that is run with many seeds. Options are those of `check` and `run`.

    A parameter `world` of the function gets the world. Others are the test's own, such as pytest's fixtures.
    """
    if callable(seeds):
        raise TypeError("write @sim.test() with parentheses")

    def decorate(main: Main[Any]) -> Callable[..., None]:
        if not inspect.iscoroutinefunction(main):
            raise TypeError(f"a coroutine function was expected, got {main!r}")

        @functools.wraps(main)
        def run_seeds(*args: Any, **arguments: Any) -> None:
            __tracebackhide__ = True
            program = _bound(main, args, arguments)
            settings = SETTINGS
            if settings.replay is not None:
                replay(program, settings.replay, **run_options(options)).check()
                return
            report = check(
                program,
                **{
                    "seeds": seeds if settings.seeds is None else settings.seeds,
                    "jobs": (jobs or 1) if settings.jobs is None else settings.jobs,
                    **options,
                    **({} if settings.first is None else {"first": settings.first}),
                    **({} if settings.seconds is None else {"budget_s": settings.seconds}),
                },
            )
            if settings.command is not None:
                report.command = settings.command(run_seeds)
            report.check()

        parameters = inspect.signature(main).parameters
        own = [each for name, each in parameters.items() if name != "world"]
        run_seeds.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        run_seeds.sim_main = main  # type: ignore[attr-defined]
        run_seeds.sim_program = _bound(main, (), {})  # type: ignore[attr-defined]
        run_seeds.sim_options = {"seeds": seeds, "jobs": jobs, **options}  # type: ignore[attr-defined]
        del run_seeds.__wrapped__  # pytest must see a function, not the coroutine function behind it
        return run_seeds

    return decorate


test.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it

_OF_CHECK = inspect.signature(check).parameters


def run_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are those of one run."""
    chosen = {name: value for name, value in options.items() if name not in _OF_CHECK}
    if isinstance(chosen.get("strategy"), Delay):
        del chosen["strategy"]
    return chosen


def _bound(main: Main[Any], args: tuple[Any, ...], arguments: dict[str, Any]) -> Main[Any]:
    """Return a program that takes the world only."""
    program = functools.partial(_in_world, main, args, arguments)
    functools.update_wrapper(program, main)
    parameter = inspect.Parameter("world", inspect.Parameter.POSITIONAL_ONLY)
    program.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return program


async def _in_world(main: Main[Any], args: tuple[Any, ...], arguments: dict[str, Any], world: Any) -> Any:
    if "world" in inspect.signature(main).parameters:
        arguments = {**arguments, "world": world}
    return await main(*args, **arguments)
