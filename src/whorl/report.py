"""The report of `whorl info`: this Whorl, this Python, and the features of the operating system.

Each system call is tried with arguments that it must refuse. Its error shows whether it is there, forbidden
(by a container's seccomp rules, for instance) or unknown, and nothing is left to clean up.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.metadata
import os
import platform
import resource
import ssl
import sys
from typing import Any

import whorl

# The numbers of <asm/unistd.h>. Calls added since Linux 5.0 have the same number on every architecture.
_NEWER_CALLS: dict[str, tuple[int | None, ...]] = {
    "epoll_pwait2": (441, -1, None, 0, None, None, 0),  # an invalid descriptor
    "openat2": (437, -1, None, None, 0),  # no description of how
    "pidfd_open": (434, -1, 0),  # an invalid process
}
_LIBC_CALLS: dict[str, tuple[int | None, ...]] = {
    "accept4": (-1, None, None, 0),  # an invalid descriptor
    "eventfd": (0, -1),  # flags that do not exist
}


def facts() -> dict[str, Any]:
    """Return the whole report, as JSON has it."""
    return {
        "whorl": whorl.__version__,
        "build": "compiled" if whorl.compiled else "pure",
        "location": os.path.dirname(whorl.__file__),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "poller": _poller(),
        "offered": offered(),
    }


def facts_for_issue() -> dict[str, Any]:
    """Return the facts for a bug report: more of them, but no path, and no name of a host or a user."""
    found = facts()
    for personal in ("location", "executable"):
        del found[personal]
    names = ("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHON_GIL", "PYTHONMALLOC")
    variables = sorted(name for name in os.environ if name.startswith("WHORL_") or name in names)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {
        **found,
        "compiler": platform.python_compiler(),
        "gil": "on" if gil else "off",
        "openssl": ssl.OPENSSL_VERSION,
        "kernel": platform.version(),
        "processors": os.cpu_count(),
        "open files": "{} of {}".format(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        "container": _container(),
        "variables set": " ".join(variables) or "none",
        "packages": " ".join(_packages()) or "none",
    }


def _container() -> str:
    """Return the kind of container that this process seems to be in."""
    marks = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}
    return next((kind for kind, mark in marks.items() if os.path.exists(mark)), "none known")


def _packages() -> list[str]:
    """Return the versions of the packages that often run beside Whorl."""
    found = []
    for name in ("aiohttp", "anyio", "gunicorn", "httptools", "trio", "uvicorn", "uvloop", "websockets"):
        try:
            found.append(f"{name}={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def as_text(facts: dict[str, Any]) -> str:
    """Return the report as text for people."""
    rows = {name: value for name, value in facts.items() if name != "offered"}
    rows |= facts["offered"]
    width = max(map(len, rows))
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows.items())


def offered() -> dict[str, str]:
    """Return, for each system call that Whorl can use, "yes" or the reason why not."""
    if sys.platform != "linux":
        return dict.fromkeys((*_LIBC_CALLS, *_NEWER_CALLS), "no: a system call of Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    answers = {name: _verdict(libc, name, arguments) for name, arguments in _LIBC_CALLS.items()}
    answers |= {name: _verdict(libc, "syscall", arguments) for name, arguments in _NEWER_CALLS.items()}
    return dict(sorted(answers.items()))


def _verdict(libc: ctypes.CDLL, function: str, arguments: tuple[int | None, ...]) -> str:
    try:
        call = getattr(libc, function)
    except AttributeError:
        return "no: the C library does not know it"
    ctypes.set_errno(0)
    call(*(ctypes.c_long(argument) if argument is not None else None for argument in arguments))
    refusal = ctypes.get_errno()
    if refusal in (errno.ENOSYS, errno.EPERM, errno.EACCES):
        return f"no: {os.strerror(refusal)}"
    return "yes"


def _poller() -> str:
    """Return the name of the poller that a loop uses here."""
    loop = whorl.Loop()
    try:
        return loop.poller_name()
    finally:
        loop.close()
