"""Very many handles and children at once: everything is accounted for, and no turn is made for nothing."""

from __future__ import annotations

import collections
import os
import random
import socket
import zlib
from typing import Any

import pytest

from whorl.core import Handle, Loop, RunMode
from whorl.handles import UDP, Async, Check, Idle, Pipe, Prepare, Process, Timer

#: How many children there are; 1,000 in the full run.
CHILDREN = int(os.environ.get("WHORL_STORM_CHILDREN", "250"))

#: How many handles each storm opens.
HANDLES = 10_000

#: How many of them are open at a time, at most.
AT_A_TIME = 400

MILLISECOND = 1_000_000


class Storm:
    """Opens and closes handles at random, and keeps the accounts."""

    def __init__(self, loop: Loop, seed: int) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        self.opened = 0
        self.closed = 0
        self.alive: dict[int, Handle] = {}
        self.accounts: collections.Counter[str] = collections.Counter()
        self.makers = [self.pair, self.pair, self.datagrams, self.timer, self.watcher, self.wakeup]

    def turn(self, driver: Timer) -> None:
        """Open some, close some."""
        for _ in range(self.random.randrange(200)):
            if self.opened < HANDLES and len(self.alive) < AT_A_TIME:
                self.random.choice(self.makers)()
        for handle in self.random.sample(list(self.alive.values()), min(20, len(self.alive))):
            self.close(handle)
        if self.opened >= HANDLES:
            for handle in list(self.alive.values()):
                self.close(handle)
            driver.close()

    def open(self, handle: Any) -> Any:
        self.opened += 1
        self.alive[id(handle)] = handle
        return handle

    def close(self, handle: Handle) -> None:
        if self.alive.pop(id(handle), None) is not None:
            handle.close(self.count_closed)

    def count_closed(self, handle: Handle) -> None:
        self.closed += 1

    # Opened objects.

    def pair(self) -> None:
        """Connect two pipes: one writes and ends, the other reads; one of them may be closed at any time."""
        ours, theirs = (self.open(Pipe(self.loop)) for _ in range(2))
        for pipe, sock in zip((ours, theirs), socket.socketpair(), strict=True):
            pipe.open(sock.detach())
        sent: list[bytes] = []
        received = bytearray()

        def read(pipe: Pipe, data: bytes, error: OSError | None) -> None:
            received.extend(data)
            if data:
                return
            whole = b"".join(sent)
            if error is None and len(received) == len(whole):
                self.accounts["whole"] += zlib.crc32(received) == zlib.crc32(whole)
            else:
                self.accounts["in part"] += whole.startswith(received)
            self.accounts["ends"] += 1
            self.close(pipe)

        def written(request: Any, error: OSError | None) -> None:
            self.accounts["writes ended"] += 1

        theirs.read_start(read)
        for _ in range(self.random.randrange(4)):
            sent.append(self.random.randbytes(self.random.choice([1, 100, 70_000])))
            ours.write(sent[-1], written)
            self.accounts["writes"] += 1
        ours.shutdown(lambda request, error: self.close(ours))

    def datagrams(self) -> None:
        """Run a socket that sends to itself."""
        udp = self.open(UDP(self.loop))
        udp.bind(("127.0.0.1", 0))
        message = self.random.randbytes(50)

        def received(udp: UDP, data: Any, address: Any, error: OSError | None) -> None:
            self.accounts["datagrams right"] += data == message
            self.accounts["datagrams"] += 1

        udp.recv_start(received)
        udp.send(message, udp.getsockname())

    def timer(self) -> None:
        timer = self.open(Timer(self.loop))
        timer.start(self.close, self.random.randrange(5 * MILLISECOND))

    def watcher(self) -> None:
        watcher = self.open(self.random.choice([Idle, Prepare, Check])(self.loop))
        watcher.start(self.close)

    def wakeup(self) -> None:
        self.open(Async(self.loop, self.close)).send()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_handles_come_and_go_with_traffic(loop: Loop, seed: int) -> None:
    storm = Storm(loop, seed)
    Timer(loop).start(storm.turn, 0, 1)
    loop.run()
    assert storm.opened == storm.closed >= HANDLES
    accounts = storm.accounts
    assert accounts["writes"] == accounts["writes ended"] > 1000
    assert accounts["whole"] + accounts["in part"] == accounts["ends"] > 1000
    assert accounts["whole"] > accounts["in part"]
    assert accounts["datagrams right"] == accounts["datagrams"] > 500
    assert loop.metrics().turns < HANDLES
    assert loop.walk() == []


@pytest.mark.slow
def test_very_many_children_are_reaped(loop: Loop) -> None:
    """Twenty at a time; each exits with a number of its own, and none is left behind."""
    left = list(range(CHILDREN))
    ended: collections.Counter[int] = collections.Counter()
    pids: set[int] = set()

    def start() -> None:
        if left:
            process = Process(loop)
            process.spawn(["sh", "-c", f"exit {left.pop() % 256}"], over)
            pids.add(process.pid)

    def over(process: Process, status: int, number: int) -> None:
        assert number == 0
        ended[status] += 1
        process.close()
        start()

    for _ in range(20):
        start()
    began = loop.metrics().turns
    loop.run()
    assert ended == collections.Counter(number % 256 for number in range(CHILDREN))
    assert loop.metrics().turns - began <= 2 * CHILDREN + 2
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    assert loop.walk() == []


def test_a_storm_of_turns_does_not_lose_what_is_sent_from_other_loops() -> None:
    """A ring of loops, each of which passes every message on; run by turns in one thread."""
    loops = [Loop() for _ in range(10)]
    passed = 0
    handles: list[Async] = []

    def pass_on(handle: Async) -> None:
        nonlocal passed
        passed += 1
        if passed < 5000:
            handles[(handles.index(handle) + 1) % len(handles)].send()

    handles.extend(Async(loop, pass_on) for loop in loops)
    handles[0].send()
    turns = 0
    while passed < 5000:
        for loop in loops:
            loop.run(RunMode.NOWAIT)
        turns += 1
    assert turns <= 5000
    for handle, loop in zip(handles, loops, strict=True):
        handle.close()
        loop.run()
        loop.close()
