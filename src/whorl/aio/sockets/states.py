"""The kinds of watched descriptors, and the code that may wait for one."""

from __future__ import annotations

import enum


class Kind(enum.IntEnum):
    """The kind of descriptor that is watched."""

    SHARED = 0
    """A number, or a descriptor that several socket objects share: its owner may close it unseen."""
    DATAGRAMS = 1
    """A socket object that is no stream."""
    LOCAL_STREAM = 2
    """A stream socket object on this machine (AF_UNIX)."""
    REMOTE_STREAM = 3
    """Any other stream socket object."""


class Waiting(enum.IntFlag):
    """The code that waits for a descriptor."""

    READER = 1
    WRITER = 2
    RECEIVER = 4
    SENDER = 8


#: Bits beside those of `Event`: watched edge-triggered; no callback is set and no task waits.
EDGE = 1 << 8
IDLE = 1 << 9
