"""The poller over Linux's io_uring: an opt-in, for programs that ask for it by name.

Some facts about its polls:

* A poll is one-shot: armed once, it answers once. If the file is ready already, it answers at once. So each
  turn arms again the polls that have answered, in the system call that sleeps: level-triggered.
* An answer that came while callbacks ran may be out of date: they may have read the data. The poller arms
  the poll again instead of handing it over. Answers that come from the call itself are handed over.
* A poll holds on to the *open file*. The program may close the descriptor of a removed handle next, and the
  peer must see that. So the poller hands the end of a watch to the kernel at once.
* But a poll is armed by number. If a descriptor was closed underneath its handle, the number may mean another
  file by now. The loop must neither watch nor read that file in place of the first. So the poller checks that
  the ring knows the file, before it arms a poll and after each answer.
* The kernel answers a poll with the help of the thread that armed it. If another thread runs the loop from
  now on, it arms all polls anew. The kernel cancels the polls of a thread that has ended, and the poller arms
  them again.
* An answer says why the poll was woken, not which events were found then: a wakeup for data is one for
  urgent data too. So the poller arms the poll again at once if an answer shows urgent data.
* In a forked child the queues are the parent's, and must not be touched before `renew`. The ring knows by
  itself that its memory was inherited.

So a turn that has nothing to arm, and no answer in sight, makes no system call.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from whorl.core.callback import current_thread
from whorl.core.kernel.errors import os_error
from whorl.core.limits import EVENTS_PER_POLL, WATCH_RETRY_NS
from whorl.core.pollers.contract import Poller, refuse_in_child
from whorl.core.pollers.epoll import NO_ROOM, mask_of, seen_in
from whorl.core.pollers.io_uring_rings import Ring

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.kernel.kernel import Kernel
    from whorl.core.pollers.contract import IOHandle

URGENT = 0x002  # epoll's EPOLLPRI

#: Results of a sleep that are no errors. After EAGAIN and EBUSY the kernel has taken nothing; we try again.
_PASSING = (-errno.EINTR, -errno.ETIME, -errno.EAGAIN, -errno.EBUSY)

if not cython.compiled:
    from whorl.core.pollers.contract import next_generation


class UringPoller(Poller):
    """Readiness by io_uring (man 7 io_uring). Raises OSError if it does not work."""

    __slots__ = ("_eager", "_generations", "_kernel", "_ring", "_thread", "_to_arm")

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self._generations = 0
        self._to_arm: list[int] = []  # the descriptors whose polls are armed next
        self._eager = False  # whether it arms at once, because another loop sleeps on `fileno`
        self._thread: object = current_thread()  # the thread that armed the polls
        self._ring = Ring()
        self._open()

    def _open(self) -> None:
        code = self._ring.open() if self._kernel.offers_rings else -errno.ENOSYS
        if code < 0:
            raise os_error(code)

    def name(self) -> str:
        """Return the name for `poller_name`."""
        return "io_uring"

    def add(self, handle: IOHandle, interest: int) -> None:
        """Watch the handle's descriptor."""
        if handle._interest:
            self.modify(handle, interest)
            return
        self._check_process()
        fd = handle._fd
        is_known = self._know(fd)
        former = self.find(fd)
        if former is not None:
            if not former._is_idle_watch and is_known:
                raise os_error(errno.EEXIST)
            self.remove(former)  # Its descriptor was closed underneath it, or it gives way.
        self._register(handle, interest)
        self._arm(handle)

    def modify(self, handle: IOHandle, interest: int) -> None:
        """Watch for `interest` from now on."""
        if not handle._interest or interest == 0:
            if handle._interest:
                self.remove(handle)
            elif interest:
                self.add(handle, interest)
            return
        self._check_process()
        self._know(handle._fd)
        if handle._is_armed:
            self._ring.end(handle._fd, handle._generation)
        handle._interest = interest
        self._arm(handle)

    def remove(self, handle: IOHandle) -> None:
        """End the watch; do nothing if the handle is not watched."""
        if not handle._interest:
            return
        fd = handle._fd
        self._unregister(handle)
        if handle._is_armed:
            handle._is_armed = False
            if self._ring.end(fd, handle._generation) == 0:
                self._ring.submit()

    def _check_process(self) -> None:
        if self._ring.is_shared():
            refuse_in_child()

    def _know(self, fd: int) -> bool:
        """Let the ring know the file behind a descriptor; return whether it did before."""
        code = self._ring.know(fd)
        if code < 0:
            raise os_error(code)
        return code > 0

    def _arm(self, handle: IOHandle) -> None:
        """Arm the handle's poll before the next sleep; drop later answers of an earlier watch."""
        self._generations = next_generation(self._generations)
        handle._generation = self._generations
        handle._is_armed = False
        self._to_arm.append(handle._fd)
        if self._eager:
            self._arm_all()
            self._ring.submit()

    def _arm_all(self) -> None:
        """Put the polls to be armed where the kernel will find them.

        A handle whose descriptor means another file by now gets no event until `add` or `modify`.
        """
        to_arm = self._to_arm
        done = 0
        for fd in to_arm:
            handle = self.find(fd)
            if handle is not None and not handle._is_armed and self._ring.knows(fd):
                if self._ring.watch(fd, mask_of(handle._interest, False), handle._generation) < 0:
                    break  # no room and no memory: the next poll tries again
                handle._is_armed = True
            done += 1
        del to_arm[:done]

    def _rearm(self) -> None:
        """Arm again the polls that have answered, also while callbacks ran: those may be out of date."""
        if self._ring.has_answer():
            later = self._to_arm
            self._to_arm = []
            self._collect(None, [])
            self._to_arm += later  # behind the others, so that many always-ready ones starve none
        if self._to_arm:
            self._arm_all()

    def hand_over(self) -> int | None:
        """Arm now if another loop may wait for `fileno`: this loop does not poll for a while."""
        if not self._eager or self._ring.is_shared():
            return None
        self._rearm()
        self._ring.submit()
        return WATCH_RETRY_NS if self._to_arm else None

    def poll(self, timeout_ns: int, into: list[Any]) -> int:
        """Sleep until something is ready; collect it."""
        ring = self._ring
        if ring.is_shared():
            refuse_in_child()
        if self._thread != current_thread():
            self._move()
        self._rearm()
        if timeout_ns != 0:
            code = ring.wait(timeout_ns, self._kernel.blocked_signal)
        elif ring.has_work():
            code = ring.submit()
        else:
            return 0
        if code < 0 and code not in _PASSING:
            raise os_error(code)
        if not ring.has_answer():
            return 0
        doubtful: list[int] = []
        found = self._collect(into, doubtful)
        if doubtful:
            later = self._to_arm
            self._to_arm = doubtful
            self._arm_all()
            ring.submit()
            found += self._collect(into, None)
            self._to_arm += later
        return found

    def _collect(self, into: list[Any] | None, doubtful: list[int] | None) -> int:
        """Take answers, and hand them over unless `into` is None; return how many handles were queued.

        Put answers with urgent data, which may name too many events, into `doubtful` if it is a list.
        """
        ring = self._ring
        found = 0
        while found < EVENTS_PER_POLL and ring.has_answer():
            handle = self.find(ring.fd())
            if handle is not None and handle._is_armed and handle._generation == ring.generation():
                result = ring.result()
                again = self._to_arm
                if result > 0 and into is not None:
                    if result & URGENT and doubtful is not None:
                        again = doubtful
                    elif ring.knows(handle._fd):
                        self._saw(handle, seen_in(result), into)
                        found += 1
                handle._is_armed = False
                again.append(handle._fd)
            ring.next()
        return found

    def _move(self) -> None:
        """Arm all polls anew, as this thread."""
        self._thread = current_thread()
        for handle in self.handles():
            if handle._is_armed:
                self._ring.end(handle._fd, handle._generation)
                self._arm(handle)

    def renew(self) -> None:
        """Watch the same handles with new queues of this process; the parent's stay as they are."""
        self._ring.close()
        self._open()
        self._thread = current_thread()
        self._to_arm.clear()
        for handle in self.handles():
            if self._ring.know(handle._fd) in NO_ROOM:
                raise os_error(errno.ENOMEM)  # Another call does it all again.
            self._arm(handle)

    def close(self) -> None:
        """Close the ring, and release all watched files at once."""
        if not self._ring.is_shared():
            for handle in self.handles():
                if handle._is_armed:
                    self._ring.end(handle._fd, handle._generation)
            self._ring.submit()
        self._ring.close()
        self._table = []
        self._to_arm.clear()

    def fileno(self) -> int:
        """Return the ring's descriptor, which is readable when something is ready."""
        if not self._eager:
            self._eager = True
            self.hand_over()
        return self._ring.fileno()
