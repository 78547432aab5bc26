"""Datagram endpoints over UDP and UNIX sockets, and peers that are plain sockets."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.world import Diary, Effect, World, brief

EVENTS = ("made", "datagram", "error", "pause", "resume", "lost")


class DatagramDiary(Diary, asyncio.DatagramProtocol):
    """A protocol that notes datagrams and their senders."""

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.note("datagram", data, self.world.who(address))

    def error_received(self, error: Exception) -> None:
        self.note("error", type(error), getattr(error, "errno", None))


class Datagrams(World):
    """Programs with endpoints."""

    def __init__(self, make_loop: Any) -> None:
        super().__init__(make_loop)
        self.endpoints: list[Any] = []
        self.others: list[socket.socket] = []
        self.arrived: list[list[Any]] = []
        self.folder = tempfile.TemporaryDirectory(prefix="whorl-fuzz-")
        self.names: dict[Any, str] = {}

    def who(self, address: Any) -> Any:
        return self.names.get(address, "somebody" if address else address)

    def state(self) -> Any:
        closing = [endpoint.is_closing() for endpoint in self.endpoints]
        return {**super().state(), "endpoints": closing, "arrived": self.arrived}

    def do_endpoint(self, kind: str, connected: bool, reactions: dict[str, Effect]) -> None:
        if self.loop.is_running() or len(self.endpoints) > 4:
            return
        number = len(self.endpoints)
        family, ours, theirs = self.addresses(kind, number)
        other = socket.socket(family, socket.SOCK_DGRAM)
        other.setblocking(False)
        other.bind(theirs)
        diary = DatagramDiary(self, len(self.diaries), reactions)
        options = {"remote_addr": other.getsockname()} if connected else {}
        if kind == "unix":
            options["family"] = family
        endpoint, _ = self.loop.run_until_complete(
            self.loop.create_datagram_endpoint(lambda: diary, local_addr=ours, **options)
        )
        self.diaries.append(diary)
        self.endpoints.append(endpoint)
        self.others.append(other)
        self.arrived.append([])
        self.names[other.getsockname()] = f"other {number}"
        self.names[endpoint.get_extra_info("sockname")] = f"endpoint {number}"

    def addresses(self, kind: str, number: int) -> tuple[Any, Any, Any]:
        if kind == "unix":
            folder = Path(self.folder.name)
            return socket.AF_UNIX, str(folder / f"ours{number}"), str(folder / f"theirs{number}")
        host = {"udp": "127.0.0.1", "udp6": "::1"}[kind]
        return (socket.AF_INET if kind == "udp" else socket.AF_INET6), (host, 0), (host, 0)

    def do_endpoint_call(self, number: int, method: str, arguments: tuple[Any, ...], to: Any = None) -> Any:
        if not self.endpoints:
            return None
        number %= len(self.endpoints)
        endpoint = self.endpoints[number]
        if method == "sendto":
            arguments = (*arguments, self.address(number, to))
        if method == "sendto" and endpoint.is_closing():
            return None  # asyncio sends, or falls over what is not there any more
        answer = getattr(endpoint, method)(*arguments)
        return None if method == "get_write_buffer_size" and answer else answer

    def address(self, number: int, to: Any) -> Any:
        if to == "other":
            return self.others[number].getsockname() if self.others[number].fileno() >= 0 else None
        if to == "itself":
            return self.endpoints[number].get_extra_info("sockname")
        return to

    def do_other(self, number: int, action: str, data: bytes) -> Any:
        if not self.endpoints:
            return None
        number %= len(self.endpoints)
        other = self.others[number]
        if action == "send":
            return other.sendto(data, self.endpoints[number].get_extra_info("sockname"))
        if action == "close":
            other.close()
            return None
        for _ in range(50):
            try:
                data, sender = other.recvfrom(100_000)
            except BlockingIOError:
                if self.loop.is_running():
                    break
                self.do_settle()
                continue
            self.arrived[number].append((brief(data), self.who(sender)))
        return None

    def end(self) -> None:
        for endpoint in self.endpoints:
            if not self.loop.is_closed() and not endpoint.is_closing():
                endpoint.abort()
        self.kept += self.others
        super().end()
        self.folder.cleanup()


def operations(effects: Any) -> Any:
    """Return the operations of a program on datagrams."""
    small = st.integers(0, 5)
    data = st.sampled_from(["@empty", "@short", "@kilobyte", "@mutable", "@view", "@datagram", "@huge"])
    odd = st.sampled_from([None, "@text", 3, "@object", []])
    to = st.sampled_from([None, None, "other", "other", "itself", ("127.0.0.1", 9), ("::1", 9), "nowhere", 3])
    plain = ["close", "abort", "is_closing", "get_write_buffer_size", "get_write_buffer_limits", "is_reading"]
    reactions = st.dictionaries(st.sampled_from(EVENTS), effects, max_size=2)
    limits = st.tuples(st.sampled_from([None, 0, 10, 3000, -1]), st.sampled_from([None, 0, 10]))
    call = st.just("endpoint_call")
    return st.one_of(
        st.tuples(st.just("endpoint"), st.sampled_from(["udp", "unix", "udp6"]), st.booleans(), reactions),
        *[st.tuples(call, small, st.just("sendto"), st.tuples(data), to)] * 3,
        st.tuples(call, small, st.just("sendto"), st.tuples(odd), to),
        st.tuples(call, small, st.sampled_from(plain), st.just(())),
        st.tuples(call, small, st.just("set_write_buffer_limits"), limits),
        st.tuples(st.just("other"), small, st.sampled_from(["send", "send", "drain", "close"]), data),
    )
