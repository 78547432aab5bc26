"""Random calls of everything with anything: the process must neither crash nor hang.

`python -m tests.fuzz.hostile SEED STEPS JOURNAL` makes that many calls; its last calls stand in the journal,
which lives in shared memory and so outlives a crash.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import faulthandler
import functools
import gc
import itertools
import logging
import os
import posix
import random
import selectors
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import whorl
from tests.aio.tls_contexts import server_context
from tests.fuzz.journal import Journal, describe
from tests.fuzz.mischief import (
    CONTEXTS,
    ERRORS,
    NUMBERS,
    DatagramMischief,
    Mischief,
    MischiefBufferedProtocol,
    MischiefProtocol,
    SubclassedProtocol,
    Text,
    Whole,
    released_buffer,
    strange_buffers,
)
from tests.fuzz.surface import HANDLES, REQUESTS, Parameters, names_of, parameters, parameters_of
from whorl.core.callback import Callback, GuardedCallback
from whorl.core.kernel.kernel import EventBatch, Kernel
from whorl.core.process.host import Host
from whorl.core.timers.timed_callback import TimedCallback

DEADLINE = 140  # seconds for the whole run; a process that takes longer is taken to hang
PATIENCE = 0.2  # seconds for one call, until a signal's handler raises out of it
DEPTH = 3  # calls inside calls
POOL = 24  # objects of each kind that are kept

#: They take what is in use from others.
LEFT_OUT_OF_KERNELS = {
    "close", "read", "recv", "write", "unlink", "change_mode", "read_into", "recv_into",
    "close_fd", "read_file", "read_file_into", "write_file", "copy_range", "clone_file", "resize", "set_mode",
    "set_owner", "set_times", "await_writable", "seek_file",
}  # fmt: skip


#: Of files, in the folder of the journal, where the process works.
PATHS = (".", "file", "folder", "folder/file", "link", b"bytes", Path("path"), "nowhere/file", "")

#: Sensible values, by the name of the parameter.
HINTS: dict[str, tuple[Any, ...]] = {
    "timeout_ns": (0, 0, 1, 1_000_000, 2**63),
    "repeat_ns": (0, 0, 1, 1_000_000, 2**64),
    "delay": (0, 0, -1.0, 1e-6, 1e-3, 1e10),
    "when": (0, 1e-3, 1e10, -1e300),
    "events": (0, 1, 2, 3, 5, 15, whorl.core.Event.READABLE),
    "interest": (0, 1, 2, 3),
    "seen": (0, 1, 2, 3, 4, 16, 32, 63),
    "code": (0, -1, 11, 32, 104),
    "high": (None, 0, 1, 10, 65536),
    "low": (None, 0, 1, 10),
    "nbytes": (0, 1, 10, 100_000),
    "n": (0, 1, 10),
    "size": (0, 1, 10, 100_000),
    "limit": (0, 1, 10),
    "offset": (0, 1),
    "first": (0, 1),
    "address": (("127.0.0.1", 1), ("127.0.0.1", 0), ("::1", 0), ("127.0.0.1", 70_000)),
    "name": ("socket", b"\0abstract", "", "x" * 200),
    "backlog": (0, 1, 100),
    "context": (None, *CONTEXTS),
    "error": (None, ValueError("made up"), OSError(32, "made up")),
    "enabled": (True, False),
    "interval_ns": (0, 1, 1_000_000, 2**64),
    "number": (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGURG, 9, 0, 65),
    "signum": (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGURG, 9, 0, 65),
    "path": PATHS,
    "new_path": PATHS,
    "target": PATHS,
    "flags": (0, os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND, 7),
    "mode": (0o600, 0o700, 0, 1, 2, "r"),
    "args": (1, (), b"x", None, ["true"], ["cat"], ["sh", "-c", "exit 3"], ["not a program"]),
}
#: How often each kind of thing is called.
KINDS = ("loop", "loop", "handle", "handle", "handle", "transport", "transport", "entry", "result", "rare")
#: These end what they are called on; most of the time something else is called instead.
ENDINGS = {"close", "abort", "__init__", "__del__", "close_reset", "_close_machine", "_close_now"}
SAME = {"handle": "client", "entry": "timer", "transport": "self"}


class AcceptingServer:
    """A server that may have accepted a connection: the kernel holds pieces for those alone."""

    def _attach(self, transport: Any) -> None: ...

    def _detach(self, transport: Any) -> None: ...


class Interrupted(BaseException):
    """Raised out of a call that takes too long, by the handler of a signal."""


class Fuzzer:
    """Makes calls on a pool of objects that the calls make larger."""

    def __init__(self, seed: int, journal: Journal) -> None:
        self.rng = random.Random(seed)
        self.only_public = bool(seed % 4)
        self.journal = journal
        self.depth = 0
        self.calls = 0
        self.odd: list[str] = []  # errors that no call should give
        self.pool: dict[str, list[Any]] = {}
        self.makers: list[Callable[[], Any]] = [
            self.make_loop,
            self.make_event_loop,
            *[self.make_handle] * 4,
            *[self.make_transport] * 3,
            self.make_endpoint,
            self.make_pipe,
            self.make_terminal,
            self.make_request,
            self.make_entry,
            self.make_sockets,
            self.make_uninitialized,
        ]

    # The pool.

    def keep(self, kind: str, thing: Any) -> Any:
        if thing is None:
            return None
        kept = self.pool.setdefault(kind, [])
        if len(kept) >= POOL:
            kept.pop(self.rng.randrange(len(kept)))
        kept.append(thing)
        return thing

    def any_of(self, kind: str) -> Any:
        kept = self.pool.get(kind)
        return self.rng.choice(kept) if kept else None

    def anything(self) -> Any:
        kind = self.rng.choice(KINDS)
        if kind == "rare":
            kind = self.rng.choice(list(self.pool))
        return self.any_of(kind)

    # Making things.

    def make_loop(self) -> Any:
        poller = self.rng.choice((None, None, None, selectors.PollSelector, selectors.SelectSelector))
        return self.keep("loop", whorl.Loop(poller=poller() if poller else None))

    def make_event_loop(self) -> Any:
        loop = whorl.EventLoop()
        loop.configure(collect_writes=self.rng.choice((False, True)))
        loop.set_exception_handler(self.rng.choice((None, lambda *details: None, self.mischief())))
        return self.keep("loop", loop)

    def make_handle(self) -> Any:
        kind = self.rng.choice(HANDLES)
        return self.keep("handle", self.apply(kind.__name__, kind, parameters(kind, "__init__")))

    def make_request(self) -> Any:
        function = self.rng.choice(REQUESTS)
        is_class = isinstance(function, type)
        wanted = parameters(function, "__init__") if is_class else parameters_of(function)
        made = self.apply(function.__name__, function, wanted)
        if isinstance(made, int) and made > 2:  # an open file
            made = self.keep("file", os.fdopen(made, "rb", 0))
        return self.keep("result", made)

    def make_transport(self) -> Any:
        loop = self.any_of("loop")
        family = self.rng.choice((socket.AF_UNIX, socket.AF_INET, socket.AF_INET6))
        if family == socket.AF_UNIX:
            ours, peer = socket.socketpair()
        else:
            with socket.create_server(("", 0), family=family) as listener:
                peer = socket.create_connection(("localhost", listener.getsockname()[1]))
                ours, _ = listener.accept()
        ours.setblocking(False)
        peer.setblocking(False)
        self.keep("socket", peer)
        if self.rng.random() < 0.3:
            peer.send(b"some data")
        kind = self.rng.choice((MischiefProtocol, MischiefBufferedProtocol, SubclassedProtocol))
        more = (self.rng,) if kind is MischiefBufferedProtocol else ()
        protocol = self.keep("protocol", kind(self.act, *more))
        if self.rng.random() < 0.5:
            handle = self.rng.choice((whorl.handles.TCP, whorl.handles.Pipe))(loop)
            handle.open(ours.detach())
            return self.keep("handle", handle)
        server = self.rng.choice((None, AcceptingServer()))
        if self.rng.random() < 0.3:
            context = server_context()
            made = loop._make_ssl_transport(ours, protocol, context, None, server_side=True, server=server)
        else:
            made = loop._make_socket_transport(ours, protocol, server=server)
        return self.keep("transport", made)

    def make_endpoint(self) -> Any:
        loop = self.any_of("loop")
        protocol = self.keep("protocol", DatagramMischief(self.act))
        address = ("127.0.0.1", 0)
        made = loop.create_datagram_endpoint(lambda: protocol, local_addr=address)
        return self.keep("transport", loop.run_until_complete(made)[0])

    def make_pipe(self) -> Any:
        loop = self.any_of("loop")
        reading, writing = (os.fdopen(fd, mode, 0) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        self.keep("file", reading)
        self.keep("file", writing)
        if self.rng.random() < 0.5:
            made = loop.connect_read_pipe(lambda: MischiefProtocol(self.act), reading)
        else:
            made = loop.connect_write_pipe(lambda: MischiefProtocol(self.act), writing)
        return self.keep("transport", loop.run_until_complete(made)[0])

    def make_terminal(self) -> Any:
        for fd in os.openpty():
            os.set_blocking(fd, False)
            self.keep("file", os.fdopen(fd, "r+b", 0))

    def make_entry(self) -> Any:
        loop = self.any_of("loop")
        kind = self.rng.choice((Callback, GuardedCallback, TimedCallback))
        if kind is TimedCallback:
            entry: Any = TimedCallback(loop, self.rng.choice((0, 2**62)), None, self.mischief(), ())
        else:
            entry = kind(loop, self.mischief(), ())
        return self.keep("entry", entry)

    def make_sockets(self) -> Any:
        pair = socket.socketpair()
        for sock in pair:
            sock.setblocking(False)
            self.keep("socket", sock)
        self.keep("kernel", Kernel())
        self.keep("batch", EventBatch())
        return pair

    def make_uninitialized(self) -> Any:
        known = self.anything()
        if isinstance(known, asyncio.Future):
            return None  # CPython's own crash
        return self.keep("uninitialized", type(known).__new__(type(known)))

    def mischief(self) -> Any:
        return Mischief(self.act, self.rng)

    # Arguments.

    def arguments(self, wanted: Parameters) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments that mostly have the right number, and mostly the right kinds."""
        if self.rng.random() < 0.1:
            return [self.value() for _ in range(self.rng.randrange(5))], {}
        by_place = [self.fitting(name) for name in wanted.by_place[: self.rng.choice((1, 2, 5, 5, 5))]]
        by_name = [name for name in wanted.by_name if self.rng.random() < 0.2]
        return by_place, {name: self.fitting(name) for name in by_name}

    def apply(self, name: str, function: Any, wanted: Parameters) -> Any:
        """Call something; what is not callable is its own answer."""
        arguments, options = self.arguments(wanted)
        if any(type(item) is int and item == signal.SIGALRM for item in (*arguments, *options.values())):
            return None  # it may be a signal's number, and this one is ours
        given = [describe(item) for item in arguments]
        given += [f"{key}={describe(item)}" for key, item in options.items()]
        self.note(f"{name}({', '.join(given)})")
        return function(*arguments, **options) if callable(function) else function

    def fitting(self, parameter: str) -> Any:
        """Return a value for a parameter with this name, most of the time a sensible one."""
        if self.rng.random() < 0.15:
            return self.value()
        if parameter in HINTS:
            return self.rng.choice(HINTS[parameter])
        if "callback" in parameter or parameter.startswith("on_") or parameter in ("handler", "function"):
            return self.mischief()
        if parameter in ("data", "buf", "buffer"):
            return self.rng.choice((*strange_buffers(), released_buffer()))
        if parameter in ("list_of_data", "chunks"):
            return self.rng.choice(strange_buffers())
        if parameter in ("fd", "fileobj", "file", "sock", "in_fd", "out_fd"):
            thing = self.any_of(self.rng.choice(("socket", "socket", "file")))
            return thing.fileno() if self.rng.random() < 0.3 else thing
        if parameter in ("future", "coro", "waiter"):
            return asyncio.sleep(0) if self.rng.random() < 0.5 else self.any_of("task")
        if parameter == "stdio":
            return [self.stdio() for _ in range(self.rng.randrange(4))]
        for kind in ("loop", "handle", "entry", "protocol", "transport", "kernel"):
            if parameter in (kind, SAME.get(kind)):
                return self.any_of(kind)
        return self.value()

    def stdio(self) -> Any:
        kinds = whorl.handles.Stdio
        if self.rng.random() < 0.5:
            return kinds.ignore()
        pipe = self.keep("handle", whorl.handles.Pipe(self.any_of("loop")))
        return kinds.create_pipe(pipe, child_reads=self.rng.random() < 0.5, child_writes=True)

    def value(self) -> Any:
        dice = self.rng.random()
        if dice < 0.2:
            return self.rng.choice(NUMBERS)
        if dice < 0.4:
            return self.mischief()
        if dice < 0.55:
            return self.rng.choice(strange_buffers())
        if dice < 0.75:
            return self.anything()
        if dice < 0.85:
            sock = self.any_of("socket")
            return sock.fileno() if sock is not None else -1
        return self.rng.choice(
            (
                None,
                Text("name"),
                "\0",
                "x" * 300,
                Whole(999_999),
                (),
                [],
                {},
                [b"a", b"", bytearray(b"b")],
                ("127.0.0.1", 1),
                ("::1", 1),
                ("\0", 99_999),
                *CONTEXTS,
                Ellipsis,
                object(),
                print,
                self.act,
            )
        )

    # Doing things.

    def act(self) -> Any:
        """Act as a callback: make some calls, raise an error, or do nothing."""
        if self.depth >= DEPTH or self.rng.random() < 0.3:
            if self.rng.random() < 0.15:
                raise self.rng.choice(ERRORS)
            return self.rng.choice((None, True, b"", 0))
        for _ in range(self.rng.randrange(1, 6)):
            self.step()
        return None

    def step(self) -> None:
        """Make one call; an exception is an answer."""
        self.depth += 1
        try:
            dice = self.rng.random()
            if dice < 0.12:
                self.note("make")
                self.rng.choice(self.makers)()
            elif dice < 0.16:
                self.forget()
            elif dice < 0.36:
                self.turn()
            elif dice < 0.66:
                self.scene()
            else:
                self.call()
        except Interrupted:
            if self.depth > 1:
                raise
        except SystemError as error:
            if "AST constructor" in str(error):
                return  # of the parser in CPython 3.11, near the limit of recursion
            self.odd.append(f"call {self.calls}: {error!r}")
            self.odd += "".join(traceback.format_exception(error)).splitlines()
        except BaseException:
            pass
        finally:
            self.depth -= 1

    def note(self, line: str) -> None:
        self.calls += 1
        self.journal.note(f"{self.calls} {'  ' * self.depth}{line}")

    def forget(self) -> None:
        """Let go of something, or of everything of a kind, and sometimes collect."""
        self.note("forget")
        kept = self.pool.get(self.rng.choice(list(self.pool)), [])
        if kept:
            if self.rng.random() < 0.1:
                kept.clear()
            else:
                kept.pop(self.rng.randrange(len(kept)))
        if self.rng.random() < 0.3:
            gc.collect(self.rng.randrange(3))

    def turn(self) -> None:
        """Let a loop run for a moment; another one takes the place of one that is closed."""
        loop = self.any_of("loop")
        if loop is None or loop.is_closed():
            self.rng.choice((self.make_loop, self.make_event_loop))()
            return
        self.note(f"turn {describe(loop)}")
        if isinstance(loop, whorl.EventLoop) and self.rng.random() < 0.8:
            loop.call_soon(loop.stop)
            loop.run_forever()
        elif loop is not None:
            loop.call_later(0.001, len, ())  # a run of one turn sleeps until something happens
            loop.run(self.rng.choice((whorl.RunMode.NOWAIT, whorl.RunMode.ONCE)))

    def scene(self) -> None:
        """Make sensible calls, so that callbacks are called and data flows."""
        number, rng = self.rng.randrange(14), self.rng
        loop, handle, transport = (self.any_of(kind) for kind in ("loop", "handle", "transport"))
        peer = self.any_of("socket")
        self.note(f"scene {number} {describe(loop)} {describe(handle)} {describe(transport)}")
        data = rng.choice((b"x", b"some bytes", bytes(200_000), bytearray(5000)))
        if number == 0:
            self.keep("entry", loop.call_soon(self.mischief(), data))
        elif number == 1:
            self.keep("entry", loop.call_later(rng.choice((0, 0, 1e-4)), self.mischief()))
        elif number == 2:
            self.keep("entry", loop.call_soon_threadsafe(self.mischief()))
        elif number == 3:
            loop.add_reader(peer, self.mischief())
        elif number == 4:
            loop.add_writer(peer, self.mischief())
        elif number == 5:
            peer.send(data)
        elif number == 6:
            peer.recv(rng.choice((1, 100_000)))
        elif number == 7:
            (transport.sendto if hasattr(transport, "sendto") else transport.write)(data)
        elif number == 8:
            peer.close()
        elif number == 9:
            self.keep("result", whorl.handles.Work(loop, self.mischief(), self.mischief()))
        elif number == 10:
            self.make_request()
        elif number == 11:
            raised = rng.choice((signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH))
            if signal.getsignal(raised) != signal.SIG_DFL:  # that would end the process
                signal.raise_signal(raised)
        else:
            self.start(handle, data)

    def start(self, handle: Any, data: Any) -> None:
        """Start a handle, each kind in its own way."""
        kinds, rng = whorl.handles, self.rng
        if isinstance(handle, kinds.StreamHandle) and rng.random() < 0.5:
            self.keep("result", handle.write(data, self.mischief()))
        elif isinstance(handle, kinds.StreamHandle):
            handle.read_start(self.mischief(), rng.choice((None, lambda *details: bytearray(100))))
        elif isinstance(handle, kinds.UDP):
            address = ("127.0.0.1", rng.choice((0, 1, 40_000)))
            if rng.random() < 0.4:
                handle.bind(address)
            elif rng.random() < 0.5:
                handle.recv_start(self.mischief())
            else:
                self.keep("result", handle.send(data[:1000], address, self.mischief()))
        elif isinstance(handle, kinds.Timer):
            handle.start(self.mischief(), 0, rng.choice((0, 1, 1000)))
        elif isinstance(handle, kinds.Poll):
            handle.start(rng.choice((1, 2, 3)), self.mischief())
        elif isinstance(handle, kinds.Async):
            handle.send()
        else:
            name = "spawn" if isinstance(handle, kinds.Process) else "start"
            self.apply(name, getattr(handle, name), parameters(type(handle), name))

    def call(self) -> None:
        thing = self.anything()
        if thing is None:  # all of a kind have been forgotten
            self.rng.choice(self.makers)()
            return
        name = self.rng.choice(names_of(type(thing), self.only_public))
        if name in ENDINGS and self.rng.random() < 0.6:
            name = self.rng.choice(names_of(type(thing), self.only_public))
        if not name.startswith("__") and self.rng.random() < 0.05:
            self.note(f"set {describe(thing)}.{name}")
            setattr(thing, name, self.value())
            return
        if isinstance(thing, asyncio.Future) and name.startswith("__"):
            return  # a second __init__ that fails is CPython's own crash
        if isinstance(thing, MischiefProtocol | Host):
            return  # a host sends signals to any process, and to all of them
        if isinstance(thing, Kernel) and name in LEFT_OUT_OF_KERNELS:
            return
        if isinstance(thing, socket.socket) and name == "settimeout":
            return  # a debug build of CPython aborts in the call that waits that long
        if name in ("run_forever", "run_until_complete", "run", "_turn"):
            thing.stop()
        place = f"{describe(thing)}.{name}"
        result = self.apply(place, getattr(thing, name), parameters(type(thing), name))
        if asyncio.iscoroutine(result):
            self.coroutine(thing, result)
        elif type(result).__module__.startswith("whorl."):
            self.keep("result", result)

    def coroutine(self, loop: Any, coroutine: Any) -> None:
        """Run it for some turns as a task, or drop it."""
        if self.rng.random() < 0.3 or not isinstance(loop, whorl.EventLoop) or loop.is_closed():
            coroutine.close()
            return
        task = self.keep("task", loop.create_task(coroutine))
        if self.rng.random() < 0.5:
            loop.call_soon(loop.stop)
            loop.run_forever()
            task.cancel()


def interrupt(number: int, frame: types.FrameType | None) -> None:
    """Raise out of what runs, unless it takes a lock of CPython's own, which would stay taken for ever."""
    code = frame.f_code if frame is not None else interrupt.__code__
    is_lock = code.co_filename.endswith(("/threading.py", "/futures/thread.py")) and code.co_name != "wait"
    if is_lock or code.co_name == undisturbed.__name__:
        signal.setitimer(signal.ITIMER_REAL, PATIENCE / 100, PATIENCE)
        return
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)
    raise Interrupted


def let_stat_finish() -> None:
    """Have nothing raised out of `os.stat` where CPython counts on with the error set, which its debug build
    takes for a leak: `_Py_CheckSlotResult: Slot * of type int succeeded with an exception set`."""
    if sys.version_info >= (3, 12) or not hasattr(sys, "gettotalrefcount"):
        return
    for module, name in itertools.product((os, posix), ("stat", "lstat", "fstat")):
        setattr(module, name, functools.partial(undisturbed, getattr(module, name)))


def undisturbed(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call something that a signal does not end."""
    return function(*args, **options)


def strays() -> bool:
    """Return whether a pool was interrupted before it knew its thread. Python would wait for it for ever."""
    known = concurrent.futures.thread._threads_queues
    pooled = [
        thread for thread in threading.enumerate() if thread.name.startswith(("ThreadPool", "asyncio_"))
    ]
    return any(thread not in known for thread in pooled)


def quiet() -> None:
    """Let nothing that the calls report reach the terminal."""
    logging.disable()
    sys.unraisablehook = lambda unraisable: None
    threading.excepthook = lambda details: None
    out = os.open(os.devnull, os.O_WRONLY)
    os.dup2(out, 1)


def main(seed: int, steps: int, journal: str) -> None:
    errors = os.fdopen(os.dup(2), "w")
    answers = os.fdopen(os.dup(1), "w")
    faulthandler.enable(errors)
    faulthandler.dump_traceback_later(DEADLINE, exit=True, file=errors)
    os.chdir(Path(journal).parent)
    quiet()
    let_stat_finish()
    fuzzer = Fuzzer(seed, Journal(journal))
    signal.signal(signal.SIGALRM, interrupt)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])  # removing a handler brings the default back
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # what ends a process by default
        signal.signal(number, signal.SIG_IGN)
    for maker in itertools.islice(itertools.cycle(fuzzer.makers), 30):
        try:
            signal.setitimer(signal.ITIMER_REAL, 10 * PATIENCE, PATIENCE)
            maker()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException:  # what protocols raise may end a run
            continue
    done = 0
    while done < steps:
        done += 1
        try:
            # Again and again: one signal may come before the call that blocks has begun to.
            signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)
            fuzzer.step()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            fuzzer.depth = 0
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    calls, odd = fuzzer.calls, fuzzer.odd
    fuzzer.makers = []
    fuzzer.rng.random = lambda: 1.0  # type: ignore[method-assign]
    fuzzer.pool.clear()
    gc.collect()
    print(calls, *odd, sep="\n", file=answers, flush=True)
    if seed % 2 or strays():
        os._exit(1 if odd else 0)  # the others end as programs end


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
