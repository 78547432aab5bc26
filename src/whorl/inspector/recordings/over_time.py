"""The picture of a loop over time: how busy it was, its longest callbacks, and what blocked it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from whorl.core.recording import layout
from whorl.formats.units import duration_ns, size
from whorl.inspector.recordings import pictures
from whorl.inspector.recordings.pictures import HEIGHT, WIDTH
from whorl.inspector.recordings.summary import BLOCKED_NS, Summary
from whorl.inspector.recordings.timeline import Span

COLUMNS = 240
#: Callbacks that are longer are shown as slow, in nanoseconds.
SLOW_NS = 10_000_000
SHORTEST_NS = 100_000


class OverTime:
    """The times of one loop, in columns of equal width."""

    def __init__(self, summary: Summary, loop: int) -> None:
        timeline = summary.timeline
        self._summary = summary
        self._loop = loop
        self._begin = timeline.begin_ns
        self._lasted = max(1, timeline.end_ns - timeline.begin_ns)
        self._column = self._lasted / COLUMNS
        self.busy: list[float] = [0.0] * COLUMNS
        self.bytes_in: list[float] = [0.0] * COLUMNS
        self.bytes_out: list[float] = [0.0] * COLUMNS
        #: For each column, the longest callback that began there: name, when, how long.
        self.longest: dict[int, tuple[str, int, int]] = {}
        self.collected: list[Span] = []
        self.marks: list[tuple[str, int]] = []
        self._before: dict[int, tuple[int, int]] = {}
        for span in timeline.spans:
            if span.event.loop == loop:
                self._add(span)
        for number, name, _, took in summary.running():
            if number == loop:
                self._spread(self.busy, timeline.end_ns - took, timeline.end_ns, 1)
                self._note_call(name, timeline.end_ns - took, took)

    def _add(self, span: Span) -> None:
        event = span.event
        match event.kind:
            case layout.UTILIZATION:
                since = self._before.get(event.kind, (self._begin, 0))[0]
                self._spread(self.busy, since, event.at_ns, event.subject / 1000)
                self._before[event.kind] = (event.at_ns, 0)
            case layout.CALLBACK | layout.STEP:
                self._note_call(self._summary.timeline.call(event), event.at_ns, event.took_ns)
            case layout.COLLECTED:
                self.collected.append(span)
            case layout.MARK:
                self.marks.append((self._summary.timeline.name(event.name_id), event.at_ns))
            case layout.BYTES_IN | layout.BYTES_OUT:
                self._add_bytes(event.kind, event.at_ns, event.subject)

    def _add_bytes(self, kind: int, at_ns: int, value: int) -> None:
        before = self._before.get(kind)
        self._before[kind] = (at_ns, value)
        if before is not None and at_ns > before[0]:
            columns = self.bytes_in if kind == layout.BYTES_IN else self.bytes_out
            self._spread(columns, before[0], at_ns, 1e9 * (value - before[1]) / (at_ns - before[0]))

    def _note_call(self, name: str, at_ns: int, took_ns: int) -> None:
        place = min(COLUMNS - 1, max(0, int((at_ns - self._begin) / self._column)))
        if place not in self.longest or took_ns > self.longest[place][2]:
            self.longest[place] = (name, at_ns, took_ns)

    def _spread(self, columns: list[float], begin_ns: int, end_ns: int, weight: float) -> None:
        """Add to columns their part of a time."""
        begin = max(0.0, (begin_ns - self._begin) / self._column)
        end = min(float(COLUMNS), (end_ns - self._begin) / self._column)
        place = int(begin)
        while begin < end and place < COLUMNS:
            columns[place] += weight * (min(end, place + 1) - begin)
            place += 1
            begin = place

    def _x(self, at_ns: int) -> float:
        return min(max((at_ns - self._begin) / self._lasted, 0.0), 1.0)

    def picture(self) -> str:
        """Return the picture with its axis of time."""
        most = max([took for _, _, took in self.longest.values()], default=0)
        most_shown = next((tick for tick in pictures.decades(SHORTEST_NS, 10**12) if tick >= most), 10**12)
        most_shown = max(most_shown, 10 * SHORTEST_NS)
        lanes = [
            self._strip("busy", [*self._grid((0.5,)), pictures.area("busy", self.busy, 1)], "0 to 100 %"),
            self._strip(
                "longest callback",
                [*self._decades(most_shown), *self._calls(most_shown)],
                f"{duration_ns(SHORTEST_NS)} to {duration_ns(most_shown)}, logarithmic",
            ),
        ]
        if self._summary.stalls or self.collected or self.marks:
            lanes.append(self._moments())
        return f'<div class="time">{"".join(lanes)}{pictures.axis_of_time(self._lasted / 1e9)}</div>'

    def _strip(self, name: str, shapes: list[str], top: str) -> str:
        """Return a picture below its name and what its full height is."""
        return (
            f'<div class="lane"><p><b>{name}</b><span>{top}</span></p>'
            f"{pictures.drawing([*self._stall_times(), *shapes], name + ' over time')}</div>"
        )

    def _grid(self, heights: Iterable[float]) -> Iterator[str]:
        for height in heights:
            yield f'<path class="grid" d="M0 {HEIGHT * height:.0f}H{WIDTH}"/>'

    def _decades(self, most: int) -> Iterator[str]:
        ticks = pictures.decades(SHORTEST_NS, most)[1:-1]
        yield from self._grid(tuple(1 - pictures.on_log_axis(tick, SHORTEST_NS, most) for tick in ticks))

    def _stall_times(self) -> Iterator[str]:
        """Yield the times of stalls, which lie behind all else."""
        for stall in self._summary.stalls:
            width = max(1.0, WIDTH * (self._x(stall.end_ns) - self._x(stall.began_ns)))
            yield pictures.box("stall-back", WIDTH * self._x(stall.began_ns), 0, width, HEIGHT)

    def _calls(self, most: int) -> Iterator[str]:
        """Yield a bar for the longest callback of each column, from left to right."""
        for _, (name, at_ns, took_ns) in sorted(self.longest.items()):
            share = pictures.on_log_axis(took_ns, SHORTEST_NS, most)
            height = max(2.0, HEIGHT * share)
            kind = "blocked" if took_ns >= BLOCKED_NS else "slow" if took_ns >= SLOW_NS else "quick"
            says = f"{name}: {duration_ns(took_ns)}"
            yield pictures.box(kind, WIDTH * self._x(at_ns) - 1, HEIGHT - height, 3, height, says)

    def _moments(self) -> str:
        """Return the lane of stalls by their numbers, runs of the collector and marks."""
        shapes = []
        for span in self.collected:
            width = max(1.5, WIDTH * (self._x(span.end_ns) - self._x(span.event.at_ns)))
            says = f"garbage collector: {duration_ns(span.event.took_ns)}"
            shapes.append(pictures.box("collected", WIDTH * self._x(span.event.at_ns), 55, width, 45, says))
        for name, at_ns in self.marks:
            shapes.append(pictures.box("marked", WIDTH * self._x(at_ns) - 1, 0, 2, HEIGHT, name))
        texts = [
            f'<a href="#stall-{stall.number}" class="no" style="left:{100 * self._x(stall.began_ns):.2f}%">'
            f"{stall.number}</a>"
            for stall in self._summary.stalls
        ]
        drawn = pictures.drawing(shapes, "stalls, collections, marks")
        return f'<div class="lane low">{drawn}{"".join(texts)}</div>'

    def traffic(self) -> str:
        """Return the picture of bytes over time; nothing if none were counted."""
        most = max(*self.bytes_in, *self.bytes_out)
        if most <= 0:
            return ""
        shapes = [pictures.area("in", self.bytes_in, most), pictures.area("out", self.bytes_out, most)]
        lane = self._strip("bytes per second", shapes, f"0 to {size(most)}")
        return f'<div class="time">{lane}{pictures.axis_of_time(self._lasted / 1e9)}</div>'
