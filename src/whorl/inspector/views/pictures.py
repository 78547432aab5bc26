"""Pictures: what a recording tells of a process and its loops at one moment.

A picture is made of two readings of a recording. Rates and recent times are those in between. The JSON of
`whorl top` is a picture, so the names of the fields are stable. Times are in seconds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from whorl.core.metrics import Histogram, LoopMetrics, LoopUtilization
from whorl.core.recording import layout
from whorl.inspector.asking.finding import Found
from whorl.inspector.recordings.doing import lengthened
from whorl.inspector.recordings.recording import NO_DESCRIPTOR, Event, RecordedLoop, Recording
from whorl.inspector.recordings.stall import stall_of
from whorl.inspector.tables.wording import shown
from whorl.inspector.views.exported import FIELDS, LoopLook

#: A callback is shown as one that is stuck when it runs for as long.
STUCK_NS = 100_000_000
#: Events that are at most so old are shown, of the last MOST_EVENTS.
WINDOW_NS = 10_000_000_000
MOST_EVENTS = 20_000
#: How many of the longest and of the busiest are kept.
MOST_SHOWN = 10


@dataclass(frozen=True)
class Times:
    """The distribution of times in a histogram."""

    count: int
    p50: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True)
class Spread:
    """Times between the two readings, and since the loop began."""

    recent: Times
    ever: Times


@dataclass(frozen=True)
class Call:
    """The callback that runs."""

    name: str
    task: str | None  #: the task whose step it is
    seconds: float  #: how long it has been running
    stuck: bool  #: whether it keeps the loop from everything else for long


@dataclass(frozen=True)
class LoopPicture:
    """A loop. Rates are those of a second."""

    loop: int  #: its number in its process
    state: str  #: "running", "asleep", "stuck", "stopped", "idle" (it is in no run), "closed" or "died"
    over: float  #: the seconds between the two readings
    utilization: float  #: from 0 to 1
    turns: float
    callbacks: float
    events: float
    bytes_in: float
    bytes_out: float
    away: Spread
    timer_late: Spread
    callback: Spread
    ready: int
    timers: int
    handles: int
    tasks: int
    connections: int
    jobs_waiting: int
    jobs_running: int
    errors: int  #: all calls of the exception handler
    call: Call | None


@dataclass(frozen=True)
class StallLine:
    """A stall in one line."""

    number: int
    ago: float  #: since its beginning
    length: float
    ended: bool
    summary: str
    text: str  #: with the stack


@dataclass(frozen=True)
class Long:
    """A long callback or step of a task."""

    loop: int
    name: str
    task: str | None
    seconds: float
    ago: float


@dataclass(frozen=True)
class Busy:
    """A coroutine, and how long its steps took in all; those below 0.1 ms are not among them."""

    name: str
    seconds: float
    steps: int


@dataclass(frozen=True)
class ProcessPicture:
    """A process that is recorded."""

    pid: int
    user: int
    state: str  #: "running", "stopped", "died" or "finished"
    command: list[str]
    python: str
    whorl: str
    recording: str  #: the path of the file
    namespace: int | None  #: the PID namespace in which it has its number, if that is not ours
    seen_ago: float  #: since the last sign of life
    loops: list[LoopPicture]
    loops_left_out: int  #: how many more run, for which the recording has no room
    stalls: list[StallLine]  #: the last ones, the newest first
    stalls_seen: int  #: all of them
    starved: int  #: callbacks that took long only because other programs had the processor
    window: float  #: the seconds from which `longest` and `busiest` come; fewer if there was too much
    longest: list[Long]
    busiest: list[Busy]

    @property
    def is_living(self) -> bool:
        """True if the process goes on, or could."""
        return self.state in ("running", "stopped")


@dataclass(frozen=True)
class Reading:
    """A recording, its loops by their numbers, and when it was read."""

    found: Found
    loops: dict[int, RecordedLoop]
    now_ns: int  #: by the monotonic clock of its process; of a dead one: its last sign of life

    @classmethod
    def of(cls, found: Found) -> Reading:
        """Return the reading of a recording that was found just now."""
        loops = {loop.number: loop for loop in found.recording.loops()}
        return cls(found, loops, time.monotonic_ns() if found.is_living else found.seen_ns)


def picture(now: Reading, earlier: Reading | None) -> ProcessPicture:
    """Return the picture of a process. Without an earlier reading, rates are those since the loop began."""
    found, recording = now.found, now.found.recording
    seen = _Events(recording, now.now_ns)
    return ProcessPicture(
        pid=found.pid,
        user=found.user,
        state=found.state,
        command=[shown(word) for word in recording.command],
        python=shown(recording.python),
        whorl=shown(recording.whorl),
        recording=shown(found.path),
        namespace=found.namespace,
        seen_ago=found.seen_ago_ns / 1e9,
        loops_left_out=recording.left_out,
        loops=[_loop_picture(now, loop, earlier, seen) for loop in now.loops.values()],
        stalls=[_stall_line(stall, now.now_ns, found.is_living) for stall in reversed(recording.stalls())],
        stalls_seen=recording.stalls_written,
        starved=max(0, recording.starved),
        window=seen.window,
        longest=seen.longest(),
        busiest=seen.busiest(),
    )


def _before(now: Reading, loop: RecordedLoop, earlier: Reading | None) -> RecordedLoop | None:
    """Return what an earlier reading has of a loop, None if it has nothing of this one."""
    before = None if earlier is None or not now.found.is_living else earlier.loops.get(loop.number)
    return None if before is None or before.fields["turns"] > loop.fields["turns"] else before


def utilization(now: Reading, loop: RecordedLoop, earlier: Reading | None) -> float:
    """Return which part of the time since an earlier reading a loop was awake; without one, of its runs."""
    ran_ns, idle_ns = times_of(loop, now.now_ns)
    over_ns = ran_ns
    before = _before(now, loop, earlier)
    if before is not None and earlier is not None:
        ran_before, idle_before = times_of(before, earlier.now_ns)
        ran_ns, idle_ns = ran_ns - ran_before, max(0, idle_ns - idle_before)
        over_ns = now.now_ns - earlier.now_ns
    return min(1.0, max(0, ran_ns - idle_ns) / over_ns) if over_ns > 0 else 0.0


def looks_of(now: Reading, earlier: Reading | None) -> list[LoopLook]:
    """Return what exporters show of the loops that are open.

    A recording does not tell the kinds of handles, nor what each task does: all are of the kind `all`.
    """
    looks = []
    for loop in now.loops.values():
        if loop.fields["state"] == 1:
            known = loop.fields | loop.counters | _counts(loop)
            metrics = LoopMetrics._make(known.get(name, 0) for name in LoopMetrics._fields)
            histograms = {name: getattr(loop.histograms, field) for name, field in FIELDS.items()}
            looks.append(
                LoopLook(
                    str(loop.number),
                    metrics._replace(handles_by_kind={"all": known["handles"]}),
                    histograms,
                    histograms,
                    LoopUtilization.of(*reversed(times_of(loop, now.now_ns))),
                    utilization(now, loop, earlier),
                    {"all": known["tasks"]},
                )
            )
    return looks


def _counts(loop: RecordedLoop) -> dict[str, int]:
    """Return how many there are now, of what a recording counts by two numbers that only grow."""
    numbers = loop.fields | loop.counters
    pairs = {
        "tasks": ("tasks_made", "tasks_done"),
        "connections": ("connections_opened", "connections_closed"),
        "jobs_waiting": ("jobs_submitted", "jobs_begun"),
        "jobs_running": ("jobs_begun", "jobs_ended"),
    }
    return {name: max(0, numbers[more] - numbers[less]) for name, (more, less) in pairs.items()}


def _loop_picture(now: Reading, loop: RecordedLoop, earlier: Reading | None, seen: _Events) -> LoopPicture:
    fields, counters = loop.fields, loop.counters
    before = _before(now, loop, earlier)
    if before is None or earlier is None:
        over_ns = times_of(loop, now.now_ns)[0]
        fields_before, counters_before = dict.fromkeys(fields, 0), dict.fromkeys(counters, 0)
        recent = loop.histograms
    else:
        over_ns = now.now_ns - earlier.now_ns
        fields_before, counters_before = before.fields, before.counters
        pairs = zip(loop.histograms, before.histograms, strict=True)
        recent = type(loop.histograms)(*(late - early for late, early in pairs))

    def rate(of: dict[str, int], less: dict[str, int], name: str) -> float:
        return max(0, of[name] - less[name]) * 1e9 / over_ns if over_ns > 0 else 0.0

    call = _call(now, loop, seen)
    return LoopPicture(
        loop=loop.number,
        state=_state(now, loop, call),
        over=max(0, over_ns) / 1e9,
        utilization=utilization(now, loop, earlier),
        turns=rate(fields, fields_before, "turns"),
        callbacks=rate(fields, fields_before, "callbacks"),
        events=rate(fields, fields_before, "events"),
        bytes_in=rate(counters, counters_before, "bytes_in"),
        bytes_out=rate(counters, counters_before, "bytes_out"),
        away=Spread(_spread(recent.away), _spread(loop.histograms.away)),
        timer_late=Spread(_spread(recent.late), _spread(loop.histograms.late)),
        callback=Spread(_spread(recent.callback), _spread(loop.histograms.callback)),
        ready=max(0, fields["ready"]),
        timers=max(0, fields["timers"]),
        handles=max(0, fields["handles"]),
        **_counts(loop),
        errors=counters["errors_reported"],
        call=call,
    )


def times_of(loop: RecordedLoop, now_ns: int) -> tuple[int, int]:
    """Return how long a loop has run, and how long it has slept of that."""
    ran_ns, idle_ns = loop.fields["ran_ns"], loop.fields["idle_ns"]
    run_began, sleep_began = loop.fields["run_began_ns"], loop.fields["sleep_began_ns"]
    if run_began:
        ran_ns += max(0, now_ns - run_began)
    if sleep_began:
        idle_ns += max(0, now_ns - sleep_began)
    return ran_ns, min(idle_ns, ran_ns)


def _spread(histogram: Histogram) -> Times:
    values = (histogram.percentile(50), histogram.percentile(99), histogram.max if histogram.count else None)
    return Times(histogram.count, *(None if value is None else value / 1e9 for value in values))


def _call(now: Reading, loop: RecordedLoop, seen: _Events) -> Call | None:
    began, name = loop.fields["call_began_ns"], loop.fields["call_name"]
    if not began or loop.fields["state"] != 1:
        return None
    took = max(0, now.now_ns - began)
    number = loop.fields["call_task"]
    is_stuck = took >= STUCK_NS and now.found.state == "running"
    # Another callback runs by the time that a short one is shown, so its task is not looked for.
    task = seen.task_name(number) if number and took >= STUCK_NS else None
    return Call(shown(now.found.recording.name(name)) or "a callback", task, took / 1e9, is_stuck)


def _state(now: Reading, loop: RecordedLoop, call: Call | None) -> str:
    if loop.fields["state"] != 1:
        return "closed"
    if now.found.state != "running":
        return now.found.state if now.found.state == "stopped" else "died"
    if call is not None and call.stuck:
        return "stuck"
    if not loop.fields["run_began_ns"]:
        return "idle"
    return "asleep" if loop.fields["sleep_began_ns"] else "running"


def _stall_line(plain: dict[str, Any], now_ns: int, is_living: bool) -> StallLine:
    """Return a stall in one line: the call, and its task unless that says the same."""
    stall = stall_of(lengthened(plain, now_ns) if is_living else plain)
    lines = [shown(line) for line in str(plain.get("text", "")).split("\n")[:100]]
    name = stall.name + (f" in {stall.task}" if stall.task else "")
    return StallLine(
        number=stall.number,
        ago=max(0, now_ns - stall.began_ns) / 1e9,
        length=stall.length_ns / 1e9,
        ended=stall.ended,
        summary=f"{stall.task if f'({stall.name})' in stall.task else name}: {stall.why}",
        text="\n".join(lines),
    )


class _Events:
    """The last events of a recording: the longest calls, the busiest coroutines, the names of tasks."""

    def __init__(self, recording: Recording, now_ns: int) -> None:
        self._recording = recording
        self._now_ns = now_ns
        self._names: dict[int, str] = {}
        self._tasks: dict[int, str] = {}
        self._calls: list[Event] = []
        first = now_ns
        for event in recording.events():
            if event.kind == layout.TASK_MADE:
                self._tasks[event.number] = self._task_made(event)
            elif event.kind in (layout.CALLBACK, layout.STEP) and now_ns - event.at_ns <= WINDOW_NS:
                self._calls.append(event)
            first = min(first, event.at_ns)
        #: The seconds from which there are events.
        self.window = min(WINDOW_NS, max(0, now_ns - first)) / 1e9

    def _task_made(self, event: Event) -> str:
        number = event.took_ns // layout.TOOK_UNIT_NS
        return self._name(event.name_id) or (f"Task-{number}" if number else "")

    def _name(self, number: int) -> str:
        name = self._names.get(number)
        if name is None:
            name = self._names[number] = shown(self._recording.name(number))
        return name

    def task_name(self, number: int) -> str | None:
        """Return the name of a task, None if the event that names it is lost."""
        return self._tasks.get(number) or None

    def longest(self) -> list[Long]:
        """Return the longest callbacks and steps, the longest first."""
        calls = sorted(self._calls, key=lambda event: event.took_ns, reverse=True)[:MOST_SHOWN]
        return [
            Long(
                event.loop,
                self._call_name(event),
                self.task_name(event.number) if event.kind == layout.STEP else None,
                event.took_ns / 1e9,
                max(0, self._now_ns - event.at_ns) / 1e9,
            )
            for event in calls
        ]

    def _call_name(self, event: Event) -> str:
        name = self._name(event.name_id) or "?"
        is_io = event.kind == layout.CALLBACK and event.flags & layout.IO and event.number != NO_DESCRIPTOR
        return f"{name} of fd {event.number}" if is_io else name

    def busiest(self) -> list[Busy]:
        """Return the coroutines whose steps took longest in all, the busiest first."""
        took: dict[int, int] = defaultdict(int)
        steps: dict[int, int] = defaultdict(int)
        for event in self._calls:
            if event.kind == layout.STEP:
                took[event.name_id] += event.took_ns
                steps[event.name_id] += 1
        names = sorted(took, key=lambda name: took[name], reverse=True)[:MOST_SHOWN]
        return [Busy(self._name(name) or "?", took[name] / 1e9, steps[name]) for name in names]
