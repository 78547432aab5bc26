"""The poller over Linux's epoll.

Some facts about epoll:

* It watches *open files*, not descriptors. When a descriptor is closed while a duplicate lives (in a child,
  or by `dup`), the watch stays. It can no longer be removed by that number, and would report events for ever.
* A descriptor number may be used again at once, so an event may arrive for a number that means
  another file by now.
* Edge-triggered watches report a change once, and again after every new change; asked for both
  directions they never need to be modified.

So each event carries the generation of the watch beside the descriptor, and the poller drops events of
another generation. If the kernel then refuses to end such a stale watch, the poller builds the whole set
anew. No other way removes it. A host that waits for this loop watches an *outer* epoll (`fileno`). It holds
the set, and stays the same when the set is built anew.

To add a descriptor and to remove it take five times as long as to change its watch. So `remove_later` leaves
the kernel's watch as it is, for one descriptor at a time, until the loop sleeps. If the descriptor is added
before that, its watch is changed. This is exact:

* The former handle has left the table, so an event of the kernel's watch finds no handle, or one of another
  generation. It is stale, as above.
* A number that was closed and used again means another open file. The kernel does not find that file in the
  set, refuses to change its watch, and the poller adds it.
* The descriptor may be closed before the sleep while a duplicate lives (by `dup`, or in a forked child). The
  watch stays, as if the descriptor had been closed underneath its handle. Its first event ends it.
* A forked child shares the set. It does not poll before `renew`, which makes a new one.
* Events of such a watch would wake a host for nothing. So once `fileno` was asked for, every watch ends at
  once.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from whorl.core import limits, states
from whorl.core.kernel.errors import os_error
from whorl.core.kernel.kernel import EventBatch
from whorl.core.pollers.contract import Poller, refuse_in_child

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.kernel.kernel import Kernel
    from whorl.core.pollers.contract import IOHandle


# From <sys/epoll.h>: part of the kernel's interface, the same on all architectures.
EPOLLIN = 0x001
EPOLLPRI = 0x002
EPOLLOUT = 0x004
EPOLLERR = 0x008
EPOLLHUP = 0x010
EPOLLRDHUP = 0x2000
EPOLLET = 1 << 31
ADD = 1
DEL = 2
MOD = 3

NO_ROOM = (-errno.ENOSPC, -errno.ENOMEM)

# The poller has no set because it was closed, because there was no descriptor for a new one, or because the
# set is the parent's.
CLOSED = -1
LOST = -2
INHERITED = -3


def mask_of(interest: int, edge: bool) -> int:
    """Return the kernel's mask for an interest."""
    mask = EPOLLET if edge else 0
    if interest & states.READABLE:
        mask |= EPOLLIN
    if interest & states.WRITABLE:
        mask |= EPOLLOUT
    if interest & states.DISCONNECT:
        mask |= EPOLLRDHUP
    if interest & states.PRIORITIZED:
        mask |= EPOLLPRI
    return mask


def seen_in(mask: int) -> int:
    """Return the events in a kernel's mask."""
    seen = 0
    if mask & EPOLLIN:
        seen |= states.READABLE
    if mask & EPOLLOUT:
        seen |= states.WRITABLE
    if mask & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI):
        if mask & EPOLLRDHUP:
            seen |= states.DISCONNECT
        if mask & EPOLLHUP:
            seen |= states.HANGUP
        if mask & EPOLLERR:
            seen |= states.ERROR
        if mask & EPOLLPRI:
            seen |= states.PRIORITIZED
    return seen


if not cython.compiled:
    from whorl.core.kernel.kernel import batch_fd, batch_generation, batch_mask
    from whorl.core.pollers.contract import next_generation, saw, watcher


class EpollPoller(Poller):
    """Readiness by epoll (man 7 epoll)."""

    def __init__(self, kernel: Kernel) -> None:
        Poller.__init__(self)
        self.edge_triggered: bool = kernel.keeps_edges
        self.can_spin = True
        # A simulated world counts the calls.
        self.can_keep_idle_watches: bool = kernel.keeps_edges or kernel.may_skip_polls
        self._may_skip_polls = kernel.may_skip_polls
        self._kernel = kernel
        self._events = EventBatch()
        self._generations = 0
        self._ended = -1  # a descriptor that only the kernel still watches
        # Uncompiled, the events of two watches of one number look the same.
        self._ends_later = kernel.keeps_edges and kernel.may_skip_polls
        self._refused: list[IOHandle] = []  # the handles that the kernel had no room for in the new set
        self._outer = -1  # the epoll that holds the set for hosts, once there is one
        self._inherited = -1  # the set that is the parent's, in a forked child
        self._epfd = LOST  # the set, or CLOSED, LOST or INHERITED
        self._open()

    def _open(self) -> None:
        """Make a set. If this raises, the next use of the poller tries again."""
        epfd = self._new_epoll()
        if self._outer >= 0:
            self._put_into(self._outer, epfd, epfd)
        self._epfd = epfd

    def _new_epoll(self) -> int:
        epfd = self._kernel.epoll_create()
        if epfd < 0:
            raise os_error(epfd)
        return epfd

    def _put_into(self, outer: int, epfd: int, made: int) -> None:
        """Let the outer epoll be readable when the set is; if that fails, close the one just made."""
        result = self._kernel.epoll_ctl(outer, ADD, epfd, EPOLLIN, 0)
        if result < 0:
            self._kernel.close(made)
            raise os_error(result)

    def _find_set(self) -> None:
        """Make the set that there was no descriptor for; raise if there shall be none."""
        if self._epfd == INHERITED:
            refuse_in_child()
        if self._epfd == CLOSED:
            raise os_error(-errno.EBADF)
        self._rebuild()

    def add(self, handle: IOHandle, interest: int) -> None:
        """Watch the handle's descriptor."""
        if handle._interest:
            self.modify(handle, interest)
            return
        if self._epfd < 0:
            self._find_set()
        generation = next_generation(self._generations)
        mask = mask_of(interest, handle._edge)
        former = watcher(self, handle._fd)
        # An idle watch gives way. If the number means another file by now, the kernel does not know it.
        first = ADD
        if handle._fd == self._ended:
            self._ended = -1
            first = MOD
        elif former is not None and former._is_idle_watch:
            first = MOD
        result = self._kernel.epoll_ctl(self._epfd, first, handle._fd, mask, generation)
        if result == -errno.ENOENT and first == MOD:
            result = self._kernel.epoll_ctl(self._epfd, ADD, handle._fd, mask, generation)
        elif result == -errno.EEXIST and former is None:
            # The watch outlived a handle whose descriptor was closed.
            result = self._kernel.epoll_ctl(self._epfd, MOD, handle._fd, mask, generation)
        if result < 0:
            raise os_error(result)
        if former is not None:
            # The former handle's descriptor was closed underneath it, and the number means another file now.
            self._unregister(former)
        self._generations = generation
        handle._generation = generation
        self._register(handle, interest)

    def modify(self, handle: IOHandle, interest: int) -> None:
        """Watch for `interest` from now on."""
        if not handle._interest or interest == 0:
            if handle._interest:
                self.remove(handle)
            elif interest:
                self.add(handle, interest)
            return
        if self._epfd < 0:
            self._find_set()
        mask = mask_of(interest, handle._edge)
        result = self._kernel.epoll_ctl(self._epfd, MOD, handle._fd, mask, handle._generation)
        if result == -errno.ENOENT:
            # The descriptor was closed and opened again underneath the handle.
            result = self._kernel.epoll_ctl(self._epfd, ADD, handle._fd, mask, handle._generation)
        if result < 0:
            raise os_error(result)
        handle._interest = interest
        self.skips.expect_events()

    def remove(self, handle: IOHandle) -> None:
        """End the watch; do nothing if the handle is not watched."""
        if not handle._interest:
            return
        fd = handle._fd
        self._unregister(handle)
        if self._epfd >= 0:
            # The result does not matter: if the descriptor is gone, the watch is gone too, or stale.
            self._kernel.epoll_ctl(self._epfd, DEL, fd, 0, 0)

    def remove_later(self, handle: IOHandle) -> None:
        """End the watch; tell the kernel before the next sleep, unless the descriptor is added by then."""
        if not self._ends_later:
            self.remove(handle)
        elif handle._interest:
            fd = handle._fd
            self._unregister(handle)
            self._end_watch()
            self._ended = fd

    def _end_watch(self) -> None:
        """End the kernel's watch that is left of `remove_later`."""
        if self._ended >= 0 and self._epfd >= 0:
            self._kernel.epoll_ctl(self._epfd, DEL, self._ended, 0, 0)
        self._ended = -1

    def forget(self, handle: IOHandle) -> None:
        """End the watch of a handle whose descriptor is about to be closed: the kernel then ends its watch.

        An event that comes before is stale, and ends the watch, too.
        """
        if self._may_skip_polls and self.edge_triggered:
            self._unregister(handle)
        else:
            self.remove(handle)

    def poll(self, timeout_ns: int, into: list[Any]) -> int:
        """Sleep until something is ready; collect it."""
        events = self._events
        if timeout_ns != 0 and self._ended >= 0:
            self._end_watch()
        if self._epfd < 0:
            self._find_set()
        if self._refused:
            timeout_ns = self._watch_refused(timeout_ns)
        try:
            count = self._kernel.epoll_wait(self._epfd, timeout_ns, events)
            if count <= 0:
                if count < 0 and count != -errno.EINTR:
                    raise os_error(count)
                if timeout_ns != 0 or not self._may_skip_polls:
                    self.skips.expect_events()
                else:
                    self.skips.found_nothing()
                return 0
            self.skips.expect_events()
            found = self._collect(min(count, len(events)), into)
            if found > 0 and timeout_ns != 0 and self._may_skip_polls:
                if not into:
                    self.skips.found_wakeup()
                elif found == 1:
                    self.skips.found_one_event()
            return found
        except BaseException:
            self._rearm()
            raise

    def _collect(self, count: int, into: list[Any]) -> int:
        """Note `count` events on their handles, and queue these; return the number of handles found."""
        events = self._events
        found = 0
        for index in range(count):
            fd = batch_fd(events, index)
            handle = watcher(self, fd)
            if handle is None or handle._generation != batch_generation(events, index):
                self._stale(fd)
                continue
            found += 1
            saw(handle, seen_in(batch_mask(events, index)), into)
        return found

    def _rearm(self) -> None:
        """Let every edge be reported once more: a signal handler raised when some had been handed over."""
        for handle in self.handles():
            if handle._edge and self._epfd >= 0:
                mask = mask_of(handle._interest, True)
                self._kernel.epoll_ctl(self._epfd, MOD, handle._fd, mask, handle._generation)

    def _stale(self, fd: int) -> None:
        """End the watch of a handle that is gone."""
        if fd == self._ended:
            self._ended = -1
        if self.find(fd) is None and self._kernel.epoll_ctl(self._epfd, DEL, fd, 0, 0) == 0:
            return
        self._rebuild()

    def _rebuild(self) -> None:
        """Watch the same handles with a new epoll: the only way out of stale watches.

        The old epoll is closed first, so that the new one takes its number. It must not take the number
        that was closed underneath a handle: its owner may close that once more.
        """
        if self._epfd >= 0:
            if self._outer >= 0:  # A forked child may keep the old set open.
                self._kernel.epoll_ctl(self._outer, DEL, self._epfd, 0, 0)
            self._kernel.close(self._epfd)
        self._epfd = LOST
        self._ended = -1
        self._open()
        self._refused = []
        for handle in self.handles():
            self._watch(handle)

    def _watch(self, handle: IOHandle) -> None:
        """Watch a handle of the table in a new set. If the kernel has no room, the next poll tries again.

        Any other error means that the descriptor was closed, and that its number may mean another file.
        """
        mask = mask_of(handle._interest, handle._edge)
        result = self._kernel.epoll_ctl(self._epfd, ADD, handle._fd, mask, handle._generation)
        if result in NO_ROOM:
            self._refused.append(handle)

    def _watch_refused(self, timeout_ns: int) -> int:
        """Ask again for the watches that the kernel had no room for; return how long the poll may sleep."""
        refused, self._refused = self._refused, []
        for handle in refused:
            if handle._interest and self.find(handle._fd) is handle:
                self._watch(handle)
        if self._refused and not 0 <= timeout_ns < limits.WATCH_RETRY_NS:
            return limits.WATCH_RETRY_NS
        return timeout_ns

    def hand_over(self) -> int | None:
        """Bring back the set and the watches that are missing, if a host waits for them."""
        if self._outer < 0:
            return None
        if self._epfd == LOST:
            try:
                self._rebuild()
            except OSError:  # There is no descriptor. The next poll says so.
                pass
        elif self._refused:
            self._watch_refused(-1)
        return limits.WATCH_RETRY_NS if self._epfd == LOST or self._refused else None

    def leave_to_parent(self) -> None:
        """Touch the set no more: this process was forked, and its parent has the same set."""
        if self._epfd >= 0:
            self._inherited = self._epfd
            self._epfd = INHERITED
            self._ended = -1

    def renew(self) -> None:
        """Watch the same handles with a new epoll of this process; the parent's stays as it is."""
        had_outer = self._outer >= 0
        self._close_all()
        self._rebuild()
        if had_outer:
            self.fileno()

    def close(self) -> None:
        """Give the kernel's objects back."""
        self._close_all()
        self._refused = []
        self._epfd = CLOSED
        self._table = []

    def _close_all(self) -> None:
        """Close the set, or the parent's, and the one for hosts."""
        for epfd in (self._epfd, self._inherited, self._outer):
            if epfd >= 0:
                self._kernel.close(epfd)
        self._epfd = LOST
        self._inherited = self._outer = -1

    def name(self) -> str:
        """Return the name for `poller_name`."""
        return "epoll"

    def fileno(self) -> int:
        """Return the descriptor of the outer epoll, which is readable when something is ready."""
        self._end_watch()
        self._ends_later = False
        if self._outer < 0 and self._epfd != CLOSED:
            if self._epfd < 0:
                self._find_set()
            outer = self._new_epoll()
            self._put_into(outer, self._epfd, outer)
            self._outer = outer
        return self._outer
