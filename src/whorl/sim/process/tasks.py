"""Whorl's own futures and tasks in a world: their hashes count up, as those of CPython's do there."""

from __future__ import annotations

import asyncio
from typing import Any

from whorl.aio.futures.future import Future
from whorl.aio.futures.task import Task, wait_as_for_own
from whorl.aio.futures.task_factory import task_of_factory
from whorl.aio.runners.compiled_tasks_loop import show_tasks
from whorl.sim.process.loop import SimLoop


class OwnFuture(Future):
    """A future of Whorl's, with a hash of the world's."""

    __slots__ = ("_identity",)

    def __init__(self, *, loop: Any) -> None:
        self._identity: int = loop._sim_host.world.next_identity()
        super().__init__(loop=loop)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return asyncio.Future

    def __hash__(self) -> int:
        return self._identity


class OwnTask(Task):
    """A task of Whorl's, with a hash and a name of the world's."""

    __slots__ = ("_identity", "_world")

    def __init__(self, coro: Any, *, loop: Any, name: Any = None, **options: Any) -> None:
        self._world: Any = loop._sim_host.world
        self._identity: int = self._world.next_identity()
        if name is None:
            name = f"Task-{self._world.next_task()}"
        super().__init__(coro, loop=loop, name=name, **options)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return asyncio.Task

    def __hash__(self) -> int:
        return self._identity

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the task, and let the world know of it."""
        was_cancelled = super().cancel(msg)
        if was_cancelled:
            self._world.was_cancelled(self)
        return was_cancelled


for _kind in (OwnFuture, OwnTask):
    wait_as_for_own(_kind)


class OwnTasksLoop(SimLoop):
    """The loop of a simulated host with Whorl's futures and tasks."""

    def __init__(self, host: Any) -> None:
        show_tasks()
        super().__init__(host)

    def create_future(self) -> Any:
        """Return a future of this loop."""
        return OwnFuture(loop=self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        """Return a task that runs a coroutine on this loop."""
        if self.get_task_factory() is not None:
            return task_of_factory(self, coro, options)
        self._check_closed()
        return OwnTask(coro, loop=self, **options)
