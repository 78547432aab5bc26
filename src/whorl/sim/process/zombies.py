"""The zombies of a life: the loop of a process that has ended, and its tasks.

They are kept until the world ends, so that nothing of them runs in it: no `finally`, no finalizer.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from whorl.sim.files.file import File
    from whorl.sim.process.loop import SimLoop


class Zombies(NamedTuple):
    """A loop that runs no more, with its tasks and files, and the coroutines of programs that were killed."""

    loop: SimLoop
    tasks: list[asyncio.Task[Any]]
    files: list[File]
    coroutines: list[Coroutine[Any, Any, Any]]

    def close(self) -> None:
        """Close everything; the world has ended, and the kernel answers EBADF."""
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if coroutine is not None and not task.done():
                _close(coroutine)
        for coroutine in self.coroutines:
            _close(coroutine)
        self.loop.abandon()


def _close(coroutine: Any) -> None:
    """Let the `finally` blocks of a coroutine run; what they raise or wait for is of no interest."""
    with contextlib.suppress(BaseException):
        coroutine.close()
