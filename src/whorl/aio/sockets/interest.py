"""The events to watch a descriptor of the program for: a function of its kind and of the waiting code.

| waiting | descriptor | watched for |
|---|---|---|
| callbacks, perhaps tasks too | any | their directions, level-triggered |
| tasks | a number, or several socket objects share it | their directions, level-triggered |
| a task that sends | no usual stream | their directions, level-triggered: no edge tells of a refusal |
| tasks | a socket object | reading, edge-triggered; writing too, if a task sends or it is TCP |
| none, and it was edge-triggered | a socket object | the same as for tasks; the watch is idle |
| none, and only a reader was there | a socket object | reading, level-triggered; the watch is idle |
| none | any | nothing |

Bytes that the peer reads make a UNIX socket writable, which costs an event for each of them. A TCP socket
becomes writable again only after it was full.
"""

from __future__ import annotations

from whorl.aio.sockets import states
from whorl.core import states as events

CALLBACKS = states.READER | states.WRITER
READS = states.READER | states.RECEIVER
WRITES = states.WRITER | states.SENDER
READABLE_EDGES = states.EDGE | events.READABLE | events.DISCONNECT | events.PRIORITIZED


def interest(kind: int, waiting: int, former: int, has_edges: bool) -> int:
    """Return the events to watch for, with the bits EDGE and IDLE.

    `former` is the interest until now, with its bit EDGE; `has_edges`: the poller is edge-triggered.
    """
    edge = has_edges and kind != states.SHARED and not waiting & CALLBACKS
    if edge and not (kind == states.OTHER and waiting & states.SENDER):
        if waiting or former > states.EDGE:
            wanted = READABLE_EDGES
            if kind == states.TCP or waiting & states.SENDER:
                wanted |= events.WRITABLE
            return wanted if waiting else wanted | states.IDLE
    if waiting:
        return (events.READABLE if waiting & READS else 0) | (events.WRITABLE if waiting & WRITES else 0)
    return events.READABLE | states.IDLE if kind != states.SHARED and former == events.READABLE else 0
