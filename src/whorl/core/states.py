"""The enums of the machine, what `call_soon` has to do, and the numbers of the histograms."""

from __future__ import annotations

import enum
from typing import Final


class RunMode(enum.IntEnum):
    """The duration of `Loop.run` (libuv: ``uv_run_mode``)."""

    DEFAULT = 0  #: until nothing is alive, or `Loop.stop`
    ONCE = 1  #: one turn; sleeps if nothing is ready
    NOWAIT = 2  #: one turn that never sleeps


class Event(enum.IntFlag):
    """The events for which a descriptor is watched, and those that were seen (libuv: ``uv_poll_event``)."""

    READABLE = 1
    WRITABLE = 2
    DISCONNECT = 4  #: the peer will write no more
    PRIORITIZED = 8  #: urgent data
    ERROR = 16  #: seen only: an error is to be read from the descriptor
    HANGUP = 32  #: seen only: both directions are shut


class FsChange(enum.IntFlag):
    """The change of a watched file (libuv: ``uv_fs_event``)."""

    RENAME = 1  #: it was created, removed or renamed
    CHANGE = 2  #: its contents or attributes were changed


class HandleState(enum.IntEnum):
    """The state of a handle: OPEN -> CLOSING (close was called) -> CLOSED (the callback ran)."""

    OPEN = 0
    CLOSING = 1
    CLOSED = 2


# The same as plain numbers, which compiled code has as constants of C.
DEFAULT, ONCE, NOWAIT = map(int, RunMode)
READABLE, WRITABLE, DISCONNECT, PRIORITIZED, ERROR, HANGUP = map(int, Event)
WATCHABLE: Final = READABLE | WRITABLE | DISCONNECT | PRIORITIZED
# Kinds of events that mean the same to a stream.
ENDS: Final = DISCONNECT | HANGUP | ERROR
INCOMING: Final = READABLE | PRIORITIZED | ENDS
OUTGOING: Final = WRITABLE | HANGUP | ERROR
OPEN, CLOSING, CLOSED = map(int, HandleState)

#: What `call_soon` has to do before it queues an entry: nothing; to collect what was posted; to tell the
#: recorder of the entry.
NONE_POSTED: Final = 0
SOMETHING: Final = 1
RECORDED: Final = 2

# The numbers of the histograms, in the order of `LoopHistograms`.
AWAY: Final = 0
LATE: Final = 1
SLEPT: Final = 2
BATCH: Final = 3
CALLBACK: Final = 4
KINDS: Final = 5

#: The number of buckets of a histogram. The last one has no upper bound.
PLACES: Final = 592
