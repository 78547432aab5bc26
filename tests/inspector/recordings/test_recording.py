"""Reading a recording."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.inspector.recordings.made_recordings import MS, Made
from whorl.core.recording import layout
from whorl.inspector.recordings.doing import task_name
from whorl.inspector.recordings.recording import MOST_SEARCHED, NotARecording, Recording, read_file

EVENTS = 8


def recorded(*events: tuple[int, int, int, int, int, int]) -> bytearray:
    """Return the memory of a recording with these events."""
    memory = bytearray(layout.offsets(EVENTS)[-1])
    layout.lay_out(memoryview(memory), EVENTS, pid=7, started=9, boot=b"b", command=b"python\0app.py")
    ring = layout.offsets(EVENTS)[3]
    for number, event in enumerate(events):
        layout.EVENT.pack_into(memory, ring + number % EVENTS * layout.EVENT.size, *event)
    struct.pack_into("<q", memory, layout.EVENTS_WRITTEN_AT, len(events))
    return memory


def test_header_is_read_as_it_was_written() -> None:
    recording = Recording(bytes(recorded()))
    assert (recording.pid, recording.started, recording.state) == (7, 9, layout.RECORDING)
    assert recording.command == ["python", "app.py"]


def test_events_that_were_overwritten_are_left_out() -> None:
    events = [(number, 1, layout.MARK, 0, 1, 0) for number in range(EVENTS + 3)]
    found = list(Recording(bytes(recorded(*events))).events())
    assert [event.at_ns for event in found] == list(range(3, EVENTS + 3))


def test_subject_has_two_halves() -> None:
    event = next(Recording(bytes(recorded((5, 2, layout.STEP, 0, 1, 3 << 32 | 4)))).events())
    assert (event.name_id, event.number, event.took_ns) == (3, 4, 2 * layout.TOOK_UNIT_NS)


@pytest.mark.parametrize("kept", [0, 4, 100, 5000])
def test_file_that_is_cut_is_refused(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "cut"
    file.write_bytes(recorded()[:kept])
    with pytest.raises(NotARecording):
        read_file(file)


def test_newer_version_is_refused() -> None:
    memory = recorded()
    struct.pack_into("<I", memory, 8, layout.VERSION + 1)
    with pytest.raises(NotARecording, match="version 2"):
        Recording(bytes(memory))


def test_regions_outside_of_the_file_are_refused() -> None:
    memory = recorded()
    struct.pack_into("<Q", memory, layout.REGIONS_AT + 72, 1 << 40)
    with pytest.raises(NotARecording, match="cut"):
        Recording(bytes(memory))


def test_names_of_tasks_are_found_as_far_as_the_ring_goes_back() -> None:
    made = Made(64)
    for number in range(1, 101):
        made.task(MS, number, f"order {number}" if number % 2 else "")
        made.event(layout.MARK, MS, number=number)
    recording = made.recording()
    names = [task_name(recording, number) for number in range(101)]
    assert names[:69] == [""] * 69
    assert names[69:] == [f"order {number}" if number % 2 else f"Task-{number}" for number in range(69, 101)]


def test_names_of_tasks_are_looked_for_in_so_many_events() -> None:
    made = Made(2 * MOST_SEARCHED)
    start, size = layout.offsets(2 * MOST_SEARCHED)[3], layout.EVENT.size
    for number in range(1, 4):
        made.task(MS, number)
    events = bytes(made.memory[start : start + 3 * size])
    made.memory[start + size : start + 3 * size] = bytes(2 * size)
    made.memory[start + MOST_SEARCHED * size : start + (MOST_SEARCHED + 2) * size] = events[size:]
    struct.pack_into("<q", made.memory, layout.EVENTS_WRITTEN_AT, 2 * MOST_SEARCHED + 1)
    assert [task_name(made.recording(), number) for number in (1, 2, 3)] == ["Task-1", "", "Task-3"]
