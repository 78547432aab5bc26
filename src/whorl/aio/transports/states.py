"""The states of a transport."""

from __future__ import annotations

import enum


class TransportState(enum.IntEnum):
    """The states of a transport from its beginning to its end; `byte_transport` draws the transitions."""

    OPEN = 0
    CLOSING = 1  #: closed by the user; unsent data still goes out
    LOST = 2  #: nothing is sent any more; `connection_lost` stands in the ready queue
    CLOSED = 3  #: `connection_lost` was called
