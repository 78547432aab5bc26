"""Detects sockets that override methods: subclasses, stand-ins, and Python's class if one was replaced."""

from __future__ import annotations

import socket
from typing import Any

SOCKET = socket.socket  # kept here, as other code may replace it later
NAMES = ("recv", "recv_into", "recvfrom", "recvfrom_into", "send", "sendmsg", "sendto", "connect", "accept")
PLAIN: dict[str, Any] = {name: getattr(SOCKET, name) for name in NAMES}


def overrides_method(sock: Any, *names: str) -> bool:
    """Return whether a socket has another method of one of these names than Python's socket class.

    For an object that is no Python socket, return True.
    """
    kind = type(sock)
    if not issubclass(kind, SOCKET):
        return True
    own = getattr(sock, "__dict__", ())
    for name in names:  # not by `any`: CPython 3.13 crashes if it gets no memory for a generator's function
        if getattr(kind, name) is not PLAIN[name] or name in own:
            return True
    return False
