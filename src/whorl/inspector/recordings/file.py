"""The memory of a recording: a file that is mapped, or the process's own.

The file is in a directory in memory, so nothing waits for a disk. All of its memory is there before the first
byte is written. So a full file system is an error at once, and no signal to a loop later. If somebody makes
the file shorter afterwards, a guard keeps the process alive, and `is_whole` tells.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import platform
import secrets
import sys
import time
from typing import Any

from whorl.core.recording import layout
from whorl.core.recording.guard import Guard
from whorl.inspector.recordings.output import written

POPULATE_WRITE = 23  # Linux 5.14: madvise makes all pages
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Mapped(mmap.mmap):
    """The memory of a file, with its guard. The guard goes first, by `close` or with the last user."""

    def __init__(self, *_: Any) -> None:
        self._guard: Guard | None = Guard(self)

    def close(self) -> None:
        """Let go of the memory. Raises BufferError if it is used."""
        self._guard = None
        try:
            super().close()
        except BufferError:
            self._guard = Guard(self)
            raise


def size_of(ring: int) -> int:
    """Return the size of a recording whose ring of events has at most so many bytes."""
    return layout.offsets(layout.events_in(ring))[-1]


def mapped(directory: int, name: str, size: int) -> mmap.mmap:
    """Make a file of this size, for the user alone, and return its memory. Raises OSError; then it is gone.

    There must be no file of that name. It is locked while it is mapped, which `is_held` sees.
    """
    descriptor = os.open(name, _FLAGS, 0o600, dir_fd=directory)
    try:
        os.fchmod(descriptor, 0o600)  # The mask of the process may have taken more away.
        os.posix_fallocate(descriptor, 0, size)
        with contextlib.suppress(OSError):  # Not each file system has locks.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        memory = _Mapped(descriptor, size)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)
    _touch(memory)
    return memory


def own(size: int) -> mmap.mmap:
    """Return memory that is no file. A forked child gets a copy of it."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _touch(memory: mmap.mmap) -> None:
    """Let the kernel make each page now, and not at a loop's first write to it."""
    try:
        memory.madvise(POPULATE_WRITE)
    except (OSError, ValueError):
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 0


def is_whole(memory: mmap.mmap) -> bool:
    """Return whether memory that was laid out still has its header: nobody has emptied its file.

    If the file is shorter, the guard sees it at the last byte, and clears the header.
    """
    return memory[-1] >= 0 and memory[: len(layout.MAGIC)] == layout.MAGIC


def lay_out(memory: mmap.mmap, ring: int, *, started: int) -> None:
    """Write the header of this process's recording."""
    whorl: Any = sys.modules["whorl"]
    with memoryview(memory) as view:
        layout.lay_out(
            view,
            layout.events_in(ring),
            pid=os.getpid(),
            started=started,
            boot=boot_id(),
            namespace=namespace(),
            clock_ns=time.time_ns() - time.monotonic_ns(),
            whorl=whorl.__version__,
            python=platform.python_version(),
            command=_command(),
        )


def lay_out_simulated(memory: mmap.mmap, ring: int) -> None:
    """Write the header of a recording of a simulated world. It is the same in each run."""
    with memoryview(memory) as view:
        layout.lay_out(view, layout.events_in(ring))


def boot_id() -> bytes:
    """Return the name of this start of the system; nothing if it is not told."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip()
    except OSError:
        return b""


def namespace() -> int:
    """Return the number of this process's PID namespace; 0 if it is not told."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino & 0xFFFFFFFF
    except OSError:
        return 0


def is_foreign(number: int) -> bool:
    """Return whether a PID namespace is another one, whose processes have other numbers here."""
    return 0 != number != namespace() != 0


def is_held(descriptor: int) -> bool:
    """Return whether a process may map a recording, in whatever PID namespace that is.

    On a file system without locks it may, as nobody can tell.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _command() -> bytes:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return file.read(layout.COMMAND_SIZE)
    except OSError:
        return b""


def write_copy(memory: Any, path: str, directory: int | None = None) -> None:
    """Write a copy of a recording to a file for the user alone. Raises OSError; then nothing is left of it.

    A file of that name is replaced. The loops go on meanwhile.
    """
    if directory is None:
        with written(path, mode=0o600) as output, memoryview(memory) as view:
            output.write(view)
    else:
        _write_copy_into(directory, path, memory)


def _write_copy_into(directory: int, path: str, memory: Any) -> None:
    folder, name = os.path.split(path)
    new = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(8)}")
    descriptor = os.open(new, _FLAGS, 0o600, dir_fd=directory)
    try:
        try:
            with memoryview(memory) as view:
                done = 0
                while done < len(view):
                    count = os.write(descriptor, view[done:])
                    if not count:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    done += count
        finally:
            os.close(descriptor)
        os.replace(new, path, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise
