"""Tasks that a loop's task factory makes."""

from __future__ import annotations

import inspect
from asyncio import base_events
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

# The call of a task factory, and the code that sets the name, differ between releases of Python: asyncio's
# method knows both.
ask_factory: Any = base_events.BaseEventLoop.create_task
_FACTORIES_TAKE_OPTIONS = "kwargs" in inspect.signature(ask_factory).parameters


def task_of_factory(loop: AnyLoop, coro: Any, options: dict[str, Any]) -> Any:
    """Return a task made by the loop's task factory, called as the running Python's asyncio calls it."""
    if not _FACTORIES_TAKE_OPTIONS:
        options.pop("eager_start", None)
    return ask_factory(loop, coro, **options)
