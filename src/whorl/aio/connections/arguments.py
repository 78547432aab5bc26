"""Checks of the arguments that connections and servers share; they only raise asyncio's errors."""

from __future__ import annotations

from typing import Any

from whorl.aio.sockets.checks import check_plain_socket, check_stream_socket, check_unix_socket


def check_server_hostname(ssl: Any, server_hostname: str | None, missing: str) -> None:
    """Refuse a client's TLS without a name of the server, and a name without TLS."""
    if server_hostname is None and ssl:
        raise ValueError(missing)
    if server_hostname is not None and not ssl:
        raise ValueError("server_hostname is only meaningful with ssl")


def check_server_context(ssl: Any) -> None:
    """Refuse the flags that only clients may give in the place of a context."""
    if isinstance(ssl, bool):
        raise TypeError("ssl argument must be an SSLContext or None")


def check_tls_timeouts(ssl: Any, handshake_timeout: float | None, shutdown_timeout: float | None) -> None:
    """Refuse the options of TLS where there is no TLS."""
    if handshake_timeout is not None and not ssl:
        raise ValueError("ssl_handshake_timeout is only meaningful with ssl")
    if shutdown_timeout is not None and not ssl:
        raise ValueError("ssl_shutdown_timeout is only meaningful with ssl")


def check_host_or_socket(host: Any, port: Any, sock: Any, neither: str) -> None:
    """Refuse all but one of the two: a host or port, or a stream socket."""
    if sock is not None:
        check_plain_socket(sock)
    if host is not None or port is not None:
        if sock is not None:
            raise ValueError("host/port and sock can not be specified at the same time")
    elif sock is None:
        raise ValueError(neither)
    else:
        check_stream_socket(sock)


def check_path_or_socket(path: Any, sock: Any, neither: str) -> None:
    """Refuse all but one of the two: a path, or a UNIX stream socket."""
    if path is not None:
        if sock is not None:
            raise ValueError("path and sock can not be specified at the same time")
    elif sock is None:
        raise ValueError(neither)
    else:
        check_unix_socket(sock)
