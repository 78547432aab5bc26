"""The times of Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable

from whorl.inspector.watching import looks


class CollectionTimes:
    """Adds up how long the collector runs. It holds the interpreter's lock meanwhile."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._total_ns = 0
        #: Called after each run with its beginning, its length and its generation.
        self.at_end: Callable[[int, int, int], object] | None = None

    def start(self) -> None:
        """Begin to add up."""
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Add up no more."""
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._called)

    def forget(self) -> None:
        """Begin anew, in a forked child."""
        self._began_ns = self._total_ns = 0
        looks.collected(0, 0)

    def total_ns(self) -> int:
        """Return how long it has run, the run that goes on included."""
        total = self._total_ns
        if self._began_ns:
            total += time.monotonic_ns() - self._began_ns
        return total

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.monotonic_ns()
            looks.collected(self._total_ns, self._began_ns)
        elif self._began_ns:
            began, took = self._began_ns, time.monotonic_ns() - self._began_ns
            self._total_ns += took
            self._began_ns = 0
            looks.collected(self._total_ns, 0)
            if self.at_end is not None:
                self.at_end(began, took, info.get("generation", 0))
