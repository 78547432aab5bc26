"""The stacks of stalled threads: by Python's frames, or as they were read from outside."""

from __future__ import annotations

import asyncio
import functools
import linecache
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from whorl.aio.futures.task import Task, coroutine_and_name
from whorl.core.loop.loop import Loop
from whorl.inspector.watching import looks, threads
from whorl.inspector.watching.own_thread import has_gil
from whorl.inspector.watching.stalls import Frame, Stack
from whorl.inspector.watching.text import shown
from whorl.inspector.watching.watched import WatchedLoop

MOST_FRAMES = 100  # of a stack
# Any thread may ask tasks of this class, also without the GIL; until Python 3.14 not for their names.
_TASK_WITH_LOCK: Any = getattr(asyncio.tasks, "_CTask", None)
_NAMES_HAVE_LOCK = sys.version_info >= (3, 14)
LONGEST_NAME = 1000  # that `frames.h` reads
_UNPRINTED = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")
FAULTHANDLER_LINE = re.compile(r'^\s+File "(.*)", line (\d+) in (.*)$')
OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
# Where the frames of loops lie that are not the program's own.
MACHINERY = tuple(
    os.path.join(os.path.dirname(os.path.abspath(module)), "")
    for module in (asyncio.__file__, os.path.dirname(OWN))
)


class Moment(NamedTuple):
    """The work of a loop's thread at one moment."""

    when_ns: int
    key: tuple[int, ...]
    lines: tuple[tuple[CodeType, int], ...]
    """The code and the line of each frame, the outermost first. Without the GIL there are none."""
    task: str | None
    task_code: CodeType | None
    call: str | None
    """The name of the callback, if the loop is recorded."""


def moment_of(loop: Loop, progress: looks.Progress, now: int) -> Moment | None:
    """Return what a loop's thread is doing now, None if the loop has gone on.

    Nothing here reads a file, as that gives up the interpreter's lock. Code in Python that takes it then
    gives it back after 5 ms only, and the stall may be over by then.
    """
    task, task_code = task_of(loop)
    lines = _lines_of(loop) if has_gil() else ()
    call = looks.call_name(loop)
    later = looks.progress_of(loop)
    if later is None or later[:5] != progress[:5]:
        return None
    return Moment(now, progress[:5], lines, task, task_code, None if call is None else shown(call))


def stack_of(
    watched: WatchedLoop,
    loop: Loop | None,
    moment: Moment,
    late: bool,
) -> tuple[Stack | None, str | None, str | None]:
    """Return the stack of a moment, the function that the loop called, and the task.

    Without the GIL, frames of a running thread may end while another one follows them. So they are read from
    outside. The system call is the one of now, if the loop has not gone on; of a loop that is None, it has.
    """
    code = moment.task_code
    if has_gil():
        frames = tuple(_frame(*line) for line in moment.lines)
        has_task = any(line is code for line, _ in moment.lines)
    else:
        frames = () if watched.thread is None or loop is None else read_stack(watched.thread)
        step = None if code is None else (_as_read(code.co_filename), _as_read(code.co_qualname))
        has_task = any((frame.file, frame.function) == step for frame in frames)
    syscall, file = (None, None) if watched.thread is None else threads.system_call_of(watched.thread)
    progress = None if loop is None else looks.progress_of(loop)
    has_gone_on = progress is None or progress[:5] != moment.key
    if not frames or (has_gone_on and not has_gil()):
        return None, None, None
    call = shown(code.co_qualname) if code is not None and has_task else called_by(frames, moment.call)
    if late or has_gone_on:
        syscall = file = None  # That is the call of this moment, not of the stall.
    return Stack(moment.when_ns - watched.began_ns, frames, syscall, file, late), call, moment.task


def _lines_of(loop: Loop) -> tuple[tuple[CodeType, int], ...]:
    """Return the code and the lines of the frames of a loop's thread, the outermost first."""
    frame = sys._current_frames().get(loop._thread_id or 0)
    lines: list[tuple[CodeType, int]] = []
    while frame is not None and len(lines) < 10 * MOST_FRAMES:
        lines.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    lines.reverse()
    while len(lines) > 1 and lines[-1][0].co_filename.startswith(OWN):
        lines.pop()  # what the collector calls
    return tuple(lines[-MOST_FRAMES:])


def _frame(code: CodeType, line: int) -> Frame:
    return Frame(code.co_filename, line, code.co_qualname, source_of(code.co_filename, line))


def task_of(loop: Any) -> tuple[str | None, CodeType | None]:
    """Return the name of the task whose step a loop runs, and the code of its coroutine."""
    try:
        task: Any = asyncio.current_task(loop)
        name: str | None = None
        if type(task) is Task:
            coroutine, name = coroutine_and_name(task)
        elif task is not None and (has_gil() or type(task) is _TASK_WITH_LOCK):
            coroutine = task.get_coro()
            if has_gil() or _NAMES_HAVE_LOCK:
                name = task.get_name()
        else:
            return None, None
        code = getattr(coroutine, "cr_code", None)
        function = getattr(coroutine, "__qualname__", None) or type(coroutine).__name__
        return shown(function if name is None else f"{name} ({function})"), code
    except Exception:  # A task of the program's own may do anything.
        return None, None


def called_by(frames: tuple[Frame, ...], recorded: str | None = None) -> str | None:
    """Return the name of the function that the loop called: the program's first after the loop's own.

    A function of C's has no frame: it has the name that was recorded, or none.
    """
    is_inside = False
    for frame in frames:
        is_ours = frame.file.startswith(MACHINERY)
        if is_inside and not is_ours:
            return shown(frame.function)
        is_inside |= is_ours
    if recorded is not None:
        return recorded
    return shown(frames[-1].function) if frames and not is_inside else None


def source_of(file: str, line: int) -> str:
    """Return a line of a program's source."""
    return linecache.getline(file, line).strip()


def parse_dumps(text: str, source_at: Callable[[str, int], str] = source_of) -> Iterator[tuple[Frame, ...]]:
    """Yield the frames of each stack that faulthandler wrote, the outermost first."""
    frames: list[Frame] = []
    for line in [*text.split("\n"), "Stack"]:
        match = FAULTHANDLER_LINE.match(line)
        if match is not None:
            file, number = match[1], int(match[2])
            frames.append(Frame(file, number, match[3], source_at(file, number)))
        elif not line.startswith(" "):
            if frames:
                yield tuple(reversed(frames))
            frames = []


def read_stack(thread: int) -> tuple[Frame, ...]:
    """Return the stack of a thread, read from outside; none if it runs Python's code just then."""
    return next(parse_dumps(looks.stack(thread, 1)), ()) if are_read_rightly() else ()


@functools.cache
def are_read_rightly() -> bool:
    """Return whether a stack that is read from outside is what Python says of it: here, of this thread."""
    read = next(parse_dumps(looks.stack(threading.get_native_id(), 1), lambda file, line: ""), ())
    known: list[tuple[str, int, str]] = []
    frame: Any = sys._getframe(1)  # This function itself goes on to another line.
    while frame is not None:
        code = frame.f_code
        known.append((_as_read(code.co_filename), frame.f_lineno or 0, _as_read(code.co_qualname)))
        frame = frame.f_back
    calls = [call[:3] for call in reversed(read[:-1])]
    return bool(calls) and calls == known[: len(calls)]


def _as_read(name: str) -> str:
    """Return a name of Python's as `frames.h` writes it."""
    return _UNPRINTED.sub(_escape, name[:LONGEST_NAME])


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
