"""The poller over Linux's io_uring: an opt-in, for programs that ask for it by name.

Some facts about its polls:

* They are asked for once and answer once; asked about something that is ready, they answer at once. So each
  poll asks again for those that have answered, in the system call that sleeps: level-triggered.
* An answer that came while callbacks ran may be out of date: they may have read what it is about. It is
  asked for again instead of being handed over. Those that come from the call itself are handed over.
* A poll holds on to the *open file*. Whoever removes a handle may close its descriptor next, and the other
  side shall see that: so the end of a watch is handed over at once.
* But it is asked for by number. Where a descriptor was closed underneath its handle, that may mean another
  file by now, which must neither be watched nor be read in the place of the first. So the ring is asked
  before each question and after each answer whether it knows the file.
* A poll is answered with the help of the thread that asked. A loop that another thread runs from now on asks
  anew; those of a thread that has ended are cancelled, and asked for again.
* An answer says why the poll was woken, not what was found then: whoever wakes for data wakes for urgent data
  too. So one that tells of urgent data is asked for again at once.
* In a forked child the queues are the parent's, and must not be touched.

What follows too: a turn that has nothing to ask, and no answer in sight, makes no system call.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from whorl.core.callback import current_thread
from whorl.core.kernel.errors import os_error
from whorl.core.limits import EVENTS_PER_POLL
from whorl.core.pollers.contract import Poller
from whorl.core.pollers.epoll import mask_of, seen_in
from whorl.core.pollers.io_uring_rings import Ring

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.kernel.kernel import Kernel
    from whorl.core.pollers.contract import IOHandle

URGENT = 0x002  # epoll's EPOLLPRI

#: Ends of a sleep that are no errors; after EAGAIN and EBUSY the kernel has taken nothing and is asked again.
_PASSING = (-errno.EINTR, -errno.ETIME, -errno.EAGAIN, -errno.EBUSY)

if not cython.compiled:

    def handle_signals() -> None:
        """Nothing: uncompiled, Python runs the handlers."""


class UringPoller(Poller):
    """Readiness by io_uring (man 7 io_uring). Raises OSError where it does not work."""

    __slots__ = ("_eager", "_generations", "_kernel", "_ring", "_thread", "_unasked")

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self._generations = 0
        self._unasked: list[int] = []  # the descriptors that the next poll asks for
        self._eager = False  # whether that is done at once, because somebody else sleeps for us
        self._thread: object = current_thread()  # the one that asked
        self._ring = Ring()
        self._open()

    def _open(self) -> None:
        code = self._ring.open() if self._kernel.offers_rings else -errno.ENOSYS
        if code < 0:
            raise os_error(code)

    def name(self) -> str:
        """What the report says."""
        return "io_uring"

    def add(self, handle: IOHandle, interest: int) -> None:
        """Watch the handle's descriptor."""
        if handle._interest:
            self.modify(handle, interest)
            return
        fd = handle._fd
        is_known = self._know(fd)
        former = self.find(fd)
        if former is not None:
            if not former._is_idle_watch and is_known:
                raise os_error(errno.EEXIST)
            self.remove(former)  # Its descriptor was closed underneath it, or it gives way.
        self._enter(handle, interest)
        self._ask(handle)

    def modify(self, handle: IOHandle, interest: int) -> None:
        """Watch for something else from now on."""
        if not handle._interest or interest == 0:
            if handle._interest:
                self.remove(handle)
            elif interest:
                self.add(handle, interest)
            return
        self._know(handle._fd)
        if handle._asked:
            self._ring.end(handle._fd, handle._generation)
        handle._interest = interest
        self._ask(handle)

    def remove(self, handle: IOHandle) -> None:
        """Watch no more; does nothing if the handle is not watched."""
        if not handle._interest:
            return
        fd = handle._fd
        self._leave(handle)
        if handle._asked:
            handle._asked = False
            if self._ring.end(fd, handle._generation) == 0:
                self._ring.submit()

    def _know(self, fd: int) -> bool:
        """Have the ring know the file behind a descriptor; whether it did before."""
        code = self._ring.know(fd)
        if code < 0:
            raise os_error(code)
        return code > 0

    def _ask(self, handle: IOHandle) -> None:
        """Have the kernel asked by the next poll; what an earlier watch may yet answer is dropped."""
        self._generations = (self._generations + 1) & 0xFFFFFFFF
        handle._generation = self._generations
        handle._asked = False
        self._unasked.append(handle._fd)
        if self._eager:
            self._ask_all()
            self._ring.submit()

    def _ask_all(self) -> None:
        """Put what is to be asked where the kernel will find it.

        A handle whose descriptor means another file by now is silent until somebody says what is meant.
        """
        unasked = self._unasked
        done = 0
        for fd in unasked:
            handle = self.find(fd)
            if handle is not None and not handle._asked and self._ring.knows(fd):
                if self._ring.watch(fd, mask_of(handle._interest, False), handle._generation) < 0:
                    break  # no room and no memory: the next poll tries again
                handle._asked = True
            done += 1
        del unasked[:done]

    def _ask_again(self) -> None:
        """Ask for what has answered, and for what answered while callbacks ran, which may be out of date."""
        if self._ring.has_answer():
            later = self._unasked
            self._unasked = []
            self._collect(None, [])
            self._unasked += later  # behind them, so that many that are always ready leave nobody out
        if self._unasked:
            self._ask_all()

    def hand_over(self) -> None:
        """The loop does not poll for a while, and somebody else may wait for `fileno`."""
        if self._eager:
            self._ask_again()
            self._ring.submit()

    def poll(self, timeout_ns: int, into: list[Any]) -> int:
        """Sleep until something is ready; collect it."""
        ring = self._ring
        handle_signals()
        if self._thread != current_thread():
            self._move()
        self._ask_again()
        if timeout_ns != 0:
            code = ring.wait(timeout_ns, self._kernel.blocked_signal)
        elif ring.has_work():
            code = ring.submit()
        else:
            return 0
        if code < 0 and code not in _PASSING:
            raise os_error(code)
        if not ring.has_answer():
            handle_signals()
            return 0
        doubtful: list[int] = []
        found = self._collect(into, doubtful)
        if doubtful:
            later = self._unasked
            self._unasked = doubtful
            self._ask_all()
            ring.submit()
            found += self._collect(into, None)
            self._unasked += later
        return found

    def _collect(self, into: list[Any] | None, doubtful: list[int] | None) -> int:
        """Take answers, and hand them over if there is somewhere to.

        Those that may tell too much are put among the doubtful ones, if there may be any.
        """
        ring = self._ring
        found = 0
        while found < EVENTS_PER_POLL and ring.has_answer():
            handle = self.find(ring.fd())
            if handle is not None and handle._asked and handle._generation == ring.generation():
                result = ring.result()
                again = self._unasked
                if result > 0 and into is not None:
                    if result & URGENT and doubtful is not None:
                        again = doubtful
                    elif ring.knows(handle._fd):
                        self._saw(handle, seen_in(result), into)
                        found += 1
                handle._asked = False
                again.append(handle._fd)
            ring.next()
        return found

    def _move(self) -> None:
        """Ask in this thread's name from now on."""
        self._thread = current_thread()
        for handle in self.handles():
            if handle._asked:
                self._ring.end(handle._fd, handle._generation)
                self._ask(handle)

    def renew(self) -> None:
        """Watch the same handles with queues of this process's own; the parent's stay as they are."""
        self._ring.close()
        self._open()
        self._thread = current_thread()
        self._unasked.clear()
        for handle in self.handles():
            self._ring.know(handle._fd)
            self._ask(handle)

    def close(self) -> None:
        """Give the kernel's objects back, and let go of all files at once."""
        if not self._ring.is_shared():
            for handle in self.handles():
                if handle._asked:
                    self._ring.end(handle._fd, handle._generation)
            self._ring.submit()
        self._ring.close()
        self._table = []
        self._unasked.clear()

    def fileno(self) -> int:
        """The ring's descriptor: readable when something is ready."""
        if not self._eager:
            self._eager = True
            self.hand_over()
        return self._ring.fileno()
