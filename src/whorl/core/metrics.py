"""The counters of a loop since it was made."""

from __future__ import annotations

from typing import NamedTuple


class LoopMetrics(NamedTuple):
    """A snapshot of a loop's counters (libuv: ``uv_metrics_info``). Durations are in nanoseconds."""

    turns: int  #: turns of the loop
    events: int  #: events the poller has handed over
    events_waiting: int  #: those of them that were found without sleeping: they had waited
    callbacks: int  #: entries run: callbacks, timers, I/O handles
    idle_ns: int  #: time spent sleeping in the poller
    ready: int  #: entries waiting for the next turn
    timers: int  #: timers scheduled, cancelled ones included until they are swept
    handles: int  #: handles open
    active_handles: int  #: handles that keep the loop alive
    active_requests: int  #: requests in flight


class LoopUtilization(NamedTuple):
    """The idle and the active time of a loop while it ran. Durations are in nanoseconds."""

    idle_ns: int  #: time spent sleeping in the poller
    active_ns: int  #: the rest
    utilization: float  #: the active part of both, from 0 to 1

    @classmethod
    def of(cls, idle_ns: int, ran_ns: int) -> LoopUtilization:
        """Return the utilization of a loop that ran for `ran_ns` and slept for `idle_ns` of that."""
        active_ns = ran_ns - idle_ns
        return cls(idle_ns, active_ns, active_ns / ran_ns if ran_ns else 0.0)

    def since(self, earlier: LoopUtilization) -> LoopUtilization:
        """Return the utilization since an earlier one."""
        idle_ns = self.idle_ns - earlier.idle_ns
        return LoopUtilization.of(idle_ns, idle_ns + self.active_ns - earlier.active_ns)
