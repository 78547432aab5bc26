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

from whorl.aio.sockets.states import EDGE, IDLE, Kind, Waiting
from whorl.core.states import Event

SHARED = Kind.SHARED
OTHER = Kind.OTHER
TCP = Kind.TCP
CALLBACKS = Waiting.READER | Waiting.WRITER
READS = Waiting.READER | Waiting.RECEIVER
WRITES = Waiting.WRITER | Waiting.SENDER
SENDER = Waiting.SENDER
READABLE = int(Event.READABLE)
WRITABLE = int(Event.WRITABLE)
READABLE_EDGES = EDGE | int(Event.READABLE | Event.DISCONNECT | Event.PRIORITIZED)


def interest(kind: int, waiting: int, former: int, has_edges: bool) -> int:
    """Return the events to watch for, with the bits EDGE and IDLE.

    `former` is the interest until now, with its bit EDGE; `has_edges`: the poller is edge-triggered.
    """
    edge = has_edges and kind != SHARED and not waiting & CALLBACKS
    if edge and not (kind == OTHER and waiting & SENDER):
        if waiting or former > EDGE:
            wanted = READABLE_EDGES
            if kind == TCP or waiting & SENDER:
                wanted |= WRITABLE
            return wanted if waiting else wanted | IDLE
    if waiting:
        return (READABLE if waiting & READS else 0) | (WRITABLE if waiting & WRITES else 0)
    return READABLE | IDLE if kind != SHARED and former == READABLE else 0
