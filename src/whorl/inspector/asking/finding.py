"""Finding recordings: of one process, or of all processes of the user, also of those that have died.

Nothing of another user's is read, unless root asks. A directory and a file must belong to the user of the
process, and neither may be a link.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import struct
import time
from typing import NamedTuple

from whorl.core.recording import layout
from whorl.inspector.asking import directory, places
from whorl.inspector.asking.client import NotInspected, user_of
from whorl.inspector.recordings.file import boot_id, is_foreign, is_held
from whorl.inspector.recordings.recording import NotARecording, Recording, read_file

NAME = re.compile(r"(\d{1,19})-(\d{1,19})\.recording")


class Found(NamedTuple):
    """A recording that was found, and what is known of its process."""

    path: str
    pid: int  #: the number of the process, as this process sees it
    user: int
    state: str  #: "running", "stopped", "died" or "finished"
    recording: Recording

    @property
    def is_living(self) -> bool:
        """True if the process goes on, or could: it is running or stopped."""
        return self.state in ("running", "stopped")

    @property
    def namespace(self) -> int | None:
        """The number of the PID namespace in which the process has its number, None for this process's."""
        return self.recording.namespace if is_foreign(self.recording.namespace) else None

    @property
    def seen_ns(self) -> int:
        """The last sign of life, by the monotonic clock of the process."""
        recording = self.recording
        return max([recording.alive_ns, *(loop.fields["updated_ns"] for loop in recording.loops())])

    @property
    def seen_ago_ns(self) -> int:
        """The time since the last sign of life, by the wall clock."""
        return max(0, time.time_ns() - self.seen_ns - self.recording.clock_ns)


def recording_of(pid: int, *, events: int | None = None) -> Found:
    """Return the recording of a process: of a living one, else of the last one with this number.

    With `events`, only so many of the last events are read. Raises Failed, which has the code of a command.
    """
    try:
        user: int | None = user_of(pid)
    except NotInspected:  # It has ended.
        user = None
    if user is not None:
        name = f"{places.own_number(pid)}-{directory.start_time(pid)}.recording"
        for folder in places.folders(pid, user):
            found = _read(folder, name, pid, user, events)
            if found is not None:
                return found
    left = [
        found
        for folder, owner in _folders_of_all()
        for name in _names_in(folder, owner)
        if name.startswith(f"{pid}-")
        if (found := _read(folder, name, pid, owner, events)) is not None
    ]
    if left:
        return min(left, key=lambda found: (not found.is_living, found.seen_ago_ns))
    if user is None:
        raise NotInspected(f"there is no process {pid}, and no recording of one")
    raise NotInspected(
        f"process {pid} is not recorded: start it with WHORL_INSPECT=1 or `whorl run --inspect`,"
        " or use `whorl attach`"
    )


def all_recordings(*, events: int | None = 0) -> list[Found]:
    """Return the recordings of the user, for root those of all users; the living first, then the last dead.

    Files that are no recordings are left out.
    """
    found = [
        one
        for folder, user in _folders_of_all()
        for name in _names_in(folder, user)
        if (one := _read(folder, name, int(name.partition("-")[0]), user, events)) is not None
    ]
    return sorted(found, key=lambda one: (0, one.pid) if one.is_living else (1, one.seen_ago_ns))


def _folders_of_all() -> list[tuple[str, int]]:
    """Return the directories of this user, for root those of all users, each with its user."""
    user = os.geteuid()
    paths = places.own_folders(user)
    if user == 0:
        paths += [*glob.glob("/dev/shm/whorl-*"), *glob.glob("/run/user/*/whorl")]
    found: dict[tuple[int, int], tuple[str, int]] = {}
    for path in paths:
        try:
            seen = os.stat(path, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(seen.st_mode) and user in (seen.st_uid, 0):
            found.setdefault((seen.st_dev, seen.st_ino), (path, seen.st_uid))
    return list(found.values())


def _names_in(folder: str, user: int) -> list[str]:
    """Return the names of recordings in a directory of the user's."""
    try:
        place = places.opened(folder, user)
    except OSError:
        return []
    try:
        return [name for name in os.listdir(place) if NAME.fullmatch(name)]
    except OSError:
        return []
    finally:
        os.close(place)


def _read(folder: str, name: str, pid: int, user: int, events: int | None) -> Found | None:
    """Return a recording in a directory of the user's; None if there is none that can be read."""
    matched = NAME.fullmatch(name)
    if matched is None:
        return None
    try:
        place = places.opened(folder, user)
    except OSError:
        return None
    try:
        # Without O_NONBLOCK, a FIFO of this name would be waited for.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    except OSError:
        return None
    finally:
        os.close(place)
    try:
        seen = os.fstat(file)
        if seen.st_uid != user or not stat.S_ISREG(seen.st_mode):
            return None
        recording = read_file(file, events=events)
        # The state comes after the reading: a process whose end is written is no living one.
        state = _state(pid, int(matched[2]), user, recording, file)
    except (NotARecording, OSError, struct.error):
        return None
    finally:
        os.close(file)
    return Found(os.path.join(folder, name), pid, user, state, recording)


def _state(pid: int, started: int, user: int, recording: Recording, file: int) -> str:
    """Return what the process of a recording does; of one in another PID namespace, only if it lives."""
    if recording.state == layout.FINISHED:
        return "finished"
    if recording.boot.rstrip(b"\0") not in (b"", boot_id()):
        return "died"
    if is_foreign(recording.namespace):
        return "running" if is_held(file) else "died"
    if directory.start_time(pid) != started:
        return "died"
    letter = directory.state_of(pid)
    try:
        if letter in ("Z", "X", "") or os.stat(f"/proc/{pid}").st_uid != user:
            return "died"
    except OSError:
        return "died"
    return "stopped" if letter in ("T", "t") else "running"
