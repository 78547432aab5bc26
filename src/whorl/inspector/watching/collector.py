"""The times of Python's garbage collector, in each thread."""

from __future__ import annotations

import collections
import contextlib
import gc
import threading
import time
from collections.abc import Callable

MOST_THREADS = 256  # of which times are kept
RUNS_KEPT = 256  # of each thread


class _Runs:
    """The time of the collector in one thread, and its last runs."""

    def __init__(self) -> None:
        self.total_ns: int = 0
        self.last: collections.deque[tuple[int, int]] = collections.deque(maxlen=RUNS_KEPT)


class CollectionTimes:
    """Adds up how long the collector runs in each thread. It holds the interpreter's lock meanwhile."""

    def __init__(self) -> None:
        #: Called after each run with its beginning, its length and its generation, in its thread.
        self.at_end: Callable[[int, int, int], object] | None = None
        self.forget()

    def start(self) -> None:
        """Begin to add up."""
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Add up no more."""
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._called)

    def forget(self) -> None:
        """Begin anew, in a forked child."""
        self._began_ns = self._thread = 0  # of the run that goes on
        self._runs: dict[int, _Runs] = {}

    def total_ns(self, thread: int | None, at_ns: int) -> int:
        """Return how long it had run in a thread at a moment of late, the run included that went on then."""
        if thread is None:
            return 0
        runs = self._runs.get(thread)
        total = 0
        if runs is not None:
            total = runs.total_ns
            for began, took in reversed(list(runs.last)):
                if began + took <= at_ns:
                    break
                total -= min(took, began + took - at_ns)
        if self._began_ns and self._thread == thread:
            total += max(0, at_ns - self._began_ns)
        return total

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._thread = threading.get_native_id()
            self._began_ns = time.monotonic_ns()
        elif self._began_ns:
            began, took = self._began_ns, time.monotonic_ns() - self._began_ns
            self._began_ns = 0
            runs = self._runs.get(self._thread)
            if runs is None:
                if len(self._runs) >= MOST_THREADS:
                    del self._runs[next(iter(self._runs))]
                runs = self._runs[self._thread] = _Runs()
            runs.total_ns += took
            runs.last.append((began, took))
            if self.at_end is not None:
                self.at_end(began, took, info.get("generation", 0))
