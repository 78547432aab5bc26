"""Ways to run a program on Whorl: `run`, `Runner` and `new_event_loop`."""

from __future__ import annotations

import asyncio
import functools
import sys
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from whorl.aio.loop.event_loop import EventLoop
from whorl.core.loop.loop import COMPILED

Result = TypeVar("Result")

KINDS_OF_TASKS = ("compiled", "cpython")


def new_event_loop(*, tasks: str | None = None, **options: Any) -> EventLoop:
    """Return a new loop; `options` are those of `EventLoop`.

    `tasks` is "cpython", or "compiled" for Whorl's futures and tasks, which switch faster. None means
    CPython's, but Whorl's on 3.13 without the GIL: CPython's tasks of several threads wait for each other
    there. Raises ValueError for another one.
    """
    if tasks is None:
        tasks = "compiled" if _tasks_share_a_dictionary() else "cpython"
    elif tasks not in KINDS_OF_TASKS:
        raise ValueError(f"tasks must be one of {list(KINDS_OF_TASKS)}, not {tasks!r}")
    if tasks == "compiled":
        from whorl.aio.runners.compiled_tasks_loop import CompiledTasksEventLoop

        return CompiledTasksEventLoop(**options)
    return EventLoop(**options)


def server_loop(*, tasks: str | None = None, **options: Any) -> EventLoop:
    """Return a loop for servers, which collects a turn's answers (`EventLoop.configure`, ``collect_writes``).

    The options are those of `new_event_loop`.
    """
    loop = new_event_loop(tasks=tasks, **options)
    loop.configure(collect_writes=True)
    return loop


def has_gil() -> bool:
    """Return whether threads take turns."""
    is_enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return is_enabled()


def _tasks_share_a_dictionary() -> bool:
    """Return whether CPython's tasks wait at each step for those of other threads, and Whorl's do not.

    CPython 3.14 keeps the running task for each thread. Uncompiled, Whorl's own tasks keep none themselves.
    """
    return COMPILED and sys.version_info < (3, 14) and not has_gil()


def _factory(
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None, options: dict[str, Any]
) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of a run's loops: the given one, or one of Whorl's with these options."""
    if loop_factory is None:
        return functools.partial(new_event_loop, **options) if options else new_event_loop
    if options:
        raise TypeError(
            f"{', '.join(sorted(options))}: options are for loops that loop_factory does not make"
        )
    return loop_factory


class Runner(asyncio.Runner):  # type: ignore[misc]  # final for type checkers only
    """An `asyncio.Runner` on one of Whorl's loops; `options` are those of `new_event_loop`."""

    def __init__(
        self,
        *,
        debug: bool | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(debug=debug, loop_factory=_factory(loop_factory, options))


def run(
    main: Coroutine[Any, Any, Result],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **options: Any,
) -> Result:
    """Run a coroutine on a new loop, and close everything after it (asyncio: ``asyncio.run``).

    `loop_factory` makes the loop, `server_loop` for example; without one, `options` are those of
    `new_event_loop`. Raises TypeError for both. Raises RuntimeError in the thread of a running loop, unless
    that allows nested runs (`allow_nested_runs`).
    """
    if events._get_running_loop() is not None:
        from whorl.aio.loop import nested_runs

        if not nested_runs.is_inside():
            raise RuntimeError("whorl.run() cannot be called from a running event loop")
        new = functools.partial(run, loop_factory=loop_factory, **options)
        return nested_runs.run_inside(main, debug, new if loop_factory or options else None)
    with asyncio.Runner(debug=debug, loop_factory=_factory(loop_factory, options)) as runner:
        return runner.run(main)
