"""The facts that a recording has of a process that does not answer: its stalls, and its current call."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from whorl.formats.units import duration_ns
from whorl.inspector.asking import client, directory
from whorl.inspector.asking.finding import Found, recording_of
from whorl.inspector.recordings.doing import all_stalls, doing, lengthened
from whorl.inspector.recordings.recording import NotARecording, read_file

LEAST_STUCK_NS = 50_000_000
CUT_OR_NEWER = 7  # the exit code for a recording that is cut, or of a newer version


class Stalls(NamedTuple):
    """The stalls of a process, as JSON has them."""

    title: str
    pid: int
    stalls: list[dict[str, Any]]
    starved: int = 0  #: how many callbacks only waited for a processor, as far as a recording says


def stalls_of(source: str) -> Stalls:
    """Return the stalls of a process, by its number, or those in the file of a recording. Raises Failed."""
    if not source.isdecimal():
        return _stalls_in(source)
    pid = int(source)
    try:
        found: Found | None = recording_of(pid)
    except client.NotInspected:
        found = None
    if (found is None or not found.is_living) and directory.state_of(pid) not in ("", "Z", "X"):
        # It has no recording, and that of a process which had the same number is not meant.
        return Stalls(f"process {pid}", pid, _answered(pid))
    if found is None:
        client.user_of(pid)
        raise client.NotInspected(f"there is no process {pid}, and no recording of one")
    title = f"process {pid}" + ("" if found.state == "running" else f", which {_STATES[found.state]}")
    if found.namespace is not None:
        title += f" (in the PID namespace {found.namespace})"
    stalls = all_stalls(found.recording)
    if found.state == "running":
        now = time.monotonic_ns()
        stalls = [lengthened(stall, now) for stall in stalls]
    return Stalls(title, pid, stalls, found.recording.starved)


_STATES = {"stopped": "is stopped", "died": "has died", "finished": "has finished"}


def _answered(pid: int) -> list[dict[str, Any]]:
    """Return the stalls that a process tells of when it is asked. Raises Failed."""
    stalls = client.ask(pid, "stalls")
    if type(stalls) is not list or not all(type(stall) is dict for stall in stalls):
        raise client.Unusable(pid)
    return stalls


def _stalls_in(path: str) -> Stalls:
    try:
        recording = read_file(path)
    except NotARecording as error:
        raise client.Failed(f"{path}: {error}", CUT_OR_NEWER) from None
    except OSError as error:
        raise client.Failed(
            f"{path} is neither a process's number nor a recording: {error.strerror}", 2
        ) from None
    return Stalls(path, recording.pid, all_stalls(recording), recording.starved)


def known_of(pid: int) -> str:
    """Return a sentence for each loop of a process that is in a callback for long; with a space before it."""
    try:
        found = recording_of(pid)
    except client.Failed:
        return ""
    if not found.is_living:
        return ""
    text, now = "", time.monotonic_ns()
    for loop in found.recording.loops():
        what = doing(found.recording, loop)
        if what is not None and now - what.since_ns >= LEAST_STUCK_NS:
            text += f" It is in {what.call or 'a callback'} since {duration_ns(now - what.since_ns)}"
            text += f", task {what.task}." if what.task else "."
    return text
