"""Putting a world into Python's modules, and taking it out again."""

from __future__ import annotations

import gc
import importlib
import importlib._bootstrap
import random
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from whorl.sim.patches.chance import CHANCE
from whorl.sim.patches.clocks import CLOCKS
from whorl.sim.patches.current import RUNNING, Replacement
from whorl.sim.patches.files import FILES
from whorl.sim.patches.futures import FUTURES
from whorl.sim.patches.guard import guard
from whorl.sim.patches.imported import imported
from whorl.sim.patches.logs import LOGS
from whorl.sim.patches.random_state import random_state, set_random_state
from whorl.sim.patches.sockets import SOCKETS, take_socket_class
from whorl.sim.patches.threads import THREADS
from whorl.sim.patches.tls import TLS, seeded_tls
from whorl.sim.world.options import Patches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whorl.sim.world.world import World

#: The generations of objects that a world has made, and all of them (gc.collect).
YOUNG, OLD = 1, 2

#: After so many collections of young objects come all. What a failed run leaves is old: the frames of its
#: traceback and its world hold each other. Python never comes to it, as its count begins anew with each run.
OLD_AFTER = 4096

_MISSING = object()
_find_and_load = importlib._bootstrap._find_and_load  # type: ignore[attr-defined]
_is_guarded: list[bool] = []


_PARTS: list[tuple[Patches, list[Replacement]]] = [
    (Patches.TIME, CLOCKS),
    (Patches.CHANCE, CHANCE),
    (Patches.CHANCE, TLS),
    (Patches.SOCKETS, SOCKETS),
    (Patches.SOCKETS, FILES),
    (Patches.THREADS, THREADS),
    (Patches.FUTURES, FUTURES),
    (Patches(0), LOGS),  # of all worlds
]


@dataclass(frozen=True)
class _Chosen:
    """The parts of Python that a world replaces, looked up once for each choice of them."""

    places: list[Replacement]
    has_time: bool
    has_chance: bool
    has_sockets: bool


@cache
def _chosen(patches: Patches) -> _Chosen:
    places = [place for part, places in _PARTS if part in patches for place in places]
    has_time, has_chance = Patches.TIME in patches, Patches.CHANCE in patches
    return _Chosen(places, has_time, has_chance, Patches.SOCKETS in patches)


class _Installation:
    """The replacements in Python's modules for a world, and what stood there before."""

    def __init__(self, places: list[Replacement], datetimes: bool) -> None:
        self._places = places
        self._datetimes = datetimes
        self._former: list[tuple[Any, str, Any]] = []  # in classes
        self._names: list[tuple[dict[str, Any], str, Any]] = []  # in modules
        self._former_names: list[Any] = []

    def put(self) -> None:
        """Put the replacements into Python's modules."""
        classes, names = imported(self._places, datetimes=self._datetimes)
        self._former = [(owner, name, vars(owner).get(name, _MISSING)) for owner, name, _ in classes]
        for owner, name, replacement in classes:
            setattr(owner, name, replacement)
        self._names = [*names, (vars(importlib._bootstrap), "_find_and_load", self._load)]
        self._former_names = [module[name] for module, name, _ in self._names]
        for module, name, replacement in self._names:
            module[name] = replacement

    def take_out(self) -> None:
        """Restore what stood there."""
        for (module, name, _), former in zip(self._names, self._former_names, strict=True):
            module[name] = former
        for owner, name, value in self._former:
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        self._former, self._names, self._former_names = [], [], []

    def _load(self, name: str, import_: Any) -> Any:
        """Import a module outside the world: it is not loaded again in the next one."""
        if name in sys.modules:
            return _find_and_load(name, import_)
        world, RUNNING.world = RUNNING.world, None
        had_sockets, RUNNING.has_sockets = RUNNING.has_sockets, False
        state = random_state()
        self.take_out()
        try:
            return _find_and_load(name, import_)
        finally:
            self.put()
            set_random_state(state)
            RUNNING.world = world
            RUNNING.has_sockets = had_sockets


@contextmanager
def installed(patches: Patches = Patches.ALL) -> Iterator[None]:
    """Let the world that runs stand in Python's modules for the time of a `with` block."""
    chosen = _chosen(patches)
    if chosen.has_sockets:
        take_socket_class()
        if not _is_guarded:
            _is_guarded.append(True)
            sys.addaudithook(guard)
    installation = _Installation(chosen.places, chosen.has_time)
    state = random_state() if chosen.has_chance else None
    collects = gc.isenabled()
    # The collector rests while a world runs, so all that the world makes stays young. What is young before
    # that is not of this world. Its callbacks may use a clock, which is nobody's while it is replaced.
    gc.collect(OLD if gc.get_count()[OLD] >= OLD_AFTER else YOUNG)
    gc.disable()
    try:
        installation.put()
        yield
    finally:
        installation.take_out()
        if state is not None:
            set_random_state(state)
        if collects:
            gc.enable()


@contextmanager
def running(world: World) -> Iterator[None]:
    """Let a world run. Raises RuntimeError inside another one."""
    if RUNNING.world is not None:
        raise RuntimeError("a world runs already; worlds do not run inside each other")
    chosen = _chosen(world.options.patches)
    with installed(world.options.patches):
        RUNNING.world = world
        RUNNING.has_sockets = chosen.has_sockets
        if chosen.has_chance:
            random.seed(world.decisions.base_of("random"))
        try:
            with seeded_tls(world) if chosen.has_chance else nullcontext():
                yield
        finally:
            RUNNING.world = None
            RUNNING.has_sockets = False
