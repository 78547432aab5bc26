"""A recording as a trace in Chrome's format of events, which Perfetto, Chrome and speedscope open.

The process is the program, and each loop is a thread. Turns, sleeps, callbacks and steps are spans of that
thread. Stalls and runs of the collector have threads of their own. Tasks are asynchronous spans.
"""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Callable, Iterator
from typing import BinaryIO

from whorl.core.recording import layout
from whorl.formats import trace_events
from whorl.formats.trace_events import Row
from whorl.inspector.recordings.doing import doing
from whorl.inspector.recordings.recording import NO_DESCRIPTOR, Event, RecordedLoop, Recording
from whorl.inspector.recordings.stall import RecordedStall, stalls_of
from whorl.inspector.recordings.timeline import NESTED, Span, Timeline, program
from whorl.inspector.tables.wording import shown

#: The threads of a loop in the trace: its own, and those for what need not lie inside of its spans.
STALLS, COLLECTOR = 1000, 2000
COUNTERS = {
    layout.READY: "ready",
    layout.BYTES_IN: "bytes in per second",
    layout.BYTES_OUT: "bytes out per second",
    layout.HANDLES: "handles",
    layout.UTILIZATION: "utilization in percent",
}
RATES = (layout.BYTES_IN, layout.BYTES_OUT)
#: Timers that were less late are left out, in nanoseconds.
SHORTEST_LATE_NS = 1_000_000
LOST_BEGIN = "it began before the trace"
LOST_END = "it had not ended at the end of the trace"


def write(recording: Recording, file: BinaryIO, *, compressed: bool, seconds: float | None = None) -> int:
    """Write the trace of a recording, or of its last seconds; return how many events it has.

    The same recording makes the same bytes.
    """
    trace = Trace(recording, seconds)
    if not compressed:
        return trace_events.write(file.write, trace.rows(), trace.about())
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as zipped:
        return trace_events.write(zipped.write, trace.rows(), trace.about())


class Trace:
    """The rows of a trace, one after the other."""

    def __init__(self, recording: Recording, seconds: float | None = None) -> None:
        self._recording = recording
        self._timeline = Timeline(recording, seconds)
        self._pid = recording.pid or 1
        self._loops = recording.loops()
        self._enclosing: dict[int, list[int]] = {}  # for each loop, the ends of the spans that are open
        self._open: dict[tuple[int, int], str] = {}  # tasks that began, and their names
        self._wakes: dict[tuple[int, int], Event] = {}
        self._flows = 0
        self._counted: dict[tuple[int, int], Event] = {}
        self._stalls = {stall.number: stall for stall in stalls_of(recording)}
        self._row_of: dict[int, Callable[[Span], Iterator[Row]]] = {
            **dict.fromkeys(NESTED, self._nested),
            **dict.fromkeys(COUNTERS, self._counter),
            layout.TASK_MADE: self._task_made,
            layout.TASK_DONE: self._task_done,
            layout.WAKE: self._wake,
            layout.HANDLE_OPENED: self._handle,
            layout.HANDLE_CLOSED: self._handle,
            layout.TIMER_LATE: self._timer_late,
            layout.COLLECTED: self._collected,
            layout.STALLED: self._stalled,
            layout.MARK: self._mark,
        }

    def about(self) -> Row:
        """Return the facts about the recording, as text."""
        recording = self._recording
        began = recording.clock_ns + self._timeline.begin_ns
        return {
            "program": " ".join(shown(word) for word in recording.command),
            "pid": str(recording.pid),
            "whorl": shown(recording.whorl),
            "python": shown(recording.python),
            "began": utc(began),
            "events overwritten": str(recording.first_event),
        }

    def rows(self) -> Iterator[Row]:
        """Yield all events of the trace."""
        yield from self._names()
        for span in self._timeline.spans:
            tell = self._row_of.get(span.event.kind)  # A later Whorl may have other kinds.
            if tell is not None:
                yield from tell(span)
        yield from self._unfinished()

    def _names(self) -> Iterator[Row]:
        recording = self._recording
        versions = f"Whorl {shown(recording.whorl)}, Python {shown(recording.python)}"
        yield self._name("process_name", 0, name=program(recording))
        yield self._name("process_labels", 0, labels=versions)
        kinds = {(span.event.kind, span.event.loop) for span in self._timeline.spans}
        numbers = {loop.number for loop in self._loops} | {loop for _, loop in kinds}
        for number in sorted(numbers):
            # Events of 0 belong to no loop, such as runs of the collector in other threads.
            names = [(number, f"loop {number}" if number else "other threads")]
            if self._stalls or (layout.STALLED, number) in kinds:
                names.append((number + STALLS, f"stalls of loop {number}"))
            if (layout.COLLECTED, number) in kinds:
                where = f"loop {number}" if number else "other threads"
                names.append((number + COLLECTOR, f"collector in {where}"))
            for place, (thread, name) in enumerate(names):
                yield self._name("thread_name", thread, name=name)
                yield self._name("thread_sort_index", thread, sort_index=number * 3 + place)

    def _name(self, what: str, thread: int, **args: object) -> Row:
        return trace_events.naming(what, self._pid, thread, **args)

    def _row(self, phase: str, name: str, at_ns: int, thread: int, **more: object) -> Row:
        begin = self._timeline.begin_ns
        return trace_events.row(phase, name, self._pid, thread, max(at_ns, begin) - begin, **more)

    def _span(self, name: str, begin_ns: int, end_ns: int, thread: int, **more: object) -> Row:
        length = (end_ns - max(begin_ns, self._timeline.begin_ns)) / 1000
        return self._row("X", name, begin_ns, thread, dur=max(0.0, length), **more)

    # Turns, and what runs in them.

    def _nested(self, span: Span) -> Iterator[Row]:
        """Yield a span of the loop's thread, which ends before the one around it.

        Lengths are cut to 16 ns, so the end of a part may lie after the end of the whole. Readers add up
        fractions of microseconds. So each span is a nanosecond shorter, lest it reach into the next one.
        """
        event, end = span
        around = self._enclosing.setdefault(event.loop, [])
        while around and around[-1] <= event.at_ns:
            around.pop()
        end = max(event.at_ns, min(end, around[-1] if around else end) - 1)
        around.append(end)
        name, category = self._described(event)
        yield self._span(name, event.at_ns, end, event.loop, cat=category)
        if event.kind == layout.STEP:
            yield from self._woken(event)

    def _described(self, event: Event) -> tuple[str, str]:
        """Return the name and the categories of a span.

        The task is a category: speedscope takes spans for different functions if their details differ.
        """
        if event.kind == layout.TURN:
            return "turn", "turn"
        if event.kind == layout.POLL:
            return "sleep", "poll"
        name = self._timeline.call(event)
        if event.kind == layout.STEP:
            return name, f"step,{self._timeline.task(event.loop, event.number)}"
        has_descriptor = event.flags & layout.IO and event.number != NO_DESCRIPTOR
        return name, f"callback,fd {event.number}" if has_descriptor else "callback"

    def _wake(self, span: Span) -> Iterator[Row]:
        self._wakes.setdefault((span.event.loop, span.event.number), span.event)
        yield from ()

    def _woken(self, step: Event) -> Iterator[Row]:
        """Yield the arrow from where a task was woken to its step."""
        wake = self._wakes.pop((step.loop, step.number), None)
        if wake is not None and wake.at_ns <= step.at_ns:
            self._flows += 1
            by = self._timeline.task(wake.loop, wake.name_id) if wake.name_id else None
            more: Row = {"cat": "wake", "id": self._flows}
            yield self._row("s", "wake", wake.at_ns, wake.loop, **more, args={"by": by} if by else {})
            yield self._row("f", "wake", step.at_ns, step.loop, **more, bp="e")

    # Tasks.

    def _task_made(self, span: Span) -> Iterator[Row]:
        event = span.event
        what = (event.loop, event.number)
        if what in self._open:  # Its end was not recorded.
            yield self._half("e", what, event.at_ns)
        self._open[what] = self._task_name(event)
        late = {"flag": "first seen at a step"} if event.flags & layout.WATCHED_LATE else {}
        yield self._half("b", what, event.at_ns, task=self._timeline.task(*what), **late)

    def _task_done(self, span: Span) -> Iterator[Row]:
        event = span.event
        what = (event.loop, event.number)
        if what not in self._open:
            self._open[what] = self._task_name(event)
            yield self._half("b", what, 0, task=self._timeline.task(*what), flag=LOST_BEGIN)
        how = {layout.CANCELLED: "cancelled", layout.FAILED: "failed"}
        ended = how.get(event.flags & (layout.CANCELLED | layout.FAILED), "returned")
        yield self._half("e", what, event.at_ns, ended=ended)
        del self._open[what]

    def _task_name(self, event: Event) -> str:
        """Return the name of the coroutine: Perfetto puts spans of one name together."""
        return self._timeline.coroutine(event.loop, event.number) or "a task"

    def _half(self, phase: str, what: tuple[int, int], at_ns: int, **args: object) -> Row:
        name, (loop, number) = self._open[what], what
        return self._row(phase, name, at_ns, loop, cat="task", id=f"{loop}.{number}", args=args)

    # Counters and moments.

    def _counter(self, span: Span) -> Iterator[Row]:
        """Yield a counter's value; of rates and shares, from where their time began."""
        event = span.event
        at, value = event.at_ns, float(event.subject)
        before = self._counted.get((event.kind, event.loop))
        self._counted[event.kind, event.loop] = event
        if event.kind in RATES:
            if before is None or event.at_ns <= before.at_ns:
                return
            at = before.at_ns
            value = round(1e9 * (event.subject - before.subject) / (event.at_ns - at), 3)
        elif event.kind == layout.UTILIZATION:
            at, value = before.at_ns if before else self._timeline.begin_ns, event.subject / 10
        name = COUNTERS[event.kind] + (f", loop {event.loop}" if len(self._loops) > 1 else "")
        yield self._row("C", name, at, event.loop, args={"value": value})

    def _timer_late(self, span: Span) -> Iterator[Row]:
        event = span.event
        if event.took_ns < SHORTEST_LATE_NS:
            return
        args = {"timer": self._timeline.name(event.name_id), "late in ms": event.took_ns / 1e6}
        yield self._row("i", "timer late", event.at_ns, event.loop, s="t", args=args)

    def _handle(self, span: Span) -> Iterator[Row]:
        event = span.event
        what = "opened" if event.kind == layout.HANDLE_OPENED else "closed"
        name = f"{self._timeline.name(event.name_id) or 'a handle'} {what}"
        args = {"fd": event.number} if event.number != NO_DESCRIPTOR else {}
        yield self._row("i", name, event.at_ns, event.loop, s="t", cat="handle", args=args)

    def _mark(self, span: Span) -> Iterator[Row]:
        name = self._timeline.name(span.event.name_id) or "a mark"
        yield self._row("i", name, span.event.at_ns, span.event.loop, s="p", cat="mark")

    def _collected(self, span: Span) -> Iterator[Row]:
        event, thread = span.event, span.event.loop + COLLECTOR
        name = f"collector, generation {event.subject}"
        yield self._span(name, event.at_ns, span.end_ns, thread, cat="collector")

    def _stalled(self, span: Span) -> Iterator[Row]:
        event, thread = span.event, span.event.loop + STALLS
        stall = self._stalls.pop(event.subject, None)
        name, args = (stall.name, _details_of(stall)) if stall else ("a callback", {})
        yield self._span(name, event.at_ns, span.end_ns, thread, cat="stall", args=args)

    # What had not ended.

    def _unfinished(self) -> Iterator[Row]:
        for what in self._open:
            yield self._half("e", what, self._timeline.end_ns, flag=LOST_END)
        for loop in self._loops:
            yield from self._running(loop)
        thread = min((loop.number for loop in self._loops), default=1) + STALLS
        for stall in self._stalls.values():  # Their events were not written, or are lost.
            if stall.end_ns > self._timeline.begin_ns:
                name, args = stall.name, _details_of(stall)
                yield self._span(name, stall.began_ns, stall.end_ns, thread, cat="stall", args=args)

    def _running(self, loop: RecordedLoop) -> Iterator[Row]:
        """Yield the callback or the sleep that a loop was in at the end."""
        end, flag = self._timeline.end_ns, {"flag": LOST_END}
        runs, began = doing(self._recording, loop), loop.fields["sleep_began_ns"]
        if runs is not None:
            args = flag | ({"task": runs.task} if runs.task else {})
            name = runs.call or "a callback"
            yield self._span(name, runs.since_ns, end, loop.number, cat="callback", args=args)
        elif loop.fields["state"] == 1 and began:
            yield self._span("sleep", began, end, loop.number, cat="poll", args=flag)


def _details_of(stall: RecordedStall) -> Row:
    """Return what is known of a stall, for the details of its span."""
    told: Row = {"why": stall.why, "task": stall.task}
    told |= {f"{word} in ms": share / 1e6 for word, share in stall.shares.items()}
    if stall.collected_ns:
        told["collector in ms"] = stall.collected_ns / 1e6
    for stack in stall.stacks:
        told[f"stack after {stack.after_ns / 1e6:.0f} ms"] = "\n".join(map(str, stack.lines))
    return {name: value for name, value in told.items() if value != ""}


def utc(clock_ns: int) -> str:
    """Return a moment of the wall clock for people."""
    moment = datetime.datetime.fromtimestamp(clock_ns // 1_000_000_000, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
