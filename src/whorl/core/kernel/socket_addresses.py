"""The addresses of datagrams, as Python shows them and as the kernel writes them.

Most datagrams come from somebody who has sent one before, and most go to somebody who has just sent one.
So the last addresses of IPv4 and IPv6 are kept in both forms: who receives is given the same tuple again, and
a tuple that was given is found by its identity. Uncompiled, Python's own socket object does it all.
"""

from __future__ import annotations

from typing import Any


class AddressBook:
    """The addresses of those who have sent last, each in the one place that its bits tell."""

    __slots__ = ("_shown",)

    def __init__(self) -> None:
        self._shown: list[Any] = [None] * 256
