"""What a loop has counted since it was made."""

from __future__ import annotations

from typing import NamedTuple


class LoopMetrics(NamedTuple):
    """A snapshot of a loop's counters (libuv: ``uv_metrics_info``). Durations are in nanoseconds."""

    turns: int  #: turns of the loop
    events: int  #: events the poller has handed over
    callbacks: int  #: entries run: callbacks, timers, I/O handles
    idle_ns: int  #: time spent sleeping in the poller
    ready: int  #: entries waiting for the next turn
    timers: int  #: timers scheduled, cancelled ones included until they are swept
    handles: int  #: handles open
    active_handles: int  #: handles that keep the loop alive
    active_requests: int  #: requests in flight
