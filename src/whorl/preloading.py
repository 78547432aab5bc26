"""The import of all that a program may need later, before it gives up its files."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import pkgutil

from whorl.aio.loop.event_loop import import_methods

_PACKAGES = ("whorl.core", "whorl.handles", "whorl.aio")
# Modules whose public names bring what they need.
_FACES = ("whorl.handles", "whorl.fs", "whorl.inspector", "whorl.substitute")
# Those of Python's own modules that come late: of executors, of names and files, of reports of errors. Not
# each Python has all of them.
_STANDARD = (
    "_colorize",
    "_suggestions",
    "concurrent.futures.thread",
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
)
# The C library loads it when Python ends a thread that the program has left behind, or else ends the process.
_UNWINDER = "libgcc_s.so.1"


def preload() -> None:
    """Import all of Whorl that a program may need later, and what it needs of Python's own modules.

    Call it before the program gives up its files by `os.chroot`, or by `os.setuid` to a user who may not
    read them. Call it also before an upgrade replaces them, and before the descriptors may run out.
    Afterwards no loop, handle, file of `whorl.fs` or inspector imports anything. Servers that listen need no
    call: what their connections use is imported when they are made.

    Raises ImportError if a module of Whorl cannot be imported.
    """
    for package in map(importlib.import_module, _PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name != "whorl.core.kernel.libc" or _has_ctypes():
                importlib.import_module(module.name)
    for face in map(importlib.import_module, _FACES):
        for name in getattr(face, "__all__", ()):
            getattr(face, name)
    import_methods()
    for standard in _STANDARD:
        with contextlib.suppress(ImportError):
            importlib.import_module(standard)
    if _has_ctypes():
        import ctypes

        with contextlib.suppress(OSError):
            ctypes.CDLL(_UNWINDER)


def _has_ctypes() -> bool:
    """Return whether this Python has `ctypes`: one that was built without libffi has not."""
    return importlib.util.find_spec("_ctypes") is not None
