"""The kinds of watched descriptors, and the code that may wait for one."""

from __future__ import annotations

from typing import Final


class Kind:
    """The kind of descriptor that is watched."""

    SHARED: Final = 0
    """A number, or a descriptor that several socket objects share: its owner may close it unseen."""
    OTHER: Final = 1
    """Any other socket object: datagrams, or a stream of a rare protocol."""
    LOCAL_STREAM: Final = 2
    """A stream socket object on this machine (AF_UNIX)."""
    TCP: Final = 3
    """A TCP socket object: a receive of less than its limit took all there was."""


class Waiting:
    """The code that waits for a descriptor."""

    READER: Final = 1
    WRITER: Final = 2
    RECEIVER: Final = 4
    SENDER: Final = 8


#: Bits beside those of `Event`: watched edge-triggered; no callback is set and no task waits.
EDGE = 1 << 8
IDLE = 1 << 9
