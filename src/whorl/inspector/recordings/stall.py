"""A stall as a recording has it: texts that may be shown, and numbers. Wrong fields are left out."""

from __future__ import annotations

from typing import Any, NamedTuple

from whorl.inspector.recordings.doing import all_stalls
from whorl.inspector.recordings.recording import Recording
from whorl.inspector.tables.wording import shown
from whorl.inspector.watching.stalls import REASONS

#: The shares of a stall's time, by the names of their fields.
SHARES = {"running_ns": "running", "asleep_ns": "asleep", "starved_ns": "waiting for a processor"}


class Line(NamedTuple):
    """One line of a stack; without a file, words on lines that were left out there."""

    file: str
    line: int
    function: str
    source: str

    def __str__(self) -> str:
        if not self.file:
            return f"… {self.function}"
        return f"{self.function} ({self.file}:{self.line})" + (f"  {self.source}" if self.source else "")


class Stack(NamedTuple):
    """The stack of a stalled thread, the outermost line first."""

    after_ns: int
    late: bool
    lines: tuple[Line, ...]


class RecordedStall(NamedTuple):
    """A callback that took longer than the threshold, or many that did together."""

    number: int
    began_ns: int
    length_ns: int
    ended: bool
    call: str
    place: str  #: the program's own innermost line inside of the call; empty if it is not known
    in_handler: bool
    task: str
    reason: str
    where: str  #: the system call, and its file
    shares: dict[str, int]  #: by the words of SHARES
    collected_ns: int
    stacks: tuple[Stack, ...]
    callbacks: int  #: of a turn that stalled as a whole; 0 if it is one callback
    callers: tuple[tuple[str, int], ...]  #: the calls of that turn, and how long each took together

    @property
    def why(self) -> str:
        """The reason in words."""
        words = REASONS[self.reason]
        if self.reason == "asleep" and self.where:
            words += f" in {self.where}"
        if self.callers and self.length_ns > 0:
            words += (
                f": {', '.join(f'{call} {100 * took / self.length_ns:.0f} %' for call, took in self.callers)}"
            )
        return words

    @property
    def name(self) -> str:
        """The words for it in one line."""
        name = self.place or self.call or "a callback"
        if self.callers:
            return f"{f'{self.callbacks:,}' if self.callbacks else 'many'} callbacks, most of all {name}"
        return f"{name} in a signal handler" if self.in_handler else name

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.began_ns + self.length_ns

    @property
    def best_stack(self) -> Stack | None:
        """The first stack that was taken while it lasted, else the first one."""
        taken = [stack for stack in self.stacks if not stack.late and stack.lines]
        return next(iter(taken or self.stacks), None)


def stalls_of(recording: Recording) -> list[RecordedStall]:
    """Return the stalls of a recording, oldest first."""
    return [stall_of(plain) for plain in all_stalls(recording)]


def stall_of(plain: dict[str, Any]) -> RecordedStall:
    """Return a stall that JSON has told of. It is another process's, so nothing is taken for granted."""
    reason = plain.get("reason")
    return RecordedStall(
        number=_number(plain.get("number")),
        began_ns=_number(plain.get("began_ns")),
        length_ns=_number(plain.get("length_ns")),
        ended=plain.get("ended") is not False,
        call=_text(plain.get("call")),
        place=_text(plain.get("place")),
        in_handler=plain.get("handler") is True,
        task="" if plain.get("handler") is True else _text(plain.get("task")),
        reason=reason if isinstance(reason, str) and reason in REASONS else "unknown",
        where=" of ".join(text for name in ("syscall", "file") if (text := _text(plain.get(name)))),
        shares={word: _number(plain[name]) for name, word in SHARES.items() if type(plain.get(name)) is int},
        collected_ns=_number(plain.get("gc_ns")),
        stacks=tuple(_stack(stack) for stack in _list(plain.get("stacks")) if isinstance(stack, dict)),
        callbacks=_number(plain.get("callbacks")),
        callers=tuple(
            (_text(caller[0]), _number(caller[1]))
            for caller in _list(plain.get("callers"))
            if isinstance(caller, list) and len(caller) == 2
        ),
    )


def _stack(plain: dict[str, Any]) -> Stack:
    lines = tuple(_line(frame) for frame in _list(plain.get("frames")))
    return Stack(_number(plain.get("after_ns")), plain.get("late") is True, lines)


def _line(frame: Any) -> Line:
    """Return a line, which JSON has as a list or an object."""
    if isinstance(frame, dict):
        frame = [frame.get(name) for name in Line._fields]
    file, line, function, source = (*_list(frame), None, None, None, None)[:4]
    return Line(_text(file), _number(line), _text(function), _text(source))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _number(value: Any) -> int:
    return value if type(value) is int else 0


def _text(value: Any) -> str:
    return shown(value) if isinstance(value, str) else ""
