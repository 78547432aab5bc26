"""Numeric addresses, as Python writes them."""

from __future__ import annotations

import errno
import socket
from typing import Any


def family_of(address: tuple[Any, ...]) -> int:
    """Return the family of a numeric address; raise OSError (EINVAL) if it is none."""
    if not isinstance(address, tuple) or not address or not isinstance(address[0], str):
        raise TypeError(f"an address is a tuple of host and port, not {address!r}")
    return family_of_host(address[0])


def family_of_host(host: str) -> int:
    """Return the family of a numeric host; raise OSError (EINVAL) if it is none."""
    if not isinstance(host, str):
        raise TypeError(f"a numeric host was expected, not {host!r}")
    number = host.partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, number)
        except (OSError, ValueError):
            continue
        return family
    raise OSError(errno.EINVAL, f"not a numeric address: {host!r}")
