"""The file of a recording: it is private, whole from the start, and stays only as long as it is of use."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whorl.core.recording import layout
from whorl.inspector.asking import directory
from whorl.inspector.recordings import file
from whorl.inspector.recordings.recording import read_file

RING = layout.LEAST_RING
SIZE = file.size_of(RING)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_file_is_the_users_alone_and_is_there_as_a_whole(place: int, tmp_path: Path) -> None:
    memory = file.mapped(place, "x", SIZE)
    file.lay_out(memory, RING, started=5)
    found = (tmp_path / "x").stat()
    assert found.st_mode & 0o777 == 0o600
    assert (found.st_size, found.st_blocks * 512 >= SIZE) == (SIZE, True)
    recording = read_file(tmp_path / "x")
    assert (recording.pid, recording.started) == (os.getpid(), 5)
    assert recording.boot.rstrip(b"\0") == file.boot_id()
    memory.close()


def test_file_that_is_there_is_not_taken(place: int, tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path / "y")
    with pytest.raises(FileExistsError):
        file.mapped(place, "x", SIZE)
    assert not (tmp_path / "y").exists()


def test_full_file_system_is_an_error_at_once(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        file.mapped(place, "x", SIZE)
    assert list(tmp_path.iterdir()) == []


def test_copy_replaces_a_file_and_leaves_no_other(tmp_path: Path) -> None:
    memory = file.own(SIZE)
    file.lay_out_simulated(memory, RING)
    (tmp_path / "copy").write_text("old")
    file.write_copy(memory, str(tmp_path / "copy"))
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
    assert read_file(tmp_path / "copy").pid == 0
    memory.close()


def recording_of(pid: int, *, started: int = 1, boot: bytes | None = None, seen_ns: int) -> bytes:
    memory = bytearray(SIZE)
    layout.lay_out(
        memoryview(memory),
        layout.events_in(RING),
        pid=pid,
        started=started,
        boot=file.boot_id() if boot is None else boot,
        clock_ns=seen_ns,
    )
    return bytes(memory)


DAY_NS = 24 * 3600 * 10**9


@pytest.mark.parametrize(
    ("age_ns", "boot", "stays"),
    [
        (0, None, True),
        (DAY_NS - 10**9 * 60, None, True),
        (DAY_NS + 10**9, None, False),
        (0, b"another", False),
    ],
)
@pytest.mark.parametrize("name", ["4000000-1.recording", "whorl-4000000-3.recording"])
def test_recording_of_a_dead_process_stays_a_day(
    age_ns: int, boot: bytes | None, stays: bool, name: str, place: int, tmp_path: Path
) -> None:
    left = tmp_path / name
    left.write_bytes(recording_of(4_000_000, boot=boot, seen_ns=time.time_ns() - age_ns))
    os.utime(left, (0, 0))
    directory.sweep_recordings(place)
    directory.sweep(place)
    assert left.exists() is stays


def test_only_the_last_recordings_of_dead_processes_stay(place: int, tmp_path: Path) -> None:
    now = time.time_ns()
    for age in range(directory.MOST_KEPT + 3):
        left = tmp_path / f"{4_000_000 + age}-1.recording"
        left.write_bytes(recording_of(4_000_000 + age, seen_ns=now - age * 10**9))
        os.utime(left, (0, 0))
    directory.sweep_recordings(place)
    kept = [4_000_000 + age for age in range(directory.MOST_KEPT)]
    assert sorted(int(left.name.partition("-")[0]) for left in tmp_path.iterdir()) == kept


def test_recording_of_a_living_process_is_never_removed(place: int, tmp_path: Path) -> None:
    started = directory.start_time("self")
    assert started is not None
    mine = tmp_path / f"{os.getpid()}-{started}.recording"
    mine.write_bytes(recording_of(os.getpid(), started=started, seen_ns=0))
    os.utime(mine, (0, 0))
    directory.sweep_recordings(place)
    assert mine.exists()


def test_file_that_is_no_recording_is_not_replaced(place: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine" * 100)
    with pytest.raises(FileExistsError, match="no recording"):
        directory.owner_of(place, "x")
    assert directory.owner_of(place, "y") is None
    (tmp_path / "z").write_bytes(recording_of(4_000_000, seen_ns=0))
    assert directory.owner_of(place, "z") == 0


def test_file_is_held_while_a_process_maps_it_or_if_nobody_can_tell(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    memory = file.mapped(place, "x", SIZE)
    with open(tmp_path / "x", "rb") as opened:
        assert file.is_held(opened.fileno())
        memory.close()
        assert not file.is_held(opened.fileno())
        monkeypatch.setattr(fcntl, "flock", refuse)
        assert file.is_held(opened.fileno())


def test_files_stay_where_nobody_tells_which_processes_live(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "7-8.recording").write_bytes(recording_of(7, started=8, seen_ns=0))
    os.utime(tmp_path / "7-8.recording", (0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(directory, "start_time", lambda _: None)
        directory.sweep_recordings(place)
    assert os.listdir(place) == ["7-8.recording"]
    directory.sweep_recordings(place)
    assert os.listdir(place) == []


def test_own_memory_is_copied_by_a_fork() -> None:
    memory = file.own(mmap.PAGESIZE)
    if (pid := os.fork()) == 0:
        memory[0] = 1
        os._exit(0)
    os.waitpid(pid, 0)
    assert memory[0] == 0
    memory.close()


def test_header_of_the_native_thread_is_that_of_the_layout() -> None:
    assert (layout.BLIND_AT, layout.BLIND_STACK_SIZE, layout.ALIVE_AT) == (1536, 2408, 96)
    assert struct.calcsize("<4q120s") == layout.BLIND.size
