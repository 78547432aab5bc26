"""The refusals of a simulated world, and the errors that end a run.

Each refusal says what was called, from which line, and what to do.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import ClassVar

#: The files whose frames are not the caller's: the simulator, the loop, asyncio and the standard library.
_OWN = ("/whorl/", "/asyncio/", "/concurrent/futures/", "/threading.py", "/subprocess.py", "/socket.py")

#: The file that runs worlds, whose frames are below those of the program, and the name of no file.
_RUNNER = "/whorl/sim/running/run.py"
_NO_FILE = "\0"


def caller() -> str:
    """Return the line of the program that is being run, as "file:line in function"."""
    return _line_of_program(_NO_FILE) or "an unknown line"


def maker() -> str:
    """Return what `caller` returns; nothing if the loop itself does something, and no line of the program."""
    return _line_of_program(_RUNNER)


def _line_of_program(outside: str) -> str:
    """Return the innermost line of the program, inside of the file whose name ends so."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(outside):
            return ""
        if not any(part in name for part in _OWN) and not name.startswith("<"):
            return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


class Unsimulated(RuntimeError):
    """Raised when a program leaves the simulated world."""

    advice: ClassVar[str] = "It has no place in a simulated world."

    def __init__(self, what: str) -> None:
        self.what = what
        self.where: str = caller()
        super().__init__(f"{what}, at {self.where}. {self.advice}")


class RealDescriptor(Unsimulated):
    """A descriptor of the real process was given to a simulated loop."""

    advice = "Make the socket or the pipe inside the world: descriptors of the process are not in it."


class RealThread(Unsimulated):
    """A thread was started."""

    advice = (
        "Use loop.run_in_executor or asyncio.to_thread, which run at a time that the seed decides. "
        "allow={'threads'} lets threads start; then runs cannot be replayed."
    )


class RealProcess(Unsimulated):
    """A process was forked or started."""

    advice = "A world has one process for each host. Give another host a part of the work: world.host(name)."


class RealProgram(RealProcess):
    """A program was started that has no stand-in."""

    advice = "Register a coroutine function as its stand-in: world.program(name, main)."


class RealFile(Unsimulated):
    """The real file system was to be changed."""

    advice = (
        "Write to the host's disk, by host.disk.open or whorl.fs. Real files may only be read; "
        "allow={'files'} lets a run write them."
    )


class BlockingSocket(Unsimulated):
    """A socket call would have waited for the world, inside the world."""

    advice = "Call setblocking(False) and use the loop's sock_ methods, or streams."


class Escaped(Unsimulated):
    """A library made a system call of its own, past Python's modules."""

    advice = "Drivers in C with sockets of their own cannot be simulated. Use one that is written on asyncio."


class OtherLoop(Unsimulated):
    """Another event loop was made inside the world."""

    advice = "The world runs the loops. Use the one that runs, or world.host(name).run(main)."


class ParallelThreads(Unsimulated):
    """A world was to be opened in a Python whose threads run at the same time."""

    advice = (
        "Set PYTHON_GIL=1, or take the usual build of Python: the order of parallel threads is no seed's."
    )


class Subinterpreter(Unsimulated):
    """A world was to be opened in an interpreter that is not the process's first one."""

    advice = "Run it in the main interpreter: what a world replaces and refuses belongs to the whole process."


class RunEnded(Exception):
    """Raised out of a world that cannot go on."""


class Deadlock(RunEnded):
    """All hosts wait, and nothing is on its way."""


class Livelock(RunEnded):
    """Hosts run on and on, and no time passes but that of their turns."""


class OutOfTime(RunEnded):
    """The limit of virtual time or of turns is reached."""


class OutOfRealTime(RunEnded):
    """The limit of real time is reached."""


class Diverged(Exception):
    """Raised by `replay`: the run was not the one that was recorded."""


class HostDied(Exception):
    """Raised by `Host.run`: the host crashed or was killed meanwhile, or does not run."""
