"""Finding recordings, and what their processes do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inspector.views.made_recordings import Made, S, of_this_process
from whorl.core.recording import layout
from whorl.inspector.asking import client, directory, finding, places

NOBODY = 4194300  # a number that no process has


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of recordings, and let no other be looked into."""
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(tmp_path / "recorded"))
    monkeypatch.setattr(places, "own_folders", lambda user: [os.environ["WHORL_INSPECT_DIR"]])
    monkeypatch.setattr(finding.glob, "glob", lambda pattern: [])
    return tmp_path / "recorded"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    yield process
    process.kill()
    process.wait()


def made_for(pid: int) -> Made:
    return Made(pid, directory.start_time(pid) or 1)


def test_recording_of_a_living_process_is_found(folder: Path) -> None:
    path = of_this_process().write(folder)
    found = finding.recording_of(os.getpid())
    assert (found.path, found.pid, found.state, found.user) == (
        str(path),
        os.getpid(),
        "running",
        os.getuid(),
    )


def test_recordings_of_all_processes_are_found_the_living_first(folder: Path) -> None:
    for number, ago in ((NOBODY, 50), (NOBODY - 1, 20)):
        made = Made(number, 1)
        made.loop(updated_ns=time.monotonic_ns() - ago * S)
        made.write(folder)
    of_this_process().write(folder)
    (folder / "1-1.recording").write_bytes(b"no recording")
    (folder / "notes").write_bytes(b"")
    assert [found.pid for found in finding.all_recordings()] == [os.getpid(), NOBODY - 1, NOBODY]
    assert [found.state for found in finding.all_recordings()] == ["running", "died", "died"]


def test_process_that_died_is_told_with_when(folder: Path) -> None:
    made = Made(NOBODY, 1)
    made.loop(updated_ns=time.monotonic_ns() - 180 * S)
    made.write(folder)
    found = finding.recording_of(NOBODY)
    assert found.state == "died"
    assert 180 * S <= found.seen_ago_ns < 200 * S


def test_number_that_another_process_has_now_is_no_sign_of_life(
    folder: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    Made(sleeper.pid, 1).write(folder)
    assert finding.recording_of(sleeper.pid).state == "died"


def test_recording_of_an_earlier_start_of_the_system_is_of_a_dead_process(folder: Path) -> None:
    of_this_process(boot=b"another").write(folder)
    assert finding.recording_of(os.getpid()).state == "died"


def test_stopped_process_is_told(folder: Path, sleeper: subprocess.Popen[bytes]) -> None:
    made_for(sleeper.pid).write(folder)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    found = finding.recording_of(sleeper.pid)
    assert (found.state, found.is_living) == ("stopped", True)


def test_process_that_nobody_has_waited_for_has_died(folder: Path, sleeper: subprocess.Popen[bytes]) -> None:
    made_for(sleeper.pid).write(folder)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert finding.recording_of(sleeper.pid).state == "died"


def test_recording_that_was_finished_is_told(folder: Path) -> None:
    made = of_this_process()
    made.word(layout.STATE_AT, layout.FINISHED)
    made.write(folder)
    assert finding.recording_of(os.getpid()).state == "finished"


def test_process_that_is_not_recorded_is_code_3(folder: Path) -> None:
    for pid in (os.getpid(), NOBODY):
        with pytest.raises(client.NotInspected) as refusal:
            finding.recording_of(pid)
        assert refusal.value.code == 3


def test_process_of_another_user_is_code_4_and_its_file_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_this_process().write(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(finding, "read_file", None)
    with pytest.raises(client.NotOurs) as refusal:
        finding.recording_of(os.getpid())
    assert refusal.value.code == 4
    assert finding.all_recordings() == []


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    path = of_this_process().write(tmp_path / "elsewhere")
    folder.mkdir(mode=0o700)
    (folder / path.name).symlink_to(path)
    assert finding.all_recordings() == []
    shutil.rmtree(folder)
    folder.symlink_to(path.parent)
    assert finding.all_recordings() == []


def test_file_that_would_be_waited_for_is_left_out(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / f"{NOBODY}-1.recording")
    assert finding.all_recordings() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_file_of_another_user_is_left_out(folder: Path) -> None:
    path = of_this_process().write(folder)
    os.chown(path, 12345, -1)
    assert finding.all_recordings() == []
    with pytest.raises(client.NotInspected):
        finding.recording_of(os.getpid())


def test_recording_that_is_damaged_is_left_out(folder: Path) -> None:
    made = of_this_process()
    made.write(folder)
    for size in (0, 8, 100, 5000):
        (folder / f"{NOBODY}-{size}.recording").write_bytes(made.memory[:size])
    assert [found.pid for found in finding.all_recordings()] == [os.getpid()]
