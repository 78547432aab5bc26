"""The thread that tells of stalls: it writes the log, and calls listeners. Both may block for any time.

The watchdog's own thread hands the work over and looks on. A loop may be stuck in a handler of the log, whose
lock this thread then waits for.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable

MOST_WAITING = 64  # pieces of work that are kept while one takes long

Work = Callable[[], object]


class Teller:
    """A queue of work, and the thread that does it, one piece after the other."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, without a thread: a forked child has none."""
        self._waiting: collections.deque[Work] = collections.deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_at_work = False
        self._has_stopped = False

    def tell(self, work: Work) -> bool:
        """Let the thread do this soon; return False if too much waits already, or if there is no thread."""
        with self._changed:
            if self._has_stopped or len(self._waiting) >= MOST_WAITING:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="whorl-stalls", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # The interpreter ends, or the system has no more threads.
                    return False
                self._thread = thread
            self._waiting.append(work)
            self._changed.notify_all()
            return True

    def wait(self, seconds: float) -> bool:
        """Wait until all is done that was told, for so long at most; return whether it is."""
        if threading.current_thread() is self._thread:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: not (self._waiting or self._is_at_work), seconds)

    def stop(self, seconds: float) -> None:
        """End the thread when it has done what waits, and wait for so long at most. No other begins."""
        until = time.monotonic() + seconds
        self.wait(seconds)
        with self._changed:
            self._has_stopped = True
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._thread is not me)
                if self._thread is not me:
                    return
                work, self._is_at_work = self._waiting.popleft(), True
            try:
                with contextlib.suppress(BaseException):  # a subscriber may call `sys.exit`
                    work()
            finally:
                del work
                with self._changed:
                    self._is_at_work = False
                    self._changed.notify_all()
