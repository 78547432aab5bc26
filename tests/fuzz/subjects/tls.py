"""TLS with both ends on the loop, TLS put on connections, and handshakes that break half-way."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.aio.tls_contexts import client_context, server_context
from tests.fuzz.ends import connected
from tests.fuzz.world import Diary, Effect, World

EVENTS = ("made", "data", "eof", "lost")
NONSENSE = {"nothing": b"", "text": b"GET / HTTP/1.0\r\n\r\n", "alert": b"\x15\x03\x01\x00\x02\x02\x28"}


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return client_context(), server_context()


class Tls(World):
    """Programs with TLS connections whose two ends are here."""

    turns = 30

    def do_tls(self, kind: str, reactions: dict[str, Effect], other_reactions: dict[str, Effect]) -> None:
        if self.loop.is_running() or len(self.diaries) > 8:
            return
        socks = connected(kind)
        diaries = [Diary(self, len(self.diaries) + number, {}) for number in range(2)]
        both = self.loop.run_until_complete(asyncio.wait_for(self.shaken(socks, diaries), 20))
        for diary, (transport, _), wanted in zip(diaries, both, (reactions, other_reactions), strict=True):
            diary.reactions = wanted
            self.add(diary, transport, None)

    async def shaken(self, socks: Any, diaries: list[Diary]) -> Any:
        client, server = contexts()
        return await asyncio.gather(
            self.loop.create_connection(
                lambda: diaries[0], sock=socks[0], ssl=client, server_hostname="localhost"
            ),
            self.loop.connect_accepted_socket(lambda: diaries[1], socks[1], ssl=server),
        )

    def do_tls_call(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of a transport in the middle of its life; ends come with everything at rest."""
        if not self.transports:
            return None
        transport = self.transports[number % len(self.transports)]
        if transport.is_closing() and method != "is_closing":
            return None
        if method in ("close", "abort"):
            self.resume_all()
        return getattr(transport, method)(*arguments)

    def do_transport(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        if method in ("close", "abort"):
            self.resume_all()
        return super().do_transport(number, method, arguments)

    def resume_all(self) -> None:
        """Let all ends see an end: asyncio's side that is paused does not, and ours does."""
        for transport in self.transports:
            if transport.get_extra_info("sslcontext") and not transport.is_closing():
                transport.resume_reading()
        if not self.loop.is_running():
            self.do_settle()

    def do_upgrade(self, kind: str, before: bytes, after: bytes, abort: Any) -> Any:
        """Connect in the clear, talk, go on in TLS, talk; or end it after some turns."""
        if self.loop.is_running():
            return None
        return self.loop.run_until_complete(asyncio.wait_for(self.upgrade(kind, before, after, abort), 20))

    async def upgrade(self, kind: str, before: bytes, after: bytes, abort: Any) -> Any:
        socks = connected(kind)
        diaries = [Diary(self, number, {}) for number in (-1, -2)]
        plain = [
            (await self.loop.connect_accepted_socket(lambda diary=diary: diary, sock))[0]
            for diary, sock in zip(diaries, socks, strict=True)
        ]
        for transport in plain:
            transport.write(before)
        for diary in diaries:
            while not any(line == ("data", before) for line in diary.lines):
                await asyncio.sleep(0)
        client, server = contexts()
        handshakes = [
            asyncio.ensure_future(
                self.loop.start_tls(plain[0], diaries[0], client, server_hostname="localhost")
            ),
            asyncio.ensure_future(self.loop.start_tls(plain[1], diaries[1], server, server_side=True)),
        ]
        if abort is not None:
            return await self.broken(handshakes, plain, diaries, *abort)
        both = await asyncio.gather(*handshakes)
        for transport in both:
            transport.write(after)
        for diary in diaries:
            while diary.lines[-1] != ("data", before + after):
                await asyncio.sleep(0)
        both[0].close()
        for diary in diaries:
            while diary.lines[-1][0] != "lost":
                await asyncio.sleep(0)
        both[1].abort()
        return [diary.lines for diary in diaries]

    async def broken(self, handshakes: Any, plain: Any, diaries: Any, turns: int, side: int, how: str) -> Any:
        """End a handshake, and return its certain effects: nothing waits for ever, no call comes twice."""
        for _ in range(turns):
            await asyncio.sleep(0)
        if how == "cancel":
            handshakes[side].cancel()
        getattr(plain[side], "abort" if how == "abort" else "close")()
        await asyncio.wait(handshakes)
        for handshake in handshakes:
            if not handshake.cancelled() and not handshake.exception():
                handshake.result().abort()
        for transport in plain:
            transport.abort()
        for _ in range(10):
            await asyncio.sleep(0)
        return [[line[0] for line in diary.lines].count("made") for diary in diaries]

    def do_bad_handshake(self, server_side: bool, nonsense: str, how: str) -> Any:
        """Handshake with a peer that does not speak TLS."""
        if self.loop.is_running():
            return None
        ours, peer = connected("unix")
        peer.send(NONSENSE[nonsense])
        if how == "shut" or (how == "stay" and self.own_clock):
            peer.shutdown(socket.SHUT_WR)
        elif how == "close":
            peer.close()
        client, server = contexts()
        if server_side:
            coming = self.loop.connect_accepted_socket(
                asyncio.Protocol, ours, ssl=server, ssl_handshake_timeout=0.05
            )
        else:
            coming = self.loop.create_connection(
                asyncio.Protocol,
                sock=ours,
                ssl=client,
                server_hostname="localhost",
                ssl_handshake_timeout=0.05,
            )
        try:
            self.loop.run_until_complete(coming)
        finally:
            peer.close()
            self.do_settle()
        return None


def operations(effects: Any) -> Any:
    """Return the operations of a program on TLS."""
    small = st.integers(0, 5)
    data = st.sampled_from(["@empty", "@short", "@kilobyte", "@mutable", "@view"])
    parts = st.sampled_from(["@short", "@kilobyte", "@view"])
    odd = st.sampled_from([None, "@text", 3])
    reactions = st.dictionaries(st.sampled_from(EVENTS), effects, max_size=1)
    plain = ["is_closing", "can_write_eof", "write_eof", "pause_reading", "resume_reading", "close", "abort"]
    calls = st.one_of(
        *[st.tuples(st.just("write"), st.tuples(data | odd))] * 3,
        st.tuples(st.just("writelines"), st.tuples(st.lists(parts, max_size=3) | st.sampled_from([None, 3]))),
        st.tuples(st.sampled_from(plain), st.just(())),
    )
    abort = st.none() | st.tuples(
        st.integers(0, 12), st.integers(0, 1), st.sampled_from(["cancel", "abort", "close"])
    )
    kinds = st.sampled_from(["unix", "tcp"])
    words = st.sampled_from([b"before", b"x" * 1000])
    return st.one_of(
        st.tuples(st.just("tls"), kinds, reactions, reactions),
        *[calls.flatmap(lambda call: st.tuples(st.just("tls_call"), small, *map(st.just, call)))] * 4,
        st.tuples(st.just("upgrade"), kinds, words, words, abort),
        st.tuples(
            st.just("bad_handshake"),
            st.booleans(),
            st.sampled_from(sorted(NONSENSE)),
            st.sampled_from(["stay", "shut", "close"]),
        ),
    )
