"""asyncio's streams over connections."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.ends import connected
from tests.fuzz.world import World


class Streams(World):
    """Programs with readers and writers."""

    turns = 12

    def __init__(self, make_loop: Any) -> None:
        super().__init__(make_loop)
        self.streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def do_stream(self, kind: str) -> None:
        if self.loop.is_running() or len(self.streams) > 3:
            return
        ours, peer = connected(kind)
        reader = asyncio.StreamReader(limit=20, loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        connecting = self.loop.connect_accepted_socket(lambda: protocol, ours)
        transport, _ = self.loop.run_until_complete(connecting)
        self.streams.append((reader, asyncio.StreamWriter(transport, protocol, reader, self.loop)))
        self.transports.append(transport)
        self.peers.append(peer)
        self.received.append(bytearray())

    def do_stream_call(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        if not self.streams:
            return None
        reader, writer = self.streams[number % len(self.streams)]
        if method.startswith("write") and writer.is_closing():
            return None
        if method == "close" and writer.transport in self.busy:
            return None
        answer = getattr(reader if hasattr(reader, method) else writer, method)(*arguments)
        if inspect.iscoroutine(answer):
            self.start(answer)
            return None
        return answer


def operations(effects: Any) -> Any:
    """Return the operations of a program on streams."""
    small = st.integers(0, 3)
    plain = [
        "readline",
        "drain",
        "close",
        "write_eof",
        "at_eof",
        "is_closing",
        "can_write_eof",
        "wait_closed",
    ]
    calls = st.one_of(
        st.tuples(st.just("read"), st.tuples(st.sampled_from([-1, 0, 1, 5, 1000]))),
        st.tuples(st.just("readexactly"), st.tuples(st.sampled_from([0, 1, 10, 25, -1]))),
        st.tuples(st.just("readuntil"), st.tuples(st.sampled_from([b"\n", b"e", b"by", b"", 3]))),
        st.tuples(st.just("write"), st.tuples(st.sampled_from(["@short", "@kilobyte", "@view", "@text"]))),
        st.tuples(st.just("writelines"), st.tuples(st.sampled_from([["@short", "@view"], [], 3]))),
        st.tuples(st.sampled_from(plain), st.just(())),
    )
    lines = st.sampled_from([b"line\n", b"line\nmore\n", b"no end", b"x" * 50, b"\n"])
    return st.one_of(
        st.tuples(st.just("stream"), st.sampled_from(["unix", "tcp"])),
        *[calls.flatmap(lambda call: st.tuples(st.just("stream_call"), small, *map(st.just, call)))] * 3,
        *[st.tuples(st.just("peer"), st.integers(0, 7), st.just("send"), lines)] * 2,
    )
