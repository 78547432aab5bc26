"""Files that are sent, and the calls for sockets of the user's."""

from __future__ import annotations

import contextlib
import io
import socket
import tempfile
import time
from functools import partial
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.world import World

CONTENT = bytes(range(256)) * 100


class Files(World):
    """Programs with files."""

    def file(self, kind: str) -> Any:
        """Return a file, a file in memory, or one that cannot be read."""
        if kind == "memory":
            return io.BytesIO(CONTENT)
        if kind == "text":
            return io.StringIO("text")
        file = tempfile.TemporaryFile()
        file.write(CONTENT)
        file.seek(0)
        self.kept.append(file)
        return file

    def do_sendfile(self, number: int, kind: str, offset: Any, count: Any, fallback: bool) -> None:
        if not self.transports or self.loop.is_running():
            return
        transport = self.transports[number % len(self.transports)]
        is_right = (
            type(offset) is int and offset >= 0 and (count is None or (type(count) is int and count > 0))
        )
        if not is_right and transport.get_extra_info("sslcontext"):
            return  # Whorl refuses wrong numbers as over TCP, and asyncio otherwise, or not at all.
        waits = self.waits(transport)
        arguments = (transport, self.file(kind), offset, count)
        if self.start_alone(transport, partial(self.loop.sendfile, fallback=fallback), *arguments):
            if waits:  # asyncio's never lets go of a transport whose waiting is cancelled
                self.never_cancelled.append(self.futures[-1])
            self.let_threads_work()
            if not waits:
                self.make_room()

    def do_sock_sendfile(self, number: int, kind: str, offset: Any, count: Any, fallback: bool) -> None:
        if self.loop.is_running():
            return
        sock, peer = self.user_socket(number), self.user_socket(number ^ 1)
        arguments = (sock, self.file(kind), offset, count)
        if not self.start_alone(
            (sock, "sends"), partial(self.loop.sock_sendfile, fallback=fallback), *arguments
        ):
            return
        for _ in range(100):
            self.do_settle()
            if not self.takes(peer):  # asyncio's waits until the socket takes more, also after the last byte
                if self.futures[-1].done():
                    break
                time.sleep(0.0005)

    @staticmethod
    def waits(transport: Any) -> bool:
        """Return whether a file would have to wait for earlier writes."""
        is_plain = hasattr(transport, "write") and not transport.get_extra_info("sslcontext")
        return is_plain and not transport.is_closing() and transport.get_write_buffer_size() > 0

    def make_room(self) -> None:
        """Let all peers read: asyncio's sendfile is not done before the socket takes more."""
        for number in range(len(self.peers)):
            with contextlib.suppress(OSError, ValueError):  # it is closed, or one that only writes
                self.drain(number)

    @staticmethod
    def takes(sock: socket.socket) -> bool:
        """Read what has come; whether there was anything."""
        try:
            return bool(sock.recv(1 << 20))
        except OSError:
            return False

    def let_threads_work(self) -> None:
        """Wait for the last operation, unless it waits for a reader."""
        for _ in range(0 if self.loop.is_running() else 100):
            self.do_settle()
            if self.futures[-1].done():
                break
            time.sleep(0.0005)


def operations(effects: Any) -> Any:
    """Return the operations of a program on files and on sockets."""
    small = st.integers(0, 5)
    kinds = st.sampled_from(["file", "file", "memory", "text"])
    offset = st.sampled_from([0, 0, 0, 10, 30_000, -1, "@text", 1.5])
    count = st.sampled_from([None, None, 1, 1000, 10**6, 0, -1, "@text", 1.5])
    sock, buffer = st.just("sock"), st.sampled_from(["@buffer", "@view", None])
    return st.one_of(
        *[st.tuples(st.just("sendfile"), small, kinds, offset, count, st.booleans())] * 2,
        st.tuples(st.just("sock_sendfile"), small, kinds, offset, count, st.booleans()),
        st.tuples(sock, small, st.just("sock_recvfrom"), st.sampled_from([0, 1, 100, -1, None])),
        st.tuples(sock, small, st.just("sock_recvfrom_into"), buffer, st.sampled_from([0, 1, 100, -1])),
        st.tuples(sock, small, st.just("sock_sendto"), st.sampled_from(["@short", 3]), st.just("nowhere")),
        st.tuples(sock, small, st.just("sock_sendall"), st.sampled_from(["@short", "@huge", "@parts"])),
    )
