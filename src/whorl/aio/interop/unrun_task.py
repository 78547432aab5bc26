"""A task of asyncio's that never runs. It shows how the tasks of its class are made, and begin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class _NoLoop:
    """The loop of such a task."""

    def __init__(self) -> None:
        self.step: Any = None

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> None:
        """Keep the callback."""
        self.step = callback

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing."""


async def _nothing() -> None:
    """Do nothing."""


@contextlib.contextmanager
def unrun_task(cls: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a task of a class, and the callback that its loop got for its first step."""
    coro, loop = _nothing(), _NoLoop()
    task = cls(coro, loop=loop, name="unnamed")  # so that the first of the program is "Task-1"
    try:
        yield task, loop.step
    finally:
        task._log_destroy_pending = False
        coro.close()
