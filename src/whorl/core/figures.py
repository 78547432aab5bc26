"""The figures that every loop keeps: counters, and histograms of its times.

Keeping them costs next to nothing. A loop adds to them from clock reads that it makes anyway. The callbacks
of one turn in SAMPLED_TURNS are timed.

A histogram has 16 buckets for each power of two, from 0 to 2^40 nanoseconds, so a number is off by a
sixteenth at most. To note one allocates nothing. The loop's thread is the only writer, apart from the
counters of jobs. Each number is one aligned word, so any thread may read it. A reader may see the parts of a
record apart: the count of a bucket before the total.

Histograms take 24 KiB. So a loop gets them when it first sleeps, is away for LONG_AWAY_NS, or has run
TURNS_BEFORE_HISTOGRAMS turns; what came before is not in them. Counters count from the beginning.
"""

from __future__ import annotations

from typing import Any

from whorl.core import limits, states

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    class PlainCounters:
        """The counters. Compiled, a struct."""

        def __init__(self) -> None:
            self.bytes_in = 0  # by transports and handles
            self.bytes_out = 0
            self.reads = 0  # calls that brought bytes
            self.writes = 0  # calls that took bytes
            self.timers_fired = 0
            self.accepts = 0
            self.connections_opened = 0
            self.connections_closed = 0
            self.errors_reported = 0
            self.jobs_submitted = 0  # for threads
            self.jobs_begun = 0
            self.jobs_ended = 0

    class PlainBuckets:
        """A histogram. Compiled, a struct."""

        def __init__(self) -> None:
            self.total = 0
            self.most = 0
            self.counts: list[int] = [0] * states.PLACES

    def first_counters(figures: Figures) -> Any:
        """Return new counters."""
        return PlainCounters()

    def no_histograms() -> Any:
        """Return what stands for histograms until there are some."""
        return None

    def grow(figures: Figures, alone: int) -> None:
        """Make the histograms; the reader adds batches of one entry, of which there were so many before."""
        figures.histograms = [PlainBuckets() for _ in range(states.KINDS)]
        figures.histograms[states.BATCH].counts[1] = figures.histograms[states.BATCH].total = -alone

    def add_ones(figures: Figures, count: int) -> None:
        """Add so many batches of one entry."""
        if figures.histograms is not None and count > 0:
            buckets = figures.histograms[states.BATCH]
            buckets.counts[1] += count
            buckets.total += count
            buckets.most = max(buckets.most, 1)

    def move_into(figures: Figures, place: memoryview) -> None:
        """Let the figures lie in this memory. Uncompiled, it gets copies, by `copy_figures`."""
        if figures._home is not None:
            raise RuntimeError("the loop is being recorded already")
        figures._home = place.cast("q")
        copy_figures(figures)

    def copy_figures(figures: Figures) -> None:
        """Write the figures into the memory that they were moved to; another thread may move them back."""
        home = figures._home
        if home is None:
            return
        numbers = list(vars(figures.counters).values())
        for buckets in figures.histograms:
            numbers += [buckets.total, buckets.most, *buckets.counts]
        for index, number in enumerate(numbers):
            home[index] = number

    def move_back(figures: Figures) -> None:
        """Let the figures lie in memory of their own again."""
        figures._home = None

    def release(figures: Figures) -> None:
        """Free the memory; uncompiled, Python does."""

    def has_histograms(figures: Figures) -> bool:
        """Return whether there are histograms by now."""
        return figures.histograms is not None

    def are_made(figures: Figures) -> bool:
        """Return the same, to any thread."""
        return figures.histograms is not None

    def place_of(number: int) -> int:
        """Return the place of a number that is not negative."""
        if number < 32:
            return number
        if number >= 1 << 40:
            return states.PLACES - 1
        shift = number.bit_length() - 5
        return (shift << 4) + (number >> shift)

    def note(figures: Figures, kind: int, number: int) -> None:
        """Add a number to a histogram, if there is one by now; a negative one counts as 0."""
        if figures.histograms is None:
            return
        buckets = figures.histograms[kind]
        number = max(number, 0)
        buckets.counts[place_of(number)] += 1
        buckets.total += number
        buckets.most = max(buckets.most, number)

    def note_away(figures: Figures, away_ns: int, turns: int, alone: int) -> None:
        """Note how long the loop was away from its poll; make the histograms if it is time to."""
        if figures.histograms is None and (
            away_ns >= limits.LONG_AWAY_NS or turns >= limits.TURNS_BEFORE_HISTOGRAMS
        ):
            figures.begin_histograms(alone)
        note(figures, states.AWAY, away_ns)

    def add_to_jobs(figures: Figures, submitted: int, begun: int, ended: int) -> None:
        """Add to the counters of jobs, from any thread."""
        figures.counters.jobs_submitted += submitted
        figures.counters.jobs_begun += begun
        figures.counters.jobs_ended += ended

    def counters_of(figures: Figures) -> dict[str, int]:
        """Return the counters by name."""
        return dict(vars(figures.counters))

    def histogram_of(figures: Figures, kind: int) -> tuple[int, int, dict[int, int]]:
        """Return the total, the greatest number, and the counts of the buckets that are not empty."""
        if figures.histograms is None:
            return 0, 0, {}
        buckets = figures.histograms[kind]
        counts = {place: count for place, count in enumerate(buckets.counts) if count}
        return buckets.total, buckets.most, counts


class Figures:
    """The counters and histograms of a loop."""

    def __cinit__(self) -> None:
        self.counters: Any = first_counters(self)
        self.histograms: Any = no_histograms()

    def __init__(self) -> None:
        if not cython.compiled:
            self.__cinit__()
            self._home: Any = None

    def __dealloc__(self) -> None:
        release(self)

    def begin_histograms(self, alone: int) -> None:
        """Make the histograms, unless there are some.

        The loop counts entries that run alone in their turn by itself. `alone` is their number by now.
        """
        if not has_histograms(self):
            grow(self, alone)

    def count_error(self) -> None:
        """Count an error that was reported to the exception handler."""
        self.counters.errors_reported += 1

    def count_jobs(self, submitted: int, begun: int, ended: int) -> None:
        """Count jobs for threads; any thread may call this."""
        add_to_jobs(self, submitted, begun, ended)

    def totals(self) -> dict[str, int]:
        """Return the counters by name."""
        return counters_of(self)

    def histogram(self, kind: int) -> tuple[int, int, dict[int, int]]:
        """Return a histogram's total, its greatest number, and the counts of its buckets by place."""
        if not 0 <= kind < states.KINDS:
            raise ValueError(f"there are {states.KINDS} histograms, and no number {kind}")
        return histogram_of(self, kind)
