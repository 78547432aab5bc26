"""The counters and histograms of a loop since it was made, as they are shown."""

from __future__ import annotations

from typing import NamedTuple

from whorl.core.states import PLACES


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
    bytes_in: int  #: bytes that transports and handles have read
    bytes_out: int  #: bytes that the kernel has taken from them
    reads: int  #: calls of the kernel that brought bytes
    writes: int  #: calls of the kernel that took bytes
    timers_fired: int  #: timers that fell due
    jobs_waiting: int  #: jobs that wait for a thread of a pool
    jobs_running: int  #: jobs that a thread of a pool has begun, and all look-ups of names
    accepts: int  #: connections that servers have accepted
    connections_opened: int  #: connections that got a transport or a handle
    connections_closed: int  #: those of them that are closed
    errors_reported: int  #: calls of the exception handler
    handshakes_failed: int  #: TLS handshakes that the loop's side or the peer refused, by an error of TLS's
    handles_by_kind: dict[str, int]  #: open handles and transports, by the name of their class


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


class Histogram:
    """The distribution of numbers that were noted: nanoseconds, or entries. It does not change.

    Each bucket holds numbers that differ by a sixteenth at most.
    """

    __slots__ = ("_counts", "_max", "_total")

    def __init__(self, total: int, most: int, counts: dict[int, int]) -> None:
        self._total = total
        self._max = most
        self._counts = dict(sorted(counts.items()))  # the counts of the buckets that are not empty, by place

    @property
    def count(self) -> int:
        """The number of entries."""
        return sum(self._counts.values())

    @property
    def total(self) -> int:
        """The sum of the entries."""
        return self._total

    @property
    def max(self) -> int:
        """The greatest entry, 0 if there is none. Of a difference of two histograms: at most so much."""
        return self._max

    @property
    def mean(self) -> float:
        """The mean of the entries, 0 if there is none."""
        count = self.count
        return self._total / count if count else 0.0

    def percentile(self, percent: float) -> int | None:
        """Return the number that `percent` per cent of them do not exceed, None if there is none.

        It is the middle of a bucket, and so a thirty-second off at most; 100 gives the greatest number.
        Raises ValueError unless `percent` is from 0 to 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"a percentile is from 0 to 100, not {percent!r}")
        wanted = self.count * percent / 100
        seen = 0
        for place, count in self._counts.items():
            seen += count
            if seen >= wanted:
                return self._max if percent == 100 else min(_middle(place), self._max)
        return None

    def buckets(self) -> list[tuple[int, int]]:
        """Return the buckets that are not empty: the greatest number of each, and how many are in it."""
        return [(min(_upper_bound(place), self._max), count) for place, count in self._counts.items()]

    def __sub__(self, earlier: Histogram) -> Histogram:
        """Return what was noted since an earlier reading."""
        if not isinstance(earlier, Histogram):
            return NotImplemented
        counts = {place: count - earlier._counts.get(place, 0) for place, count in self._counts.items()}
        counts = {place: count for place, count in counts.items() if count > 0}
        most = min(_upper_bound(max(counts)), self._max) if counts else 0
        return Histogram(max(0, self._total - earlier._total), most, counts)

    def __add__(self, other: Histogram) -> Histogram:
        """Return the distribution of the numbers of both."""
        if not isinstance(other, Histogram):
            return NotImplemented
        counts = dict(self._counts)
        for place, count in other._counts.items():
            counts[place] = counts.get(place, 0) + count
        return Histogram(self._total + other._total, max(self._max, other._max), counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return (self._total, self._max, self._counts) == (other._total, other._max, other._counts)

    def __hash__(self) -> int:
        return hash((self._total, self._max, *self._counts.items()))

    def __repr__(self) -> str:
        if not self._counts:
            return "<Histogram empty>"
        median, tail = self.percentile(50), self.percentile(99)
        return f"<Histogram count={self.count} mean={self.mean:.0f} p50={median} p99={tail} max={self._max}>"


class LoopHistograms(NamedTuple):
    """The histograms of a loop. Durations are in nanoseconds."""

    away: Histogram  #: from the end of a poll to the beginning of the next one
    late: Histogram  #: from the deadline of a timer until the loop noticed it
    slept: Histogram  #: each sleep in the poller
    batch: Histogram  #: the number of entries that ran one after the other
    callback: Histogram  #: each callback, timer or I/O handle; of one turn in 61

    def __sub__(self, earlier: LoopHistograms) -> LoopHistograms:
        """Return what was noted since an earlier reading."""
        if not isinstance(earlier, LoopHistograms):
            return NotImplemented
        return LoopHistograms(*(now - before for now, before in zip(self, earlier, strict=True)))


def _middle(place: int) -> int:
    """Return the middle of a bucket."""
    upper = _upper_bound(place)
    return (_upper_bound(place - 1) + 1 + upper) // 2 if place else upper


def _upper_bound(place: int) -> int:
    """Return the greatest number of a bucket; the last one has no bound."""
    if place < 32:
        return place
    if place >= PLACES - 1:
        return 1 << 63
    shift = (place >> 4) - 1
    return ((place - (shift << 4) + 1) << shift) - 1
