"""A loop with Whorl's futures and tasks: for programs that ask for them, and on 3.13 without the GIL."""

from __future__ import annotations

import _asyncio
import gc
import sys
import threading
import weakref
from asyncio import tasks
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from whorl.aio.futures.future import new_future
from whorl.aio.futures.task import create_task, living_tasks, register_each_task
from whorl.aio.loop.event_loop import EventLoop
from whorl.aio.loop.lifecycle import snapshot_methods
from whorl.aio.loop.shared_by_loops import share


class CompiledTasksEventLoop(EventLoop):
    """An `EventLoop` that makes `whorl.Future` and `whorl.Task` objects, where other loops make CPython's.

    Their price: `python -m asyncio ps` and other programs that look into a running process from outside do
    not see them. `asyncio.all_tasks`, `current_task`, call graphs and stacks do.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        show_tasks()
        super().__init__(*args, **options)

    if not TYPE_CHECKING:  # for type checkers these are `EventLoop`'s
        create_future = new_future
        create_task = create_task


snapshot_methods(CompiledTasksEventLoop)
share(CompiledTasksEventLoop)


class TaskRegistry(set[Any]):
    """The content of a `WeakSet` of tasks: weak references, and with them those to all of Whorl's tasks.

    asyncio reads this set to find all tasks. To put each of Whorl's tasks into it would cost more than to run
    it.
    """

    def __iter__(self) -> Iterator[Any]:
        yield from set(self)  # A copy, made in one call: other threads make tasks meanwhile.
        for task in living_tasks():
            yield weakref.ref(task)

    def copy(self) -> Any:
        """Return the object that newer Pythons iterate over in place of the set itself."""
        return list(self)


_one_copy = threading.Lock()  # A second copy would lose what was put into the first.


def show_tasks() -> None:
    """Let `asyncio.all_tasks` see Whorl's tasks."""
    registered = _registry()
    if registered is None:
        register_each_task()
    elif not isinstance(registered.data, TaskRegistry):
        with _one_copy:
            former = registered.data
            if not isinstance(former, TaskRegistry):
                registered.data = TaskRegistry(former)
                registered.data.update(former)  # Other threads may have made tasks during the copy.


def _registry() -> Any:
    """Return the set of tasks that are not CPython's; None if it is not found."""
    for name in ("_scheduled_tasks", "_all_tasks"):
        if sys.version_info < (3, 14) and hasattr(tasks, name):
            return getattr(tasks, name)
    sets = (item for item in gc.get_referents(_asyncio) if isinstance(item, weakref.WeakSet))
    return next(sets, None)
