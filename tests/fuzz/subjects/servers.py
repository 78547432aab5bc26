"""Servers over TCP and UNIX sockets with clients that are plain sockets; accepts and connects by hand."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.world import Diary, Effect, World

EVENTS = ("made", "data", "eof", "lost")
NOBODYS_PLACE = ("127.0.0.1", 1)


class Servers(World):
    """Programs with servers."""

    def __init__(self, make_loop: Any) -> None:
        super().__init__(make_loop)
        self.listening: list[Any] = []
        self.places: list[tuple[Any, Any]] = []
        self.place = tempfile.TemporaryDirectory(prefix="whorl-fuzz-")

    def servers(self) -> list[Any]:
        return self.listening

    def state(self) -> Any:
        serving = [(server.is_serving(), len(server.sockets)) for server in self.listening]
        return {**super().state(), "servers": serving}

    def do_server(self, kind: str, start: bool, backlog: int, reactions: dict[str, Effect]) -> None:
        if self.loop.is_running() or len(self.listening) > 3:
            return
        options = {"start_serving": start, "backlog": backlog}

        def factory() -> Diary:
            diary = Diary(self, len(self.diaries), reactions)
            diary.appears = True
            self.diaries.append(diary)
            diary.note("factory")
            return diary

        if kind == "unix":
            path = str(Path(self.place.name) / f"server{len(self.listening)}")
            server = self.loop.run_until_complete(self.loop.create_unix_server(factory, path, **options))
            self.places.append((socket.AF_UNIX, path))
        else:
            server = self.loop.run_until_complete(self.loop.create_server(factory, "127.0.0.1", 0, **options))
            self.places.append((socket.AF_INET, server.sockets[0].getsockname()))
        self.listening.append(server)

    def place_of(self, number: int) -> tuple[Any, Any]:
        """Return the address of a server; another socket may have the port of a closed one."""
        index = number % len(self.places)
        family, place = self.places[index]
        is_gone = family == socket.AF_INET and not self.listening[index].sockets
        return family, NOBODYS_PLACE if is_gone else place

    def do_client(self, number: int) -> None:
        if not self.places or len(self.peers) > 12 or self.loop.is_running():
            return  # a client for each client would never come to rest
        family, place = self.place_of(number)
        sock = socket.socket(family)
        self.kept.append(sock)
        sock.setblocking(False)
        if family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            sock.settimeout(1)
        sock.connect(place)
        sock.setblocking(False)
        self.peers.append(sock)
        self.received.append(bytearray())

    def do_server_call(self, number: int, method: str) -> Any:
        if not self.listening:
            return None
        server = self.listening[number % len(self.listening)]
        if method == "start_serving" and not server.sockets:
            return None  # asyncio's takes itself to serve then
        if method == "close_clients" and not self.busy.keys().isdisjoint(self.transports):
            return None
        answer = getattr(server, method)
        if method in ("wait_closed", "serve_forever", "start_serving"):
            self.start(answer())
            return None
        return answer() if callable(answer) else len(answer)

    def do_connect_by_hand(self, number: int, method: str) -> None:
        """Connect to a server by `sock_connect` or by `create_connection`."""
        if not self.places or self.loop.is_running():
            return
        family, place = self.place_of(number)
        if method == "sock_connect":
            sock = socket.socket(family)
            sock.setblocking(False)
            self.kept.append(sock)
            self.start(self.loop.sock_connect(sock, place))
            return
        diary = Diary(self, len(self.diaries), {})
        diary.appears = True
        self.diaries.append(diary)
        create = self.loop.create_unix_connection if family == socket.AF_UNIX else self.loop.create_connection
        where = (place,) if family == socket.AF_UNIX else place
        self.start(self.first(create(lambda: diary, *where)))

    async def first(self, connecting: Any) -> str:
        await connecting
        return "connected"

    def do_accept(self, cancel: bool) -> None:
        """Call `sock_accept` with a waiting connection, or without one."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.kept.append(listener)
        if not cancel:
            self.kept.append(socket.create_connection(listener.getsockname()))
        self.start(self.accepted(listener))
        if cancel:
            self.futures[-1].cancel()

    async def accepted(self, listener: Any) -> str:
        sock, _ = await self.loop.sock_accept(listener)
        self.kept.append(sock)
        return "accepted"

    def end(self) -> None:
        super().end()
        self.place.cleanup()


def operations(effects: Any) -> Any:
    """Return the operations of a program on servers."""
    small = st.integers(0, 3)
    reactions = st.dictionaries(st.sampled_from(EVENTS), effects, max_size=2)
    calls = ["close", "close_clients", "abort_clients", "is_serving", "sockets", "get_loop"]
    waiting = ["wait_closed", "serve_forever", "start_serving"]
    return st.one_of(
        st.tuples(
            st.just("server"),
            st.sampled_from(["tcp", "unix"]),
            st.booleans(),
            st.sampled_from([100, 1]),
            reactions,
        ),
        *[st.tuples(st.just("client"), small)] * 2,
        st.tuples(st.just("server_call"), small, st.sampled_from(calls + waiting)),
        st.tuples(st.just("connect_by_hand"), small, st.sampled_from(["sock_connect", "create_connection"])),
        st.tuples(st.just("accept"), st.booleans()),
    )
