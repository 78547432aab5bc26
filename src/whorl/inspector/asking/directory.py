"""The directory of the inspector's files: private to the user, on a file system in memory.

Each file is named after its process and the time when that began. So a file that a dead process left is told
from one of a living process with the same number.

Containers may share the directory. The numbers of their processes mean nothing in another PID namespace.
There a socket tells by its listener, and a recording by its lock, whether its process lives.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
import time

from whorl.core.recording import layout
from whorl.inspector.recordings.file import boot_id, is_foreign, is_held

NAME = re.compile(r"(\d+)-(\d+)\.sock")
#: A recording of a process, or a copy of it that `dump_on` made.
RECORDING = re.compile(r"(?:whorl-)?(\d+)-\d+\.recording")
#: How long the recording of a dead process stays.
KEPT_NS = 24 * 3600 * 1_000_000_000
#: So many recordings of dead processes are kept: a service that dies again and again must not fill the
#: memory.
MOST_KEPT = 16


#: The number of a process of another PID namespace.
FOREIGN = -1


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


def name_of(pid: int, kind: str = "sock") -> str:
    """Return the name of a process's socket, or of its recording."""
    return f"{pid}-{start_time('self' if pid == os.getpid() else pid) or 0}.{kind}"


def sweep(directory: int) -> None:
    """Remove what dead processes left in the directory."""
    for name in os.listdir(directory):
        found = NAME.fullmatch(name)
        if found is None or start_time(found[1]) == int(found[2]):
            continue
        if not _is_listening(directory, name):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)


def _is_listening(directory: int, name: str) -> bool:
    """Return whether a process listens at a socket, in whatever PID namespace that is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(f"/proc/self/fd/{directory}/{name}")
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # It accepts no more for now.
            return True
    return True


def sweep_recordings(directory: int) -> None:
    """Remove recordings of dead processes: all but the last ones of the last day since the system's start."""
    if start_time("self") is None:
        return  # Nobody tells which processes live.
    dead: list[tuple[int, str]] = []
    for name in os.listdir(directory):
        found = RECORDING.fullmatch(name)
        if found is not None:
            with contextlib.suppress(OSError):
                seen_ns = _dead_since(directory, name, int(found[1]))
                if seen_ns is not None:
                    dead.append((seen_ns, name))
    dead.sort(reverse=True)
    oldest = time.time_ns() - KEPT_NS
    for place, (seen_ns, name) in enumerate(dead):
        if place >= MOST_KEPT or seen_ns < oldest:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)


def owner_of(directory: int, name: str) -> int | None:
    """Return the number of the process that writes a recording, 0 if it is dead, None if there is no file.

    It is FOREIGN for a living process of another PID namespace. Raises FileExistsError if the file is no
    recording.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        header = os.pread(descriptor, layout.HEADER.size, 0)
        if len(header) < layout.HEADER.size or not header.startswith(layout.MAGIC):
            raise FileExistsError(f"{name} is there, and is no recording")
        pid, started, boot, namespace = layout.HEADER.unpack_from(header)[4:]
        if is_foreign(namespace):
            return FOREIGN if is_held(descriptor) else 0
    finally:
        os.close(descriptor)
    is_living = boot.rstrip(b"\0") == boot_id() and start_time(pid) == started
    return pid if is_living else 0


def remove_former(directory: int, name: str) -> None:
    """Remove the recording of a dead process, or of an earlier program of this one.

    Raises FileExistsError for that of another process, and for a file that is no recording.
    """
    owner = owner_of(directory, name)
    if owner not in (None, 0, os.getpid()):
        raise FileExistsError(f"{name} is the recording of another process")
    if owner is not None:
        os.unlink(name, dir_fd=directory)


def _dead_since(directory: int, name: str, pid: int) -> int | None:
    """Return when the process of a recording was last seen, by the wall clock; None: it lives.

    It is 0 for a process of before the system's start. Raises OSError.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    try:
        seen_ns = os.fstat(descriptor).st_mtime_ns
        header = os.pread(descriptor, layout.HEADER_SIZE, 0)
    finally:
        os.close(descriptor)
    if len(header) == layout.HEADER_SIZE and header.startswith(layout.MAGIC):
        started, boot, namespace = layout.HEADER.unpack_from(header)[5:]
        if boot.rstrip(b"\0") not in (b"", boot_id()):
            return 0
        if _is_held(directory, pid, started) if is_foreign(namespace) else start_time(pid) == started:
            return None
        # A mapped file has the time of its making.
        clock_ns, _, alive_ns = struct.unpack_from("<3q", header, layout.CLOCK_AT)
        seen_ns = max(seen_ns, clock_ns + alive_ns)
    return seen_ns


def _is_held(directory: int, pid: int, started: int) -> bool:
    """Return whether a process of another PID namespace, which may have made copies, maps its recording."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(
            f"{pid}-{started}.recording", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory
        )
        try:
            return is_held(descriptor)
        finally:
            os.close(descriptor)
    return False
