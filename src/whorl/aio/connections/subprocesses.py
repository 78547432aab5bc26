"""Subprocesses: programs that `subprocess.Popen` starts, with a transport for each of their pipes."""

from __future__ import annotations

import asyncio
import collections
import functools
import signal
import subprocess
import sys
from asyncio import events
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from whorl.aio.interop import at_import
from whorl.aio.interop.at_import import logger
from whorl.aio.interop.communicate import Communication, replace_stock
from whorl.aio.transports.public import with_asyncio_name
from whorl.core.copying import refuse_copy
from whorl.handles.process.exit_watch import UNKNOWN_EXIT_CODE, ExitWatch

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

    ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

# Newer Pythons end `Process.wait` when the process exits; older ones when its pipes are closed too.
_WAITS_FOR_EXIT_ONLY = "_exit_waiters" in at_import.process_exited.__code__.co_names
# The text that asyncio logs about a child that other code has reaped; since 3.12 it watches them by pidfds,
# too.
_EXIT_UNKNOWN = (
    "child process pid %d exit status already read:  will report returncode 255"
    if sys.version_info >= (3, 12)
    else "Unknown child process pid %d, will report returncode 255"
)


# The loop's methods.


async def subprocess_exec(
    loop: AnyLoop,
    protocol_factory: Callable[[], ProtocolT],
    program: Any,
    *args: Any,
    stdin: Any = subprocess.PIPE,
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.PIPE,
    universal_newlines: bool = False,
    shell: bool = False,
    bufsize: int = 0,
    encoding: str | None = None,
    errors: str | None = None,
    text: bool | None = None,
    **kwargs: Any,
) -> tuple[asyncio.SubprocessTransport, ProtocolT]:
    """Start a program; the keywords are those of `subprocess.Popen`.

    Raises ValueError for keywords that have no meaning here, and the errors of Popen. Source:
    ``asyncio.loop.subprocess_exec``.
    """
    _check_options(universal_newlines, shell, False, bufsize, text, encoding, errors)
    what = f"execute program {program!r}"
    return await _start(
        loop, protocol_factory, what, (program, *args), False, stdin, stdout, stderr, bufsize, kwargs
    )


async def subprocess_shell(
    loop: AnyLoop,
    protocol_factory: Callable[[], ProtocolT],
    cmd: str | bytes,
    *,
    stdin: Any = subprocess.PIPE,
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.PIPE,
    universal_newlines: bool = False,
    shell: bool = True,
    bufsize: int = 0,
    encoding: str | None = None,
    errors: str | None = None,
    text: bool | None = None,
    **kwargs: Any,
) -> tuple[asyncio.SubprocessTransport, ProtocolT]:
    """Let the shell run a command; the keywords are those of `subprocess.Popen`.

    Raises ValueError for keywords that have no meaning here, and the errors of Popen. Source:
    ``asyncio.loop.subprocess_shell``.
    """
    if not isinstance(cmd, (bytes, str)):
        raise ValueError("cmd must be a string")
    _check_options(universal_newlines, shell, True, bufsize, text, encoding, errors)
    what = f"run shell command {cmd!r}"
    return await _start(loop, protocol_factory, what, cmd, True, stdin, stdout, stderr, bufsize, kwargs)


def _check_options(
    universal_newlines: Any, shell: Any, uses_shell: bool, bufsize: Any, text: Any, encoding: Any, errors: Any
) -> None:
    """Refuse options that would turn the bytes into text, and those that belong to the other method."""
    if universal_newlines:
        raise ValueError("universal_newlines must be False")
    if bool(shell) != uses_shell:
        raise ValueError(f"shell must be {uses_shell}")
    if bufsize != 0:
        raise ValueError("bufsize must be 0")
    if text:
        raise ValueError("text must be False")
    if encoding is not None:
        raise ValueError("encoding must be None")
    if errors is not None:
        raise ValueError("errors must be None")


async def _start(
    loop: AnyLoop,
    protocol_factory: Callable[[], ProtocolT],
    what: str,
    args: Any,
    shell: bool,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    bufsize: int,
    options: dict[str, Any],
) -> tuple[asyncio.SubprocessTransport, ProtocolT]:
    protocol = protocol_factory()
    debug = loop._debug
    if debug:
        logger.debug("%s%s", what, _shown_pipes(stdin, stdout, stderr))
    transport = await loop._make_subprocess_transport(
        protocol, args, shell, stdin, stdout, stderr, bufsize, **options
    )
    if debug:
        logger.info("%s: %r", what, transport)
    return transport, protocol


def _shown_pipes(stdin: Any, stdout: Any, stderr: Any) -> str:
    """Return the known facts about the three streams of a program that is about to be started."""
    named = {subprocess.PIPE: "<pipe>", subprocess.STDOUT: "<stdout>"}

    def shown(stream: Any) -> str:
        return named.get(stream) or repr(stream) if isinstance(stream, int) else repr(stream)

    words = []
    if stdin is not None:
        words.append(f" stdin={shown(stdin)}")
    if stdout is not None and stderr == subprocess.STDOUT:
        words.append(f" stdout=stderr={shown(stdout)}")
    else:
        words += [
            f" {name}={shown(stream)}"
            for name, stream in (("stdout", stdout), ("stderr", stderr))
            if stream is not None
        ]
    return "".join(words)


async def make_subprocess_transport(
    loop: AnyLoop,
    protocol: asyncio.BaseProtocol,
    args: Any,
    shell: bool,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    bufsize: int,
    extra: dict[str, Any] | None = None,
    **options: Any,
) -> SubprocessTransport:
    """Start a program, and return once its pipes are connected and its protocol knows of it.

    If that fails, or is cancelled, the program is killed and reaped before this returns.
    """
    options.update(shell=shell, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=bufsize)
    transport = SubprocessTransport(loop, protocol, args, options, extra)
    try:
        await transport._connect()
    except (SystemExit, KeyboardInterrupt, GeneratorExit):
        transport._close_raw_pipes()
        transport.close()  # No caller is left that could wait.
        raise
    except BaseException:
        await transport._abandon()
        raise
    return transport


# The transport.


def _spawn(loop: AnyLoop, args: Any, **options: Any) -> subprocess.Popen[bytes]:
    """Start a program, which takes until it runs; no loop is seen to run in this thread meanwhile.

    Tools that refuse blocking calls in a running loop let Popen pass in asyncio's files only.
    """
    loop._held.push_all()
    events._set_running_loop(None)
    try:
        return loop._host.spawn(args, **options)
    finally:
        events._set_running_loop(loop)


@with_asyncio_name("_UnixSubprocessTransport")
class SubprocessTransport(at_import.SubprocessTransport):
    """A running program, and the transports of its pipes (``asyncio.SubprocessTransport``)."""

    __reduce__ = refuse_copy
    _keeps_communication = True

    def __init__(
        self,
        loop: AnyLoop,
        protocol: asyncio.BaseProtocol,
        args: Any,
        options: dict[str, Any],
        extra: dict[str, Any] | None = None,
    ) -> None:
        known = dict(extra or {})
        super().__init__(known)
        self._closed = True  # until the program runs
        self._loop: Any = loop
        self._protocol: Any = protocol
        self._context = copy_context()
        self._returncode: int | None = None
        self._exit_waiters: list[asyncio.Future[int]] = []
        self._reaped: list[asyncio.Future[None]] = []
        self._finished = False
        self._communication: Communication | None = None  # one that has begun, and has not ended
        # Calls that come before the protocol knows its transport have to wait.
        self._pending_calls: collections.deque[tuple[Any, ...]] | None = collections.deque()
        self._pipes: dict[int, Any] = {}
        self._proc: Any = _spawn(loop, args, universal_newlines=False, **options)
        self._pid: int = self._proc.pid
        known["subprocess"] = self._proc
        self._raw_pipes = dict(enumerate((self._proc.stdin, self._proc.stdout, self._proc.stderr)))
        self._pipes.update((fd, None) for fd, pipe in self._raw_pipes.items() if pipe is not None)
        try:
            self._watch: ExitWatch | None = ExitWatch(loop, self._proc, self._child_ended)
        except BaseException:
            self._undo_spawn()
            raise
        self._closed = False
        loop._children.add(self._watch)
        if loop._debug:
            program = args if isinstance(args, (bytes, str)) else args[0]
            logger.debug("process %r created: pid %s", program, self._pid)

    def _undo_spawn(self) -> None:
        """Kill and reap the child, and close its pipes: nothing watches it."""
        self._proc.kill()
        self._proc.wait()
        self._close_raw_pipes()

    async def _connect(self) -> None:
        """Give each pipe its transport, then give the protocol the transport of the process.

        The turns are asyncio's, where another task does this. So the task that waits for it goes on right
        after `connection_made`, before the output of the program comes.
        """
        loop = self._loop
        await asyncio.tasks.sleep(0)
        for fd, pipe in self._raw_pipes.items():
            if pipe is not None:
                connect = loop.connect_read_pipe if fd else loop.connect_write_pipe
                make = ReadPipeProtocol if fd else PipeProtocol
                _, self._pipes[fd] = await connect(functools.partial(make, self, fd), pipe)
        calls, self._pending_calls = self._pending_calls, None
        loop.call_soon(self._protocol.connection_made, self, context=self._context)
        for call in calls or ():
            loop.call_soon(*call, context=self._context)
        await asyncio.tasks.sleep(0)

    async def _abandon(self) -> None:
        """Kill the child, and wait until it is reaped: no other code will ever know of it."""
        self._close_raw_pipes()
        loop = self._loop
        if self._watch is not None:
            reaped = loop.create_future()
            self._reaped.append(reaped)
            self.close()
            await reaped
        else:
            self.close()

    def _close_raw_pipes(self) -> None:
        """Close the pipes that have no transport."""
        for fd, pipe in self._raw_pipes.items():
            if pipe is not None and self._pipes[fd] is None:
                self._loop._kernel.close_file(pipe)

    # Attributes.

    def __repr__(self) -> str:
        words = [type(self).__name__]
        if self._closed:
            words.append("closed")
        words.append(f"pid={self._pid}")
        words.append("running" if self._returncode is None else f"returncode={self._returncode}")
        for fd, name in enumerate(("stdin", "stdout", "stderr")):
            if self._pipes.get(fd) is not None:
                words.append(f"{name}={self._pipes[fd].pipe}")
        return f"<{' '.join(words)}>"

    def get_pid(self) -> int:
        """Return the number of the process."""
        return self._pid

    def get_returncode(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        return self._returncode

    def get_pipe_transport(self, fd: int) -> Any:
        """Return the transport of stdin (0), stdout (1) or stderr (2); None if that is no pipe."""
        pipe = self._pipes.get(fd)
        return None if pipe is None else pipe.pipe

    def get_protocol(self) -> Any:
        """Return the protocol that is called."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Call another protocol from now on."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return whether the transport was closed."""
        return self._closed

    # Signals.

    def send_signal(self, signal: int) -> None:
        """Send the process a signal; nothing happens if it has exited.

        Raises ProcessLookupError once `connection_lost` was called, PermissionError.
        """
        if self._proc is None:
            raise ProcessLookupError
        if self._watch is not None:
            self._watch.send_signal(signal)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    # The end.

    async def _wait(self) -> int:
        """Return the exit code, once there is one; `asyncio.subprocess.Process.wait` calls this."""
        if self._returncode is None:
            waiter: asyncio.Future[int] = self._loop.create_future()
            self._exit_waiters.append(waiter)
            try:
                return await waiter
            finally:
                if waiter in self._exit_waiters:
                    self._exit_waiters.remove(waiter)
        return self._returncode

    def close(self) -> None:
        """Close the pipes and kill the process, if it still runs."""
        if self._closed:
            return
        self._closed = True
        if not self._loop or not self._loop.is_closed():
            for pipe in self._pipes.values():
                if pipe is not None:
                    pipe.pipe.close()
        if self._proc is not None and self._returncode is None and self._proc.returncode is None:
            if self._loop._debug:
                logger.warning("Close running child process: kill %r", self)
            self._kill_popen()

    def _kill_popen(self) -> None:
        """Kill the child, and have it reaped even if the loop will not do it."""
        try:
            self._proc.kill()
        except (ProcessLookupError, PermissionError):
            pass  # The process may have ended just now, or may have become another user's.
        if self._loop.is_closed() and not (self._watch is not None and self._watch.has_waiting_thread()):
            try:
                self._loop._host.await_exit(self._pid, self._proc.poll)
            except RuntimeError:
                pass  # The interpreter ends; the system reaps the children that are left.

    def __del__(self, _warn: Any = at_import.warn) -> None:
        if not getattr(self, "_closed", True):
            _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            self.close()

    def _child_ended(self, code: int | None) -> None:
        """Handle the end of the child, which was reaped by this loop or by other code."""
        self._loop._children.discard(self._watch)
        self._watch = None
        if code is None:
            code = UNKNOWN_EXIT_CODE
            logger.warning(_EXIT_UNKNOWN, self._pid)
        # One turn later, as in asyncio: data that was read in this one gets to the protocol before.
        self._loop.call_soon(self._process_exited, code, context=self._context)

    def _process_exited(self, returncode: int) -> None:
        if self._loop._debug:
            logger.info("%r exited with return code %r", self, returncode)
        self._returncode = returncode
        self._call(self._protocol.process_exited)
        if _WAITS_FOR_EXIT_ONLY:
            self._wake_waiters()
        for reaped in self._reaped:
            _set_done(reaped)
        self._try_finish()

    def _wake_waiters(self) -> None:
        assert self._returncode is not None
        waiters, self._exit_waiters = self._exit_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(self._returncode)

    def _call(self, callback: Callable[..., object], *args: Any) -> None:
        """Call the protocol, once it knows its transport."""
        if self._pending_calls is not None:
            self._pending_calls.append((callback, *args))
        else:
            self._loop.call_soon(callback, *args, context=self._context)

    def _pipe_data_received(self, fd: int, data: bytes) -> None:
        self._call(self._protocol.pipe_data_received, fd, data)

    def _pipe_connection_lost(self, fd: int, error: BaseException | None) -> None:
        self._call(self._protocol.pipe_connection_lost, fd, error)
        self._try_finish()

    def _try_finish(self) -> None:
        """Lose the connection once the process has exited and all its pipes are closed."""
        if self._returncode is None or self._finished:
            return
        if all(pipe is not None and pipe.disconnected for pipe in self._pipes.values()):
            self._finished = True
            self._call(self._call_connection_lost, None)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._wake_waiters()
            self._loop = None
            self._proc = None
            self._protocol = None


@with_asyncio_name("WriteSubprocessPipeProto")
class PipeProtocol(at_import.BaseProtocol):
    """The protocol of one pipe's transport, which passes its calls on to the transport of the process."""

    def __init__(self, process: SubprocessTransport, fd: int) -> None:
        self.proc: Any = process
        self.fd = fd
        self.pipe: Any = None  # the transport
        self.disconnected: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.pipe = transport

    def connection_lost(self, error: BaseException | None) -> None:
        self.disconnected = True
        process, self.proc = self.proc, None
        process._pipe_connection_lost(self.fd, error)

    def pause_writing(self) -> None:
        self.proc._protocol.pause_writing()

    def resume_writing(self) -> None:
        self.proc._protocol.resume_writing()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} fd={self.fd} pipe={self.pipe!r}>"


@with_asyncio_name("ReadSubprocessPipeProto")
class ReadPipeProtocol(PipeProtocol, at_import.Protocol):
    """The same protocol for a pipe that is read."""

    def data_received(self, data: bytes) -> None:
        self.proc._pipe_data_received(self.fd, data)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def close_children(loop: AnyLoop) -> None:
    """Watch no children any more: the loop is closed. Code that has their Popen objects reaps them."""
    for watch in list(loop._children):
        watch.close()
    loop._children.clear()


replace_stock()
