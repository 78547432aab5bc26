"""The kind of handle that fits a descriptor."""

from __future__ import annotations

import os
import pty
import socket
from pathlib import Path

from whorl.handles import HandleKind, guess_handle


def test_sockets_are_told_apart() -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        with (
            socket.socket(family, socket.SOCK_STREAM) as tcp,
            socket.socket(family, socket.SOCK_DGRAM) as udp,
        ):
            assert guess_handle(tcp) is guess_handle(tcp.fileno()) is HandleKind.TCP
            assert guess_handle(udp) is HandleKind.UDP
            assert udp.fileno() >= 0
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert guess_handle(ours) is HandleKind.PIPE
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        assert guess_handle(datagrams) is HandleKind.UNKNOWN


def test_files_pipes_and_terminals_are_told_apart(tmp_path: Path, no_leak: None) -> None:
    reader, writer = os.pipe()
    master, slave = pty.openpty()
    with open(tmp_path / "file", "w") as file, open("/dev/null") as null:
        assert guess_handle(file) is guess_handle(null) is HandleKind.FILE
    assert guess_handle(reader) is guess_handle(writer) is HandleKind.PIPE
    assert guess_handle(master) is guess_handle(slave) is HandleKind.TTY
    for fd in (reader, writer, master, slave):
        os.close(fd)
    for fd in (reader, -1, -(2**31), 10**6):
        assert guess_handle(fd) is HandleKind.UNKNOWN
    folder = os.open(tmp_path, os.O_RDONLY)
    assert guess_handle(folder) is HandleKind.UNKNOWN
    os.close(folder)
