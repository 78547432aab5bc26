"""The threads of a simulated host: jobs that run at a time the seed decides, one after another in one thread.

A job takes no turn of the loop. Its result reaches the loop as late as the job's own sleeps make it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whorl.sim.wire.timeline import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.process.owner import ProcessHost

#: How long after its request a job runs: the shortest time, and the steps up to the longest.
SHORTEST = 50 * MICROSECOND
STEP = 125 * MICROSECOND
STEPS = 16


class Joined:
    """A thread that has nothing left to do."""

    def join(self, timeout: float | None = None) -> None:
        """Return at once."""

    def is_alive(self) -> bool:
        """Return False."""
        return False


class SimThreads:
    """The jobs of a host that wait for their time."""

    def __init__(self, host: ProcessHost) -> None:
        self._host = host
        self._waiting: list[Any] = []
        self._delays = host.decisions.stream(f"{host.name}/executor")

    def delay(self) -> int:
        """Return how long the next job waits, in nanoseconds."""
        return SHORTEST + STEP * self._delays.decide(STEPS, self._host.world.faults.executor)

    def start(self, function: Callable[..., object], *args: Any) -> Joined:
        """Call a function after a delay."""
        self._host.after(self.delay(), self._begin, function, *args)
        return Joined()

    def _begin(self, function: Callable[..., object], *args: Any) -> None:
        if self._host.threads is self:  # else the process has ended, and another one lives
            self._host.in_thread(function, *args)

    # As the machine's pool (`handles/threads/thread_pool`): the file system's requests and `Work`.

    def submit(self, work: Any, *, slow: bool = False) -> None:
        """Do a request's work after a delay."""
        self._waiting.append(work)
        work.loop.count_queued(1)
        self.start(self._do, work)

    def _do(self, work: Any) -> None:
        if work in self._waiting:
            self._waiting.remove(work)
            work.loop.do_work(work)

    def withdraw(self, work: Any) -> bool:
        """Take back work that has not begun; return whether that was so."""
        if work not in self._waiting:
            return False
        self._waiting.remove(work)
        work.loop.count_queued(-1)
        return True
