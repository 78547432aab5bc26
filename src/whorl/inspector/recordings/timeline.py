"""The events of a recording in the order of time, each with its end, and the names of tasks."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from whorl.core.recording import layout
from whorl.inspector.recordings.recording import Event, Recording
from whorl.inspector.tables.wording import shown

#: The kinds that took time. They lie in a thread one inside the other: a step in its turn.
NESTED = (layout.TURN, layout.POLL, layout.CALLBACK, layout.STEP)
#: The kinds that tell the name of a task or of its coroutine.
NAMING = (layout.STEP, layout.TASK_MADE, layout.TASK_DONE)
#: The most polls of a turn, as libuv's has.
MOST_POLLS = 16
_TIMED = (*NESTED, layout.COLLECTED, layout.STALLED)


class Span(NamedTuple):
    """An event and its end."""

    event: Event
    end_ns: int


class Timeline:
    """The events of a recording, or those of its last seconds."""

    def __init__(self, recording: Recording, seconds: float | None = None) -> None:
        self.recording = recording
        self._coroutines: dict[tuple[int, int], int] = {}
        self._task_names: dict[tuple[int, int], tuple[int, int]] = {}
        self._shown: dict[int, str] = {}
        # Of each loop since its last turn: its polls, and the end of its last callback.
        self._polls: dict[int, deque[Event]] = {}
        self._call_ends: dict[int, int] = {}
        # A ring may have millions of events. Only their ends and their order are kept.
        self._ends = array("q")
        begin, end = 1 << 62, 0
        for number in range(recording.first_event, recording.events_written):
            event = recording.event_at(number)
            self._ends.append(self._end_of(event))
            if event.kind:
                begin, end = min(begin, event.at_ns), max(end, self._ends[-1])
        self._polls.clear()
        #: The first and the last moment that the recording knows of.
        self.end_ns: int = max([end, *self._last_signs()])
        self.begin_ns: int = min(begin, self.end_ns)
        if seconds is not None:
            self.begin_ns = max(self.begin_ns, self.end_ns - int(seconds * 1e9))
        self._order = self._sorted()

    def _last_signs(self) -> list[int]:
        """Return when the process was last seen alive: by its watchdog, by its loops."""
        loops = self.recording.loops()
        moments = ("updated_ns", "sleep_began_ns", "call_began_ns")
        return [self.recording.alive_ns] + [loop.fields[name] for loop in loops for name in moments]

    def _end_of(self, event: Event) -> int:
        """Return the end of an event. They come as they were written: a turn after all that it contains."""
        end = event.at_ns + event.took_ns if event.kind in _TIMED else event.at_ns
        if event.kind == layout.POLL:
            self._polls.setdefault(event.loop, deque(maxlen=MOST_POLLS)).append(event)
        elif event.kind == layout.TURN:  # Its time is without its sleeps, and short ones are not recorded.
            slept = self._polls.pop(event.loop, ())
            end += sum(poll.took_ns for poll in slept if poll.at_ns >= event.at_ns)
            end = max(end, self._call_ends.get(event.loop, 0))
        elif event.kind in (layout.STEP, layout.CALLBACK):
            self._call_ends[event.loop] = end
        if event.kind in NAMING:
            self._note_names(event)
        return end

    def _sorted(self) -> array[int]:
        """Return the places of the events of this time, by their beginnings.

        Of two that begin at once, the one that contains the other comes first.
        """
        recording, first = self.recording, self.recording.first_event
        places = array("q")
        for place, end in enumerate(self._ends):
            if end >= self.begin_ns and recording.event_at(first + place).kind:
                places.append(place)

        def key(place: int) -> int:
            event = recording.event_at(first + place)
            return event.at_ns << 72 | (1 << 63) - self._ends[place] << 8 | event.kind

        return array("q", sorted(places, key=key))

    def __len__(self) -> int:
        return len(self._order)

    @property
    def spans(self) -> Iterator[Span]:
        """Yield the events of this time, sorted by their beginnings."""
        first = self.recording.first_event
        for place in self._order:
            yield Span(self.recording.event_at(first + place), self._ends[place])

    def _note_names(self, event: Event) -> None:
        if event.kind != layout.TASK_MADE:
            self._coroutines[event.loop, event.number] = event.name_id
        else:
            number = event.took_ns // layout.TOOK_UNIT_NS
            self._task_names[event.loop, event.number] = (event.name_id, number)

    def name(self, number: int) -> str:
        """Return the name with this id, with control characters escaped."""
        text = self._shown.get(number)
        if text is None:
            text = self._shown[number] = shown(self.recording.name(number))
        return text

    def coroutine(self, loop: int, task: int) -> str:
        """Return the name of the coroutine of a task, as far as it is known."""
        return self.name(self._coroutines.get((loop, task), 0))

    def task(self, loop: int, task: int) -> str:
        """Return the name of a task; if it is not known, its number."""
        name, number = self._task_names.get((loop, task), (0, 0))
        return self.name(name) or (f"Task-{number}" if number else f"task {task}")

    def call(self, event: Event) -> str:
        """Return the name of a callback or of the coroutine of a step."""
        return self.name(event.name_id) or ("a task" if event.kind == layout.STEP else "a callback")


def program(recording: Recording) -> str:
    """Return the name of the program: the script or the module of its command line."""
    return shown(words_of_program(recording.command)[0])


def words_of_program(command: Sequence[str]) -> list[str]:
    """Return the words of a command line from the program on: without the interpreter, and `whorl run`."""
    words = list(command)
    if words and words[0].rpartition("/")[2].startswith("python"):
        words = _without_options(words[1:])
    if words and words[0].rpartition("/")[2] == "whorl" and "run" in words:
        words = _without_options(words[words.index("run") + 1 :])
    if words[:1] == ["-c"]:
        is_worker = "".join(words[1:2]).startswith("from multiprocessing.")
        return ["a worker of multiprocessing"] if is_worker else ["python", *words[:2]]
    if not words:
        return ["python" if command else "a program"]
    return [words[0].rpartition("/")[2] or words[0], *words[1:]]


def _without_options(words: list[str]) -> list[str]:
    while words and words[0].startswith("-") and words[0] not in ("-c", "-"):
        if words[0] == "-m":
            return words[1:]
        words = words[2 if words[0] in ("-X", "-W", "--inspect-threshold") else 1 :]
    return words
