"""Subprocesses: real programs, their pipes, their end, and their remains."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import fcntl
import gc
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import warnings
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import Watched, receive, refuse_blocking_calls, settled_descriptors, turns
from tests.core.conftest import open_descriptors
from whorl.core import Kernel
from whorl.core.process.host import Host

Reported = list[dict[str, Any]]


def children() -> set[int]:
    """Return the children of this process, also those that have ended and were not reaped."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            found.update(map(int, Path(f"/proc/self/task/{task}/children").read_text().split()))
    return found


@pytest.fixture(autouse=True)
def no_child_left(no_leak: None) -> Iterator[None]:
    """Check that a test leaves no child behind, also none that has ended."""
    before = children()
    yield
    if children() - before:
        gc.collect()
        assert children() <= before


class Talk(Watched, asyncio.SubprocessProtocol):
    """A protocol that notes its calls, and insists on the order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.output: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self.errors: dict[int, Any] = {}
        self.transport: Any = None

    def note(self, call: str) -> None:
        assert "connection_lost" not in self.calls
        self.calls.append(call)
        self.changed()

    def connection_made(self, transport: Any) -> None:
        assert not self.calls
        self.transport = transport
        self.note("connection_made")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        assert f"lost {fd}" not in self.calls
        self.output[fd] += data
        self.note(f"data {fd}")

    def pipe_connection_lost(self, fd: int, exc: BaseException | None) -> None:
        assert f"lost {fd}" not in self.calls
        self.errors[fd] = exc
        self.note(f"lost {fd}")

    def pause_writing(self) -> None:
        self.note("pause_writing")

    def resume_writing(self) -> None:
        self.note("resume_writing")

    def process_exited(self) -> None:
        assert "process_exited" not in self.calls
        self.note("process_exited")

    def connection_lost(self, exc: BaseException | None) -> None:
        assert exc is None
        self.note("connection_lost")

    async def until_lost(self) -> None:
        await self.until(lambda: "connection_lost" in self.calls)


async def output_of(*command: str, **options: Any) -> bytes:
    """Return the output of a program, which must end without an error."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, **options)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return bytes(output)


# Talking.


async def test_a_program_reads_and_writes() -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    data = os.urandom(1_000_000)
    assert await process.communicate(data) == (data, None)
    assert process.returncode == 0


async def test_the_shell_runs_a_command() -> None:
    command = "read line; echo out $line; echo err $line >&2; exit 3"
    process = await asyncio.create_subprocess_shell(command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert await process.communicate(b"x\n") == (b"out x\n", b"err x\n")
    assert process.returncode == 3


async def test_a_conversation_line_by_line() -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(20):
        process.stdin.write(b"line %d\n" % number)
        await process.stdin.drain()
        assert await process.stdout.readline() == b"line %d\n" % number
    process.stdin.close()
    await process.stdin.wait_closed()
    assert await process.stdout.read() == b""
    assert await process.wait() == 0


async def test_subprocesses_run_many_at_once() -> None:
    outputs = await asyncio.gather(*(output_of("echo", str(number)) for number in range(30)))
    assert outputs == [b"%d\n" % number for number in range(30)]


async def test_a_flood_does_not_fill_the_memory() -> None:
    process = await asyncio.create_subprocess_exec("cat", "/dev/zero", stdout=PIPE, limit=65536)
    assert process.stdout is not None
    assert len(await process.stdout.readexactly(300_000)) == 300_000
    await turns(50)
    await asyncio.sleep(0.02)
    assert len(process.stdout._buffer) <= 2 * 65536 + 256 * 1024  # type: ignore[attr-defined]
    process.kill()
    await process.stdout.read()
    assert await process.wait() == -signal.SIGKILL


async def test_a_program_that_does_not_read_pauses_its_writer(loop: whorl.EventLoop) -> None:
    transport, protocol = await loop.subprocess_exec(Talk, "sleep", "60", stdout=None, stderr=None)
    stdin: Any = transport.get_pipe_transport(0)
    stdin.write(bytes(1_000_000))
    assert "pause_writing" in protocol.calls
    assert stdin.get_write_buffer_size() > 900_000
    transport.kill()
    await protocol.until(lambda: "lost 0" in protocol.calls)
    assert type(protocol.errors[0]) is BrokenPipeError
    await protocol.until_lost()
    transport.close()


@pytest.mark.exact("a write may find the broken pipe before an event tells of it, with a number")
async def test_the_event_of_a_broken_pipe_is_an_error_without_a_number(loop: whorl.EventLoop) -> None:
    transport, protocol = await loop.subprocess_exec(Talk, "sleep", "60", stdout=None, stderr=None)
    stdin: Any = transport.get_pipe_transport(0)
    stdin.write(bytes(1_000_000))
    transport.kill()
    await protocol.until_lost()
    assert repr(protocol.errors[0]) == "BrokenPipeError()"
    transport.close()


async def test_a_program_that_ends_early_breaks_the_pipe_and_no_more() -> None:
    process = await asyncio.create_subprocess_exec("true", stdin=PIPE, stdout=PIPE)
    assert await process.communicate(bytes(1_000_000)) == (b"", None)
    assert process.returncode == 0


# The protocol.


async def test_the_protocol_is_told_of_everything_once_and_in_order(loop: whorl.EventLoop) -> None:
    script = "cat; echo error >&2"
    transport, protocol = await loop.subprocess_shell(Talk, script)
    assert protocol.calls[0] == "connection_made"
    assert protocol.transport is transport
    stdin: Any = transport.get_pipe_transport(0)
    stdin.write(b"hello")
    stdin.write_eof()
    await protocol.until_lost()
    assert protocol.output == {1: b"hello", 2: b"error\n"}
    assert protocol.errors == {0: None, 1: None, 2: None}
    for call in ("process_exited", "lost 0", "lost 1", "lost 2", "connection_lost"):
        assert protocol.calls.count(call) == 1
    assert protocol.calls[-1] == "connection_lost"
    assert transport.get_returncode() == 0
    transport.close()


@pytest.mark.exact("what is read comes in pieces")
async def test_subprocess_output_reaches_the_protocol_before_process_exited(loop: whorl.EventLoop) -> None:
    receiver, sender = os.pipe()
    script = "read line; echo done; exit 3"
    transport, protocol = await loop.subprocess_shell(Talk, script, stdin=receiver, stderr=None)
    os.close(receiver)
    os.close(sender)
    os.waitid(os.P_PID, transport.get_pid(), os.WEXITED | os.WNOWAIT)  # Both can be known by now.
    await protocol.until_lost()
    assert protocol.calls == ["connection_made", "data 1", "process_exited", "lost 1", "connection_lost"]
    transport.close()


@pytest.mark.exact("what takes which number of turns")
async def test_subprocess_exec_returns_before_the_first_output(loop: whorl.EventLoop) -> None:
    receiver, sender = os.pipe()

    def until_it_has_ended() -> None:
        os.close(sender)
        os.read(receiver, 1)
        os.close(receiver)

    def make() -> Talk:
        loop.call_soon(until_it_has_ended)
        return Talk()

    transport, protocol = await loop.subprocess_exec(
        make, "echo", "done", stdin=None, stderr=None, pass_fds=(sender,)
    )
    assert "connection_made" in protocol.calls
    assert "data 1" not in protocol.calls
    await protocol.until_lost()
    assert protocol.output[1] == b"done\n"
    transport.close()


async def test_the_connection_is_lost_only_when_nobody_writes_any_more(loop: whorl.EventLoop) -> None:
    """A grandchild keeps the pipe; the process itself has exited."""
    script = "exec 3<&0; { read line <&3; echo $line; } & exit 5"
    transport, protocol = await loop.subprocess_shell(Talk, script, stderr=None)
    await protocol.until(lambda: "process_exited" in protocol.calls)
    assert transport.get_returncode() == 5
    await turns(5)
    assert "connection_lost" not in protocol.calls
    stdin: Any = transport.get_pipe_transport(0)
    stdin.write(b"later\n")
    await protocol.until_lost()
    assert protocol.output[1] == b"later\n"
    transport.close()


async def test_set_protocol_hands_a_subprocess_to_another_protocol(loop: whorl.EventLoop) -> None:
    transport, first = await loop.subprocess_exec(Talk, "cat")
    second = Talk()
    second.connection_made(transport)
    transport.set_protocol(second)
    assert transport.get_protocol() is second
    stdin: Any = transport.get_pipe_transport(0)
    stdin.write(b"x")
    stdin.close()
    await second.until_lost()
    assert second.output[1] == b"x"
    assert first.calls == ["connection_made"]
    transport.close()


async def test_the_protocol_runs_in_the_context_of_its_maker(loop: whorl.EventLoop) -> None:
    name = contextvars.ContextVar("name", default="nobody")
    seen = []

    class Named(Talk):
        def note(self, call: str) -> None:
            seen.append(name.get())
            super().note(call)

    name.set("maker")
    transport, protocol = await loop.subprocess_exec(Named, "echo", "x", stdin=None)
    name.set("somebody else")
    await protocol.until_lost()
    assert set(seen) == {"maker"}
    transport.close()


# The child's environment.


async def test_every_kind_of_stream(tmp_path: Path) -> None:
    script = "cat; echo error >&2"
    (tmp_path / "in").write_bytes(b"input ")
    for stdout in (PIPE, DEVNULL, None, "file", "descriptor"):
        for stderr in (PIPE, DEVNULL, STDOUT, "file"):
            with (
                open(tmp_path / "in", "rb") as source,
                open(tmp_path / "out", "wb") as out,
                open(tmp_path / "err", "wb") as err,
            ):
                to_out: Any = {"file": out, "descriptor": out.fileno()}.get(str(stdout), stdout)
                if stdout is None:
                    to_out = out  # what is inherited is pytest's
                to_err: Any = err if stderr == "file" else stderr
                process = await asyncio.create_subprocess_exec(
                    "sh", "-c", script, stdin=source, stdout=to_out, stderr=to_err
                )
                output, errors = await process.communicate()
            if stdout == PIPE:
                assert output == b"input " + (b"error\n" if stderr == STDOUT else b"")
            elif stdout != DEVNULL:
                expected = b"input " + (b"error\n" if stderr == STDOUT else b"")
                assert (tmp_path / "out").read_bytes() == expected
            assert errors == (b"error\n" if stderr == PIPE else None)
            if stderr == "file":
                assert (tmp_path / "err").read_bytes() == b"error\n"


async def test_pipes_are_real_pipes_that_can_be_opened_again() -> None:
    script = "cat /dev/stdin; echo again > /dev/stdout; echo error > /dev/fd/2; stat -Lc %F /dev/fd/0"
    process = await asyncio.create_subprocess_shell(script, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert await process.communicate(b"in ") == (b"in again\nfifo\n", b"error\n")


async def test_a_socket_may_be_given() -> None:
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec("cat", stdin=theirs, stdout=theirs)
    theirs.close()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(ours, b"hello")
    assert await receive(ours, 5) == b"hello"
    ours.close()
    assert await process.wait() == 0


async def test_subprocess_inherits_only_the_descriptors_given_to_it(loop: whorl.EventLoop) -> None:
    """This holds even with `close_fds=False`: all that the loop opens is closed when a program starts."""
    blocker, _ = await loop.subprocess_exec(asyncio.SubprocessProtocol, "cat")
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    loop.add_signal_handler(signal.SIGUSR1, print)
    for close_fds in (True, False):
        names = (await output_of("ls", "/proc/self/fd", close_fds=close_fds)).split()
        given = {str(fd).encode() for fd in open_descriptors() if os.get_inheritable(fd)}
        assert len(names) <= 4 or set(names) - {b"0", b"1", b"2", b"3", b"4"} <= given
    loop.remove_signal_handler(signal.SIGUSR1)
    server.close()
    blocker.close()
    await blocker._wait()  # type: ignore[attr-defined]


async def test_descriptors_can_be_passed() -> None:
    read_fd, write_fd = os.pipe()
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"echo passed > /dev/fd/{write_fd}", pass_fds=(write_fd,)
    )
    os.close(write_fd)
    assert await process.wait() == 0
    assert os.read(read_fd, 100) == b"passed\n"
    os.close(read_fd)


async def test_directory_environment_and_executable(tmp_path: Path) -> None:
    assert await output_of("pwd", cwd=tmp_path) == os.fsencode(tmp_path.resolve()) + b"\n"
    assert await output_of("env", env={"ONLY": "this"}) == b"ONLY=this\n"
    assert await output_of("-called-", "-c", "echo $0", executable="/bin/sh") == b"-called-\n"


async def test_sessions_groups_and_masks() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    assert os.getsid(process.pid) == process.pid
    process.kill()
    await process.wait()
    process = await asyncio.create_subprocess_exec("sleep", "60", process_group=0)
    assert os.getpgid(process.pid) == process.pid
    process.kill()
    await process.wait()
    assert await output_of("sh", "-c", "umask", umask=0o27) == b"0027\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
async def test_user_and_groups() -> None:
    output = await output_of("sh", "-c", "id -u; id -g; id -G", user=1234, group=1235, extra_groups=[1236])
    assert output == b"1234\n1235\n1235 1236\n"


async def test_code_before_the_program() -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    assert await output_of("sh", "-c", "ulimit -n", preexec_fn=lower) == b"64\n"

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(subprocess.SubprocessError):
        await output_of("true", preexec_fn=fail)


async def test_the_size_of_the_pipes() -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, pipesize=4096)
    transport: Any = process._transport  # type: ignore[attr-defined]
    pipe = transport.get_pipe_transport(0).get_extra_info("pipe")
    assert fcntl.fcntl(pipe.fileno(), fcntl.F_GETPIPE_SZ) == 4096
    data = os.urandom(100_000)
    assert await process.communicate(data) == (data, None)


@pytest.mark.parametrize("kind", ["text", "bytes", "path"])
async def test_arguments_may_be(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    convert: dict[str, Callable[[str], Any]] = {"text": str, "bytes": os.fsencode, "path": Path}
    name = convert[kind](str(tmp_path / "file"))
    assert await output_of(convert[kind]("/bin/cat"), name) == b"content"


# Refusals.


REFUSED: dict[str, dict[str, Any]] = {
    "text": {"text": True},
    "universal_newlines": {"universal_newlines": True},
    "encoding": {"encoding": "utf-8"},
    "errors": {"errors": "strict"},
    "bufsize": {"bufsize": 4096},
    "an unknown option": {"colour": "red"},
    "all at once": {"bufsize": 1, "text": True, "encoding": "x", "universal_newlines": True},
    "standard output into itself": {"stdout": STDOUT},
    "no such directory": {"cwd": "/does/not/exist"},
    "an environment that is none": {"env": 5},
    "a user that is none": {"user": "nobody of this name"},
    "a negative number": {"pipesize": "many"},
}


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
def test_subprocess_options_are_refused_as_in_asyncio(options: dict[str, Any]) -> None:
    async def run_exec(loop: Any) -> Any:
        await loop.subprocess_exec(asyncio.SubprocessProtocol, "true", **options)

    async def run_shell(loop: Any) -> Any:
        await loop.subprocess_shell(asyncio.SubprocessProtocol, "true", **options)

    error_as_in_asyncio(run_exec)
    error_as_in_asyncio(run_shell)


def test_shells_and_programs_are_not_confused() -> None:
    async def exec_in_shell(loop: Any) -> Any:
        await loop.subprocess_exec(asyncio.SubprocessProtocol, "true", shell=True)

    async def shell_without(loop: Any) -> Any:
        await loop.subprocess_shell(asyncio.SubprocessProtocol, "true", shell=False)

    async def shell_with_arguments(loop: Any) -> Any:
        await loop.subprocess_shell(asyncio.SubprocessProtocol, ["echo", "x"])

    for scenario in (exec_in_shell, shell_without, shell_with_arguments):
        assert error_as_in_asyncio(scenario)[0] is ValueError


@pytest.mark.parametrize("program", ["/does/not/exist", "/etc/passwd", "\0", "/", 5, None])
async def test_a_program_that_cannot_be_started(program: Any, loop: whorl.EventLoop) -> None:
    before = set(await settled_descriptors())
    kinds = (OSError, ValueError, TypeError)
    with pytest.raises(kinds) as raised:
        await loop.subprocess_exec(Talk, program)
    with pytest.raises(kinds) as expected:
        subprocess.Popen([program], stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert raised.type is expected.type
    del raised, expected
    gc.collect()
    assert set(open_descriptors()) == before


# Signals.


async def test_signals_reach_the_process() -> None:
    for send, number in (
        (lambda process: process.terminate(), signal.SIGTERM),
        (lambda process: process.kill(), signal.SIGKILL),
        (lambda process: process.send_signal(signal.SIGUSR1), signal.SIGUSR1),
    ):
        process = await asyncio.create_subprocess_exec("sleep", "60")
        assert process.returncode is None
        send(process)
        assert await process.wait() == -number
        assert process.returncode == -number


async def test_a_signal_to_a_process_that_is_gone_does_nothing_or_says_so(loop: whorl.EventLoop) -> None:
    transport, protocol = await loop.subprocess_exec(Talk, "cat", stderr=None)
    transport.kill()
    await protocol.until(lambda: "process_exited" in protocol.calls)
    if "connection_lost" not in protocol.calls:
        transport.kill()
    await protocol.until_lost()
    for send in (transport.kill, transport.terminate, lambda: transport.send_signal(signal.SIGINT)):
        with pytest.raises(ProcessLookupError):
            send()
    transport.close()


async def test_a_process_that_has_ended_unnoticed_gets_no_signal(loop: whorl.EventLoop) -> None:
    """The process may be dead, or even reaped, and another one may have its number by now."""
    streams = {"stdin": None, "stdout": None, "stderr": None}
    transport, protocol = await loop.subprocess_exec(Talk, "sleep", "60", **streams)
    popen = transport.get_extra_info("subprocess")
    os.kill(popen.pid, signal.SIGTERM)
    os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
    transport.kill()
    assert popen.wait() == -signal.SIGTERM
    transport.kill()
    await protocol.until_lost()
    assert transport.get_returncode() == -signal.SIGTERM
    transport.close()


async def test_numbers_that_are_no_signals_are_refused() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60")
    with pytest.raises(OSError, match="Invalid argument"):
        process.send_signal(12345)
    process.send_signal(0)
    process.kill()
    await process.wait()


async def test_subprocesses_leave_the_default_sigchld_handler(loop: whorl.EventLoop) -> None:
    assert await output_of("echo", "x") == b"x\n"
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL


async def test_a_handler_of_the_users_for_signals_of_children_is_called(loop: whorl.EventLoop) -> None:
    seen = asyncio.Event()
    loop.add_signal_handler(signal.SIGCHLD, seen.set)
    assert await output_of("echo", "x") == b"x\n"
    await seen.wait()
    loop.remove_signal_handler(signal.SIGCHLD)


# The exit code.


async def test_exit_codes() -> None:
    for code in (0, 1, 7, 255):
        process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {code}")
        assert await process.wait() == code
        assert await process.wait() == code
        popen = process._transport.get_extra_info("subprocess")  # type: ignore[attr-defined]
        assert popen.returncode == code


async def test_process_wait_serves_several_waiters_though_one_is_cancelled() -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE)
    assert process.stdin is not None
    waiting = [asyncio.ensure_future(process.wait()) for _ in range(3)]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.01)
    waiting[0].cancel()
    await asyncio.sleep(0)
    process.stdin.close()
    assert await asyncio.gather(*waiting[1:]) == [0, 0]


async def test_a_child_that_somebody_else_reaped_is_reported_as_asyncio_does(
    loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60")
    os.kill(process.pid, signal.SIGKILL)
    assert os.waitpid(process.pid, 0)[0] == process.pid
    assert await process.wait() == 255
    (record,) = caplog.records
    watches_pidfds = sys.version_info >= (3, 12)
    said = (
        "child process pid %d exit status already read: "
        if watches_pidfds
        else "Unknown child process pid %d,"
    )
    assert record.getMessage() == said % process.pid + " will report returncode 255"
    assert process._transport.get_extra_info("subprocess").returncode == 255  # type: ignore[attr-defined]


async def test_process_wait_believes_the_return_code_of_popen(caplog: pytest.LogCaptureFixture) -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", "exit 9")
    popen = process._transport.get_extra_info("subprocess")  # type: ignore[attr-defined]
    assert popen.wait() == 9
    assert await process.wait() == 9
    assert not caplog.records


async def test_children_whose_signals_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """The system reaps them by itself; that has nothing to do with hanging."""
    former = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = await asyncio.create_subprocess_exec("true")
        assert await process.wait() == 255
    finally:
        signal.signal(signal.SIGCHLD, former)


class NoPidfds(Kernel):
    """A host without pidfds, as systems before Linux 5.3 and some sandboxes."""

    def pidfd_open(self, pid: int) -> int:
        return -errno.ENOSYS


class TestWithoutPidfds:
    @pytest.fixture
    def kernel(self) -> Kernel:
        return NoPidfds()

    async def test_a_thread_waits(self) -> None:
        before = threading.active_count()
        process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        assert threading.active_count() == before + 1
        assert await process.communicate(b"data") == (b"data", None)
        assert await process.wait() == 0

    async def test_signals_and_codes(self) -> None:
        process = await asyncio.create_subprocess_exec("sleep", "60")
        process.terminate()
        assert await process.wait() == -signal.SIGTERM
        process = await asyncio.create_subprocess_exec("sh", "-c", "exit 6")
        assert await process.wait() == 6

    async def test_a_child_that_somebody_else_reaped(self, caplog: pytest.LogCaptureFixture) -> None:
        process = await asyncio.create_subprocess_exec("sleep", "60")
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        assert await process.wait() == 255

    def test_the_loop_may_be_closed_before_the_child_ends(self) -> None:
        loop = whorl.EventLoop(kernel=NoPidfds())
        transport, _ = loop.run_until_complete(
            loop.subprocess_exec(
                asyncio.SubprocessProtocol, "sleep", "60", stdin=PIPE, stdout=None, stderr=None
            )
        )
        pid = transport.get_pid()
        popen = transport.get_extra_info("subprocess")
        loop.close()
        transport.close()
        for thread in threading.enumerate():
            if thread.name == f"whorl-child-{pid}":
                thread.join()
        assert popen.returncode == -signal.SIGKILL
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of its pipe
            del transport
            gc.collect()


class NoReaping(Host):
    """A process that may not reap."""

    def reap(self, pid: int, pidfd: int) -> int | None:
        raise PermissionError(errno.EPERM, "no reaping")


def test_a_child_that_cannot_be_reaped_is_reported_once() -> None:
    loop = whorl.EventLoop(host=NoReaping())
    reported: Reported = []
    loop.set_exception_handler(lambda loop, context: reported.append(context))

    async def run() -> None:
        transport, _ = await loop.subprocess_exec(asyncio.SubprocessProtocol, "sleep", "60")
        transport.kill()
        while not reported:
            await asyncio.sleep(0.001)
        await turns(10)
        transport.get_extra_info("subprocess").wait()
        transport.close()
        await turns(5)

    loop.run_until_complete(run())
    loop.close()
    (context,) = reported
    assert isinstance(context["exception"], PermissionError)


# The end.


async def test_close_kills_a_running_process(loop: whorl.EventLoop) -> None:
    transport, protocol = await loop.subprocess_exec(Talk, "cat")
    assert not transport.is_closing()
    transport.close()
    transport.close()
    assert transport.is_closing()
    await protocol.until_lost()
    assert transport.get_returncode() == -signal.SIGKILL
    assert {"lost 0", "lost 1", "lost 2", "process_exited"} <= set(protocol.calls)


@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("stdin", [PIPE, None], ids=["pipes", "no pipes"])
async def test_a_cancelled_start_leaves_nothing(loop: whorl.EventLoop, after: int, stdin: Any) -> None:
    """The child is reaped when the cancellation arrives."""
    before, older = set(await settled_descriptors()), children()
    start = loop.subprocess_exec(Talk, "sleep", "60", stdin=stdin, stdout=stdin, stderr=stdin)
    task = loop.create_task(start)
    await turns(after)
    if task.done():
        transport, protocol = await task
        transport.close()
        await protocol.until_lost()
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert children() <= older
    await turns(3)
    assert set(open_descriptors()) == before
    assert not loop._children


async def test_a_pipe_that_cannot_be_connected_leaves_nothing(loop: whorl.EventLoop) -> None:
    before = set(await settled_descriptors())

    async def fail(*args: Any) -> Any:
        raise ZeroDivisionError

    for name in ("connect_read_pipe", "connect_write_pipe"):
        setattr(loop, name, fail)
        with pytest.raises(ZeroDivisionError):
            await loop.subprocess_exec(Talk, "sleep", "60")
        delattr(loop, name)
        await turns(3)
        assert set(open_descriptors()) == before
        assert not loop._children


def test_a_loop_closed_while_a_program_runs_leaves_no_zombie_and_no_descriptor() -> None:
    before, older = set(open_descriptors()), children()
    loop = whorl.EventLoop()
    loop.run_until_complete(loop.subprocess_exec(asyncio.SubprocessProtocol, "sleep", "60"))
    loop.close()
    with pytest.warns(ResourceWarning, match="unclosed transport <") as warned:
        gc.collect()
    assert any("<_UnixSubprocessTransport pid=" in str(warning.message) for warning in warned)
    for thread in threading.enumerate():
        if thread.name.startswith("whorl-child-"):
            thread.join()
    assert children() <= older
    assert set(open_descriptors()) == before


def test_a_program_may_outlive_the_loop(tmp_path: Path) -> None:
    """The transport keeps the program; Popen then tells how it ended."""
    loop = whorl.EventLoop()
    transport, _ = loop.run_until_complete(
        loop.subprocess_shell(asyncio.SubprocessProtocol, "read x; exit 4", stdout=None, stderr=None)
    )
    popen = transport.get_extra_info("subprocess")
    stdin: Any = transport.get_pipe_transport(0)
    loop.close()
    os.write(stdin.get_extra_info("pipe").fileno(), b"\n")
    assert popen.wait() == 4
    assert transport.get_returncode() is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del transport, stdin
        gc.collect()


# Loops and threads.


def test_programs_run_on_loops_of_other_threads() -> None:
    """Several programs run at once, without a child watcher, whatever the policy."""
    outputs: list[bytes] = []

    def work(number: int) -> None:
        outputs.append(whorl.run(output_of("echo", str(number))))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outputs) == [b"%d\n" % number for number in range(5)]


async def test_a_program_started_in_a_forked_child_is_the_childs_own() -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        pid = os.fork()
    if pid == 0:
        asyncio.events._set_running_loop(None)
        code = 1
        try:
            code = 0 if whorl.run(output_of("echo", "x")) == b"x\n" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert await process.communicate(b"still ours") == (b"still ours", None)


# Representations.


async def test_a_transport_shows_its_state(loop: whorl.EventLoop) -> None:
    transport, protocol = await loop.subprocess_exec(Talk, "cat", stderr=STDOUT)
    pid = transport.get_pid()
    assert isinstance(transport, asyncio.SubprocessTransport)
    text = repr(transport)
    assert text.startswith(f"<_UnixSubprocessTransport pid={pid} running stdin=<_UnixWritePipeTransport fd=")
    assert "stdout=<_UnixReadPipeTransport fd=" in text
    assert "stderr" not in text
    assert transport.get_pipe_transport(2) is None
    assert transport.get_pipe_transport(77) is None
    popen = transport.get_extra_info("subprocess")
    assert isinstance(popen, subprocess.Popen)
    assert popen.pid == pid
    transport.close()
    await protocol.until_lost()
    assert repr(transport).startswith(f"<_UnixSubprocessTransport closed pid={pid} returncode=-9")


async def test_debug_mode_tells_what_happens(loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 60
    with caplog.at_level("DEBUG", logger="asyncio"):
        await output_of("echo", "x")
        process = await asyncio.create_subprocess_shell("cat", stdin=PIPE, stdout=DEVNULL, stderr=STDOUT)
        process._transport.close()  # type: ignore[attr-defined]
        await process.wait()
    messages = "\n".join(record.getMessage() for record in caplog.records)
    for expected in (
        "execute program 'echo' stdout=<pipe>",
        "process 'echo' created: pid",
        "run shell command 'cat' stdin=<pipe>",
        "exited with return code 0",
        "Close running child process: kill <_UnixSubprocessTransport",
    ):
        assert expected in messages


def test_the_same_is_logged_as_on_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    texts = []

    async def run(loop: Any) -> Any:
        loop.set_debug(True)
        caplog.clear()
        with caplog.at_level("DEBUG", logger="asyncio"):
            for options in ({"stdin": 5}, {"stdout": PIPE, "stderr": STDOUT}, {"stderr": DEVNULL}):
                process = await asyncio.create_subprocess_exec("true", **options)  # type: ignore[arg-type]
                await process.communicate()
        logged = [record.getMessage() for record in caplog.records]
        texts.append([text for text in logged if text.startswith("execute program 'true' std")])
        return None

    spare = os.dup2(os.open(os.devnull, os.O_RDONLY), 5) if 5 not in open_descriptors() else None
    is_as_in_asyncio(run)
    if spare is not None:
        os.close(spare)
    assert texts[0] == texts[1]


async def test_a_program_can_be_started_where_blocking_calls_are_refused(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_blocking_calls(monkeypatch)
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    assert asyncio.get_running_loop() is loop
    assert await process.communicate(b"text") == (b"text", None)
    with pytest.raises(FileNotFoundError):
        await asyncio.create_subprocess_exec("/there/is/no/such/program")
    assert asyncio.get_running_loop() is loop
