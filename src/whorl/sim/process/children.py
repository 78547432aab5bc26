"""The children of a simulated process: stand-ins that run as tasks of the same loop."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import shlex
import signal
import subprocess
import traceback
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from whorl.sim.errors import RealProgram, Unsimulated
from whorl.sim.files.file import EPOLLIN, File
from whorl.sim.process.program import PipeFile, Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.process.owner import ProcessHost
    from whorl.sim.process.program import ProgramMain

#: The child whose code runs; tasks inherit it.
_CHILD: contextvars.ContextVar[Child | None] = contextvars.ContextVar("whorl_sim_child", default=None)

#: Signals that do nothing by default (man 7 signal); those that stop a process do nothing to a stand-in.
HARMLESS = frozenset(
    (signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP)
)


class Killable(Coroutine[Any, Any, Any]):
    """A coroutine that can end in the middle, with no `finally` of it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.is_over = False

    def __await__(self) -> Any:
        return self

    def send(self, value: Any) -> Any:
        """Run up to the next wait."""
        if self.is_over:
            raise StopIteration
        return self.coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Run on with an error."""
        if self.is_over:
            raise StopIteration
        return self.coroutine.throw(*error)

    def close(self) -> None:
        """End it; after the world, its `finally` blocks run."""
        self.coroutine.close()


class PidFile(File):
    """A pidfd (man 2 pidfd_open): readable when the child has ended."""

    __slots__ = ("_child",)

    kind = 0

    def __init__(self, machine: Any, child: Child) -> None:
        super().__init__(machine)
        self._child = child
        child.pidfds.append(self)

    def readiness(self) -> int:
        return EPOLLIN if self._child.exit_code is not None else 0


class Child:
    """A stand-in, as the process sees it that has started it: like `subprocess.Popen`."""

    def __init__(self, children: Children, host: ProcessHost, pid: int, args: Any) -> None:
        self._children = children
        self._host = host
        self.pid = pid
        self.args = args
        self.stdin: PipeFile | None = None
        self.stdout: PipeFile | None = None
        self.stderr: PipeFile | None = None
        self.returncode: int | None = None  #: once it was waited for
        self.exit_code: int | None = None  #: once it has ended
        self.pidfds: list[PidFile] = []
        self.watchers: list[Callable[[], object]] = []
        self.program: Program = None  # type: ignore[assignment]  # set by `begin`
        self.life: Killable = None  # type: ignore[assignment]
        self._task: asyncio.Task[Any] | None = None

    def begin(self, main: ProgramMain, program: Program, fds: dict[int, int]) -> None:
        """Run the stand-in."""
        self.program = program
        self.life = Killable(self._run(main, program, fds))
        context = contextvars.copy_context()
        context.run(_CHILD.set, self)
        loop = self._host.process.loop()
        self._task = loop.create_task(self.life, name=f"program {program.args[0]}", context=context)

    async def _run(self, main: ProgramMain, program: Program, fds: dict[int, int]) -> None:
        try:
            await program.connect(fds)
            code = await main(program) or 0
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        except Exception as error:
            program.stderr.write("".join(traceback.format_exception_only(error)).encode())
            code = 1
        await program.finish()
        self.ended(code & 0xFF)

    def ended(self, code: int) -> None:
        """Note the end, once: the exit code, or the negative number of a signal."""
        if self.exit_code is not None:
            return
        self.exit_code = code
        self._children.end_tasks(self)
        self.program.abort()
        for pidfd in self.pidfds:
            pidfd.changed()
        for watcher in self.watchers:
            self._host.threads.start(watcher)
        self._host.process.send_signal(signal.SIGCHLD)

    # As `subprocess.Popen`.

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.returncode is None and self.exit_code is not None:
            self.returncode = self.exit_code
            self._children.forget(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code of a child that has ended; none can be waited for inside a turn."""
        code = self.poll()
        if code is None:
            raise Unsimulated(f"the end of program {self.args!r} was waited for without await")
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        if self.exit_code is not None:
            return
        handler = self.program.handlers.get(int(number))
        if number != signal.SIGKILL and handler is not None:
            self._host.process.loop().call_soon(handler)
        elif number not in HARMLESS and number:
            self.life.is_over = True
            if self._task is not None:
                self._task.cancel()
                self._task.uncancel()  # Nothing is left that could swallow it.
            self.ended(-int(number))

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Children:
    """The children of one process."""

    def __init__(self, host: ProcessHost) -> None:
        self._host = host
        self._living: dict[int, Child] = {}  # and those whose exit code nobody has taken
        self._killed: list[Killable] = []
        self._count = 0

    def spawn(self, args: Any, **options: Any) -> Child:
        """Start a stand-in (subprocess.Popen). Raises RealProgram for a program that has none."""
        given = [args] if isinstance(args, (str, bytes, os.PathLike)) else args
        words = [os.fsdecode(word) for word in given]
        if options.get("shell"):
            words = shlex.split(words[0])
        name = os.fsdecode(options.get("executable") or words[0])
        programs = self._host.world.programs
        main = programs.get(name) or programs.get(os.path.basename(name))
        if main is None:
            raise RealProgram(f"program {name!r} was started")
        self._count += 1
        pid = self._host.process_id + 100 * self._count
        child = Child(self, self._host, pid, args)
        fds = self._descriptors(child, options)
        env = options.get("env")
        self._living[pid] = child
        self._host.kernel.note("spawn", pid, words)
        child.begin(main, Program(self._host, pid, words, dict(env) if env is not None else None), fds)
        return child

    def _descriptors(self, child: Child, options: dict[str, Any]) -> dict[int, int]:
        """Return the descriptors of the child, by the numbers that they have there; set the pipes to it."""
        kernel = self._host.kernel
        fds: dict[int, int] = {}
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            given = options.get(name)
            if given is None or given == subprocess.DEVNULL:
                continue
            if given == subprocess.STDOUT and number == 2:
                if 1 in fds:
                    fds[2] = fds[1]
            elif given == subprocess.PIPE:
                ends = _checked(kernel.pipe())
                fds[number] = ends[0 if number == 0 else 1]
                setattr(child, name, PipeFile(kernel, ends[1 if number == 0 else 0]))
            else:
                fd = given if isinstance(given, int) else given.fileno()
                fds[number] = _checked(kernel.duplicate(fd))
        for number, fd in (options.get("moves") or {}).items():
            fds[number] = _checked(kernel.duplicate(fd))
        return fds

    def find(self, pid: int) -> Child | None:
        """Return the child of a number, if its exit code was not taken."""
        return self._living.get(pid)

    def forget(self, pid: int) -> None:
        """Take the number of a child away: its exit code was taken."""
        self._living.pop(pid, None)

    def reap(self, pid: int) -> int | None:
        """Return the exit code of a child, None while it runs. Raises ChildProcessError if there is none."""
        child = self._living.get(pid)
        if child is None:
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        if child.exit_code is not None:
            self.forget(pid)
        return child.exit_code

    def signal(self, pid: int, number: int) -> None:
        """Send a child a signal. Raises ProcessLookupError if there is none."""
        child = self._living.get(pid)
        if child is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        child.send_signal(number)

    def end_tasks(self, child: Child) -> None:
        """Cancel the tasks that a child has started, but for its own."""
        if child.life.is_over:
            self._killed.append(child.life)
        for task in sorted(asyncio.all_tasks(self._host.process.loop()), key=hash):
            context = getattr(task, "get_context", lambda: None)()  # from 3.12 on
            if context is not None and context.get(_CHILD) is child and task is not child._task:
                task.cancel()

    def bury(self) -> list[Coroutine[Any, Any, Any]]:
        """Return the coroutines of children that were killed."""
        return list(self._killed)


def _checked(answer: Any) -> Any:
    if isinstance(answer, int) and answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return answer
