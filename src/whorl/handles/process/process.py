"""Process: a program that runs beside the loop."""

from __future__ import annotations

import enum
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whorl.core.callback import call_in_context, current_context
from whorl.core.handle import Handle
from whorl.core.kernel.errors import check_result, os_error
from whorl.core.process.host import Host
from whorl.handles.process.exit_watch import UNKNOWN_EXIT_CODE, ExitWatch
from whorl.handles.streams.pipe import Pipe
from whorl.handles.streams.stream_handle import StreamHandle

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.kernel.kernel import Kernel
    from whorl.core.loop.loop import Loop


class StdioKind(enum.Enum):
    """The kind of one of a child's descriptors (libuv: ``uv_stdio_flags``)."""

    IGNORE = enum.auto()
    CREATE_PIPE = enum.auto()
    INHERIT_FD = enum.auto()
    INHERIT_STREAM = enum.auto()


@dataclass(frozen=True)
class Stdio:
    """A descriptor of a child (libuv: ``uv_stdio_container_t``); made by the methods below."""

    kind: StdioKind
    fd: int = -1
    handle: StreamHandle | None = None
    child_reads: bool = False
    child_writes: bool = False

    @classmethod
    def ignore(cls) -> Self:
        """Give the child nothing; one of its first three descriptors is ``/dev/null`` then."""
        return cls(StdioKind.IGNORE)

    @classmethod
    def inherit_fd(cls, fd: int) -> Self:
        """Give the child a descriptor of this process."""
        return cls(StdioKind.INHERIT_FD, fd=fd)

    @classmethod
    def inherit_stream(cls, stream: StreamHandle) -> Self:
        """Give the child the descriptor of a stream handle, which keeps it."""
        return cls(StdioKind.INHERIT_STREAM, handle=stream)

    @classmethod
    def create_pipe(cls, pipe: Pipe, *, child_reads: bool = False, child_writes: bool = False) -> Self:
        """Give the child a new pipe; the fresh handle `pipe` becomes the other end.

        A pipe that goes both ways, or that sends handles, is a pair of UNIX sockets.
        """
        return cls(StdioKind.CREATE_PIPE, handle=pipe, child_reads=child_reads, child_writes=child_writes)


class Process(Handle):
    """A child process (libuv: ``uv_process_t``).

    Closing the handle leaves the child alone: it runs on, and is reaped when it ends.
    """

    __slots__ = ("_context", "_on_exit", "_pid", "_watch")

    loop: Loop

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._on_exit: Callable[[Any, int, int], object] | None = None
        self._context: Any = None
        self._pid = 0
        self._watch: ExitWatch | None = None

    def spawn(
        self,
        args: Sequence[str | bytes | os.PathLike[str]],
        on_exit: Callable[[Self, int, int], object] | None = None,
        *,
        file: str | bytes | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | bytes | os.PathLike[str] | None = None,
        uid: int | None = None,
        gid: int | None = None,
        detached: bool = False,
        stdio: Sequence[Stdio] = (),
    ) -> None:
        """Start a program; `on_exit(process, exit_status, term_signal)` is called when it has ended.

        `file` is the program if it is not `args[0]`. `env` replaces the environment. With `uid` or
        `gid` the child leaves all other groups too. A `detached` child leads a session of its own.
        `stdio` lists its descriptors 0, 1, 2 ...; those of the first three that are not listed are
        ``/dev/null``, and nothing else is inherited. Raises OSError if the program cannot run, EBUSY if the
        handle has started one before (``uv_spawn``).
        """
        if self.is_closing():
            raise OSError(errno.EINVAL, "Process handle is closed")
        if self._pid:
            raise os_error(errno.EBUSY)
        if on_exit is not None and not callable(on_exit):
            raise TypeError(f"a callable object was expected by spawn(), got {on_exit!r}")
        options: dict[str, Any] = {"executable": file, "env": env, "cwd": cwd, "start_new_session": detached}
        if uid is not None or gid is not None:
            options.update(user=uid, group=gid, extra_groups=())
        descriptors = Descriptors(self.loop, stdio)
        self.loop._held.push_all()
        try:
            child = self.loop._host.spawn(list(args), **options, **descriptors.prepare())
        except BaseException:
            descriptors.close_all()
            raise
        descriptors.close_child_ends()
        self._pid = child.pid
        self._on_exit = on_exit
        self._context = current_context()
        self._watch = ExitWatch(self.loop, child, self._exited)
        self._activate()
        descriptors.open_handles()

    @property
    def pid(self) -> int:
        """The number of the process; 0 before `spawn`."""
        return self._pid

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Send the process a signal (``uv_process_kill``).

        Raises ProcessLookupError if it has ended or was never started; another process that has its
        number by now is never meant.
        """
        if self._watch is None:
            raise os_error(errno.ESRCH)
        self._watch.send_signal(number, must_run=True)

    def _exited(self, code: int | None) -> None:
        self._watch = None
        self._deactivate()
        on_exit, self._on_exit = self._on_exit, None
        if code is None:
            code = UNKNOWN_EXIT_CODE
        if on_exit is not None:
            status = (code, 0) if code >= 0 else (0, -code)
            call_in_context(self._context, on_exit, (self, *status))

    def _release(self) -> None:
        self._on_exit = None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.detach()


class Descriptors:
    """The descriptors of a child, while it is being started."""

    def __init__(self, loop: Loop, stdio: Sequence[Stdio]) -> None:
        self._loop = loop
        self._kernel: Kernel = loop._kernel
        self._stdio = [*stdio, *[Stdio.ignore()] * (3 - len(stdio))]
        # The handles, and the ends of pipes that they will have.
        self._parent_ends: list[tuple[Pipe, int]] = []
        self._child_ends: list[int] = []  # descriptors that are open only until the child has them
        for entry in self._stdio:
            self._check(entry)
        created = [entry.handle for entry in self._stdio if entry.kind is StdioKind.CREATE_PIPE]
        if len({id(handle) for handle in created}) < len(created):
            raise os_error(errno.EBUSY)  # A handle cannot have two ends.

    def _check(self, entry: Stdio) -> None:
        """Raise an error for an entry that cannot be given, before anything is opened."""
        if not isinstance(entry, Stdio):
            raise TypeError(f"a Stdio was expected, got {entry!r}")
        if entry.kind is StdioKind.CREATE_PIPE:
            if not isinstance(entry.handle, Pipe):
                raise TypeError(f"a Pipe was expected by create_pipe(), got {entry.handle!r}")
            if entry.handle.loop is not self._loop:
                raise ValueError("the pipe belongs to another loop")
            if entry.handle.fileno() >= 0:
                raise os_error(errno.EBUSY)
            if entry.handle.is_closing() or not (entry.child_reads or entry.child_writes):
                raise os_error(errno.EINVAL)
        elif entry.kind is StdioKind.INHERIT_STREAM and (entry.handle is None or entry.handle.fileno() < 0):
            raise os_error(errno.EINVAL)
        elif entry.kind is StdioKind.INHERIT_FD and entry.fd < 0:
            raise os_error(errno.EBADF)

    def prepare(self) -> dict[str, Any]:
        """Make the pipes; return the options for the host."""
        sources = [self._source_of(entry) for entry in self._stdio]
        options: dict[str, Any] = {
            name: subprocess.DEVNULL if source is None else source
            for name, source in zip(("stdin", "stdout", "stderr"), sources[:3], strict=True)
        }
        extra = {number: fd for number, fd in enumerate(sources) if number >= 3 and fd is not None}
        if extra:
            options["moves"] = self._moves_above(extra)
        return options

    def _source_of(self, entry: Stdio) -> int | None:
        """Return our descriptor that the child gets; None for nothing."""
        if entry.kind is StdioKind.CREATE_PIPE:
            return self._new_pipe(entry)
        if entry.kind is StdioKind.INHERIT_STREAM:
            assert entry.handle is not None
            fd: int = entry.handle.fileno()
            return fd
        return entry.fd if entry.kind is StdioKind.INHERIT_FD else None

    def _new_pipe(self, entry: Stdio) -> int:
        kernel = self._kernel
        ours: int
        theirs: int
        assert isinstance(entry.handle, Pipe)
        if (entry.child_reads and entry.child_writes) or entry.handle._ipc:
            pair = check_result(kernel.socket_pair())
            ours, theirs = (sock.detach() for sock in pair)
        else:
            ends = check_result(kernel.pipe())
            ours, theirs = reversed(ends) if entry.child_reads else ends
        self._parent_ends.append((entry.handle, ours))
        self._child_ends.append(theirs)
        check_result(kernel.set_blocking(theirs, True))
        return theirs

    def _moves_above(self, extra: dict[int, int]) -> dict[int, int]:
        """Return the moves with sources above all targets, so that no move overwrites another's source."""
        lowest = max(extra) + 1
        moves = {}
        for number, fd in extra.items():
            moves[number] = check_result(self._kernel.duplicate(fd, lowest))
            self._child_ends.append(moves[number])
        return moves

    def close_child_ends(self) -> None:
        """Close the descriptors that only the child uses."""
        for fd in self._child_ends:
            self._kernel.close(fd)
        self._child_ends.clear()

    def close_all(self) -> None:
        """Close the pipes, since no program was started."""
        self.close_child_ends()
        for _, fd in self._parent_ends:
            self._kernel.close(fd)

    def open_handles(self) -> None:
        """Give the handles their ends of the pipes."""
        for handle, fd in self._parent_ends:
            handle.open(fd)


def kill(pid: int, number: int) -> None:
    """Send any process a signal (``uv_kill``). Raises ProcessLookupError, PermissionError."""
    Host().kill(pid, number)
