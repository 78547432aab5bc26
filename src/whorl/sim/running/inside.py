"""Questions that a program may ask in a world, and outside of one."""

from __future__ import annotations

from whorl.sim.patches.current import current


def chance(name: str, p: float = 0.25) -> bool:
    """Return whether something of the program's own goes wrong here; False outside a world.

    With it, code under test has faults of its own: a smaller buffer, a retry, a slower path. It happens
    with probability `p`.
    """
    world = current()
    if world is None:
        return False
    if not world.decisions.stream(f"chance/{name}").happens(p):
        return False
    world.note(f"chance {name!r} happened")
    return True


def reached(name: str) -> None:
    """Note that a place in the program was reached. A report shows the places that no seed reached."""
    world = current()
    if world is not None:
        world.reached.add(name)
