"""Putting a world into Python's modules, and taking it out again."""

from __future__ import annotations

import gc
import random
import sys
from contextlib import contextmanager
from enum import Flag
from typing import TYPE_CHECKING, Any

from whorl.sim.errors import Escaped
from whorl.sim.patches.chance import CHANCE
from whorl.sim.patches.clocks import CLOCKS, imported_clocks
from whorl.sim.patches.current import RUNNING, Replacement
from whorl.sim.patches.files import CHANGES, FILES, check_change, check_open
from whorl.sim.patches.futures import FUTURES
from whorl.sim.patches.sockets import SOCKETS, take_socket_class
from whorl.sim.patches.threads import THREADS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whorl.sim.world.world import World

_MISSING = object()
_REFUSED = {"socket.connect", "socket.bind", "socket.sendto", "subprocess.Popen", "os.fork", "os.system"}
_is_guarded: list[bool] = []
_was_frozen: list[bool] = []  # whether the program has frozen its objects before the first world


class Patches(Flag):
    """The parts of Python that a world replaces."""

    TIME = 1  #: clocks: `time`, `datetime`
    CHANCE = 2  #: `random`, `os.urandom`, `uuid`
    SOCKETS = 4  #: `socket`, `select`, pipes, descriptors of files
    THREADS = 8  #: executors, threads, processes, signals
    FUTURES = 16  #: the hashes of futures and tasks
    ALL = 31


_PARTS: list[tuple[Patches, list[Replacement]]] = [
    (Patches.TIME, CLOCKS),
    (Patches.CHANCE, CHANCE),
    (Patches.SOCKETS, SOCKETS),
    (Patches.SOCKETS, FILES),
    (Patches.THREADS, THREADS),
    (Patches.FUTURES, FUTURES),
]


def _guard(event: str, args: Any) -> None:
    """Refuse system calls that come from outside Python's modules (sys.addaudithook)."""
    if event == "open":
        check_open(args)
    elif event in CHANGES:
        check_change(event, args)
    if event in _REFUSED:
        world = RUNNING.world
        if world is not None and not world.allowed:
            raise Escaped(f"a system call was made ({event})")


@contextmanager
def installed(patches: Patches = Patches.ALL) -> Iterator[None]:
    """Let the world that runs stand in Python's modules for the time of a `with` block."""
    places = [place for part, places in _PARTS if part in patches for place in places]
    if Patches.TIME in patches:
        places += imported_clocks()
    if Patches.SOCKETS in patches:
        take_socket_class()
        if not _is_guarded:
            _is_guarded.append(True)
            sys.addaudithook(_guard)
    former = [(owner, name, vars(owner).get(name, _MISSING)) for owner, name, _ in places]
    state = random.getstate() if Patches.CHANCE in patches else None
    collects = gc.isenabled()
    if not _was_frozen:
        _was_frozen.append(gc.get_freeze_count() > 0)  # This is slow, so it is asked once.
    gc.freeze()  # A collection looks only at what the world has made.
    try:
        for owner, name, replacement in places:
            setattr(owner, name, replacement)
        gc.disable()
        yield
    finally:
        for owner, name, value in reversed(former):
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        if state is not None:
            random.setstate(state)
        if not _was_frozen[0]:
            gc.unfreeze()
        if collects:
            gc.enable()


@contextmanager
def running(world: World, patches: Patches) -> Iterator[None]:
    """Let a world run. Raises RuntimeError inside another one."""
    if RUNNING.world is not None:
        raise RuntimeError("a world runs already; worlds do not run inside each other")
    with installed(patches):
        RUNNING.world = world
        random.seed(world.decisions.base_of("random"))
        try:
            yield
        finally:
            RUNNING.world = None
