"""The guard of a world: it refuses system calls that come from outside Python's modules.

It is called for each event that Python audits. Each turn of a loop has four of them, which it lets pass.
"""

from __future__ import annotations

from typing import Any

from whorl.sim.errors import Escaped
from whorl.sim.patches.current import RUNNING
from whorl.sim.patches.files import CHANGES, check_change, check_open

_REFUSED = {"socket.connect", "socket.bind", "socket.sendto", "subprocess.Popen", "os.fork", "os.system"}
_GUARDED = {"open", *CHANGES, *_REFUSED}


def guard(event: str, args: Any) -> None:
    """Refuse what an event tells of, in a world (sys.addaudithook)."""
    if not RUNNING.has_sockets or event not in _GUARDED:
        return
    if event == "open":
        check_open(args)
    elif event in CHANGES:
        check_change(event, args)
    else:
        world = RUNNING.world
        if world is not None and world.allowed.isdisjoint(("files", "threads")):
            raise Escaped(f"a system call was made ({event})")
