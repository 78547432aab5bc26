"""Reading a recording."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from whorl.core.recording import layout
from whorl.inspector.recordings.recording import NotARecording, Recording, read_file

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
