"""Tasks that a loop's task factory makes."""

from __future__ import annotations

import inspect
from asyncio import base_events
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

# How a task factory is called, and who names the task, differs from one release of Python to the
# next: asyncio's own method knows.
ask_factory: Any = base_events.BaseEventLoop.create_task
_FACTORIES_TAKE_OPTIONS = "kwargs" in inspect.signature(ask_factory).parameters


def task_of_factory(loop: AnyLoop, coro: Any, options: dict[str, Any]) -> Any:
    """A task made by the loop's task factory, called as the running Python's asyncio calls it."""
    if not _FACTORIES_TAKE_OPTIONS:
        options.pop("eager_start", None)
    return ask_factory(loop, coro, **options)
