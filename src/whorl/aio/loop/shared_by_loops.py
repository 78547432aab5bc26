"""Stop counting references to the methods of loops, and to the classes of futures and tasks in C."""

from __future__ import annotations

import contextlib
from asyncio import futures, tasks
from typing import Any

from whorl.core.loop.loop import Loop
from whorl.core.shared_objects import stop_counting


class _NoLoop:
    """The loop of a future and a task that are made only to know the classes of what they make."""

    def __init__(self) -> None:
        self.step: Any = None

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> None:
        """Keep the callback."""
        self.step = callback

    def get_debug(self) -> bool:
        """Return False."""
        return False


async def _nothing() -> None:
    """Do nothing."""


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
    classes: list[type] = []
    loop = _NoLoop()
    future_class: Any = getattr(futures, "_CFuture", None)
    task_class: Any = getattr(tasks, "_CTask", None)
    if future_class is not None:
        classes += [future_class, type(iter(future_class(loop=loop)))]
    if task_class is not None:
        with contextlib.closing(_nothing()) as coro:
            task = task_class(coro, loop=loop, name="unnamed")  # so that the first of the program is "Task-1"
            task._log_destroy_pending = False
            classes += [task_class, type(loop.step)]
    return classes
