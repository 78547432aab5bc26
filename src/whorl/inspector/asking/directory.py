"""The directory of the inspector's files: private to the user, on a file system in memory.

Each file is named after its process and the time when that began. So a file that a dead process left is told
from one of a living process with the same number.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

NAME = re.compile(r"(\d+)-(\d+)\.sock")


class Refused(OSError):
    """The directory is not private to the user."""


def path_for(environment: dict[str, str], user: int) -> str:
    """Return the path of the directory for a user with this environment."""
    if environment.get("WHORL_INSPECT_DIR"):
        return os.path.abspath(environment["WHORL_INSPECT_DIR"])
    if environment.get("XDG_RUNTIME_DIR"):
        return os.path.join(environment["XDG_RUNTIME_DIR"], "whorl")
    return f"/dev/shm/whorl-{user}"


def opened(path: str) -> int:
    """Return a descriptor of the directory, which is made if there is none. Raises Refused and OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise Refused(f"{path} is no directory of the user's own: {error.strerror}") from None
    try:
        check(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check(path: str, found: os.stat_result) -> None:
    """Raise Refused unless a directory is the user's own and nobody else may enter it."""
    if found.st_uid != os.geteuid():
        raise Refused(f"{path} belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise Refused(f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o}, not 0700)")


def start_time(pid: int | str) -> int | None:
    """Return when a process began, in ticks since the system's start; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19])


def state_of(pid: int) -> str:
    """Return the letter for the state of a process (proc(5)), an empty text if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def name_of(pid: int) -> str:
    """Return the name of a process's socket."""
    return f"{pid}-{start_time('self' if pid == os.getpid() else pid) or 0}.sock"


def sweep(directory: int) -> None:
    """Remove what dead processes left in the directory."""
    for name in os.listdir(directory):
        found = NAME.fullmatch(name)
        if found is not None and start_time(found[1]) != int(found[2]):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
