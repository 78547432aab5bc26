"""Checks that refuse unsuitable sockets of the user's."""

from __future__ import annotations

import socket
from typing import Any

try:
    import ssl as ssl_module
except ImportError:
    ssl_module = None  # type: ignore[assignment]


def check_plain_socket(sock: Any) -> None:
    """Refuse sockets that speak TLS by themselves: they block."""
    if ssl_module is not None and isinstance(sock, ssl_module.SSLSocket):
        raise TypeError("Socket cannot be of type SSLSocket")


def check_stream_socket(sock: Any) -> None:
    """Refuse anything but stream sockets."""
    if sock.type != socket.SOCK_STREAM:
        raise ValueError(f"A Stream Socket was expected, got {sock!r}")


def check_unix_socket(sock: Any) -> None:
    """Refuse anything but UNIX stream sockets."""
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        raise ValueError(f"A UNIX Domain Stream Socket was expected, got {sock!r}")
