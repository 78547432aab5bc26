"""What a loop counts."""

from __future__ import annotations

from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.timers import LoopTimers
from whorl.core.metrics import LoopMetrics, LoopUtilization
from whorl.core.process.host import Host


class LoopCounters(LoopTimers):
    """The part of a loop that tells how busy it is."""

    __slots__ = (
        "_callbacks",
        "_events",
        "_events_waiting",
        "_idle_ns",
        "_ran_ns",
        "_run_began",
        "_sleep_began",
        "_turns",
    )

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        LoopTimers._set_up(self, kernel, host)
        self._turns = 0
        self._events = 0
        self._callbacks = 0
        self._events_waiting = 0
        self._idle_ns = 0
        self._sleep_began = 0  # 0 unless the loop sleeps
        self._ran_ns = 0  # how long the runs took that are over
        self._run_began = 0  # 0 unless the loop runs

    def metrics(self) -> LoopMetrics:
        """What the loop has counted; may be read from any thread."""
        return LoopMetrics(
            turns=self._turns,
            events=self._events,
            events_waiting=self._events_waiting,
            callbacks=self._callbacks,
            idle_ns=self._idle_ns,
            ready=len(self._ready_queue) + len(self._pending) + len(self._inbox),
            timers=len(self._timer_queue),
            handles=len(self._handles),
            active_handles=self._active_handles,
            active_requests=self._active_requests,
        )

    def utilization(self, earlier: LoopUtilization | None = None) -> LoopUtilization:
        """How busy the loop was while it ran, or since an earlier utilization; from any thread.

        Source: Node's ``performance.eventLoopUtilization``.
        """
        began, asleep = self._run_began, self._sleep_began
        now = self._kernel.now()  # after these, which another thread may be changing
        ran = self._ran_ns + (now - began if began else 0)
        idle = self._idle_ns + (now - asleep if asleep else 0)
        total = LoopUtilization.of(min(idle, ran), ran)
        return total if earlier is None else total.since(earlier)
