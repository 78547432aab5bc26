"""Helpers of the tests of streams: the kinds of streams, connected pairs, and notes of the calls."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from whorl.core import Loop
from whorl.handles import TCP, Pipe

Stream = TCP | Pipe
_names = itertools.count()


class Kind:
    """One kind of stream: how handles are made and where servers listen."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    def handle(self, loop: Loop) -> Stream:
        return TCP(loop) if self.name == "tcp" else Pipe(loop)

    def fresh_address(self) -> Any:
        """Return an address without a listener."""
        if self.name == "tcp":
            return "127.0.0.1", 0
        if self.name == "abstract":
            return b"\0whorl-%d-%d" % (os.getpid(), next(_names))
        return str(self.folder / f"socket-{next(_names)}")

    def server(self, loop: Loop, on_connection: Any, backlog: int = 128) -> Stream:
        """Return a handle that listens."""
        server = self.handle(loop)
        server.bind(self.fresh_address())
        server.listen(backlog, on_connection)
        return server

    def pair(self, loop: Loop) -> tuple[Stream, Stream]:
        """Return a client and the server's side of its connection."""
        accepted: list[Stream] = []

        def take(server: Stream, error: OSError | None) -> None:
            assert error is None
            accepted.append(self.handle(loop))
            server.accept(accepted[0])
            server.close()

        server = self.server(loop, take)
        client = self.handle(loop)
        client.connect(server.getsockname())
        loop.run()
        return client, accepted[0]


class Ended:
    """A note of the ends of requests, with the error number if there was one."""

    def __init__(self) -> None:
        self.results: list[tuple[str, int | None]] = []

    def __call__(self, request: Any, error: OSError | None) -> None:
        self.results.append((type(request).__name__, error.errno if error else None))


class Reader:
    """A note of the data that a stream reads."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.ends: list[int | None] = []

    def __call__(self, stream: Stream, data: bytes, error: OSError | None) -> None:
        if data:
            assert error is None
            self.chunks.append(data)
        else:
            self.ends.append(error.errno if error else None)

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)
