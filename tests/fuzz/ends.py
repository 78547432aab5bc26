"""The two ends of what a loop and its peer talk over."""

from __future__ import annotations

import fcntl
import os
import socket
from typing import Any


def connected(kind: str) -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that do not block."""
    if kind == "unix":
        pair = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            peer = socket.create_connection(listener.getsockname())
            pair = (listener.accept()[0], peer)
        for sock in pair:  # asyncio forgets it for an accepted socket without a protocol number
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    for sock in pair:
        sock.setblocking(False)
    return pair


class PipeEnd:
    """The peer of a pipe's transport, with the names of a socket's methods."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.file = os.fdopen(fd, "rb" if readable(fd) else "wb", 0)
        self.close = self.file.close

    def send(self, data: bytes) -> int:
        return os.write(self.file.fileno(), data)

    def recv(self, size: int) -> bytes:
        return os.read(self.file.fileno(), size)


def pipe(kind: str) -> tuple[Any, PipeEnd]:
    """Return a pipe: the end for the loop, and the other one."""
    reading, writing = os.pipe()
    if kind == "read-pipe":
        return os.fdopen(reading, "rb", 0), PipeEnd(writing)
    return os.fdopen(writing, "wb", 0), PipeEnd(reading)


def readable(fd: int) -> bool:
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
