"""Checks that refuse unsuitable sockets of the user's."""

from __future__ import annotations

import _socket
import socket
from typing import Any

from whorl.aio.interop.stock import has_stock_sockets, is_stock_socket

try:
    import ssl as ssl_module
except ImportError:
    ssl_module = None  # type: ignore[assignment]

_TYPE: Any = vars(_socket.socket)["type"]  # Python's own attribute makes an enum member each time.


def check_plain_socket(sock: Any) -> None:
    """Refuse sockets that speak TLS by themselves: they block."""
    if ssl_module is not None and isinstance(sock, ssl_module.SSLSocket):
        raise TypeError("Socket cannot be of type SSLSocket")


def check_stream_socket(sock: Any) -> None:
    """Refuse anything but stream sockets."""
    kind = _TYPE.__get__(sock) if is_stock_socket(sock) and has_stock_sockets() else sock.type
    if kind != socket.SOCK_STREAM:
        raise ValueError(f"A Stream Socket was expected, got {sock!r}")


def check_unix_socket(sock: Any) -> None:
    """Refuse anything but UNIX stream sockets."""
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        raise ValueError(f"A UNIX Domain Stream Socket was expected, got {sock!r}")
