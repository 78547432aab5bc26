"""Files that are sent, and the calls for sockets of the user's."""

from __future__ import annotations

import io
import socket
import tempfile
import time
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.world import World

CONTENT = bytes(range(256)) * 100


class Files(World):
    """With files."""

    def __init__(self, make_loop: Any) -> None:
        super().__init__(make_loop)
        self.sending: dict[Any, Any] = {}

    def file(self, kind: str) -> Any:
        """A file, a file in memory, or one that cannot be read."""
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
        if self.transports and not self.loop.is_running():
            transport = self.transports[number % len(self.transports)]
            if transport in self.sending and not self.sending[transport].done():
                return  # asyncio's looks for it where it is not meanwhile
            self.start(self.loop.sendfile(transport, self.file(kind), offset, count, fallback=fallback))
            self.sending[transport] = self.futures[-1]
            self.let_threads_work()

    def do_sock_sendfile(self, number: int, kind: str, offset: Any, count: Any, fallback: bool) -> None:
        if self.loop.is_running():
            return
        self.do_sock(number, "sock_recv", 1)  # so that there are sockets
        place = number % len(self.watched)
        if self.somebody_sends(place):
            return  # asyncio's takes the place of the other
        sock, peer = self.watched[place], self.watched[place ^ 1]
        self.start(self.loop.sock_sendfile(sock, self.file(kind), offset, count, fallback=fallback))
        for _ in range(100):
            self.do_settle()
            if not self.takes(peer):  # asyncio's waits until the socket takes more, also after the last byte
                if self.futures[-1].done():
                    break
                time.sleep(0.0005)

    def do_sock(self, number: int, method: str, *arguments: Any) -> None:
        super().do_sock(number, method, *arguments)
        if method == "sock_sendall":
            self.sending[number % len(self.watched)] = self.futures[-1]

    def somebody_sends(self, place: int) -> bool:
        """Whether one of the sockets has something to send still."""
        return place in self.sending and not self.sending[place].done()

    @staticmethod
    def takes(sock: socket.socket) -> bool:
        """Read what has come; whether there was anything."""
        try:
            return bool(sock.recv(1 << 20))
        except OSError:
            return False

    def let_threads_work(self) -> None:
        """Wait for what was begun last, unless it waits for somebody to read."""
        for _ in range(0 if self.loop.is_running() else 100):
            self.do_settle()
            if self.futures[-1].done():
                break
            time.sleep(0.0005)


def operations(effects: Any) -> Any:
    """What a program may do with files and with sockets."""
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
