"""The memory of received messages: later messages reuse it once no reference to the earlier ones is left."""

from __future__ import annotations

from whorl.core.kernel.inotify import NotifyCalls


class MessageMemory(NotifyCalls):
    """The part of the kernel that keeps this memory; uncompiled, Python's own calls make each message."""

    def __init__(self) -> None:
        self._messages: list[bytes] = []  # short ones, as many as were in use at once
        self._place = 0  # of the last one
        self._kept = 0  # bytes, all together
