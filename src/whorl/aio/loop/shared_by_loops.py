"""Stop counting references to the methods of loops, and to the classes of futures and tasks in C."""

from __future__ import annotations

from asyncio import futures, tasks
from typing import Any

from whorl.core.loop.loop import Loop
from whorl.core.shared_objects import stop_counting


def share(loop_class: type) -> None:
    """Let loops in several threads use a class of loops without counting references to its methods.

    `core/shared_objects` says when.
    """
    method = vars(Loop)["call_soon"]
    if not stop_counting(method):
        return
    for cls in loop_class.__mro__:
        for each in vars(cls).values():
            if type(each) is type(method):
                stop_counting(each)
    for each in _classes_of_futures():
        stop_counting(each)


def _classes_of_futures() -> list[type]:
    """Return CPython's classes in C of which each future, each task and each step makes an object."""
    from whorl.aio.interop.unrun_task import unrun_task

    future_class: Any = getattr(futures, "_CFuture", None)
    task_class: Any = getattr(tasks, "_CTask", None)
    if future_class is None or task_class is None:
        return []
    with unrun_task(task_class) as (task, step):
        return [future_class, type(iter(future_class(loop=task.get_loop()))), task_class, type(step)]
