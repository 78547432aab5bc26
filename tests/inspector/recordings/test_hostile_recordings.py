"""Recordings that somebody made on purpose: each is read or refused, and takes no memory."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.inspector.recordings.made_recordings import MS, Made
from whorl.core.recording import layout
from whorl.inspector.asking.finding import Found
from whorl.inspector.recordings import page, trace
from whorl.inspector.recordings.doing import all_stalls
from whorl.inspector.recordings.recording import COUNTERS, NotARecording, Recording, read_file
from whorl.inspector.views import drawing, exposition
from whorl.inspector.views.pictures import Reading, picture

FAR = (1, -1, (1 << 63) - 1, -(1 << 63), 1 << 62, 10**15)
VALUES = (None, -1, 10**30, -(10**400), 1e308, "x\x1b[2J<script>", [], {}, [[[[]]]], True, "\ud800")


def read_by_all(recording: Recording) -> None:
    """Let each reader read a recording."""
    json.dumps(all_stalls(recording))
    trace.write(recording, io.BytesIO(), compressed=False)
    page.page(recording)
    for state in ("running", "died"):
        reading = Reading.of(Found("x.recording", 7, 0, state, recording))
        exposition.as_text(exposition.RecordingCollector(reading))
        for one in (picture(reading, None), picture(reading, reading)):
            json.dumps(dataclasses.asdict(one))
            for line in (*drawing.overview([one], 80), *drawing.details(one, 80), *drawing.stalls(one, 80)):
                assert line.text.isprintable()
    recording.to_bytes()


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_fields_of_a_stall_may_have_any_type(value: Any) -> None:
    plain = dict.fromkeys(
        [
            *("began_ns", "length_ns", "running_ns", "starved_ns", "asleep_ns", "gc_ns", "thread", "loop"),
            *("ended", "gil_held", "call", "task", "stacks", "reason", "syscall", "file", "text"),
        ],
        value,
    )
    made = Made().loop(updated_ns=50 * MS)
    for name in plain:
        made.stall(MS, MS, **{name: value})
    made.stall(MS, MS, **plain)
    made.stall(MS, MS, stacks=[{"after_ns": value, "frames": [[value] * 4, value], "late": value}])
    read_by_all(made.recording())


def test_stall_of_deep_json_is_left_out() -> None:
    made = Made().stall(MS, MS)
    at = layout.offsets(1024)[2]
    text = b"[" * (layout.STALL_SIZE - 4)
    made.memory[at : at + layout.STALL_SIZE] = len(text).to_bytes(4, "little") + text
    assert made.recording().stalls() == []


@pytest.mark.parametrize("value", FAR)
def test_numbers_of_a_loop_may_be_any(value: int) -> None:
    for name in layout.LOOP_FIELDS:
        if name != "number":
            read_by_all(Made().event(layout.CALLBACK, MS, MS).loop(**{"state": 1, name: value}).recording())
    everything = {name: value for name in layout.LOOP_FIELDS if name != "number"}
    made = Made().loop(1, counters=dict.fromkeys(COUNTERS, value), **everything | {"state": 1})
    for kind in range(4):
        made.histogram(kind, {5: value, 70: value}, value)
    read_by_all(made.recording())


@pytest.mark.parametrize("value", FAR)
def test_times_of_events_and_of_the_process_may_be_any(value: int) -> None:
    made = Made(clock_ns=value).loop(updated_ns=5 * MS)
    for kind in layout.KIND_NAMES:
        made.event(kind, value, layout.LONGEST_TOOK * layout.TOOK_UNIT_NS, name=2**32 - 1, number=2**32 - 1)
        made.event(kind, 2 * MS)
    for at in (layout.ALIVE_AT, layout.STATE_AT, layout.STALLS_WRITTEN_AT, layout.STARVED_AT):
        struct.pack_into("<q", made.memory, at, value)
    struct.pack_into("<4q", made.memory, layout.BLIND_AT, *[value] * 4)
    read_by_all(made.recording())


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("head", ["nothing", "magic", "header"])
def test_file_with_holes_takes_no_memory(tmp_path: Path, head: str) -> None:
    path = tmp_path / "x.recording"
    made = Made()
    count = layout.events_in(layout.MOST_RING)
    size = layout.offsets(count)[-1]
    if head != "nothing":
        path.write_bytes(layout.MAGIC if head == "magic" else _header_for(made, count))
    with open(path, "ab") as file:
        file.truncate(size)
    before = resident()
    if head == "header":
        recording = read_file(path, events=20_000)
        assert len(list(recording.events())) == 0
        kept = [read_file(path) for _ in range(100)]
        assert all(one.loops() == [] for one in kept)
    else:
        with pytest.raises(NotARecording):
            read_file(path)
    assert resident() - before < 30 << 20  # Each of many would take 600 kB without its events.


def _header_for(made: Made, events: int) -> bytes:
    """Return the header of a recording with so many events."""
    head = bytearray(made.memory[: layout.HEADER_SIZE])
    loops, names, stalls, ring, size = layout.offsets(events)
    layout.REGIONS.pack_into(
        head,
        layout.REGIONS_AT,
        *(loops, layout.LOOP_SIZE, layout.LOOPS, names, 1, layout.NAMES_SIZE),
        *(stalls, layout.STALL_SIZE, layout.STALLS, ring, layout.EVENT.size, events),
    )
    struct.pack_into("<Q", head, 16, size)
    return bytes(head)


def test_events_that_were_read_are_the_last_ones(tmp_path: Path) -> None:
    made = Made(64)
    for number in range(150):
        made.event(layout.MARK, MS + number)
    path = tmp_path / "x.recording"
    path.write_bytes(made.data())
    whole = [event.at_ns for event in read_file(path).events()]
    assert whole == [MS + number for number in range(87, 150)]
    assert [event.at_ns for event in read_file(path, events=10).events()] == whole[-10:]
    assert list(read_file(path, events=0).events()) == []
    assert read_file(path).to_bytes()[: layout.HEADER_SIZE] == made.data()[: layout.HEADER_SIZE]
