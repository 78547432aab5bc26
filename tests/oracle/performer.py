"""Runs scripts on Whorl and notes the order of its callbacks: the twin of `interpreter.c`.

Time is virtual, and what the kernel says of descriptors has one order, as there.
"""

from __future__ import annotations

import collections
import errno
import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whorl.core import Event, Host, Kernel, Loop, RunMode
from whorl.handles import (
    TCP,
    Async,
    Check,
    Idle,
    Pipe,
    Poll,
    Prepare,
    Process,
    Signal,
    ThreadPool,
    Timer,
    Work,
)

Words = tuple[str, ...]

MS = 1_000_000
MOST_CALLS = 100
MOST_POLLS = 1000
LAST = 1 << 30
ADD, DEL = 1, 2
BYTES = bytes(4 * 1024 * 1024)
KINDS: dict[str, Any] = {
    "timer": Timer, "idle": Idle, "prepare": Prepare, "check": Check,
    "async": Async, "poll": Poll, "pipe": Pipe, "tcp": TCP, "signal": Signal, "process": Process,
}  # fmt: skip
MODES = {"default": RunMode.DEFAULT, "once": RunMode.ONCE, "nowait": RunMode.NOWAIT}
SIGNALS = {name: getattr(signal, f"SIG{name.upper()}") for name in ("usr1", "usr2", "hup", "term", "kill")}
EVENTS = {
    "r": Event.READABLE,
    "w": Event.WRITABLE,
    "d": Event.DISCONNECT,
    "p": Event.PRIORITIZED,
}


class Over(BaseException):
    """The script has come to its end: nothing more will happen, or enough has."""


class OneThread(Host):
    """A host whose work is done by one thread, in order."""

    pool = ThreadPool(1)
    turn = threading.Lock()  # who has it works: the loop's thread, or the pool's while it is waited for

    def thread_pool(self) -> ThreadPool:
        return self.pool


class World(Kernel):
    """Real descriptors in virtual time, reported in the order in which the script made them."""

    def __init__(self, performer: Performer) -> None:
        super().__init__()
        self.performer = performer
        self.clock_ms = 1_000_000
        self.polls = 0
        self.ranks: dict[int, int] = {}
        self.epoll = select.epoll()
        self.generations: dict[int, int] = {}

    def now(self) -> int:
        return self.clock_ms * MS

    def note_fd(self, fd: int) -> None:
        self.ranks[fd] = len(self.ranks)

    def pidfd_open(self, pid: int) -> int:
        fd = super().pidfd_open(pid)
        self.ranks[fd] = LAST + len(self.ranks)
        return fd

    def epoll_create(self) -> int:
        return self.epoll.fileno()

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        try:
            if operation == DEL:
                self.epoll.unregister(fd)
            else:
                (self.epoll.register if operation == ADD else self.epoll.modify)(fd, mask)
                self.generations[fd] = generation
        except OSError as error:
            return -(error.errno or 0)
        return 0

    def close(self, fd: int) -> int:
        if not self.epoll.closed and fd == self.epoll.fileno():
            self.epoll.close()
            return 0
        return super().close(fd)

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        self.performer.await_work()
        self.performer.await_children()
        self.polls += 1
        if self.polls > MOST_POLLS:
            raise Over("limit")
        found = self.epoll.poll(0)
        events.clear()
        for fd, mask in sorted(found, key=lambda event: self.ranks.get(event[0], LAST)):
            events.put(fd, mask, self.generations[fd])
        if not found and timeout_ns < 0:
            raise Over("asleep for ever")
        if not found and timeout_ns > 0:
            self.performer.note(f"sleep {timeout_ns // MS}")
            self.clock_ms += timeout_ns // MS
        return len(found)


def parse(text: str) -> tuple[list[Words], dict[str, list[tuple[int, Words]]]]:
    """Return the operations of a script, and those of its callbacks by label, each with its call's number."""
    main: list[Words] = []
    bodies: dict[str, list[tuple[int, Words]]] = collections.defaultdict(list)
    for line in text.splitlines():
        words = tuple(line.split())
        if not words or words[0].startswith("#"):
            continue
        if words[0] != "on":
            main.append(words)
        elif words[2].isdigit():
            bodies[words[1]].append((int(words[2]), words[3:]))
        else:
            bodies[words[1]].append((0, words[2:]))
    return main, bodies


def perform(text: str) -> list[str]:
    """Run a script; the trace."""
    performer = Performer(text)
    with OneThread.turn:
        try:
            performer.play()
        finally:
            performer.clean_up()
    return performer.trace


class Performer:
    """One script, and the state of its run."""

    def __init__(self, text: str) -> None:
        self.main, self.bodies = parse(text)
        self.trace: list[str] = []
        self.calls: collections.Counter[str] = collections.Counter()
        self.total = 0
        self.is_over = False
        self.world = World(self)
        self.loop = Loop(kernel=self.world, host=OneThread())
        self.things: dict[str, Any] = {}
        self.labels: dict[str, str] = {}
        self.folder: Path | None = None
        self.is_held = False
        self.cancelled: list[Work] = []
        self.ending: list[Process] = []
        self.gate = threading.Semaphore(0)
        self.began = threading.Semaphore(0)

    def play(self) -> None:
        """Run the script to its end."""
        try:
            for words in self.main:
                self.act(words)
        except Over as why:
            self.note(str(why))

    def clean_up(self) -> None:
        """Give everything back."""
        self.is_over = True
        self.release(())
        for thing in self.things.values():
            if isinstance(thing, Process) and thing.is_active():
                thing.kill(signal.SIGKILL)
                self.ending.append(thing)
        self.world.polls = 0
        self.loop.run(RunMode.NOWAIT)
        for thing in self.things.values():
            thing.close() if not isinstance(thing, Work) else thing.cancel()
        while True:
            self.await_work()
            self.world.polls = 0
            if not self.loop.run(RunMode.NOWAIT):
                break
        self.loop.close()
        if self.folder is not None:
            shutil.rmtree(self.folder)

    # The trace.

    def note(self, line: str) -> None:
        if not self.is_over:
            self.trace.append(line)

    def say(self, words: Words, value: Any) -> None:
        self.note(f"  {' '.join(words)} = {value}")

    def called(self, label: str, detail: str = "") -> None:
        """Note a callback, and do its operations."""
        if self.is_over:
            return
        self.total += 1
        if self.total > MOST_CALLS:
            raise Over("limit")
        self.note(f"{label} {detail}" if detail else label)
        self.calls[label] += 1
        call = self.calls[label]
        for wanted, words in self.bodies.get(label, ()):
            if wanted in (0, call):
                self.act(words)

    def act(self, words: Words) -> None:
        """Do one operation, and note an error."""
        operation: Callable[[Words], object] = getattr(self, words[0])
        if words[0] in ON_A_HANDLE and self.things[words[1]].is_closing():
            return  # In C this aborts, or is undefined.
        if words[0] in ON_A_RAW_ONE and self.things[words[1]].fileno() < 0:
            return
        try:
            operation(words)
        except OSError as error:
            self.say(words, outcome(error))

    # Callbacks.

    def plain(self, thing: Any) -> None:
        self.called(self.labels[thing.data])

    def closed(self, label: str) -> Callable[[Any], None]:
        return lambda thing: self.called(label)

    def ended(self, label: str) -> Callable[[Any, OSError | None], None]:
        return lambda request, error: self.called(label, outcome(error))

    def polled(self, thing: Any, events: Event, error: OSError | None) -> None:
        seen = "".join(letter for letter, event in EVENTS.items() if events & event)
        self.called(self.labels[thing.data], outcome(error) if error else seen)

    def was_read(self, thing: Any, data: bytes, error: OSError | None) -> None:
        self.called(self.labels[thing.data], str(len(data)) if data else outcome(error) if error else "end")

    def connected_to(self, thing: Any, error: OSError | None) -> None:
        self.called(self.labels[thing.data], outcome(error))

    def signalled(self, thing: Any, number: int) -> None:
        name = next(name for name, its_number in SIGNALS.items() if its_number == number)
        self.called(self.labels[thing.data], name)

    def has_exited(self, thing: Any, status: int, number: int) -> None:
        self.ending.remove(thing)
        self.called(self.labels[thing.data], f"{status} {number}")

    # Making.

    def new(self, words: Words) -> None:
        kind, name = words[1:3]
        if kind == "async":
            thing: Any = Async(self.loop, self.plain)
        elif kind == "poll":
            thing = Poll(self.loop, self.things[words[3]])
        else:
            thing = KINDS[kind](self.loop)
        self.keep(name, thing)

    def keep(self, name: str, thing: Any) -> None:
        thing.data = name
        self.things[name] = thing
        self.labels[name] = name

    def socket_pair(self) -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair()
        for end in pair:
            end.setblocking(False)
            self.world.note_fd(end.fileno())
        return pair

    def fds(self, words: Words) -> None:
        self.things[words[1]], self.things[words[2]] = self.socket_pair()

    def pair(self, words: Words) -> None:
        for name, end in zip(words[2:4], self.socket_pair(), strict=True):
            self.open(words[1], name, end)

    def half(self, words: Words) -> None:
        end, self.things[words[3]] = self.socket_pair()
        self.open(words[1], words[2], end)

    def open(self, kind: str, name: str, end: socket.socket) -> None:
        thing = KINDS[kind](self.loop)
        thing.open(end.detach())
        self.keep(name, thing)

    # The loop.

    def run(self, words: Words) -> None:
        self.note(f"run {words[1]}")
        alive = self.loop.run(MODES[words[1]])
        self.note(f"  run = {int(alive)}")

    def stoploop(self, words: Words) -> None:
        self.loop.stop()

    def update(self, words: Words) -> None:
        self.loop.update_time()

    def busy(self, words: Words) -> None:
        self.world.clock_ms += int(words[1])

    def alive(self, words: Words) -> None:
        self.say(words, int(self.loop.alive()))

    def timeout(self, words: Words) -> None:
        timeout = self.loop.backend_timeout()
        self.say(words, timeout if timeout < 0 else timeout // MS)

    def now(self, words: Words) -> None:
        self.say(words, self.loop.now() // MS - 1_000_000)

    def walk(self, words: Words) -> None:
        self.note(" ".join(["  walk =", *(handle.data for handle in self.loop.walk())]))

    # Every handle.

    def active(self, words: Words) -> None:
        self.say(words, int(self.things[words[1]].is_active()))

    def closing(self, words: Words) -> None:
        self.say(words, int(self.things[words[1]].is_closing()))

    def hasref(self, words: Words) -> None:
        self.say(words, int(self.things[words[1]].has_ref()))

    def ref(self, words: Words) -> None:
        self.things[words[1]].ref()

    def unref(self, words: Words) -> None:
        self.things[words[1]].unref()

    def close(self, words: Words) -> None:
        if words[2:] == ("-",):
            self.things[words[1]].close()
        else:
            self.things[words[1]].close(self.closed(label_of(words, ".closed")))

    def start(self, words: Words) -> None:
        name = words[1]
        thing = self.things[name]
        # A label stands for a function: that of a start which is ignored is ignored, too.
        if isinstance(thing, Timer):
            thing.start(self.plain, int(words[2]) * MS, int(words[3]) * MS)
        elif isinstance(thing, Signal):
            begin = thing.start_oneshot if words[3:4] == ("once",) else thing.start
            begin(SIGNALS[words[2]], self.signalled)
        elif isinstance(thing, Poll):
            thing.start(sum(EVENTS.get(letter, 0) for letter in words[2]), self.polled)
        elif thing.is_active():
            thing.start(self.plain)
            return
        else:
            thing.start(self.plain)
        self.labels[name] = label_of(words)

    def stop(self, words: Words) -> None:
        self.things[words[1]].stop()

    # Timers and asyncs.

    def again(self, words: Words) -> None:
        self.things[words[1]].again()

    def repeat(self, words: Words) -> None:
        self.things[words[1]].repeat_ns = int(words[2]) * MS

    def getrepeat(self, words: Words) -> None:
        self.say(words, self.things[words[1]].repeat_ns // MS)

    def due(self, words: Words) -> None:
        self.say(words, self.things[words[1]].due_in_ns() // MS)

    def send(self, words: Words) -> None:
        self.things[words[1]].send()

    # Signals and children.

    def raise_(self, words: Words) -> None:
        number = SIGNALS[words[1]]
        if any(isinstance(thing, Signal) and thing.signum == number for thing in self.things.values()):
            signal.raise_signal(number)

    def spawn(self, words: Words) -> None:
        thing = self.things[words[1]]
        program = ["sleep", "1000"] if words[2] == "-" else ["sh", "-c", f"exit {words[2]}"]
        thing.spawn(program, self.has_exited)
        self.labels[words[1]] = label_of(words)
        if words[2] != "-":
            self.ending.append(thing)

    def kill(self, words: Words) -> None:
        thing = self.things[words[1]]
        thing.kill(SIGNALS[words[2]])
        if thing not in self.ending:
            self.ending.append(thing)

    def await_children(self) -> None:
        """Wait until the children that end by themselves have ended."""
        for thing in self.ending:
            try:
                os.waitid(os.P_PID, thing.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                pass  # closed, and reaped elsewhere

    # Streams.

    def read(self, words: Words) -> None:
        self.things[words[1]].read_start(self.was_read)
        self.labels[words[1]] = label_of(words)

    def noread(self, words: Words) -> None:
        self.things[words[1]].read_stop()

    def write(self, words: Words) -> None:
        self.things[words[1]].write(BYTES[: int(words[2])], self.ended(label_of(words, ".written")))

    def try_(self, words: Words) -> None:
        self.say(words, self.things[words[1]].try_write(BYTES[: int(words[2])]))

    def shutdown(self, words: Words) -> None:
        self.things[words[1]].shutdown(self.ended(label_of(words, ".shut")))

    def queued(self, words: Words) -> None:
        self.say(words, self.things[words[1]].write_queue_size)

    def readable(self, words: Words) -> None:
        self.say(words, int(self.things[words[1]].is_readable()))

    def writable(self, words: Words) -> None:
        self.say(words, int(self.things[words[1]].is_writable()))

    def path(self, name: str) -> str:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="oracle-"))
        return str(self.folder / name)

    def bind(self, words: Words) -> None:
        self.things[words[1]].bind(self.path(words[2]))
        self.world.note_fd(self.things[words[1]].fileno())

    def listen(self, words: Words) -> None:
        self.labels[words[1]] = label_of(words)
        self.things[words[1]].listen(128, self.connected_to)

    def connect(self, words: Words) -> None:
        thing = self.things[words[1]]
        thing.connect(self.path(words[2]), self.ended(label_of(words, ".connected")))
        self.world.note_fd(thing.fileno())

    def accept(self, words: Words) -> None:
        client = self.things[words[2]]
        self.things[words[1]].accept(client)
        self.world.note_fd(client.fileno())

    # Raw ends.

    def put(self, words: Words) -> None:
        try:
            sent = self.things[words[1]].send(BYTES[: int(words[2])])
        except OSError:
            sent = -1
        self.say(words, sent)

    def take(self, words: Words) -> None:
        try:
            size = len(self.things[words[1]].recv(int(words[2])))
        except OSError:
            size = -1
        self.say(words, size)

    def end(self, words: Words) -> None:
        try:
            self.things[words[1]].shutdown(socket.SHUT_WR)
        except OSError:
            pass  # nobody asks

    def cut(self, words: Words) -> None:
        self.things[words[1]].close()

    # Work.

    def work(self, words: Words) -> None:
        self.queue_work(words[1], self.do_nothing)

    def do_nothing(self) -> None:
        with OneThread.turn:
            pass

    def queue_work(self, name: str, function: Callable[[], object]) -> None:
        self.things[name] = Work(self.loop, function, lambda work, result, error: self.worked(name, error))

    def worked(self, name: str, error: BaseException | None) -> None:
        assert error is None or isinstance(error, OSError)
        self.called(name, outcome(error))

    def hold(self, words: Words) -> None:
        if self.is_held:
            return
        self.await_work()
        self.is_held = True
        self.queue_work("holder", self.hold_back)
        self.began.acquire()

    def hold_back(self) -> None:
        self.began.release()
        self.gate.acquire()
        self.do_nothing()

    def release(self, words: Words) -> None:
        if self.is_held:
            self.is_held = False
            self.gate.release()

    def cancel(self, words: Words) -> None:
        work = self.things.get(words[1])
        if work is None or not work.is_pending() or work in self.cancelled:
            return  # libuv does not expect to be asked again.
        self.await_work()
        if work.cancel():
            self.cancelled.append(work)
        else:
            self.say(words, "EBUSY")

    def await_work(self) -> None:
        """Wait until all work that may be done has been done."""
        if self.is_held or not has_work(OneThread.pool):
            return
        OneThread.turn.release()
        while has_work(OneThread.pool):
            time.sleep(0.00002)
        OneThread.turn.acquire()


setattr(Performer, "try", Performer.try_)
setattr(Performer, "raise", Performer.raise_)

ON_A_HANDLE = frozenset(
    "ref unref hasref close start stop again repeat getrepeat due send read noread write try shutdown queued "
    "readable writable bind listen connect accept spawn kill".split()
)
ON_A_RAW_ONE = frozenset("put take end cut".split())


def has_work(pool: ThreadPool) -> bool:
    """Return whether work waits for a thread of the pool, or is being done.

    A thread counts as busy before it takes work from the queue. So the queue is asked first: in the other
    order, both answers can miss work that is taken between them.
    """
    return bool(pool.queue_length or pool.busy)


def label_of(words: Sequence[str], suffix: str = "") -> str:
    """Return the label that an operation gives its callback."""
    for word in words[2:]:
        if word.startswith("@"):
            return word[1:]
    return words[1] + suffix


def outcome(error: OSError | None) -> str:
    """Return the name of an error, 0 for none."""
    return errno.errorcode[error.errno or 0] if error else "0"
