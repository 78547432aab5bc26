"""Reading a recording: of a living process, of one that is stuck, and of one that was killed.

Root may read that of another user, which may have anything in it. So each number is brought into a range, in
which sums of a few have 64 bits at most. No more is read than a recording may have.
"""

from __future__ import annotations

import errno
import functools
import json
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from whorl.core.metrics import Histogram, LoopHistograms
from whorl.core.recording import layout
from whorl.core.states import KINDS, PLACES
from whorl.inspector.recordings.file import own

COUNTERS = (
    *("bytes_in", "bytes_out", "reads", "writes", "timers_fired", "accepts"),
    *("connections_opened", "connections_closed", "errors_reported"),
    *("jobs_submitted", "jobs_begun", "jobs_ended"),
)
#: The most bytes that a recording may have.
LARGEST = layout.offsets(0)[-1] + layout.MOST_RING
#: The most loops, bytes of names, and stalls that it may have.
_MOST = (1024, 16 << 20, 1024)
#: No number is greater, nor less than its negative.
FAR = 1 << 61
#: In so many of the last events the makings of tasks are looked for: a hostile ring may have many more.
MOST_SEARCHED = 1 << 18
#: The descriptor of a handle that has none yet, or no longer.
NO_DESCRIPTOR = 0xFFFFFFFF
#: The fields of a stall that are numbers.
_NUMBERS = ("number", "thread", "began_ns", "length_ns", "running_ns", "starved_ns", "asleep_ns", "gc_ns")
_FIELDS = struct.Struct(f"<{len(layout.LOOP_FIELDS)}q")
_COUNTERS = struct.Struct(f"<{len(COUNTERS)}q")
_HISTOGRAM = struct.Struct(f"<{2 + PLACES}q")


#: The bytes of a recording.
Data = bytes | bytearray | mmap.mmap


class NotARecording(ValueError):
    """The file is no recording, is cut, or is of another version of Whorl; the text says which."""


class Event(NamedTuple):
    """One event of the ring. Times are nanoseconds."""

    at_ns: int  #: when it began, by the monotonic clock
    took_ns: int
    kind: int  #: a kind of `core/recording/layout`
    flags: int
    loop: int  #: the number of the loop
    subject: int

    @property
    def number(self) -> int:
        """The lower half of the subject: the number of a task, or a descriptor."""
        return self.subject & 0xFFFFFFFF

    @property
    def name_id(self) -> int:
        """The upper half of the subject: the id of a name."""
        return self.subject >> 32


class RecordedLoop(NamedTuple):
    """A loop, as a recording knows it."""

    fields: dict[str, int]  #: by the names of `layout.LOOP_FIELDS`
    counters: dict[str, int]
    histograms: LoopHistograms

    @property
    def number(self) -> int:
        """The number of the loop, from 1."""
        return self.fields["number"]


class Recording:
    """A snapshot of a recording's memory. It does not change."""

    def __init__(self, data: Data) -> None:
        """Take the bytes of a recording. Raises NotARecording."""
        self.regions: tuple[int, ...] = _regions(data[: layout.HEADER_SIZE], len(data))
        self.size: int
        self.pid: int
        self.started: int
        self.boot: bytes
        self.namespace: int
        fields = layout.HEADER.unpack_from(data)
        self.size, self.pid, self.started, self.boot, self.namespace = fields[3:]
        self._data = data
        self.clock_ns: int
        self.state: int
        self.alive_ns: int
        self.clock_ns, self.state, self.alive_ns = (
            self._word(at) for at in (layout.CLOCK_AT, layout.STATE_AT, layout.ALIVE_AT)
        )
        self.stalls_written: int = self._word(layout.STALLS_WRITTEN_AT)
        self.starved: int = self._word(layout.STARVED_AT)
        #: Whether the file is this user's own.
        self.is_own: bool = True
        #: How many loops of the process run that are not in the recording.
        self.left_out: int = max(0, self._word(layout.LEFT_OUT_AT))
        self.events_written: int = self._word(layout.EVENTS_WRITTEN_AT)
        self.whorl: str = self._text(layout.WHORL_AT, 32)
        self.python: str = self._text(layout.PYTHON_AT, 32)
        command = self._text(layout.COMMAND_AT, layout.COMMAND_SIZE)
        self.command: list[str] = [word for word in command.split("\0") if word]
        #: The first event that is whole: a live reader moves it on.
        self.first_event: int = max(0, self.events_written - self.regions[11])

    @property
    def data(self) -> Data:
        """The bytes of the recording."""
        return self._data

    def _word(self, at: int) -> int:
        return near(struct.unpack_from("<q", self._data, at)[0])

    def _text(self, at: int, most: int) -> str:
        return self._data[at : at + most].rstrip(b"\0").decode("utf-8", "replace")

    def name(self, number: int) -> str:
        """Return the name with this id; an empty text for 0 and for an id that is none."""
        start, _, size = self.regions[3:6]
        if not layout.FIRST_NAME <= number <= size - 2:
            return ""
        length = int.from_bytes(self._data[start + number : start + number + 2], "little")
        begin = start + number + 2
        if length > layout.LONGEST_NAME or begin + length > start + size:
            return ""
        return self._data[begin : begin + length].decode("utf-8", "replace")

    def loops(self) -> list[RecordedLoop]:
        """Return the loops, those that are closed too, in the order of their numbers."""
        start, size, count = self.regions[0:3]
        found = []
        for at in range(start, start + size * count, size):
            fields = dict(
                zip(layout.LOOP_FIELDS, map(_count, _FIELDS.unpack_from(self._data, at)), strict=True)
            )
            if fields["state"]:
                found.append(RecordedLoop(fields, *self._figures(at + layout.FIGURES_AT, fields)))
        return sorted(found, key=lambda loop: loop.number)

    def _figures(self, at: int, fields: dict[str, int]) -> tuple[dict[str, int], LoopHistograms]:
        counters = dict(zip(COUNTERS, map(_count, _COUNTERS.unpack_from(self._data, at)), strict=True))
        at += _COUNTERS.size
        histograms = []
        for number in range(KINDS):
            total, most, *counts = map(
                _count, _HISTOGRAM.unpack_from(self._data, at + number * _HISTOGRAM.size)
            )
            histograms.append(
                Histogram(total, most, {place: count for place, count in enumerate(counts) if count > 0})
            )
        return counters, LoopHistograms(*histograms)

    def stalls(self) -> list[dict[str, Any]]:
        """Return the last stalls as JSON has them, oldest first; numbers are numbers.

        Those that were being written are left out.
        """
        start, size, count = self.regions[6:9]
        found = []
        for at in range(start, start + size * count, size):
            length = int.from_bytes(self._data[at : at + 4], "little")
            if 0 < length <= size - 4:
                try:
                    stall = json.loads(self._data[at + 4 : at + 4 + length], parse_int=_parsed)
                except (ValueError, RecursionError):
                    continue
                if isinstance(stall, dict) and type(stall.get("number")) is int:
                    wrong = [name for name in _NUMBERS if type(stall.get(name)) not in (int, type(None))]
                    found.append(stall | dict.fromkeys(wrong))
        return sorted(found, key=lambda stall: stall["number"])

    def events(self) -> Iterator[Event]:
        """Yield the events that are left, in the order in which they were written."""
        for number in range(self.first_event, self.events_written):
            event = self.event_at(number)
            if event.kind:  # else it was not whole when the process was killed
                yield event

    def event_at(self, number: int) -> Event:
        """Return the event with this number, from `first_event` on; one that is not whole has the kind 0."""
        start, size, count = self.regions[9:12]
        at, took, kind, flags, loop, subject = layout.EVENT.unpack_from(
            self._data, start + number % count * size
        )
        if not -FAR < at < FAR:
            at = near(at)
        return Event(at, took * layout.TOOK_UNIT_NS, kind, flags, loop, subject)

    @functools.cached_property
    def tasks_made(self) -> dict[int, Event]:
        """The events of the making of tasks, each by the number of its task, among the last events."""
        start, size, count = self.regions[9:12]
        made: dict[int, Event] = {}
        end = self.events_written
        first = max(self.first_event, end - MOST_SEARCHED)
        while first < end:  # The ring's part before its end, then that from its beginning.
            until = min(end, first + count - first % count)
            begin = start + first % count * size
            kinds = bytes(self._data[begin + 12 : begin + (until - first) * size : size])
            place = kinds.find(layout.TASK_MADE)
            while place >= 0:
                event = self.event_at(first + place)
                made[event.number] = event
                place = kinds.find(layout.TASK_MADE, place + 1)
            first = until
        return made

    def to_bytes(self) -> bytes:
        """Return the bytes of a file with this snapshot, without events that were overwritten meanwhile."""
        start, size, count = self.regions[9:12]
        data = bytearray(self._data[: self.size])
        for number in range(max(0, self.events_written - count), min(self.first_event, self.events_written)):
            place = start + number % count * size
            data[place : place + size] = bytes(size)
        return bytes(data)


def near(number: int) -> int:
    """Return a number, or the end of the range in which all are."""
    return max(-FAR, min(number, FAR))


def _count(number: int) -> int:
    return max(0, min(number, FAR))


def _parsed(text: str) -> int:
    """Return a number of JSON, which may have any number of digits."""
    return near(int(text)) if len(text) < 20 else -FAR if text.startswith("-") else FAR


def _regions(header: bytes | bytearray, size: int) -> tuple[int, ...]:
    """Return where the regions of a recording of so many bytes lie, by its header. Raises NotARecording."""
    if header[:8] != layout.MAGIC:
        raise NotARecording("the file is no recording")
    if len(header) < layout.HEADER_SIZE:
        raise NotARecording("the recording is cut")
    version, _, told = layout.HEADER.unpack_from(header)[1:4]
    if version != layout.VERSION:
        raise NotARecording(f"the recording is of version {version}; this Whorl reads {layout.VERSION}")
    regions = layout.REGIONS.unpack_from(header, layout.REGIONS_AT)
    if size < told or not _fits(regions, told):
        raise NotARecording("the recording is cut")
    return regions


def _fits(regions: tuple[int, ...], size: int) -> bool:
    """Return whether all regions lie inside of so many bytes, and have the sizes that this version has."""
    sizes = (layout.LOOP_SIZE, 1, layout.STALL_SIZE, layout.EVENT.size)
    for number, most in enumerate((*_MOST, size)):
        start, one, count = regions[3 * number : 3 * number + 3]
        if one != sizes[number] or not 0 < count <= most or start + one * count > size:
            return False
    return True


def read_file(file: int | str | os.PathLike[str], *, events: int | None = None) -> Recording:
    """Return a snapshot of a recording's file, given by its path or an open descriptor.

    The process may be writing it. Events that were overwritten meanwhile are left out. With `events`, only so
    many of the last ones are read. Raises NotARecording and OSError.
    """
    with open(file, "rb", buffering=0, closefd=not isinstance(file, int)) as opened:
        descriptor = opened.fileno()
        header = os.pread(descriptor, layout.HEADER_SIZE, 0)
        status = os.fstat(descriptor)
        size = status.st_size
        regions = _regions(header, size)
        if size > LARGEST:
            raise NotARecording("the file is larger than a recording may be")
        recording = Recording(_wanted(descriptor, header, regions, size, events))
        recording.is_own = status.st_uid == os.geteuid()
        written = struct.unpack("<q", os.pread(descriptor, 8, layout.EVENTS_WRITTEN_AT))[0]
    recording.first_event = max(recording.first_event, near(written) - recording.regions[11] + 1)
    if events is not None:
        recording.first_event = max(recording.first_event, recording.events_written - events)
    return recording


def _wanted(
    descriptor: int, header: bytes, regions: tuple[int, ...], size: int, events: int | None
) -> mmap.mmap:
    """Return memory of a recording's size with what the file has of use: that which is left out takes none.

    The file is not mapped: one that is cut meanwhile would end this process.
    """
    data = own(size)
    data[: len(header)] = header
    for start, one, count in (regions[0:3], regions[6:9]):
        _read(descriptor, data, start, start + one * count)
    start, one, count = regions[9:12]
    written = max(0, struct.unpack_from("<q", header, layout.EVENTS_WRITTEN_AT)[0])
    last = min(written, count, written if events is None else events)
    first, end = (written - last) % count, written % count
    for begin, stop in ((first, end),) if first < end else ((first, count), (0, end)) if last else ():
        _read(descriptor, data, start + begin * one, start + stop * one)
    # Names come last, as an event may have a new one.
    start, _, count = regions[3:6]
    used = struct.unpack("<q", os.pread(descriptor, 8, layout.NAMES_USED_AT))[0]
    _read(descriptor, data, start, start + max(0, min(used, count)))
    return data


def _read(descriptor: int, data: mmap.mmap, begin: int, end: int) -> None:
    """Fill a part of `data` with that of the file; holes, and what the file has lost, stay zero."""
    try:
        with memoryview(data) as memory:
            while (begin := os.lseek(descriptor, begin, os.SEEK_DATA)) < end:
                stop = min(end, os.lseek(descriptor, begin, os.SEEK_HOLE))
                begin += os.preadv(descriptor, [memory[begin:stop]], begin)
    except OSError as error:
        if error.errno != errno.ENXIO:  # which says that nothing but a hole is left
            raise
