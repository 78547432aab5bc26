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
from whorl.inspector.recordings import file
from whorl.inspector.recordings.recording import read_file
from whorl.inspector.views import drawing, sources

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


# Other PID namespaces.

SERVICE = "import asyncio, whorl; whorl.run(asyncio.sleep({seconds}))"
LIVES = """
import asyncio, sys, whorl

async def main():
    print(flush=True)
    await asyncio.to_thread(sys.stdin.read)

whorl.run(main())
"""


def elsewhere(code: str) -> list[str]:
    """Return the command that runs code in a PID namespace of its own."""
    return ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", code]


@pytest.fixture
def may_unshare() -> None:
    """Skip the test where PID namespaces are refused."""
    try:
        refused = subprocess.run(elsewhere("pass"), capture_output=True, check=False).returncode != 0
    except FileNotFoundError:
        refused = True
    if refused:
        pytest.skip("this system refuses a PID namespace")


@pytest.fixture
def other(
    may_unshare: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """Start an inspected process in another PID namespace, which shares the directory."""
    monkeypatch.setenv("WHORL_INSPECT", "1")
    with subprocess.Popen(elsewhere(LIVES), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def run_here(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_process_of_another_namespace_lives_and_keeps_its_files(
    other: subprocess.Popen[bytes], folder: Path
) -> None:
    before = names_in(folder)
    assert sorted(name.rpartition(".")[2] for name in before) == ["recording", "sock"]
    found = finding.all_recordings()
    assert [(one.pid, one.state, one.is_living) for one in found] == [(1, "running", True)]
    assert found[0].namespace not in (None, file.namespace())
    for _ in range(2):  # A process that begins here, and one that ends, leave them alone.
        run_here(SERVICE.format(seconds=0))
        assert names_in(folder) == before
    picture = sources.Source().look()[0]
    assert picture.namespace == found[0].namespace
    assert f"[PID namespace {picture.namespace}]" in drawing.overview([picture], 120)[1].text


def test_process_of_another_namespace_that_was_killed_has_died(
    other: subprocess.Popen[bytes], folder: Path
) -> None:
    other.kill()
    while (found := finding.all_recordings())[0].is_living:  # It ends a moment after its parent.
        pass
    assert [(one.pid, one.state) for one in found] == [(1, "died")]
    run_here(SERVICE.format(seconds=0))
    assert {name.rpartition(".")[2] for name in names_in(folder)} == {"recording"}


def test_process_of_this_namespace_keeps_its_files_when_another_one_begins_elsewhere(
    may_unshare: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHORL_INSPECT", "1")
    with subprocess.Popen(
        [sys.executable, "-c", LIVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        before = names_in(folder)
        subprocess.run(elsewhere(SERVICE.format(seconds=0)), check=True)
        assert names_in(folder) == before
        assert client.ask(process.pid, "hello")["pid"] == process.pid
        shown = (  # Root sees what other processes have left, too.
            "from whorl.inspector.asking import finding\n"
            f"print([f.state for f in finding.all_recordings() if f.path.startswith({str(folder)!r})])"
        )
        seen = subprocess.run(elsewhere(shown), capture_output=True, text=True, check=True)
        assert seen.stdout == "['running']\n"
        process.communicate()


def test_named_recording_of_another_namespace_is_not_replaced(
    may_unshare: None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHORL_INSPECT", f"recording={tmp_path / 'named'}")
    with subprocess.Popen(elsewhere(LIVES), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        theirs = read_file(tmp_path / "named").namespace
        subprocess.run(elsewhere(SERVICE.format(seconds=0)), check=True)  # It has the same number.
        assert read_file(tmp_path / "named").namespace == theirs
        assert read_file(tmp_path / "named.1").namespace not in (theirs, file.namespace())
        process.communicate()
