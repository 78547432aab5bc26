"""Random programs of system calls, run by the machine's kernel and in a world, to compare what they find.

A program is a list of lines of Python. After each line, the network comes to rest, and `poll` is asked about
all descriptors. So what the programs find does not depend on time.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from whorl import sim

STEPS = 14
_EVENTS = select.POLLIN | select.POLLOUT | select.POLLPRI | select.POLLRDHUP
_RESETS = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds
_names = itertools.count()

#: Where kernels differ from each other, and a world does as the newest: the kinds of programs, and what both
#: find. The rest of such a program is not compared.
OF_OLDER_KERNELS: list[tuple[str, set[Any]]] = [
    ("unix names", {"EPIPE", "ENOTCONN"}),  # a datagram socket without a peer that will send nothing more
    ("seqpacket", {8213, 8221}),  # the peer has closed, and has left nothing but empty messages unread
]

#: The number of a line, the line or "poll", and its outcome.
Note = tuple[int, str, Any]
Settle = Callable[[], Awaitable[None]]

_ANY_SOCKET = """
    {x}.send({data})
    {x}.send({data})
    {x}.send({data})
    {x}.recv({size})
    {x}.recv({size})
    {x}.recv({size})
    {x}.recv(0)
    {x}.recv(5, MSG_PEEK)
    {x}.recv_into(bytearray(2), 0, MSG_TRUNC)
    {x}.sendmsg([b"xy", b"", b"z"])
    {x}.shutdown(SHUT_RD)
    {x}.shutdown(SHUT_WR)
    {x}.shutdown(SHUT_RDWR)
    {x}.close()
    {x}.getsockopt(SOL_SOCKET, SO_ERROR)
    {x}.getsockopt(SOL_SOCKET, SO_TYPE), {x}.getsockopt(SOL_SOCKET, SO_ACCEPTCONN)
"""

_CONNECTED = """
    {x}.recvmsg(3)
    {x}.recvmsg(3, 0, MSG_PEEK)
    {x}.recvfrom(4)
"""

#: The lines of which the programs of a kind are made.
LINES: dict[str, str] = {
    "tcp": _ANY_SOCKET
    + _CONNECTED
    + """
    reset({x})
    bool({x}.getpeername())
    {x}.getsockname()[0]
    {x}.connect_ex(address)
    {x}.connect_ex(nobody)
    accept(listener)
    listener.close()
    listener.shutdown(SHUT_RD)
    """,
    "unix": _ANY_SOCKET + _CONNECTED + "    {x}.getpeername()\n    {x}.getsockname()\n",
    "unix datagrams": _ANY_SOCKET + _CONNECTED + "    {x}.getpeername()\n",
    "seqpacket": _ANY_SOCKET + _CONNECTED + "    {x}.getpeername()\n",
    "unix names": _ANY_SOCKET
    + """
    {x}.connect({name})
    {x}.connect({name})
    {x}.bind({name})
    {x}.bind({name})
    {x}.listen(4)
    {x}.sendto({data}, {name})
    who({x}.recvfrom(4))
    who({x}.recvmsg(3))
    name_of({x}.getpeername())
    accept({x})
    """,
    "udp": _ANY_SOCKET
    + """
    {x}.sendto({data}, {name})
    {x}.sendto({data}, {name})
    {x}.sendto({data}, {name})
    {x}.sendto(b"?", nobody)
    {x}.connect({name})
    {x}.connect(nobody)
    {x}.send(bytes(65_508))
    {x}.send(bytes(70_000))
    who({x}.recvfrom(1))
    who({x}.recvfrom(500))
    who({x}.recvmsg(3))
    who({x}.recvmsg(3, 0, MSG_PEEK))
    name_of({x}.getpeername())
    """,
    "pipes": """
    os.read({r}, {size})
    os.read({r}, {size})
    os.read({r}, {many})
    os.write({w}, {data})
    os.write({w}, {data})
    os.write({w}, bytes({many}))
    os.write({w}, bytes({many}))
    os.read({w}, 1)
    os.write({r}, b"x")
    os.close({r})
    os.close({w})
    """,
}


def program(kind: str, seed: int) -> list[str]:
    """Return the lines of a random program."""
    chance = random.Random(f"{kind} {seed}")
    lines = [line.strip() for line in LINES[kind].splitlines() if line.strip()]
    return [_filled(chance.choice(lines), chance) for _ in range(STEPS)]


def _filled(line: str, chance: random.Random) -> str:
    size = chance.choice([0, 1, 3, 10, 100])
    return line.format(
        x=chance.choice("abcd"),
        r=chance.choice("rs"),
        w=chance.choice("wv"),
        data="bytes(100)" if size == 100 else f"{b'abcdefghij'[:size]!r}",
        size=size or 5,
        many=chance.choice([4_000, 4_096, 5_000, 30_000, 65_536, 70_000]),
        name=f"names[{chance.randrange(3)}]",
    )


class Stage:
    """The descriptors and names that the lines of a program use, and a few short calls."""

    def __init__(self, settle: Settle) -> None:
        self.settle = settle
        self.watched: dict[str, Any] = {}  # sockets and descriptors, by the names that programs give them
        self.names: list[Any] = []
        self.words: dict[str, Any] = {**vars(socket), "os": os, "names": self.names, "bytes": bytes}
        self.words.update(reset=self.reset, accept=self.accept, who=self.who, name_of=self.name_of)

    def put(self, **things: Any) -> None:
        """Give things to the program, and do not let them wait."""
        for name, thing in things.items():
            if isinstance(thing, int):
                os.set_blocking(thing, False)
            else:
                thing.setblocking(False)
            self.words[name] = self.watched[name] = thing

    def reset(self, sock: socket.socket) -> None:
        """Close a socket so that its peer gets a reset."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        sock.close()

    def accept(self, listener: socket.socket) -> Any:
        """Accept a connection."""
        accepted, name = listener.accept()
        self.put(**{f"accepted_{len(self.watched)}": accepted})
        return self.name_of(name) if listener.family == socket.AF_UNIX else None

    def name_of(self, name: Any) -> Any:
        """Return an address that is the same in each run."""
        return f"names[{self.names.index(name)}]" if name in self.names else "unknown" if name else name

    def who(self, received: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what was received, with the sender's address the same in each run."""
        return *received[:-1], self.name_of(received[-1])

    # The ways in which programs begin.

    async def begin(self, kind: str) -> None:
        """Make what programs of a kind use."""
        await getattr(self, "_begin_" + kind.replace(" ", "_"))()

    async def _begin_tcp(self) -> None:
        listener, gone = socket.socket(), socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        gone.bind(("127.0.0.1", 0))
        self.words.update(address=listener.getsockname(), nobody=gone.getsockname())
        gone.close()
        self.put(listener=listener, a=socket.socket(), c=socket.socket(), d=socket.socket())
        for name in "ac":  # d is connected to nobody
            self.words[name].connect_ex(self.words["address"])
            await self.settle()
            self.accept(listener)
        self.put(b=self.watched.pop("accepted_4"))

    def _pairs(self, kind: socket.SocketKind) -> None:
        (a, b), (c, d) = (socket.socketpair(socket.AF_UNIX, kind) for _ in range(2))
        self.put(a=a, b=b, c=c, d=d)

    async def _begin_unix(self) -> None:
        self._pairs(socket.SOCK_STREAM)

    async def _begin_unix_datagrams(self) -> None:
        self._pairs(socket.SOCK_DGRAM)

    async def _begin_seqpacket(self) -> None:
        self._pairs(socket.SOCK_SEQPACKET)

    async def _begin_unix_names(self) -> None:
        self.names += [f"\0whorl {os.getpid()} {next(_names)}".encode() for _ in range(3)]
        kinds = [socket.SOCK_STREAM, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_DGRAM]
        self.put(
            **{name: socket.socket(socket.AF_UNIX, kind) for name, kind in zip("abcd", kinds, strict=True)}
        )

    async def _begin_udp(self) -> None:
        for name in "abcd":
            self.put(**{name: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)})
        for name in "abc":
            self.words[name].bind(("127.0.0.1", 0))
            self.names.append(self.words[name].getsockname())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
            gone.bind(("127.0.0.1", 0))
            self.words["nobody"] = gone.getsockname()

    async def _begin_pipes(self) -> None:
        (r, w), (s, v) = os.pipe(), os.pipe()
        self.put(r=r, w=w, s=s, v=v)

    def end(self) -> None:
        """Close everything."""
        for thing in self.watched.values():
            if not isinstance(thing, int):
                thing.close()
            elif _is_open(thing):
                os.close(thing)

    def ready(self) -> dict[str, int | str]:
        """Return what `poll` says of each descriptor."""
        return {name: _events(thing) for name, thing in self.watched.items()}


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _events(thing: Any) -> int | str:
    fd = thing if isinstance(thing, int) else thing.fileno()
    if fd < 0:
        return "closed"
    poll = select.poll()
    poll.register(fd, _EVENTS)
    found = poll.poll(0)
    return found[0][1] if found else 0


async def perform(kind: str, lines: list[str], settle: Settle) -> list[Note]:
    """Run a program; return what each line gave, and what `poll` said after it."""
    stage = Stage(settle)
    await stage.begin(kind)
    notes: list[Note] = []
    try:
        for number, line in enumerate(lines):
            notes.append((number, line, _outcome(line, stage.words)))
            await settle()
            notes.append((number, "poll", stage.ready()))
    finally:
        stage.end()
    return notes


def _outcome(line: str, words: dict[str, Any]) -> Any:
    try:
        return eval(line, words)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))


class Barrier:
    """A way to wait until packets of this processor have arrived, and their answers, too."""

    def __init__(self) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 0))
        self._sock.connect(self._sock.getsockname())

    async def settle(self) -> None:
        """Let datagrams follow all packets through the queue of the loopback device, for three rounds."""
        for _ in range(3):
            self._sock.send(b"")
            self._sock.recv(1)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


def on_kernel(kind: str, lines: list[str]) -> list[Note]:
    """Run a program by the machine's kernel, on one processor, so that its packets stay in order."""
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    barrier = Barrier()
    try:
        return _driven(perform(kind, lines, barrier.settle))
    finally:
        barrier.close()
        os.sched_setaffinity(0, processors)


def _driven(coroutine: Coroutine[Any, Any, list[Note]]) -> list[Note]:
    """Return the value of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("the program waits")


def in_world(kind: str, lines: list[str]) -> list[Note]:
    """Run a program in a world without faults."""

    async def main() -> list[Note]:
        return await perform(kind, lines, lambda: asyncio.sleep(0.01))

    return sim.run(main, faults="none", cpu=None, allow={"leaks"}).check()  # type: ignore[no-any-return]


def difference(kind: str, seed: int) -> str:
    """Return where a program finds a difference between kernel and world, as code; empty: nowhere."""
    lines = program(kind, seed)
    real, simulated = on_kernel(kind, lines), in_world(kind, lines)
    for (number, what, outcome), (_, _, answer) in zip(real, simulated, strict=True):
        if outcome == answer:
            continue
        if any(kind == each and found == _differing(outcome, answer) for each, found in OF_OLDER_KERNELS):
            break
        code = "\n".join(lines[: number + 1])
        return f"{kind}, seed {seed}:\n{code}\n# {what}: {outcome!r}, in a world {answer!r}"
    return ""


def _differing(outcome: Any, answer: Any) -> set[Any]:
    """Return what differs in two outcomes."""
    if not isinstance(outcome, dict):
        return {outcome, answer} if isinstance(outcome, str) and isinstance(answer, str) else set()
    return {
        each for name in outcome if outcome[name] != answer[name] for each in (outcome[name], answer[name])
    }
