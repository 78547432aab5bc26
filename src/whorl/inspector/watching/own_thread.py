"""Reading and changing what belongs to a loop: where threads would meet, in the thread of the loop.

Without the GIL, an object may be freed while another thread reads the reference to it. The reference may be a
field of a compiled object, or of a coroutine, a frame or a future of CPython's. Only the loop's thread may
follow them.

Uncompiled, threads take turns between any two instructions, so also inside of a method of a recorder. Another
thread may read then. It may change what a loop has only while that loop is in no call of its recorder.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.loop import COMPILED, Loop
from whorl.inspector.watching import looks

Result = TypeVar("Result")

#: The seconds that a loop may take to begin its answer, without the GIL or uncompiled.
PATIENCE = 0.5


class NotKnown(RuntimeError):
    """Without the GIL only a loop's own thread may look, and that is busy or runs no loop."""

    def __init__(self) -> None:
        super().__init__("not known without the GIL, as the loop is busy or does not run")


def has_gil() -> bool:
    """Return whether one thread runs at a time."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def may_change() -> bool:
    """Return whether any thread may change the recorder of a loop: it cannot be inside of a call of it."""
    return COMPILED and has_gil()


def has_real_clock(loop: Any) -> bool:
    """Return whether a loop's time is that of the system: a simulated world has no stalls."""
    kernel: Any = type(loop._kernel)
    return bool(kernel.now is Kernel.now)


def read(loop: Any, table: Callable[[Any], Result], patience: float = PATIENCE) -> Result:
    """Return `table(loop)`. Any thread may call this: without the GIL, the loop's thread makes the table.

    Raises NotKnown if that does not begin to for `patience` seconds.
    """
    if has_gil() or _may_read(loop):
        return table(loop)
    question = _Question(loop, table)
    posted = Loop.call_soon_threadsafe(loop, question.answer)
    if not question.is_taken.wait(patience) and question.claim():
        posted.cancel()
        raise NotKnown
    question.is_over.wait()
    return question.outcome()


def call(loop: Any, action: Callable[[Any], object], patience: float = PATIENCE) -> bool:
    """Call `action(loop)`; return whether that is over. Any thread may call this.

    Without the GIL, the loop's thread calls it. A loop that is stuck, or does not run, does so when it goes
    on. One that is closed, or is being closed, never does. Raises what the action raised.

    Uncompiled with the GIL, the thread of a loop that runs calls it. If that is stuck, or the loop does not
    run, the calling thread does.
    """
    if may_change() or _may_read(loop) or (has_gil() and not _turns_elsewhere(loop)):
        action(loop)
        return True
    question = _Question(loop, action)
    try:
        posted = Loop.call_soon_threadsafe(loop, question.answer)
    except RuntimeError:
        return False
    if not loop.is_running() or not question.is_over.wait(patience):
        if not has_gil() or not question.claim():
            return False
        posted.cancel()
        action(loop)  # It is stuck in a callback, and so in no call of its recorder.
        return True
    question.outcome()
    return True


def _turns_elsewhere(loop: Any) -> bool:
    """Return whether another thread of this process runs the loop in real time."""
    return bool(loop.is_running() and loop._is_in_creating_process() and has_real_clock(loop))


def _may_read(loop: Any) -> bool:
    """Return whether the calling thread runs the loop, or is the last one that did or made it."""
    running = loop._thread_id
    return running == threading.get_ident() if running is not None else looks.ran_last_here(loop)


class _Question(Generic[Result]):
    """A table that a loop's thread is asked to make. The first claim decides if it is made or given up."""

    def __init__(self, loop: Any, table: Callable[[Any], Result]) -> None:
        self._loop = loop
        self._table = table
        self._claim = threading.Lock()
        self.is_taken = threading.Event()
        self.is_over = threading.Event()
        self._result: list[Result] = []
        self._error: Exception | None = None

    def claim(self) -> bool:
        """Return whether this is the first call."""
        return self._claim.acquire(blocking=False)

    def answer(self) -> None:
        """Make the table, in the loop's thread."""
        if not self.claim():
            return
        self.is_taken.set()
        try:
            self._result.append(self._table(self._loop))
        except Exception as error:
            self._error = error
        finally:
            self.is_over.set()

    def outcome(self) -> Result:
        """Return the table. Raises what making it raised."""
        if self._error is not None:
            raise self._error
        if not self._result:  # An interrupt ended the loop's run.
            raise NotKnown
        return self._result[0]
