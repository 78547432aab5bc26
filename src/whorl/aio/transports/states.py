"""The states of a transport from its beginning to its end; `byte_transport` draws the transitions."""

from __future__ import annotations

from typing import Final

# Numbers, and no enum: a start makes them, and an enum takes as long as a module.
OPEN: Final = 0
CLOSING: Final = 1  #: closed by the user; unsent data still goes out
LOST: Final = 2  #: nothing is sent any more; `connection_lost` stands in the ready queue
CLOSED: Final = 3  #: `connection_lost` was called
