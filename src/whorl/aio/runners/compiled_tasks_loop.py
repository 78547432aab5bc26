"""A loop whose futures and tasks are Whorl's own: the opt-in for programs that switch tasks all the time."""

from __future__ import annotations

import _asyncio
import gc
import sys
import weakref
from asyncio import tasks
from collections.abc import Iterator
from typing import Any

from whorl.aio.futures.future import new_future
from whorl.aio.futures.task import create_task, living_tasks, register_each_task
from whorl.aio.loop.event_loop import EventLoop
from whorl.aio.loop.lifecycle import snapshot_methods


class CompiledTasksEventLoop(EventLoop):
    """An `EventLoop` that makes `whorl.Future` and `whorl.Task` objects, where others make CPython's.

    What they give up: `python -m asyncio ps` and other programs that look into a running process from
    outside do not see them. `asyncio.all_tasks`, `current_task`, call graphs and stacks do.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        _show_tasks()
        super().__init__(*args, **options)

    create_future = new_future
    create_task = create_task


snapshot_methods(CompiledTasksEventLoop)


class TaskRegistry(set[Any]):
    """What a `WeakSet` of tasks keeps: weak references, and with them those to all tasks of ours.

    asyncio asks this set for all tasks. To put each of ours into it would cost more than to run it.
    """

    def __iter__(self) -> Iterator[Any]:
        yield from list(super().__iter__())
        for task in living_tasks():
            yield weakref.ref(task)

    def copy(self) -> Any:
        """What newer Pythons iterate over in place of the set itself."""
        return list(self)


def _show_tasks() -> None:
    """Let `asyncio.all_tasks` see our tasks."""
    registered = _registry()
    if registered is None:
        register_each_task()
    elif not isinstance(registered.data, TaskRegistry):
        registered.data = TaskRegistry(registered.data)


def _registry() -> Any:
    """The set of those tasks that are not CPython's own; None if it is nowhere to be found."""
    for name in ("_scheduled_tasks", "_all_tasks"):
        if sys.version_info < (3, 14) and hasattr(tasks, name):
            return getattr(tasks, name)
    sets = (item for item in gc.get_referents(_asyncio) if isinstance(item, weakref.WeakSet))
    return next(sets, None)
