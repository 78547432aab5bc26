"""The world that runs, for the functions that stand in the place of Python's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.sim.world.host import Host
    from whorl.sim.world.world import World


class _Running:
    """The world that runs, if one does. There is one at a time in a process."""

    world: World | None = None
    has_sockets = False  # whether it stands in the place of the process's sockets and files


RUNNING = _Running()

#: A place in Python's modules: the owner, the name, and what stands there while a world runs.
Replacement = tuple[Any, str, Any]


def current() -> World | None:
    """Return the world that runs; None outside."""
    return RUNNING.world


def host() -> Host:
    """Return the host whose code runs."""
    world = RUNNING.world
    assert world is not None, "a replaced function was called outside a world"
    return world.current
