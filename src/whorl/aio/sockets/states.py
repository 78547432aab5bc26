"""The kinds of watched descriptors, and the code that may wait for one."""

from __future__ import annotations

from typing import Final

# The kind of descriptor that is watched.
#: A number, or a descriptor that several socket objects share: its owner may close it unseen.
SHARED: Final = 0
#: Any other socket object: datagrams, or a stream of a rare protocol.
OTHER: Final = 1
#: A stream socket object on this machine (AF_UNIX).
LOCAL_STREAM: Final = 2
#: A TCP socket object: a receive of less than its limit took all there was.
TCP: Final = 3

# The code that waits for a descriptor.
READER: Final = 1
WRITER: Final = 2
RECEIVER: Final = 4
SENDER: Final = 8

#: Bits beside those of `Event`: watched edge-triggered; no callback is set and no task waits.
EDGE: Final = 1 << 8
IDLE: Final = 1 << 9
