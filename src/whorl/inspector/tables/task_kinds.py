"""The classes of tasks, for recorders: asyncio's two and Whorl's, and how to ask their tasks."""

from __future__ import annotations

import asyncio
import functools
import operator
from asyncio import tasks
from typing import Any

from whorl.aio.futures.task import Task
from whorl.aio.interop.unrun_task import unrun_task
from whorl.core.recording.steps import TaskKind, know_tasks


@functools.cache
def know_all_tasks() -> bool:
    """Let recorders know all tasks; return False if the tasks of this Python begin in an unknown way.

    asyncio's tasks are then recorded from their second step on.
    """
    know_tasks(Task, kind_of(Task), methods=(vars(Task)["_wakeup"], vars(Task)["_resume"]))
    pure: Any = tasks._PyTask  # type: ignore[attr-defined]
    know_tasks(pure, kind_of(pure), methods=(pure._Task__step, pure._Task__wakeup))
    native: Any = asyncio.Task if tasks._CTask is None else tasks._CTask  # type: ignore[attr-defined]
    if native is pure:
        return True
    with unrun_task(native) as (task, step):
        return know_tasks(native, kind_of(native), step=step, step_of=task)


def kind_of(cls: Any) -> TaskKind:
    """Return how to ask the tasks of a class, by its own methods, whatever a subclass does."""
    return TaskKind(cls.get_name, *(_reader(cls, name) for name in ("_coro", "_state", "_exception")))


def _reader(cls: Any, name: str) -> Any:
    """Return the descriptor of an attribute of a class's tasks, or a function that reads it."""
    descriptor = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return descriptor if hasattr(descriptor, "__get__") else operator.attrgetter(name)
