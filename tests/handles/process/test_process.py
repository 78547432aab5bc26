"""Process: real programs on the machine's loop."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.core.conftest import open_descriptors
from whorl.core import Kernel, Loop, RunMode
from whorl.handles import Pipe, Process, Stdio, StdioKind, Timer, kill

Ended = tuple[int, int]


class Reader:
    """A reader that keeps the data of a pipe, until its end."""

    def __init__(self, loop: Loop) -> None:
        self.pipe = Pipe(loop)
        self.data = b""

    def start(self) -> None:
        self.pipe.read_start(self.take)

    def take(self, pipe: Any, data: bytes, error: OSError | None) -> None:
        assert error is None
        self.data += data
        if not data:
            pipe.close()


def run(loop: Loop, *args: Any, **options: Any) -> Ended:
    """Run a program to its end; its exit status and the signal that ended it."""
    ended: list[Ended] = []

    def on_exit(process: Process, status: int, number: int) -> None:
        ended.append((status, number))
        process.close()

    Process(loop).spawn(args, on_exit, **options)
    loop.run()
    return ended.pop()


def output_of(loop: Loop, *args: Any, **options: Any) -> bytes:
    """Return the output of a program, which must end without an error."""
    reader = Reader(loop)
    ended: list[Ended] = []
    process = Process(loop)
    stdio = [Stdio.ignore(), Stdio.create_pipe(reader.pipe, child_writes=True), Stdio.inherit_fd(2)]
    process.spawn(args, lambda process, *end: ended.append(end), stdio=stdio, **options)
    reader.start()
    loop.run()
    assert ended == [(0, 0)]
    process.close()
    return reader.data


# Starting and ending.


@pytest.mark.parametrize("status", [0, 1, 77, 255])
def test_the_exit_status_is_told(loop: Loop, status: int) -> None:
    assert run(loop, "sh", "-c", f"exit {status}") == (status, 0)


def test_a_process_keeps_the_loop_alive_until_it_ends(loop: Loop) -> None:
    process = Process(loop)
    assert process.pid == 0
    assert not process.is_active()
    ended: list[Ended] = []
    process.spawn(["sleep", "60"], lambda process, *end: ended.append(end))
    assert process.is_active()
    assert process.pid > 0
    assert loop.alive()
    process.unref()
    assert not loop.alive()
    process.ref()
    process.kill()
    loop.run()
    assert ended == [(0, signal.SIGTERM)]
    assert not process.is_active()
    with pytest.raises(ProcessLookupError):
        process.kill()


def test_signals(loop: Loop) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1):
        process = Process(loop)
        ended: list[Ended] = []
        process.spawn(["sleep", "60"], lambda process, *end, ended=ended: ended.append(end))
        process.kill(0)
        process.kill(number)
        loop.run()
        assert ended == [(0, number)]


def test_kill_refuses_an_invalid_signal_and_a_missing_process(loop: Loop) -> None:
    process = Process(loop)
    with pytest.raises(ProcessLookupError):
        process.kill()
    process.spawn(["sleep", "60"])
    with pytest.raises(OSError, match="Invalid argument"):
        process.kill(12345)
    process.kill()
    loop.run()


def test_kill_sends_a_signal_to_any_process(loop: Loop) -> None:
    process = Process(loop)
    ended: list[Ended] = []
    process.spawn(["sleep", "60"], lambda process, *end: ended.append(end))
    kill(process.pid, 0)
    kill(process.pid, signal.SIGUSR1)
    loop.run()
    assert ended == [(0, signal.SIGUSR1)]
    with pytest.raises(ProcessLookupError):
        kill(process.pid, 0)


def test_a_program_that_cannot_be_started_raises_and_leaves_nothing(loop: Loop) -> None:
    before = set(open_descriptors())
    process = Process(loop)
    pipe = Pipe(loop)
    stdio = [Stdio.create_pipe(pipe, child_reads=True)] * 1
    with pytest.raises(FileNotFoundError):
        process.spawn(["/does/not/exist"], stdio=stdio)
    with pytest.raises(PermissionError):
        process.spawn(["/etc/passwd"], stdio=stdio)
    with pytest.raises(FileNotFoundError):
        process.spawn(["true"], cwd="/does/not/exist", stdio=stdio)
    assert not loop.alive()
    assert set(open_descriptors()) == before
    process.spawn(["true"])
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        process.spawn(["true"])
    loop.run()


def test_a_closed_handle_starts_nothing(loop: Loop) -> None:
    process = Process(loop)
    process.close()
    with pytest.raises(OSError, match="closed"):
        process.spawn(["true"])


# Closing.


def reaped(pid: int) -> None:
    """Wait until a child has been reaped by the thread that stays behind."""
    for thread in threading.enumerate():
        if thread.name == f"whorl-child-{pid}":
            thread.join(30)
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def test_a_closed_process_runs_on_and_is_reaped(loop: Loop) -> None:
    process = Process(loop)
    ended: list[Any] = []
    process.spawn(["sleep", "60"], lambda *end: ended.append(end))
    pid = process.pid
    process.close()
    loop.run()
    loop.close()
    kill(pid, 0)
    kill(pid, signal.SIGKILL)
    reaped(pid)
    assert not ended


def test_a_process_closed_after_its_end_tells_nothing(loop: Loop) -> None:
    process = Process(loop)
    ended: list[Any] = []
    process.spawn(["sleep", "60"], lambda *end: ended.append(end))
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    process.close()
    loop.run()
    assert not ended
    reaped(process.pid)


def test_a_child_that_somebody_else_reaped_has_an_unknown_status(loop: Loop) -> None:
    process = Process(loop)
    ended: list[Ended] = []
    process.spawn(["sleep", "60"], lambda process, *end: ended.append(end))
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
    loop.run()
    assert ended == [(255, 0)]


class NoPidfds(Kernel):
    """A host without pidfds."""

    def pidfd_open(self, pid: int) -> int:
        return -errno.EPERM


def test_process_is_awaited_by_a_thread_without_pidfds() -> None:
    loop = Loop(kernel=NoPidfds())
    assert run(loop, "sh", "-c", "exit 4") == (4, 0)
    process = Process(loop)
    process.spawn(["sleep", "60"])
    pid = process.pid
    process.close()
    loop.run()
    loop.close()
    kill(pid, signal.SIGKILL)
    reaped(pid)


# The child's environment.


def test_output_through_a_pipe(loop: Loop) -> None:
    assert output_of(loop, "echo", "hello") == b"hello\n"


def test_a_conversation(loop: Loop) -> None:
    reader = Reader(loop)
    writer = Pipe(loop)
    process = Process(loop)
    process.spawn(
        ["cat"],
        stdio=[
            Stdio.create_pipe(writer, child_reads=True),
            Stdio.create_pipe(reader.pipe, child_writes=True),
        ],
    )
    assert writer.is_writable()
    assert not writer.is_readable()
    assert reader.pipe.is_readable()
    reader.start()
    writer.write(b"x" * 300_000, lambda request, error: writer.close())
    loop.run()
    assert reader.data == b"x" * 300_000


def test_pipes_can_be_opened_again_by_name(loop: Loop) -> None:
    assert output_of(loop, "sh", "-c", "echo again > /dev/stdout; stat -Lc %F /dev/fd/1") == b"again\nfifo\n"


def test_a_pipe_may_go_both_ways(loop: Loop) -> None:
    both = Reader(loop)
    process = Process(loop)
    stdio = Stdio.create_pipe(both.pipe, child_reads=True, child_writes=True)
    process.spawn(["sh", "-c", "read line; echo got $line >&0"], stdio=[stdio])
    both.start()
    both.pipe.write(b"it\n")
    loop.run()
    assert both.data == b"got it\n"


def test_unnamed_stdio_is_the_null_device(loop: Loop) -> None:
    assert run(loop, "sh", "-c", "test ! /dev/fd/0 -ef /dev/null -o ! /dev/fd/2 -ef /dev/null") == (1, 0)
    process = Process(loop)
    reader = Reader(loop)
    process.spawn(["readlink", "/proc/self/fd/0"], stdio=[Stdio.ignore(), out(reader)])
    reader.start()
    loop.run()
    assert reader.data == b"/dev/null\n"


def out(reader: Reader) -> Stdio:
    """Return a pipe for the output of the child."""
    return Stdio.create_pipe(reader.pipe, child_writes=True)


def test_descriptors_and_streams_are_inherited(loop: Loop, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    stream = Pipe(loop)
    stream.open(theirs.detach())
    with open(tmp_path / "out", "wb") as file:
        process = Process(loop)
        stdio = [Stdio.inherit_stream(stream), Stdio.inherit_fd(file.fileno())]
        ours.send(b"through a stream")
        ours.shutdown(socket.SHUT_WR)
        process.spawn(["sh", "-c", "sleep 0; cat"], stdio=stdio)
        # The stream does not block, and its file is the child's too: there is something to read already.
        loop.run()
    stream.close()
    ours.close()
    assert (tmp_path / "out").read_bytes() == b"through a stream"


def test_spawn_survives_fork_handlers_that_close_descriptors(loop: Loop) -> None:
    """Handlers that run after every fork may close what lies here on a number of the child's."""
    program = """
import os, whorl
from whorl.handles import Pipe, Process, Stdio

while (lies_there := os.open("/dev/null", os.O_RDONLY)) < 3:
    pass
os.register_at_fork(after_in_child=lambda: os.close(lies_there))
loop = whorl.Loop()
pipe = Pipe(loop)
process = Process(loop)
ignored = [Stdio.ignore()] * lies_there
stdio = [*ignored, Stdio.create_pipe(pipe, child_writes=True)]
process.spawn(["sh", "-c", f"echo said >&{lies_there}"], stdio=stdio)
pipe.read_start(lambda pipe, data, error: (print(data), data or pipe.close()))
process.close()
loop.run()
loop.close()
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (answer.stdout, answer.stderr) == ("b'said\\n'\nb''\n", "")


@pytest.mark.parametrize("count", [1, 2, 30])
def test_more_than_three_descriptors(loop: Loop, count: int) -> None:
    """The first is the child's descriptor 3, and so on, whatever they are here."""
    readers = [Reader(loop) for _ in range(count)]
    script = "; ".join(f"echo {number} > /dev/fd/{number}" for number in range(3, 3 + count))
    stdio = [Stdio.ignore(), Stdio.ignore(), Stdio.inherit_fd(2), *map(out, readers)]
    before = set(open_descriptors())
    process = Process(loop)
    ended: list[Ended] = []
    process.spawn(["sh", "-c", script], lambda process, *end: ended.append(end), stdio=stdio)
    assert len(set(open_descriptors()) - before) == count + 1  # the pipes, and what tells of the end
    for reader in readers:
        reader.start()
    loop.run()
    assert ended == [(0, 0)]
    assert [reader.data for reader in readers] == [b"%d\n" % number for number in range(3, 3 + count)]


def test_descriptors_may_change_places(loop: Loop) -> None:
    """Each is read from where the other one is written to."""
    first_read, first_write = os.pipe()
    second_read, second_write = os.pipe()
    low, high = sorted((first_write, second_write))
    stdio = [Stdio.ignore()] * 3 + [Stdio.ignore()] * (high - 2)
    stdio[low], stdio[high] = Stdio.inherit_fd(high), Stdio.inherit_fd(low)
    process = Process(loop)
    process.spawn(["sh", "-c", f"echo low > /dev/fd/{low}; echo high > /dev/fd/{high}"], stdio=stdio)
    loop.run()
    read_of = {first_write: first_read, second_write: second_read}
    assert os.read(read_of[high], 100) == b"low\n"
    assert os.read(read_of[low], 100) == b"high\n"
    for fd in (first_read, first_write, second_read, second_write):
        os.close(fd)


def test_process_inherits_only_its_stdio(loop: Loop) -> None:
    read_fd, write_fd = os.pipe()
    os.set_inheritable(write_fd, True)
    fourth = Reader(loop)
    for extra in ([], [out(fourth)]):
        reader = Reader(loop)
        process = Process(loop)
        process.spawn(["ls", "/proc/self/fd"], stdio=[Stdio.ignore(), out(reader), Stdio.ignore(), *extra])
        reader.start()
        loop.run()
        assert len(reader.data.split()) == 4 + len(extra)  # and the directory itself
    fourth.pipe.close()
    os.close(read_fd)
    os.close(write_fd)


def test_a_program_that_cannot_be_started_with_many_descriptors_says_so(loop: Loop) -> None:
    before = set(open_descriptors())
    readers = [Reader(loop) for _ in range(5)]
    with pytest.raises(FileNotFoundError):
        Process(loop).spawn(["/does/not/exist"], stdio=[Stdio.ignore()] * 3 + [out(item) for item in readers])
    assert set(open_descriptors()) == before


def test_stdio_that_makes_no_sense_is_refused(loop: Loop) -> None:
    other = Loop()
    used = Pipe(loop)
    read_fd, write_fd = os.pipe()
    used.open(read_fd)
    process = Process(loop)
    refused: list[tuple[Any, type[Exception]]] = [
        (5, TypeError),
        (Stdio.create_pipe(Pipe(loop)), OSError),
        (Stdio.create_pipe(used, child_writes=True), OSError),
        (Stdio.create_pipe(Pipe(other), child_writes=True), ValueError),
        (Stdio.inherit_stream(Pipe(loop)), OSError),
        (Stdio.inherit_fd(-1), OSError),
        (Stdio(StdioKind.CREATE_PIPE), TypeError),
        (Stdio(StdioKind.INHERIT_STREAM), OSError),
    ]
    for entry, kind in refused:
        with pytest.raises(kind):
            process.spawn(["true"], stdio=[entry])
    with pytest.raises(TypeError, match="callable"):
        process.spawn(["true"], 5)  # type: ignore[arg-type]
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        process.spawn(["true"], stdio=[Stdio.create_pipe(Pipe(loop), child_reads=True)] * 2)
    assert process.pid == 0  # nothing was ever started
    os.close(write_fd)
    for handle in other.walk():
        handle.close()
    other.run(RunMode.NOWAIT)
    other.close()


def test_arguments_environment_and_directory(loop: Loop, tmp_path: Path) -> None:
    assert output_of(loop, b"echo", "text") == b"text\n"
    assert output_of(loop, "env", env={"ONLY": "this"}) == b"ONLY=this\n"
    assert output_of(loop, "pwd", cwd=tmp_path) == os.fsencode(tmp_path.resolve()) + b"\n"
    assert output_of(loop, "-name-", "-c", "echo $0", file="/bin/sh") == b"-name-\n"


def test_a_detached_process_leads_a_session(loop: Loop) -> None:
    for detached in (True, False):
        process = Process(loop)
        process.spawn(["sleep", "60"], detached=detached)
        assert (os.getsid(process.pid) == process.pid) is detached
        process.kill()
        loop.run()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_user_and_group(loop: Loop) -> None:
    assert output_of(loop, "sh", "-c", "id -u; id -g; id -G", uid=1234, gid=1235) == b"1234\n1235\n1235\n"


# Loops.


def test_processes_on_loops_of_threads() -> None:
    results: list[Ended] = []

    def work(status: int) -> None:
        loop = Loop()
        results.append(run(loop, "sh", "-c", f"exit {status}"))
        loop.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(number, 0) for number in range(5)]


def test_processes_run_many_at_once(loop: Loop) -> None:
    ended: list[int] = []
    for status in range(20):
        Process(loop).spawn(
            ["sh", "-c", f"exit {status}"], lambda process, status, number: ended.append(status)
        )
    loop.run()
    assert sorted(ended) == list(range(20))


def test_a_process_on_a_loop_that_runs_coroutines() -> None:
    loop = whorl.EventLoop()
    ended: list[Ended] = []

    async def main() -> None:
        done = loop.create_future()
        process = Process(loop)

        def on_exit(process: Process, *end: int) -> None:
            ended.append((end[0], end[1]))
            process.close()
            done.set_result(None)

        process.spawn(["sh", "-c", "exit 2"], on_exit)
        await done

    loop.run_until_complete(main())
    loop.close()
    assert ended == [(2, 0)]


def test_an_error_out_of_the_exit_callback_ends_the_run(loop: Loop) -> None:
    def fail(process: Process, status: int, number: int) -> None:
        raise ZeroDivisionError

    Process(loop).spawn(["true"], fail)
    with pytest.raises(ZeroDivisionError):
        loop.run()
    Timer(loop).start(lambda timer: timer.close(), timeout_ns=0)
    loop.run()
