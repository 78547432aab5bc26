"""FsEvent: changes of real files, accounted for."""

from __future__ import annotations

import collections
import errno
import gc
import os
import resource
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.core.conftest import MakeLoop, open_descriptors
from tests.core.loop_fakes import run_turns
from whorl.core import FsChange, Kernel, Loop, RunMode
from whorl.handles import FsEvent, Timer

CHANGE, RENAME = FsChange.CHANGE, FsChange.RENAME

Seen = list[tuple[Any, FsChange]]


def watch(loop: Loop, path: Any) -> tuple[FsEvent, Seen]:
    """Return a started handle, and the changes it has reported."""
    seen: Seen = []
    handle = FsEvent(loop)

    def callback(handle: FsEvent, name: Any, changes: FsChange, error: OSError | None) -> None:
        assert error is None
        seen.append((name, changes))

    handle.start(path, callback)
    return handle, seen


def settle(loop: Loop) -> None:
    """Have everything reported that the kernel has noted."""
    events = -1
    while loop.metrics().events != events:
        events = loop.metrics().events
        loop.run(RunMode.NOWAIT)


# Reports.


def test_fs_event_reports_changes_in_a_folder_by_name(loop: Loop, tmp_path: Path) -> None:
    _handle, seen = watch(loop, tmp_path)
    file = tmp_path / "file"
    file.touch()
    settle(loop)
    assert seen[0] == ("file", RENAME)
    seen.clear()
    file.write_text("contents")
    settle(loop)
    assert set(seen) == {("file", CHANGE)}
    seen.clear()
    file.chmod(0o600)
    settle(loop)
    assert seen == [("file", CHANGE)]
    seen.clear()
    file.rename(tmp_path / "other")
    settle(loop)
    assert seen == [("file", RENAME), ("other", RENAME)]
    seen.clear()
    (tmp_path / "other").unlink()
    settle(loop)
    assert seen == [("other", RENAME)]


def test_a_file_is_reported_by_its_own_name(loop: Loop, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    handle, seen = watch(loop, file)
    (tmp_path / "neighbour").touch()
    file.write_text("contents")
    settle(loop)
    assert set(seen) == {("file", CHANGE)}
    assert handle.getpath() == str(file)


def test_names_are_bytes_if_the_path_is(loop: Loop, tmp_path: Path) -> None:
    handle, seen = watch(loop, os.fsencode(tmp_path))
    strange = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.close(os.open(strange, os.O_CREAT | os.O_WRONLY))
    settle(loop)
    assert seen[0] == (b"\xff\xfe", RENAME)
    assert handle.getpath() == os.fsencode(tmp_path)
    _text, names = watch(loop, tmp_path)
    os.unlink(strange)
    settle(loop)
    assert [os.fsencode(name) for name, _ in names] == [b"\xff\xfe"]


def test_a_folder_in_the_folder_changes_or_is_renamed_never_both(loop: Loop, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    _handle, seen = watch(loop, tmp_path)
    inner.chmod(0o700)
    (inner / "deeper").touch()
    (inner / "deeper").unlink()
    inner.rmdir()
    settle(loop)
    assert seen == [("inner", CHANGE), ("inner", RENAME)]


def test_the_removal_of_what_is_watched_is_told_and_ends_the_watch(loop: Loop, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    handle, seen = watch(loop, folder)
    folder.rmdir()
    settle(loop)
    assert seen == [("folder", RENAME)]
    folder.mkdir()
    (folder / "unseen").touch()
    settle(loop)
    assert seen == [("folder", RENAME)]
    assert handle.is_active()
    handle.stop()
    handle, seen = watch(loop, folder)
    (folder / "seen").touch()
    settle(loop)
    assert seen[0] == ("seen", RENAME)


def test_fs_event_reports_a_file_that_is_moved_away(loop: Loop, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    _handle, seen = watch(loop, file)
    file.rename(tmp_path / "elsewhere")
    settle(loop)
    assert seen == [("file", RENAME)]


def test_an_event_ends_the_sleep_on_every_poller(make_loop: MakeLoop, tmp_path: Path) -> None:
    loop = make_loop()
    handle = FsEvent(loop)
    handle.start(tmp_path, lambda handle, name, changes, error: handle.close())
    loop.call_soon((tmp_path / "file").touch)
    loop.run()
    assert handle.is_closing()


# Several handles.


def test_handles_on_one_path_are_all_told(loop: Loop, tmp_path: Path) -> None:
    first, firsts = watch(loop, tmp_path)
    _second, seconds = watch(loop, str(tmp_path))
    (tmp_path / "one").touch()
    settle(loop)
    assert firsts == seconds != []
    first.close()
    firsts.clear()
    seconds.clear()
    (tmp_path / "two").touch()
    settle(loop)
    assert firsts == []
    assert seconds[0] == ("two", RENAME)


def test_links_to_one_file_keep_their_own_names(loop: Loop, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.touch()
    two.hardlink_to(one)
    _first, firsts = watch(loop, one)
    _second, seconds = watch(loop, two)
    one.chmod(0o600)
    settle(loop)
    assert (firsts, seconds) == ([("one", CHANGE)], [("two", CHANGE)])


def test_a_loop_has_one_inotify_instance_and_only_while_it_is_needed(loop: Loop, tmp_path: Path) -> None:
    def instances() -> int:
        return sum("inotify" in target for target in open_descriptors().values())

    handles = [watch(loop, tmp_path)[0] for _ in range(5)]
    assert instances() == 1
    for handle in handles:
        handle.stop()
    assert instances() == 0
    handles[0].start(tmp_path, lambda *args: None)
    assert instances() == 1
    handles[0].close()
    assert instances() == 0


def test_a_handle_may_close_itself_and_others_while_changes_are_reported(loop: Loop, tmp_path: Path) -> None:
    seen: list[str] = []
    handles = [FsEvent(loop) for _ in range(4)]

    def callback(handle: FsEvent, name: str, changes: FsChange, error: OSError | None) -> None:
        seen.append(f"{handles.index(handle)} {name}")
        handle.close()
        handles[2].close()

    for handle in handles:
        handle.start(tmp_path, callback)
    for name in "abc":
        (tmp_path / name).mkdir()
    settle(loop)
    assert seen == ["0 a", "1 a", "3 a"]
    assert loop.walk() == []


def test_a_handle_started_on_another_path_hears_nothing_of_the_former(loop: Loop, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    handle, seen = watch(loop, one)
    _keeper, kept = watch(loop, one)
    (one / "file").mkdir()
    handle.stop()
    handle.start(two, lambda handle, name, changes, error: seen.append((name, changes)))
    settle(loop)
    assert (seen, kept) == ([], [("file", RENAME)])


def test_an_error_out_of_a_callback_costs_the_others_nothing(loop: Loop, tmp_path: Path) -> None:
    failing = FsEvent(loop)

    def fail(handle: FsEvent, name: str, changes: FsChange, error: OSError | None) -> None:
        raise ZeroDivisionError(name)

    failing.start(tmp_path, fail)
    _other, seen = watch(loop, tmp_path)
    for name in "ab":
        (tmp_path / name).mkdir()
    for name in "ab":
        with pytest.raises(ZeroDivisionError, match=name):
            loop.run()
    failing.close()
    settle(loop)
    assert seen == [("a", RENAME), ("b", RENAME)]


# Refusals.


def test_fs_event_start_refuses_invalid_arguments(loop: Loop, tmp_path: Path) -> None:
    handle = FsEvent(loop)
    with pytest.raises(FileNotFoundError) as caught:
        handle.start(tmp_path / "missing", lambda *args: None)
    assert caught.value.filename == str(tmp_path / "missing")
    with pytest.raises(TypeError):
        handle.start(5, lambda *args: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        handle.start(tmp_path, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null byte"):
        handle.start("a\0b", lambda *args: None)
    with pytest.raises(OSError, match="Invalid argument"):
        handle.getpath()
    assert not handle.is_active()
    handle.start(tmp_path, lambda *args: None)
    with pytest.raises(OSError, match="started"):
        handle.start(tmp_path, lambda *args: None)
    handle.close()
    with pytest.raises(OSError, match="closed"):
        handle.start(tmp_path, lambda *args: None)


def test_fs_event_start_reports_exhausted_descriptors(loop: Loop, tmp_path: Path) -> None:
    handle = FsEvent(loop)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files") as caught:
            handle.start(tmp_path, lambda *args: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE
    handle.start(tmp_path, lambda *args: None)


def test_a_loop_forgotten_with_a_watch_is_collected(tmp_path: Path) -> None:
    before = open_descriptors()
    loop = Loop()
    watch(loop, tmp_path)
    watched = weakref.ref(loop)
    del loop
    with pytest.warns(ResourceWarning, match="unclosed loop"):
        gc.collect()
    gc.collect()
    assert watched() is None
    assert open_descriptors() == before


# Very many changes.


def test_ten_thousand_changes_are_accounted_for_without_a_busy_loop(loop: Loop, tmp_path: Path) -> None:
    files, rounds = 100, 100
    for number in range(files):
        (tmp_path / str(number)).touch()
    _handle, seen = watch(loop, tmp_path)
    left = rounds

    def change_all(timer: Timer) -> None:
        nonlocal left
        for number in range(files):
            os.chmod(f"{tmp_path}/{number}", 0o600)
        left -= 1
        if not left:
            timer.close()

    Timer(loop).start(change_all, 0, 1)
    began = loop.metrics()
    while len(seen) < files * rounds:
        loop.run(RunMode.ONCE)
    ended = loop.metrics()
    assert collections.Counter(seen) == {(str(number), CHANGE): rounds for number in range(files)}
    assert ended.turns - began.turns <= 2 * rounds + 10
    for _ in range(100):
        loop.run(RunMode.NOWAIT)
    assert loop.metrics().events == ended.events


class TellsOfAnOverflow(Kernel):
    """A kernel whose inotify queue overflows when it is read first."""

    def __init__(self) -> None:
        super().__init__()
        self.inotify = -1

    def inotify_create(self) -> int:
        self.inotify = super().inotify_create()
        return self.inotify

    def read(self, fd: int, limit: int) -> bytes | int:
        data = super().read(fd, limit)
        if fd == self.inotify and isinstance(data, bytes):
            self.inotify = -1
            overflow = (-1).to_bytes(4, "little", signed=True) + (0x4000).to_bytes(4, "little") + bytes(8)
            data = overflow + data
        return data


def test_an_overflow_of_the_kernels_queue_is_told_to_every_handle(tmp_path: Path) -> None:
    loop = Loop(kernel=TellsOfAnOverflow())
    told: list[tuple[int, str, int, int]] = []
    handles = [FsEvent(loop), FsEvent(loop)]

    def callback(handle: FsEvent, name: str, changes: FsChange, error: OSError | None) -> None:
        told.append((handles.index(handle), name, int(changes), error.errno if error else 0))  # type: ignore[arg-type]

    for handle in handles:
        handle.start(tmp_path, callback)
    (tmp_path / "file").mkdir()
    settle(loop)
    assert told == [
        (0, "", 0, errno.EOVERFLOW),
        (1, "", 0, errno.EOVERFLOW),
        (0, "file", RENAME, 0),
        (1, "file", RENAME, 0),
    ]
    assert all(handle.is_active() for handle in handles)
    for handle in handles:
        handle.close()
    run_turns(loop)
    loop.close()


@pytest.mark.skipif(
    int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) > 20_000, reason="a very long queue"
)
def test_a_real_overflow_is_told(loop: Loop, tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    errors: list[int | None] = []
    handle = FsEvent(loop)
    handle.start(tmp_path, lambda handle, name, changes, error: errors.append(error.errno if error else None))
    for name in "ab":
        os.mkdir(f"{tmp_path}/{name}")
    for _ in range(limit // 2 + 10):
        os.chmod(f"{tmp_path}/a", 0o700)
        os.chmod(f"{tmp_path}/b", 0o700)
    settle(loop)
    assert errors.count(errno.EOVERFLOW) == 1
    assert errors.count(None) == limit
