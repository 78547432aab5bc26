"""The addresses of datagrams, as Python shows them and as the kernel writes them.

Most datagrams come from a peer that has sent one before, and most go to a peer that has just sent one.
So the last addresses of IPv4 and IPv6 are kept in both forms. A receiver gets the same tuple again, and a
sender's tuple is found by its identity. Uncompiled, Python's own socket object does it all.
"""

from __future__ import annotations

from typing import Any


class AddressBook:
    """The addresses of the last senders, each in the one place that its bits select."""

    def __init__(self) -> None:
        self._shown: list[Any] = [None] * 256
