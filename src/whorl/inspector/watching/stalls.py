"""A stall: a callback that kept its loop from everything else, and what its thread did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from whorl.formats.units import duration_ns
from whorl.inspector.tables.own_frames import Frame as Frame
from whorl.inspector.tables.own_frames import folded, is_of_loop, place_in
from whorl.inspector.watching.text import shown

MOST_SHOWN = 12  # frames of a stack, in a log
#: Why a loop stalled, in words.
REASONS = {
    "collector": "Python's garbage collector ran",
    "many callbacks": "none took so long alone",
    "gil held": "C code held the interpreter's lock",
    "starved": "other programs had the processor",
    "asleep": "the thread was blocked",
    "running": "it was running",
    "unknown": "the system does not tell why",
}


class Stack(NamedTuple):
    """The stack of a stalled thread, and what it was in, at one moment of the stall."""

    after_ns: int  #: how long the stall had lasted
    frames: tuple[Frame, ...]  #: the outermost first
    syscall: str | None  #: the system call that it was in; "running": none; None: not known
    file: str | None  #: the file of that call
    late: bool  #: whether it was taken when the code that held the interpreter's lock had returned


class Caller(NamedTuple):
    """A call that ran in a turn of many callbacks."""

    call: str
    took_ns: int  #: how long all of its runs took, by how often looks have seen it


@dataclass(frozen=True, slots=True)
class Stall:
    """A callback that took longer than the threshold. Durations are in nanoseconds.

    If there are `callers`, it is a whole turn: many callbacks that took longer together, and none alone. The
    stacks are those of the calls that took longest, one of each.

    A field that the system did not tell is None, never 0. The shares `running_ns`, `starved_ns` and
    `asleep_ns` add up to the length.
    """

    number: int  #: from 1, in this process
    loop: str  #: the representation of the loop
    thread: int | None  #: the kernel's number of the loop's thread
    began_ns: int  #: when it began, by the monotonic clock, which is that of `loop.time`
    length_ns: int  #: its length; until now if it has not ended
    ended: bool
    running_ns: int | None  #: on a processor
    starved_ns: int | None  #: waiting for a processor that others had
    asleep_ns: int | None  #: blocked in the kernel
    gc_ns: int  #: in Python's garbage collector; part of `running_ns`
    gil_held: bool | None  #: whether C code kept the interpreter's lock from all other threads meanwhile
    call: str | None  #: the function of the program that the loop had called
    task: str | None  #: the task whose step it is
    stacks: tuple[Stack, ...]
    callbacks: int = 0  #: how many callbacks the turn had; 0 if it is one callback
    handler: bool = False  #: whether the call is a handler of a signal, which ran between callbacks
    callers: tuple[Caller, ...] = ()  #: of a turn, those first that took longest

    @property
    def syscall(self) -> str | None:
        """The system call that the thread was in, by the first stack that knows one."""
        return next((stack.syscall for stack in self.stacks if stack.syscall is not None), None)

    @property
    def file(self) -> str | None:
        """The file of that system call."""
        return next((stack.file for stack in self.stacks if stack.file is not None), None)

    @property
    def late(self) -> bool:
        """True if no stack was taken during the stall."""
        return all(stack.late for stack in self.stacks)

    @property
    def reason(self) -> str:
        """Why the loop stalled: "collector", "many callbacks", "gil held", "starved" and so on."""
        if self.gc_ns * 2 >= self.length_ns:
            return "collector"
        if self.callers:
            return "many callbacks"
        if self.gil_held:
            return "gil held"
        running, asleep, starved = self.running_ns, self.asleep_ns, self.starved_ns
        if running is None or asleep is None:
            return "unknown"
        if starved is not None and starved > max(running, asleep):
            return "starved"
        return "running" if running >= asleep else "asleep"

    @property
    def place(self) -> str:
        """The innermost line of the program's own inside the call, and what it called; empty if unknown."""
        found = (self._place_in(stack) for stack in self.stacks if not stack.late)
        return next((place for place in found if place), "")

    def _place_in(self, stack: Stack) -> str:
        has_frame = any(shown(frame.function) == self.call for frame in stack.frames)
        if not has_frame and (self.callers or all(map(is_of_loop, stack.frames[-1:]))):
            return ""  # The loop called a function of C's. What is below the loop is not inside of that.
        return place_in(self._frames_of_call(stack))

    def summary(self) -> str:
        """Return one line: how long, which line of the program, and why."""
        inside = " in a signal handler" if self.handler else f" in {self.task}" if self.task else ""
        what = f"{self.place or self.call or 'a callback'}{inside}"
        if self.callers or self.callbacks:
            number = f"{self.callbacks:,}" if self.callbacks else "many"
            most = f", most of all {what}," if self.callers else ""
            what = f"{number} callbacks of one iteration{most}"
        verb = "blocked" if self.ended else "has blocked"
        return f"{what} {verb} the loop for {duration_ns(self.length_ns)}: {self.why()}"

    def why(self) -> str:
        """Return in words what the thread did, and the shares."""
        words = REASONS[self.reason]
        if self.callers:
            words += f": {self.shares_of_callers()}"
        if self.reason == "asleep" and self.syscall is not None:
            words += f" in {self.syscall}" + (f" of {self.file}" if self.file else "")
        shares = [
            f"{name} {duration_ns(share)}"
            for name, share in (
                ("running", self.running_ns),
                ("asleep", self.asleep_ns),
                ("waiting for a processor", self.starved_ns),
                ("in the collector", self.gc_ns or None),
            )
            if share is not None
        ]
        return f"{words} ({', '.join(shares)})" if shares else words

    def shares_of_callers(self) -> str:
        """Return the calls of a turn, and which part of its time each took."""
        return ", ".join(f"{call} {100 * took / self.length_ns:.0f} %" for call, took in self.callers)

    def _frames_of_call(self, stack: Stack) -> tuple[Frame, ...]:
        """Return the frames inside the call that the loop made, and its own."""
        names = [shown(frame.function) for frame in stack.frames]
        return stack.frames[names.index(self.call) :] if self.call in names else stack.frames

    def text(self) -> str:
        """Return the summary and the stack that tells most, the innermost line last."""
        lines = [self.summary()]
        stack = next((stack for stack in self.stacks if not stack.late), None) or (
            self.stacks[0] if self.stacks else None
        )
        if stack is not None:
            when = f"after {duration_ns(stack.after_ns)}"
            lines.append(f"Stack {when}, when the lock was free again:" if stack.late else f"Stack {when}:")
            for frame in folded(self._frames_of_call(stack), MOST_SHOWN, self.call):
                if not frame.file:
                    lines.append(f"  … {shown(frame.function)}")
                    continue
                lines.append(f'  File "{shown(frame.file)}", line {frame.line}, in {shown(frame.function)}')
                if frame.source:
                    lines.append(f"    {shown(frame.source)}")
        return "\n".join(lines)
