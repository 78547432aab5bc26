"""Files in a world: descriptors of the host's disk work with `os`, and real files may only be read.

A program reads its modules, certificates and templates as ever. It writes by `host.disk.open` or `whorl.fs`,
so that a crash of the host can lose what was not synced.
"""

from __future__ import annotations

import os
from typing import Any

from whorl.sim.errors import RealFile
from whorl.sim.patches.current import RUNNING, Replacement, host

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

#: The changes of the file system that Python's audit hooks see, each with the path as the first argument.
CHANGES = frozenset(
    f"os.{name}" for name in "chmod chown link mkdir remove rename rmdir symlink truncate utime".split()
)

#: Real files that may be written: what Python keeps of modules that it has compiled, and devices.
_FREE = ("/dev/", "/proc/")
_CACHES = ("__pycache__", ".pyc")


def check_open(args: Any) -> None:
    """Refuse to open a real file for writing, in a world; `args` are those of the audit event "open"."""
    path, _, flags = args
    if isinstance(flags, int) and flags & _WRITES and _is_guarded(path):
        raise RealFile(f"file {_shown(path)!r} was opened for writing")


def check_change(event: str, args: Any) -> None:
    """Refuse to change the real file system, in a world."""
    if _is_guarded(args[0]):
        raise RealFile(f"{event} of {_shown(args[0])!r} was called")


def _is_guarded(path: Any) -> bool:
    world = RUNNING.world
    if world is None or "files" in world.allowed or isinstance(path, int) or path is None:
        return False
    name = _shown(path)
    return not name.startswith(_FREE) and not any(part in name for part in _CACHES)


def _shown(path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        return repr(path)


def _checked(answer: Any) -> Any:
    if isinstance(answer, int) and answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return answer


def _is_simulated(fd: Any) -> bool:
    return isinstance(fd, int) and fd in host().kernel.table.files


def _routed(name: str, simulated: Any) -> Replacement:
    """Return a function of `os` that asks the host's disk for its descriptors, else the system."""
    real = getattr(os, name)

    def call(fd: Any, *args: Any, **options: Any) -> Any:
        if not _is_simulated(fd):
            return real(fd, *args, **options)
        return _checked(simulated(host().kernel, fd, *args, **options))

    call.__name__ = name
    return os, name, call


def _none(answer: Any) -> None:
    _checked(answer)


FILES: list[Replacement] = [
    _routed("fsync", lambda kernel, fd: _none(kernel.sync(fd, False))),
    _routed("fdatasync", lambda kernel, fd: _none(kernel.sync(fd, True))),
    _routed("fstat", lambda kernel, fd: kernel.status_of(fd)),
    _routed("ftruncate", lambda kernel, fd, size: _none(kernel.resize(fd, size))),
    _routed("lseek", lambda kernel, fd, offset, whence: kernel.seek_file(fd, offset, whence)),
    _routed("pread", lambda kernel, fd, size, offset: kernel.read_file(fd, size, offset)),
    _routed("pwrite", lambda kernel, fd, data, offset: kernel.write_file(fd, [memoryview(data)], offset)),
]
