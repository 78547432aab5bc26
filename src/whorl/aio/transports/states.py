"""The states of a transport."""

from __future__ import annotations

import enum


class TransportState(enum.IntEnum):
    """How far a transport is on its way to its end; `base_transports` draws the transitions."""

    OPEN = 0
    CLOSING = 1  #: closed by the user; what is unsent still goes out
    LOST = 2  #: nothing is sent any more; `connection_lost` stands in the ready queue
    CLOSED = 3  #: `connection_lost` was called
