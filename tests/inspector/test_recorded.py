"""The recording of an inspected process is read while the loop is stuck, and survives a crash."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.core.loop_fakes import in_child
from tests.inspector.conftest import StallsSeen, needs_stacks
from tests.inspector.recordings.made_recordings import Made
from whorl import sim
from whorl.core.recording import layout
from whorl.inspector import Inspector, Recording, read
from whorl.inspector.recorded import MOST_STALL, fitted
from whorl.inspector.recordings.doing import all_stalls, doing
from whorl.inspector.recordings.recording import read_file
from whorl.inspector.views import drawing, sources
from whorl.inspector.watching import looks
from whorl.inspector.watching.stalls import Caller, Frame, Stack, Stall

Inspect = Callable[..., Inspector]
RING = layout.LEAST_RING


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(tmp_path / "inspected"))
    return tmp_path / "inspected"


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.recording")) if folder.exists() else []


def owners(folder: Path) -> set[int]:
    return {int(path.name.partition("-")[0]) for path in recordings(folder)}


def catches_sigterm(pid: int) -> bool:
    [caught] = re.findall(r"SigCgt:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> signal.SIGTERM - 1 & 1)


def open_recordings(pid: int) -> list[str]:
    """Return the names of the recordings that a process has open, which opens and closes other files."""
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it closed this one
            names.append(Path(os.readlink(f"/proc/{pid}/fd/{fd}")).name)
    return [name for name in names if name.endswith(".recording")]


def marks(recording: Recording) -> list[str]:
    return [recording.name(event.name_id) for event in recording.events() if event.kind == layout.MARK]


def test_file_is_there_from_the_first_run_to_the_end(inspect: Inspect, folder: Path) -> None:
    inspected = inspect(ring=RING)
    assert inspected.recording is None
    whorl.run(asyncio.sleep(0))
    [path] = recordings(folder)
    assert inspected.recording == path
    assert path.stat().st_mode & 0o777 == 0o600
    inspected.mark("here")
    found = read(os.getpid())
    assert marks(found) == ["here"]
    assert (found.pid, found.state) == (os.getpid(), layout.RECORDING)
    inspected.stop()
    assert recordings(folder) == []


def test_file_that_was_named_stays(inspect: Inspect, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with inspect(ring=RING, recording=path):
        whorl.run(asyncio.sleep(0))
    assert read(path).state == layout.FINISHED
    with inspect(ring=RING, recording=str(path)):  # One that is over is replaced.
        whorl.run(asyncio.sleep(0))
        assert read(path).state == layout.RECORDING


def test_file_of_the_program_is_not_replaced(
    inspect: Inspect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine").write_text("dear diary" * 100)
    inspected = inspect(ring=RING, recording=tmp_path / "mine", socket=False)
    whorl.run(asyncio.sleep(0))
    assert (tmp_path / "mine").read_text().startswith("dear")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "Only this process can read its recording"
    ]
    assert inspected.recording is None


def test_recordings_of_other_containers_are_not_replaced(
    inspect: Inspect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [tmp_path / "kept", tmp_path / f"kept.{os.getpid()}"]
    other = Made(pid=os.getpid(), namespace=1).data()
    with contextlib.ExitStack() as stack:
        for path in paths:
            path.write_bytes(other)
            fcntl.flock(stack.enter_context(open(path)), fcntl.LOCK_EX)
        with inspect(ring=RING, recording=paths[0], socket=False) as inspected:
            whorl.run(asyncio.sleep(0))
            assert inspected.recording is None
    assert [path.read_bytes() == other for path in paths] == [True, True]
    [record] = caplog.records
    assert record.getMessage().endswith(f"{paths[1].name} is the recording of another process")


@pytest.mark.parametrize("what", ["link", "open", "full"])
def test_refused_directory_is_one_warning_and_the_rest_works(
    what: str,
    inspect: Inspect,
    folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if what == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "real")
    elif what == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
    inspected = inspect(ring=RING, socket=what != "full")
    whorl.run(asyncio.sleep(0))
    whorl.run(asyncio.sleep(0))
    assert len(caplog.records) == 1
    assert inspected.recording is None
    assert recordings(folder) == []
    inspected.mark("here")
    assert marks(read(inspected.dump(tmp_path / "copy"))) == ["here"]


def test_recording_is_left_out_if_it_is_not_wanted(inspect: Inspect, folder: Path, tmp_path: Path) -> None:
    inspected = inspect(recording=False, socket=False)
    whorl.run(asyncio.sleep(0))
    inspected.mark("nowhere")
    assert inspected.recording is None
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="no loop was recorded"):
        inspected.dump(tmp_path / "copy")


@needs_stacks
def test_stall_is_in_the_file_while_it_lasts_and_afterwards(inspect: Inspect, folder: Path) -> None:
    inspected = inspect(threshold=0.05, ring=RING, socket=False)
    seen: list[Recording] = []
    inspected.subscribe(lambda stall: seen.append(read(os.getpid())))

    async def main() -> None:
        await asyncio.sleep(0)
        time.sleep(0.3)

    whorl.run(main())
    StallsSeen(inspected)
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    first, last = seen[0].stalls()[0], seen[-1].stalls()[0]
    assert (first["ended"], last["ended"]) == (False, True)
    assert "time.sleep(0.3)" in first["text"]
    [event] = [event for event in read(os.getpid()).events() if event.kind == layout.STALLED]
    assert event.subject == last["number"]
    assert abs(event.took_ns - last["length_ns"]) < 2 * layout.TOOK_UNIT_NS


def test_long_collection_is_an_event(inspect: Inspect, folder: Path) -> None:
    inspected = inspect(ring=RING, socket=False)
    whorl.run(asyncio.sleep(0))
    kept = [[number] for number in range(300_000)]
    gc.collect()
    assert inspected.recording is not None
    events = [event for event in read(inspected.recording).events() if event.kind == layout.COLLECTED]
    assert max(event.took_ns for event in events) >= layout.SHORTEST_RECORDED_NS
    assert min(event.took_ns for event in events) >= layout.SHORTEST_RECORDED_NS
    assert events[-1].subject == 2
    assert {event.loop for event in events} == {0}  # No loop ran in this thread.
    del kept


def test_collection_has_the_loop_in_whose_thread_it_ran(inspect: Inspect, folder: Path) -> None:
    inspected = inspect(ring=RING, socket=False)
    kept = [[number] for number in range(300_000)]

    async def main() -> None:
        gc.collect()
        await asyncio.to_thread(gc.collect)

    whorl.run(main())
    assert inspected.recording is not None
    events = [event for event in read(inspected.recording).events() if event.kind == layout.COLLECTED]
    assert {event.loop for event in events if event.subject == 2} == {0, 1}
    del kept


def test_stall_is_cut_to_its_place() -> None:
    frame = Frame("/" + "f" * 300, 7, "function" * 10, "source" * 100)
    frames = tuple(frame._replace(line=number) for number in range(100))
    stall = Stall(
        *(1, "loop", 2, 3, 4, True, 5, 6, 7, 8, None, "call", "task"),
        tuple(Stack(1, frames, "read", "/x", False) for _ in range(8)),
    )
    data = fitted(stall)
    assert len(data) <= MOST_STALL
    found = json.loads(data)
    assert found["stacks"][0]["frames"][-1][1] == 99
    assert found["number"] == 1


@pytest.mark.parametrize("character", ["e", "é", "漢", "😀", '"', "\x01", "\udc80"], ids=ascii)
def test_stall_with_long_names_is_cut_to_its_place(character: str) -> None:
    name = character * 9000
    frames = tuple(Frame(f"/{name}", number, name, name) for number in range(100))
    stall = Stall(
        *(1, name, 2, 3, 4, True, 5, 6, 7, 8, None, name, name),
        tuple(Stack(1, frames, "read", name, False) for _ in range(8)),
        callers=tuple(Caller(name, 1) for _ in range(8)),
    )
    data = fitted(stall)
    assert len(data) <= MOST_STALL
    found = json.loads(data)
    assert (found["number"], len(found["callers"])) == (1, 8)


def test_stall_with_names_of_other_scripts_keeps_its_frames() -> None:
    name = "漢" * 85
    frames = tuple(Frame(f"/{name}", number, name, name) for number in range(100))
    stall = Stall(
        *(1, "loop", 2, 3, 4, True, 5, 6, 7, 8, None, name, name), (Stack(1, frames, "read", "/x", False),)
    )
    assert json.loads(fitted(stall))["stacks"][0]["frames"][-1] == [f"/{name}", 99, name, name]


@pytest.mark.gil("a world needs it")
def test_a_simulated_world_is_recorded_in_memory(inspect: Inspect, folder: Path, tmp_path: Path) -> None:
    with sim.open_world(patches=sim.Patches(0)) as world:
        loop: Any = world.main.loop
        inspected = inspect(loop=loop, ring=RING)
        loop.run_until_complete(asyncio.sleep(1))
        inspected.mark("inside")
        assert inspected.watchdog is None
        assert inspected.recording is None
        assert not folder.exists()
        copy = read(inspected.dump(tmp_path / "copy"))
        assert (copy.pid, marks(copy)) == (0, ["inside"])


def test_copies_are_written_at_stalls_and_the_last_are_kept(inspect: Inspect, folder: Path) -> None:
    inspected = inspect(threshold=0.02, ring=RING, socket=False, dump_on=("stall", "exit"), keep=2)

    async def main() -> None:
        for _ in range(3):
            await asyncio.sleep(0.01)
            time.sleep(0.15)

    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    number = len(inspected.stalls())
    inspected.stop()
    kept = [path.name for path in sorted(folder.glob("whorl-*"))]
    assert kept == sorted(f"whorl-{os.getpid()}-{n}.recording" for n in (number, number + 1))


def test_copy_is_written_at_an_error_of_a_loop(inspect: Inspect, folder: Path) -> None:
    inspected = inspect(threshold=0.02, ring=RING, socket=False, dump_on=("error",))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        loop.call_exception_handler({"message": "wrong"})

    whorl.run(main())
    assert inspected.recorded is not None
    loop: Any = whorl.new_event_loop()
    loop.run_until_complete(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    loop.close()
    assert len(list(folder.glob("whorl-*"))) >= 1


def test_signal_that_is_used_writes_no_copy(
    inspect: Inspect, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        with inspect(ring=RING, socket=False, dump_on=("SIGUSR2",)):
            assert "used already" in caplog.text
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_signal_that_is_free_writes_a_copy(inspect: Inspect, folder: Path) -> None:
    with inspect(ring=RING, socket=False, dump_on=("SIGUSR2",)):
        whorl.run(asyncio.sleep(0))
        os.kill(os.getpid(), signal.SIGUSR2)
        until(lambda: list(folder.glob("whorl-*")))
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def until(what: Callable[[], Any], seconds: float = 30) -> Any:
    """Return what a function returns when that is true."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


# Other processes.


def test_forked_child_writes_a_file_of_its_own(inspect: Inspect, folder: Path) -> None:
    inspected = inspect(ring=RING, socket=False)
    whorl.run(asyncio.sleep(0.01))
    [mine] = recordings(folder)
    before = mine.read_bytes()
    descriptors = len(os.listdir("/proc/self/fd"))

    def child() -> None:
        assert inspected.recording is None
        inspected.mark("nowhere")
        whorl.run(asyncio.sleep(0))
        assert inspected.recording not in (None, mine)
        assert inspected.recording is not None
        assert inspected.recording.name.startswith(f"{os.getpid()}-")
        inspected.mark("the child's")
        assert marks(read(os.getpid())) == ["the child's"]
        inspected.stop()
        assert len(os.listdir("/proc/self/fd")) < descriptors

    assert in_child(child) == 0
    after = mine.read_bytes()
    clean = slice(layout.ALIVE_AT + 8, None)  # The watchdog goes on here.
    assert after[clean] == before[clean]
    assert recordings(folder) == [mine]


def test_fork_inside_a_callback_leaves_the_parents_file_alone(inspect: Inspect, folder: Path) -> None:
    inspected = inspect(ring=RING, socket=False, record_all=True)
    status: list[int] = []

    async def main() -> None:
        await asyncio.sleep(0)
        if (pid := os.fork()) == 0:
            gc.collect()
            inspected.mark("nowhere")
            os._exit(0 if inspected.recording is None else 1)
        status.append(os.waitpid(pid, 0)[1])

    whorl.run(main())
    assert status == [0]
    assert marks(read(os.getpid())) == []


def recorded_in_child(names: Any) -> None:
    whorl.run(asyncio.sleep(0))
    running = whorl.inspector.inspector.current()
    names.put(None if running is None else str(running.recording))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_of_multiprocessing_removes_its_file(
    method: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHORL_INSPECT", "ring=64KiB,threshold=0.1")
    if method == "forkserver":  # One that runs already has another environment.
        stop_fork_server()
    with whorl.inspector.start(ring=RING, threshold=0.1):
        whorl.run(asyncio.sleep(0))
        mine = recordings(folder)
        context = multiprocessing.get_context(method)
        names: Any = context.SimpleQueue()
        process = context.Process(target=recorded_in_child, args=(names,))  # type: ignore[attr-defined]
        process.start()
        process.join(60)
        found = names.get()
        assert process.exitcode == 0
        assert Path(str(found)).name.startswith(f"{process.pid}-")
        assert recordings(folder) == mine
    stop_fork_server()


def stop_fork_server() -> None:
    """End the process from which `multiprocessing` forks, if there is one."""
    server: Any = sys.modules.get("multiprocessing.forkserver")
    if server is not None:
        server._forkserver._stop()


PROGRAM = """
import asyncio, ctypes, os, sys, time, whorl, whorl.inspector

async def handle_order():
    await asyncio.sleep(0.001)  # When a task waits, its name is written.
    print("begins", flush=True)
    if sys.argv[1] == "sleeps":
        time.sleep(600)
    elif sys.argv[1] == "holds":
        sum(range(10**11))
    elif sys.argv[1] == "crashes":
        ctypes.string_at(0)
    elif sys.argv[1] == "leaves":
        os._exit(3)
    elif sys.argv[1] == "executes":
        os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], "sleeps"])
    end = time.monotonic() + 600
    while time.monotonic() < end:
        await asyncio.sleep(0.001)
        sum(range(100_000))

async def main():
    await asyncio.create_task(handle_order(), name="order 4711")

whorl.inspector.start(threshold=0.05, ring=1 << 20)
whorl.run(main())
"""


@pytest.fixture
def begin(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a program that is recorded."""
    begun = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        return process

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


Begin = Callable[..., "subprocess.Popen[str]"]


def stalls_shown(source: object) -> tuple[int, list[dict[str, Any]]]:
    found = subprocess.run(
        [sys.executable, "-m", "whorl", "stalls", str(source), "--json"], capture_output=True, timeout=60
    )
    return found.returncode, json.loads(found.stdout)["stalls"] if found.returncode == 0 else []


@pytest.mark.slow
def test_stalls_are_shown_while_the_loop_sleeps_and_while_it_is_stopped(begin: Begin) -> None:
    pytest.importorskip("click")
    process = begin("sleeps")
    until(lambda: read(process.pid).stalls())
    process.send_signal(signal.SIGSTOP)
    code, [stall] = stalls_shown(process.pid)
    assert code == 0
    assert (stall["ended"], stall["task"]) == (False, "order 4711 (handle_order)")
    assert "in handle_order" in stall["text"]
    assert stall["syscall"] == "clock_nanosleep"
    process.kill()
    process.wait()
    assert stalls_shown(process.pid)[1][0]["number"] == stall["number"]


@pytest.mark.slow
@pytest.mark.skipif(not looks.HAS_NATIVE, reason="the native thread is compiled")
def test_line_that_holds_the_lock_is_in_the_file_while_it_runs(begin: Begin) -> None:
    process = begin("holds")
    stall = until(lambda: [stall for stall in all_stalls(read(process.pid)) if stall["stacks"]])[0]
    assert stall["gil_held"] is True
    frame = stall["stacks"][0]["frames"][-1]
    assert frame[2] == "handle_order"
    assert stall["task"] == "order 4711"
    before = read(process.pid).alive_ns
    until(lambda: read(process.pid).alive_ns > before)  # It is known to live.
    recording = read(process.pid)
    what = doing(recording, recording.loops()[0])
    assert what is not None
    assert what.task == "order 4711"


def last_moment(path: Path) -> int:
    """Return when the last event of a recording ended; 0 if it has none."""
    return max((event.at_ns + event.took_ns for event in read_file(path).events()), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "crashes", "leaves"])
def test_last_moments_survive(end: str, begin: Begin, folder: Path) -> None:
    process = begin("works" if end == "killed" else end)
    if end == "killed":
        [path] = recordings(folder)
        begun_ns = time.monotonic_ns()
        until(lambda: last_moment(path) > begun_ns)
        seen_ns = last_moment(path)
        process.kill()
    process.wait()
    [path] = recordings(folder)
    found = read_file(path)
    assert found.state == layout.RECORDING
    if end == "killed":
        assert last_moment(path) >= seen_ns
    assert read(process.pid).pid == process.pid


@pytest.mark.slow
def test_program_that_replaces_itself_has_a_new_file(begin: Begin, folder: Path) -> None:
    process = begin("executes", PROGRAM)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    until(lambda: read(process.pid).stalls())
    [path] = recordings(folder)
    assert path.name.startswith(f"{process.pid}-")


EMPTIED = """
import asyncio, json, logging, os, sys, time, warnings, whorl, whorl.inspector

class Log(logging.Handler):
    def emit(self, record):
        texts.append(record.getMessage())

async def step(number):
    await asyncio.sleep(0)
    return number

async def main():
    if sys.argv[1] == "overwritten":
        with open(inspected.recording, "r+b") as file:
            file.write(bytes(4096))
    else:
        os.truncate(inspected.recording, 0 if sys.argv[1] == "emptied" else 4096)
    called = []
    for number in range(1000):
        asyncio.get_running_loop().call_soon(called.append, number)
    results = await asyncio.gather(*map(step, range(1000)))
    time.sleep(0.3)
    inspected.watchdog.look_now()
    with warnings.catch_warnings(action="ignore"):  # Threads run.
        child = os.fork()
    if child == 0:
        os._exit(0)
    return called == results == list(range(1000))

texts = []
logging.getLogger("whorl.inspector").addHandler(Log())
inspected = whorl.inspector.start(ring=1 << 16, threshold=0.05, socket=False)
is_right = whorl.run(main()) and os.waitstatus_to_exitcode(os.wait()[1]) == 0
inspected.mark("later")
whorl.run(asyncio.sleep(0))
inspected.watchdog.look_now()
inspected.dump(sys.argv[2])
files = os.listdir(os.environ["WHORL_INSPECT_DIR"])
print(json.dumps([is_right, inspected.recording is None, files, texts]))
inspected.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        *(
            pytest.param(
                how, marks=pytest.mark.skipif(not whorl.compiled, reason="uncompiled, there is no guard")
            )
            for how in ("emptied", "cut")
        ),
        "overwritten",
    ],
)
def test_process_goes_on_if_its_file_is_emptied(how: str, folder: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", EMPTIED, how, tmp_path / "copy"],
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert ended.returncode == 0
    is_right, has_no_file, files, texts = json.loads(ended.stdout)
    assert (is_right, has_no_file, files) == (True, True, [])
    assert [text.partition(":")[0] for text in texts if "emptied" in text] == [
        "Only this process can read its recording from now on"
    ]
    copy = read(tmp_path / "copy")
    assert marks(copy) == ["later"]
    assert [loop.number for loop in copy.loops()] == [2]  # The first one is closed; its place was free.
    assert any(stall["ended"] and stall["length_ns"] > 200_000_000 for stall in copy.stalls())
    assert copy.alive_ns > 0


@pytest.mark.slow
@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, there is no guard")
def test_dump_sees_that_the_end_of_the_file_is_gone(folder: Path, tmp_path: Path) -> None:
    code = (
        "import asyncio, os, sys, whorl, whorl.inspector as i; r = i.start(ring=1 << 16, socket=False);"
        "whorl.run(asyncio.sleep(0)); os.truncate(r.recording, 4096); r.dump(sys.argv[1]); r.stop()"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "copy"], check=True, timeout=60)
    assert read(tmp_path / "copy").size == (tmp_path / "copy").stat().st_size


@pytest.mark.slow
def test_log_that_blocks_does_not_stop_the_watchdog_of_an_emptied_file(folder: Path) -> None:
    code = """if True:
    import asyncio, logging, sys, threading, whorl, whorl.inspector

    class Log(logging.Handler):
        def emit(self, record):
            assert over.wait(60)

    over = threading.Event()
    logging.getLogger("whorl.inspector").addHandler(Log())
    inspected = whorl.inspector.start(ring=1 << 16, threshold=0.05, socket=False)
    whorl.run(asyncio.sleep(0))
    with open(inspected.recording, "r+b") as file:
        file.write(bytes(4096))
    while inspected.recording:
        inspected.watchdog.look()
    over.set()
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(not looks.HAS_NATIVE, reason="the native thread is compiled")
def test_native_thread_goes_on_if_the_file_is_emptied(begin: Begin, folder: Path) -> None:
    process = begin("holds")
    [path] = recordings(folder)
    assert path.name in Path(f"/proc/{process.pid}/maps").read_text()
    os.truncate(path, 0)
    until(lambda: path.name not in Path(f"/proc/{process.pid}/maps").read_text())
    assert process.poll() is None


def test_program_that_ends_leaves_no_file(folder: Path) -> None:
    code = "import asyncio, whorl, whorl.inspector as i; i.start(); whorl.run(asyncio.sleep(0))"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_workers_of_gunicorn_have_files_of_their_own(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    pytest.importorskip("uvicorn")
    worker = "tests.frameworks.gunicorn_worker.WhorlWorker"
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "-w", "4", "-k", worker,
         "-b", f"unix:{tmp_path}/socket", "tests.frameworks.asgi_app:app"],
        env=os.environ | {"WHORL_INSPECT": "ring=64KiB"},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: len(recordings(folder)) == 4, 60)
        workers = owners(folder)
        assert len(workers - {server.pid}) == 4
        until(lambda: all(path.read_bytes()[:8] == layout.MAGIC for path in recordings(folder)))
        assert {read(pid).pid for pid in workers} == workers
        for pid in workers:
            assert [name.partition("-")[0] for name in open_recordings(pid)] == [str(pid)]
        os.kill(killed := workers.pop(), signal.SIGKILL)
        new = int(until(lambda: owners(folder) - workers - {killed}, 60).pop())
        until(lambda: all(map(catches_sigterm, [*workers, new])), 60)
    finally:
        server.terminate()
        server.wait(60)
    assert owners(folder) == {killed}


SERVER = """
import asyncio, os, signal, sys, time, whorl, whorl.inspector

def chained(before):
    def handler(*arguments):
        print("caught", flush=True)
        if callable(before):
            before(*arguments)
    return handler

async def serve():
    number = signal.Signals[sys.argv[2]]
    stops = asyncio.Event()
    before = signal.signal(number, lambda *_: loop.call_soon_threadsafe(stops.set))
    loop = asyncio.get_running_loop()
    print("begins", flush=True)
    await stops.wait()
    if sys.argv[1] == "raises":
        signal.signal(number, before)
    else:
        signal.signal(number, chained(before))
    signal.raise_signal(number)
    print("goes on", flush=True)

signal.signal(signal.SIGINT, signal.SIG_DFL)
whorl.inspector.start(ring=1 << 16)
whorl.run(serve())
whorl.inspector.inspector.current().stop()
print(*(signal.getsignal(number) == signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)))
"""


def end_of_server(what: str, number: signal.Signals) -> tuple[int, str]:
    """Return how a server ended that was sent a signal, and what it said then."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, what, number.name], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "begins\n"
            server.send_signal(number)
            said = server.stdout.read()
            return server.wait(60), said
        finally:
            server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_server_that_raises_its_signal_again_leaves_no_file(number: signal.Signals, folder: Path) -> None:
    assert end_of_server("raises", number) == (-number, "")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_handler_that_calls_the_one_before_it_ends_no_process(folder: Path) -> None:
    assert end_of_server("chains", signal.SIGTERM) == (0, "caught\ngoes on\nTrue False\n")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_signal_ends_a_stuck_process_at_once_and_its_file_stays(begin: Begin, folder: Path) -> None:
    process = begin("holds")
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    assert len(recordings(folder)) == 1


def test_loops_without_room_are_counted(inspect: Inspect, folder: Path) -> None:
    async def wait() -> None:
        begun.release()
        await asyncio.to_thread(over.wait)

    inspect(ring=RING)
    begun, over = threading.Semaphore(0), threading.Event()
    threads = [threading.Thread(target=lambda: whorl.run(wait())) for _ in range(layout.LOOPS + 3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    try:
        until(lambda: read(os.getpid()).left_out == 3)  # The watchdog writes it at each of its looks.
        assert len(read(os.getpid()).loops()) == layout.LOOPS
        picture = sources.Source(os.getpid()).look()[0]
        for lines in (drawing.overview([picture], 80), drawing.details(picture, 80)):
            assert "and 3 more loops, for which the recording has no room" in [
                line.text.strip() for line in lines
            ]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    until(lambda: not read(os.getpid()).left_out)
