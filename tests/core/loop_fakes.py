"""Helpers of the machine's tests: a clock that obeys, handles written in Python, children."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from whorl.core import Event, Handle, IOHandle, Kernel, Loop

SECOND = 1_000_000_000


class Deadlock(Exception):
    """The loop went to sleep with nothing to wait for."""


class ObedientClock(Kernel):
    """Real descriptors in virtual time: a sleep in which nothing happens takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 1000 * SECOND
        self.sleeps: list[int] = []

    def now(self) -> int:
        return self.clock

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        found = super().epoll_wait(epfd, 0, events)
        if found == 0 and timeout_ns:
            if timeout_ns < 0:
                raise Deadlock
            self.sleeps.append(timeout_ns)
            self.clock += timeout_ns
        return found


class Watcher(IOHandle):
    """A handle that watches another owner's descriptor, and notes the events."""

    def __init__(
        self,
        loop: Loop,
        fd: int,
        interest: int = Event.READABLE,
        then: Callable[[Watcher], object] | None = None,
        edge: bool = False,
    ) -> None:
        super().__init__(loop)
        self._fd = fd
        self._edge = edge
        self.seen: list[Event] = []
        self.then = then
        self.poller = loop._poller
        self.poller.add(self, int(interest))

    def watch_for(self, interest: int) -> None:
        self.poller.modify(self, int(interest))

    def _on_events(self, seen: int) -> None:
        self.seen.append(Event(seen))
        if self.then is not None:
            self.then(self)

    def _release(self) -> None:
        self.poller.remove(self)


class Inert(Handle):
    """A handle that does nothing, but must be closed."""


def run_forever(loop: Loop) -> None:
    """Run a loop in asyncio's order until it is stopped."""
    loop._begin_run()
    try:
        loop._run_turns()
    finally:
        loop._stopping = False
        loop._end_run()


def run_turns(loop: Loop, count: int = 1) -> None:
    """Run a loop in asyncio's order, `count` times one turn that does not sleep."""
    for _ in range(count):
        loop.stop()
        run_forever(loop)


def quiet_fork() -> int:
    """Fork, without the warning about the threads that pools keep."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(act: Callable[[], object]) -> int:
    """Fork, act in the child, and return its exit status: 0 if it raised nothing."""
    child = quiet_fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refuse_system_call(number: int, code: int) -> bool:
    """Have the kernel refuse a system call with an error number from now on, in this process and for ever.

    False where the machine does not allow that (man 2 seccomp).
    """
    import ctypes

    pr_set_no_new_privs, pr_set_seccomp, seccomp_mode_filter = 38, 22, 2

    class Instruction(ctypes.Structure):
        _fields_ = [
            ("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)
        ]  # fmt: skip

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction))]

    instructions = (Instruction * 4)(
        Instruction(0x20, 0, 0, 0),  # load the system call's number
        Instruction(0x15, 0, 1, number),  # is it this one?
        Instruction(0x06, 0, 0, 0x00050000 | code),  # then it fails with the error
        Instruction(0x06, 0, 0, 0x7FFF0000),  # else it is allowed
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(4, instructions)
    libc.prctl(pr_set_no_new_privs, 1, 0, 0, 0)
    return bool(libc.prctl(pr_set_seccomp, seccomp_mode_filter, ctypes.byref(program), 0, 0) == 0)
