"""The current call of a loop, and its stalls, by its recording: also while C code holds the lock."""

from __future__ import annotations

import linecache
import os
import re
from typing import Any, NamedTuple

from whorl.core.recording import layout
from whorl.formats.units import duration_ns
from whorl.inspector.recordings.recording import RecordedLoop, Recording, near
from whorl.inspector.watching import threads
from whorl.inspector.watching.stacks import called_by, parse_dumps
from whorl.inspector.watching.stalls import Stack, Stall
from whorl.inspector.watching.text import shown

_LENGTH = re.compile(r"(has blocked the loop for )[^:]+")
LARGEST_SOURCE = 4 << 20  # bytes of a file whose lines are shown


class Doing(NamedTuple):
    """A callback or a step that runs."""

    call: str  #: its name; empty if it is not known
    task: str  #: the name of its task; empty if it is no step
    since_ns: int


def doing(recording: Recording, loop: RecordedLoop) -> Doing | None:
    """Return what a loop does; None while it sleeps, does not run, or is between two callbacks."""
    fields = loop.fields
    if fields["state"] != 1 or not fields["run_began_ns"] or not fields["call_began_ns"]:
        return None
    task = fields["call_task"]
    return Doing(
        shown(recording.name(fields["call_name"])),
        shown(task_name(recording, task)) if task else "",
        fields["call_began_ns"],
    )


def task_name(recording: Recording, number: int) -> str:
    """Return the name of a task by the event of its making; an empty text if that is lost, or far back."""
    made = recording.tasks_made.get(number)
    if made is None:
        return ""
    return recording.name(made.name_id) or f"Task-{made.took_ns // layout.TOOK_UNIT_NS}"


def all_stalls(recording: Recording) -> list[dict[str, Any]]:
    """Return the stalls of a recording, and the one that only the native thread has seen yet."""
    found = recording.stalls()
    unseen = _blind_stall(recording, 1 + max((stall.get("number", 0) for stall in found), default=0))
    if unseen is None:
        return found
    if any(_is_same(stall, unseen) for stall in found):
        # The watchdog saw it begin, before the lock was gone.
        return [
            {**unseen, "number": stall.get("number", 0), "began_ns": stall.get("began_ns") or 0}
            if _is_same(stall, unseen)
            else stall
            for stall in found
        ]
    return [*found, unseen]


def lengthened(stall: dict[str, Any], now_ns: int) -> dict[str, Any]:
    """Return a stall as it is now, if it goes on: the watchdog writes it seldom while it lasts."""
    began, length = stall.get("began_ns"), stall.get("length_ns")
    if stall.get("ended") is not False or type(began) is not int or type(length) is not int:
        return stall
    longer = now_ns - began
    if longer <= length:
        return stall
    text = _LENGTH.sub(lambda found: f"{found[1]}{duration_ns(longer)}", str(stall.get("text", "")), count=1)
    return {**stall, "length_ns": longer, "text": text}


def _is_same(stall: dict[str, Any], unseen: dict[str, Any]) -> bool:
    return (
        stall.get("ended") is False
        and stall.get("thread") == unseen["thread"]
        and abs((stall.get("began_ns") or 0) - unseen["began_ns"]) < 1_000_000_000
    )


def _blind_stall(recording: Recording, number: int) -> dict[str, Any] | None:
    """Return the stall that the native thread has seen, as JSON has stalls; None if there is none."""
    *numbers, call = layout.BLIND.unpack_from(recording.data, layout.BLIND_AT)
    since, seen, thread, length = map(near, numbers)
    if since <= 0:
        return None
    at = layout.BLIND_STACK_AT
    text = bytes(recording.data[at : at + min(max(0, length), layout.BLIND_STACK_SIZE)])
    # Another user's recording may name any file, which that user may not read.
    source_of = _source if recording.is_own else _no_source
    frames = next(parse_dumps(text.decode("utf-8", "replace"), source_of), ())
    loop = next((loop for loop in recording.loops() if loop.fields["thread"] == thread), None)
    known = None if loop is None else doing(recording, loop)
    began = since if known is None else min(since, known.since_ns)
    syscall = threads.name_of_call(call.rstrip(b"\0").decode("ascii", "replace"))
    now = max(seen, recording.alive_ns)
    stall = Stall(
        number=number,
        loop="" if loop is None else f"loop {loop.number}",
        thread=thread,
        began_ns=began,
        length_ns=now - began,
        ended=False,
        running_ns=None,
        starved_ns=None,
        asleep_ns=None,
        gc_ns=0,
        gil_held=True,
        call=(known.call if known is not None else "") or called_by(frames),
        task=(known.task or None) if known is not None else None,
        stacks=(Stack(seen - began, frames, syscall, None, False),) if frames else (),
    )
    return plain(stall)


def plain(stall: Stall) -> dict[str, Any]:
    """Return a stall as JSON has it, with the words in which it is told."""
    fields = {name: getattr(stall, name) for name in Stall.__slots__}
    fields["stacks"] = [stack._asdict() for stack in stall.stacks]
    return fields | {
        "text": stall.text(),
        "place": stall.place,
        "reason": stall.reason,
        "syscall": stall.syscall,
        "file": stall.file,
    }


def _source(file: str, line: int) -> str:
    """Return a line of a program; nothing if the file is none, or too large for one."""
    try:
        is_program = os.path.isfile(file) and os.path.getsize(file) <= LARGEST_SOURCE
    except (OSError, ValueError):
        return ""
    return linecache.getline(file, line).strip() if is_program else ""


def _no_source(file: str, line: int) -> str:
    return ""
