"""The sums over a recording: which callbacks, coroutines and tasks took the time, and a verdict in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whorl.core.recording import layout
from whorl.formats.units import count, duration_ns
from whorl.inspector.recordings.doing import doing
from whorl.inspector.recordings.stall import stalls_of
from whorl.inspector.recordings.timeline import Span, Timeline

if TYPE_CHECKING:
    from whorl.inspector.recordings.recording import RecordedLoop
    from whorl.inspector.recordings.stall import RecordedStall

#: A loop that is kept for so long is told to be blocked, in nanoseconds.
BLOCKED_NS = 100_000_000
#: A loop that is busy for this part of the time has no reserve.
BUSY = 0.9
#: How late a timer may be, in nanoseconds.
LATE_NS = 50_000_000
ADVICE = {
    "starved": "Give it a processor: a lower `nice`, a higher limit, fewer neighbours",
    "many callbacks": "Start fewer at once, or let others in between with await asyncio.sleep(0)",
    "asleep": "Await it, or use asyncio.to_thread",
    "running": "Do less in one go, or use another process",
    "gil held": "Use another process: threads wait for it, too",
    "collector": "Call gc.freeze() after the start, or make fewer objects",
    "unknown": "The stack says where",
}


@dataclass
class Total:
    """The times of callbacks of one name together, or of the steps of one task."""

    name: str
    kind: str  #: "coroutine", "callback" or "I/O"
    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0

    def add(self, took_ns: int) -> None:
        """Count one more."""
        self.count += 1
        self.total_ns += took_ns
        self.longest_ns = max(self.longest_ns, took_ns)


class Summary:
    """The sums over the events of a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.loops: list[RecordedLoop] = timeline.recording.loops()
        begin, end = timeline.begin_ns, timeline.end_ns
        self.stalls: list[RecordedStall] = [
            stall
            for stall in stalls_of(timeline.recording)
            if stall.end_ns >= begin and stall.began_ns <= end
        ]
        self.calls: dict[tuple[str, str], Total] = {}
        self.tasks: dict[tuple[int, int], Total] = {}
        self.longest: list[Span] = []  #: the longest callbacks and steps, longest first
        self.longest_turn: Span | None = None
        self.starved: int = timeline.recording.starved
        self.tasks_made: int = 0
        self.tasks_done: int = 0
        self.tasks_cancelled: int = 0
        self.tasks_failed: int = 0
        self.collected: dict[int, Total] = {}  #: for each loop, the runs of the collector in its thread
        self.opened: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self._shares: dict[int, int] = {}  # for each loop, when its utilization was noted last
        self.busy_ns: float = 0.0
        self.seen_ns: float = 0.0
        for span in timeline.spans:
            self._add(span)
        self._add_running()
        self.longest.sort(key=lambda span: (-span.event.took_ns, span.event.at_ns))
        del self.longest[5:]

    def _add(self, span: Span) -> None:
        event = span.event
        match event.kind:
            case layout.CALLBACK | layout.STEP:
                self._add_call(span)
            case layout.TURN:
                if self.longest_turn is None or event.took_ns > self.longest_turn.event.took_ns:
                    self.longest_turn = span
            case layout.UTILIZATION:
                since = event.at_ns - self._shares.get(event.loop, event.at_ns)
                self._shares[event.loop] = event.at_ns
                self.busy_ns += since * event.subject / 1000
                self.seen_ns += since
            case layout.TASK_MADE:
                self.tasks_made += 1
            case layout.TASK_DONE:
                self.tasks_done += 1
                self.tasks_cancelled += bool(event.flags & layout.CANCELLED)
                self.tasks_failed += bool(event.flags & layout.FAILED)
            case layout.COLLECTED if event.loop:  # Those of other threads are no share of a loop.
                total = self.collected.setdefault(event.loop, Total("", "collector"))
                total.add(event.took_ns)
            case layout.HANDLE_OPENED:
                self.opened[self.timeline.name(event.name_id)] += 1
            case layout.HANDLE_CLOSED:
                self.closed[self.timeline.name(event.name_id)] += 1

    def _add_call(self, span: Span) -> None:
        event = span.event
        name = self.timeline.call(event)
        is_step = event.kind == layout.STEP
        kind = "coroutine" if is_step else "I/O" if event.flags & layout.IO else "callback"
        self.calls.setdefault((name, kind), Total(name, kind)).add(event.took_ns)
        if is_step:
            task = (event.loop, event.number)
            self.tasks.setdefault(task, Total(name, self.timeline.task(*task))).add(event.took_ns)
        if len(self.longest) < 50 or event.took_ns > self.longest[-1].event.took_ns:
            self.longest.append(span)
            if len(self.longest) > 100:
                self.longest.sort(key=lambda span: -span.event.took_ns)
                del self.longest[50:]

    def _add_running(self) -> None:
        """Count the callbacks that had not ended."""
        for _, name, _, took in self.running():
            self.calls.setdefault((name, "callback"), Total(name, "callback")).add(took)
            self.busy_ns += took
            self.seen_ns += took

    def running(self) -> Iterator[tuple[int, str, str, int]]:
        """Yield the callbacks that had not ended: loop, name, task, how long they had run."""
        for loop in self.loops:
            runs = doing(self.timeline.recording, loop)
            if runs is not None:
                took = self.timeline.end_ns - runs.since_ns
                yield loop.number, runs.call or "a callback", runs.task, took

    @property
    def utilization(self) -> float | None:
        """The part of the time that loops were busy, from 0 to 1; None if it is not known."""
        return self.busy_ns / self.seen_ns if self.seen_ns else None

    def sum_of(self, field: str) -> int:
        """Return the sum of a number of all loops."""
        return sum(loop.fields[field] for loop in self.loops)

    def busiest_tasks(self, most: int = 10) -> list[Total]:
        """Return the tasks whose steps took longest together."""
        return sorted(self.tasks.values(), key=lambda total: -total.total_ns)[:most]

    def busiest_calls(self) -> list[Total]:
        """Return callbacks and coroutines, first those that took longest together."""
        return sorted(self.calls.values(), key=lambda total: (-total.total_ns, total.name))

    def verdict(self) -> list[tuple[str, str]]:
        """Return sentences on what was seen, worst first, each with "bad", "warn" or "good"."""
        found = [*self._stuck(), *self._blocked(), *self._busy(), *self._late(), *self._collector()]
        found.sort(key=lambda entry: ("bad", "warn", "good").index(entry[0]))
        return found

    def _stuck(self) -> Iterator[tuple[str, str]]:
        for number, name, task, took in self.running():
            if took >= BLOCKED_NS:
                where = f"{name} of {task}" if task else name
                which = f"Loop {number}" if len(self.loops) > 1 else "The loop"
                yield (
                    "bad",
                    f"{which} had been in {where} for {duration_ns(took)} at the end, and answered nobody.",
                )

    def _blocked(self) -> Iterator[tuple[str, str]]:
        """Tell of stalls and of waits for a processor; without both, of what took long by the clock."""
        if self.stalls:
            yield "bad", self._blocked_by([(stall.name, stall.length_ns) for stall in self.stalls])
            worst = max(self.stalls, key=lambda stall: stall.length_ns)
            yield "bad", f"In the longest stall, {worst.why}. {ADVICE[worst.reason]}."
        long = [span for span in self._longest_of_all() if span.event.took_ns >= BLOCKED_NS]
        unseen = [span for span in long if not any(_overlap(span, stall) for stall in self.stalls)]
        if self.starved and (self.stalls or len(unseen) <= self.starved):
            yield "warn", self._starved(unseen)
        elif unseen and not self.stalls:
            calls = [span for span in unseen if span is not self.longest_turn]
            if calls:
                yield (
                    "bad",
                    self._blocked_by(
                        [(self.timeline.call(span.event), span.event.took_ns) for span in calls]
                    ),
                )
            else:
                yield "bad", self._blocked_by([(self._words_for(unseen[0]), unseen[0].event.took_ns)])
        if not self.stalls and not self.starved and not long:
            yield from self._not_blocked()

    def _longest_of_all(self) -> list[Span]:
        """Return the longest callbacks and the longest turn."""
        return [*self.longest, *([] if self.longest_turn is None else [self.longest_turn])]

    def _starved(self, unseen: list[Span]) -> str:
        times = "once" if self.starved == 1 else f"{self.starved} times"
        text = f"The loop waited for a processor that other programs had: {times}, that alone made it late."
        if unseen:
            worst = max(unseen, key=lambda span: span.event.took_ns)
            text += f" By the clock, {self._words_for(worst)} took {duration_ns(worst.event.took_ns)}."
        return f"{text} {ADVICE['starved']}."

    def _words_for(self, span: Span) -> str:
        if span.event.kind == layout.TURN:
            return f"one iteration of {span.event.number:,} callbacks"
        return self.timeline.call(span.event)

    def _not_blocked(self) -> Iterator[tuple[str, str]]:
        turn = "" if self.longest_turn is None else duration_ns(self.longest_turn.event.took_ns)
        turn = f", and the longest iteration {turn}" if turn else ""
        if self.longest:
            event = self.longest[0].event
            name, took = self.timeline.call(event), duration_ns(event.took_ns)
            yield "good", f"Nothing blocked the loop: the longest callback took {took}, in {name}{turn}."
        elif not list(self.running()):
            shortest = duration_ns(layout.SHORTEST_RECORDED_NS)
            yield "good", f"Nothing blocked the loop: no callback took longer than {shortest}{turn}."

    def _blocked_by(self, calls: list[tuple[str, int]]) -> str:
        times = "once" if len(calls) == 1 else f"{len(calls)} times"
        over = (
            f" for more than {duration_ns(BLOCKED_NS)}"
            if min(took for _, took in calls) >= BLOCKED_NS
            else ""
        )
        name, longest = max(calls, key=lambda call: call[1])
        if len(calls) == 1:
            return f"The loop was blocked once, for {duration_ns(longest)}, in {name}."
        return f"The loop was blocked {times}{over}, longest for {duration_ns(longest)} in {name}."

    def _busy(self) -> Iterator[tuple[str, str]]:
        share = self.utilization
        if share is not None:
            text = f"It was busy for {100 * share:.0f} % of the time"
            yield ("warn", f"{text}, and has no reserve.") if share >= BUSY else ("good", f"{text}.")

    def _late(self) -> Iterator[tuple[str, str]]:
        late = [loop.histograms.late for loop in self.loops]
        worst = max((histogram.percentile(99) or 0 for histogram in late), default=0)
        if worst >= LATE_NS:
            yield "warn", f"One timer in a hundred was late by {duration_ns(worst)} or more."

    def _collector(self) -> Iterator[tuple[str, str]]:
        lasted = self.timeline.end_ns - self.timeline.begin_ns
        worst = max(self.collected.values(), key=lambda total: total.total_ns, default=None)
        if worst is not None and 0 < lasted <= 20 * worst.total_ns:
            share = 100 * worst.total_ns / lasted
            runs = count(worst.count, "run")
            yield "warn", f"Python's garbage collector took {share:.0f} % of the time, in {runs}."


def _overlap(span: Span, stall: RecordedStall) -> bool:
    return span.event.at_ns < stall.end_ns and stall.began_ns < span.end_ns
