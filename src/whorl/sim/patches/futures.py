"""Futures and tasks of a world: their hashes count up, so the order of a set of them is the seed's.

CPython's hash of an object is its address. So the order of a set of tasks differs between two processes, and
`asyncio.wait` returns sets. asyncio promises no order; a world lets the seed choose it.
"""

from __future__ import annotations

import asyncio
from asyncio import futures, tasks
from typing import Any

from whorl.sim.patches.current import RUNNING, Replacement


def _identity(self: Any) -> int:
    number = self.__dict__.get("_sim_identity")
    if number is None:
        world = RUNNING.world
        number = self._sim_identity = world.next_identity() if world is not None else object.__hash__(self)
    return number  # type: ignore[no-any-return]


class SimFuture(asyncio.Future[Any]):
    """CPython's future, with a hash of the world's."""

    __slots__ = ("_identity",)

    def __init__(self, *, loop: Any = None) -> None:
        super().__init__(loop=loop)
        world = RUNNING.world
        self._identity = world.next_identity() if world is not None else id(self) >> 4

    def __hash__(self) -> int:
        return self._identity


class SimTask(asyncio.Task[Any]):
    """CPython's task, with a hash and a name of the world's."""

    __slots__ = ("_identity",)

    def __init__(self, coro: Any, *, loop: Any = None, name: Any = None, **options: Any) -> None:
        world = RUNNING.world
        self._identity = world.next_identity() if world is not None else id(self) >> 4
        if name is None:
            name = f"Task-{self._identity if world is None else world.next_task()}"
        if loop is None and options.get("eager_start"):
            loop = asyncio.get_running_loop()
        super().__init__(coro, loop=loop, name=name, **options)

    def __hash__(self) -> int:
        return self._identity

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the task, and let the world know of it."""
        was_cancelled = super().cancel(msg)
        world = RUNNING.world
        if was_cancelled and world is not None:
            world.was_cancelled(self)
        return was_cancelled


FUTURES: list[Replacement] = [
    (asyncio, "Future", SimFuture),
    (futures, "Future", SimFuture),
    (asyncio, "Task", SimTask),
    (tasks, "Task", SimTask),
    (tasks._GatheringFuture, "__hash__", _identity),  # type: ignore[attr-defined]
]
