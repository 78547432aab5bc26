"""The other end of a connection, and protocols that note their calls."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import random
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.core.conftest import open_descriptors
from whorl.core import Kernel

SECOND = 1_000_000_000


class Connection(NamedTuple):
    """A transport and the plain socket at its other end, which does not block."""

    transport: Any
    peer: socket.socket


def socket_pair(kind: str, small: bool = False) -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that do not block; `small` ones take only some kilobytes at a time."""
    if kind == "unix":
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        if small:
            for sock in pair:
                shrink(sock)
    else:
        family, host = (socket.AF_INET6, "::1") if kind == "tcp6" else (socket.AF_INET, "127.0.0.1")
        with socket.socket(family) as listener, socket.socket(family) as client:
            if small:
                shrink(listener)
                shrink(client)
            listener.bind((host, 0))
            listener.listen(1)
            client.connect(listener.getsockname())
            accepted, _ = listener.accept()
            pair = (accepted, client.dup())
    for sock in pair:
        sock.setblocking(False)
    return pair


def shrink(sock: socket.socket) -> None:
    """Let the kernel buffer only little; must be said before a TCP socket is connected."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)


def reset(sock: socket.socket) -> None:
    """Close a TCP socket so that its peer gets a reset instead of an end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def receive(peer: socket.socket, size: int) -> bytes:
    """Return exactly `size` bytes from a socket."""
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) < size:
        data = await loop.sock_recv(peer, size - len(received))
        assert data, f"the stream ended after {len(received)} of {size} bytes"
        received += data
    return bytes(received)


async def receive_all(peer: socket.socket) -> bytes:
    """Return all data of a socket until its end."""
    loop = asyncio.get_running_loop()
    received = bytearray()
    while data := await loop.sock_recv(peer, 65536):
        received += data
    return bytes(received)


def fill(peer: socket.socket, data: bytes) -> int:
    """Send as much of `data` as the kernel takes at once; how much."""
    sent = 0
    try:
        while sent < len(data):
            sent += peer.send(data[sent : sent + 65536])
    except BlockingIOError:
        pass
    return sent


async def settled_descriptors() -> dict[int, str]:
    """Return the open descriptors after a sleep of the loop, which opens some before its first one."""
    await asyncio.sleep(0.001)
    return open_descriptors()


async def turns(count: int) -> None:
    """Let the loop take some turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def turns_while_idle(seconds: float = 0.05) -> int:
    """Return the number of turns of an idle loop, without the sleeps that a signal cut short."""
    loop: Any = asyncio.get_running_loop()

    def turns_taken() -> int:
        injected = getattr(loop._kernel, "injected", {})
        return int(loop.metrics().turns) - injected.get("epoll_wait EINTR", 0)

    await turns(2)
    before = turns_taken()
    await asyncio.sleep(seconds)
    return turns_taken() - before - 2  # The timer's turn, and the one in which the task goes on.


@functools.lru_cache(maxsize=16)  # Tests that run for many seeds ask for the same again and again.
def noise(size: int, seed: int = 0) -> bytes:
    """Return bytes without a pattern, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def digest(data: bytes | bytearray) -> str:
    """Return a checksum."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class Watched:
    """A protocol for whose calls a test can wait."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Let waiting tests look again."""
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds; it is looked at whenever the protocol was told something."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()


class Notes(Watched):
    """The base of all recording protocols: the names of the calls, and the end."""

    def __init__(self, keep_open: bool = False) -> None:
        super().__init__()
        self.keep_open = keep_open
        self.transport: Any = None
        self.calls: list[str] = []
        self.received = bytearray()
        self.error: BaseException | None = None

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.changed()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.note("connection_made")

    def eof_received(self) -> bool:
        self.note("eof_received")
        return self.keep_open

    def pause_writing(self) -> None:
        self.note("pause_writing")

    def resume_writing(self) -> None:
        self.note("resume_writing")

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        self.note("connection_lost")

    @property
    def is_lost(self) -> bool:
        """True once `connection_lost` was called; more than once is an error."""
        assert self.calls.count("connection_lost") <= 1
        return "connection_lost" in self.calls

    async def until_received(self, size: int) -> bytes:
        """Wait for this many bytes; what has arrived."""
        await self.until(lambda: len(self.received) >= size or self.is_lost)
        return bytes(self.received)

    async def until_lost(self) -> BaseException | None:
        """Wait for `connection_lost`; the error it was called with."""
        await self.until(lambda: self.is_lost)
        return self.error


class Recorder(Notes, asyncio.Protocol):
    """Notes every call."""

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        assert data
        self.received += data
        self.note("data_received")


class BufferedRecorder(Notes, asyncio.BufferedProtocol):
    """Notes every call, and lets the transport write into a buffer of its own."""

    def __init__(self, size: int = 1024, keep_open: bool = False) -> None:
        super().__init__(keep_open)
        self.buffer = bytearray(size)

    def get_buffer(self, sizehint: int) -> bytearray:
        assert sizehint == -1 or sizehint > 0
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.received += self.buffer[:nbytes]
        self.note("buffer_updated")


class JumpingClock(Kernel):
    """The real kernel, in whose time a sleep in which nothing happens takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0  # how much time was not waited for, in nanoseconds

    def now(self) -> int:
        return super().now() + self.jumped

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        found = super().epoll_wait(epfd, 0, events)
        if found or timeout_ns == 0:
            return found
        if timeout_ns < 0:
            return super().epoll_wait(epfd, timeout_ns, events)
        self.jumped += timeout_ns
        return 0


def refuse_blocking_calls(patch: pytest.MonkeyPatch) -> None:
    """Refuse calls of `os` that may block while a loop runs in this thread, as some tools for tests do."""

    def refused(name: str, function: Callable[..., Any], may_pass: Callable[..., bool]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if asyncio._get_running_loop() is not None and not may_pass(*args):
                raise AssertionError(f"os.{name} blocks the loop")
            return function(*args, **options)

        return call

    for name in ("stat", "unlink"):
        patch.setattr(os, name, refused(name, getattr(os, name), lambda *args: False))
    for name in ("read", "write"):
        patch.setattr(os, name, refused(name, getattr(os, name), lambda fd, *args: not os.get_blocking(fd)))
