"""The poller's contract: the interface between the loop and a kernel interface for readiness.

A poller watches descriptors for their handles and *collects*. `poll` sleeps until something is ready or
the timeout passed. It notes the seen events on each handle and appends the handle to a queue. No user
code runs inside `poll`.

* `add(handle, interest)` watches `handle._fd`; one handle per descriptor. If the handle's `_edge` is set,
  it gets each change once (edge-triggered), and also the events that are there when it is added or
  modified. Only a poller that is `edge_triggered` can do that. A handle with `_is_idle_watch` gives way
  to another handle on its descriptor.
* `modify` changes the interest, `remove` ends the watch. After `remove` the handle is never appended again,
  also if the kernel still holds an event for its descriptor. A generation number tells it from a later handle
  on the same descriptor.
* `remove_later(handle)` is `remove` for a descriptor that stays open, and that is likely to be watched again
  soon. The kernel may be told as late as before the next sleep.
* `forget(handle)` is `remove` for a handle that no program knows, and whose descriptor is closed within a
  turn. The kernel ends such a watch by itself.
* `take_over(handle, former)` gives an edge-triggered watch to another handle on the same open file.
* `poll(timeout_ns, into)`: 0 does not sleep, -1 sleeps without limit. A signal may end it early, and the
  loop runs its handler.
  It returns the number of handles that it appended.
* `edge_triggered`, `can_keep_idle_watches` and `can_spin` are the capabilities of a poller. The loop reads
  no other attribute, besides `skips`.
* `fileno` returns the same descriptor for as long as the poller lives, so that the owner of another loop may
  wait for it. `hand_over` is called when the loop leaves the polling to that owner. While the system
  has no room for a watch, it returns after which time the owner lets the loop poll anyway.
* `leave_to_parent` is called in a forked child, which must not take events or watches from its parent.
  `renew` lets the poller go on there, with a kernel object of its own.
* `skips` knows which polls a busy loop may skip. The poller reports what its polls found. Code that watches
  another descriptor, or sends data that may come back to this loop, expects events. A poller that reports
  nothing is polled in every turn. `Poller.__init__` makes it.

Errors of the kernel are raised as `OSError`. A new kernel interface is one more small module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from whorl.core import states
from whorl.core.copying import refuse_copy
from whorl.core.handle import Handle
from whorl.core.pollers.skips import PollSkips

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.callback import AbstractLoop


def refuse_in_child() -> NoReturn:
    """Raise RuntimeError: this process was forked, and the loop is its parent's."""
    raise RuntimeError("This event loop was made before a fork and cannot run in the child")


if not cython.compiled:

    def watcher(poller: Poller, fd: int) -> IOHandle | None:
        """Return the handle that watches a descriptor, or None."""
        table, place = poller._table, fd - poller._first
        found: IOHandle | None = table[place] if 0 <= place < len(table) else None
        return found

    def next_generation(generation: int) -> int:
        """Return the number after a generation, of 32 bits."""
        return (generation + 1) & 0xFFFFFFFF

    def saw(handle: IOHandle, seen: int, into: list[Any]) -> None:
        """Note events on the handle and queue it, once."""
        handle._seen |= seen
        if not handle._queued:
            into.append(handle)  # This may find no memory.
            handle._queued = True


class IOHandle(Handle):
    """A handle with a descriptor that the poller watches (libuv: ``uv__io_t``).

    The handle is its own event: the poller appends it to the queue. In its turn, `_on_events` is called
    with the events seen since the last time.
    """

    def _set_up(self, loop: AbstractLoop) -> None:
        Handle._set_up(self, loop)
        self._fd = -1
        self._interest = 0  # the events that the poller watches for; 0: not watched
        self._seen = 0  # events collected and not yet handed over
        self._queued = False  # whether it stands in a queue of the loop
        self._is_idle_watch = False  # whether it is watched, and gives way to another handle on its fd
        self._edge = False  # whether it is watched edge-triggered
        self._generation = 0  # distinguishes it from earlier users of its descriptor

    def fileno(self) -> int:
        """Return the descriptor, or -1 (libuv: ``uv_fileno``)."""
        return self._fd

    def _execute(self) -> None:
        seen = self._seen
        self._seen = 0
        self._queued = False
        if self._handle_state == states.OPEN:
            self._on_events(seen)

    def _on_events(self, seen: int) -> None:
        """Handle the events in `seen`; subclasses override this."""


class Poller:
    """The base of all pollers: their capabilities, and the table of handles by descriptor."""

    __reduce__ = refuse_copy

    def __init__(self) -> None:
        self.edge_triggered: bool = False  # whether it can report each change once
        self.can_keep_idle_watches: bool = False  # whether a watch may stay for a while when no task waits
        self.can_spin: bool = False  # whether `Kernel.spin_ns` has an effect
        self.skips: PollSkips = PollSkips()
        self._table: list[Any] = []  # the handles that are watched, by descriptor from `_first` on
        self._first = 0

    def add(self, handle: IOHandle, interest: int) -> None:
        """Watch the handle's descriptor."""
        raise NotImplementedError

    def modify(self, handle: IOHandle, interest: int) -> None:
        """Watch for `interest` from now on."""
        raise NotImplementedError

    def remove(self, handle: IOHandle) -> None:
        """End the watch; do nothing if the handle is not watched."""
        raise NotImplementedError

    def remove_later(self, handle: IOHandle) -> None:
        """End the watch; the kernel may be told before the next sleep."""
        self.remove(handle)

    def forget(self, handle: IOHandle) -> None:
        """End the watch of a handle whose descriptor is about to be closed."""
        self.remove(handle)

    def take_over(self, handle: IOHandle, former: IOHandle) -> None:
        """Watch the descriptor of `former`, which is watched edge-triggered, for `handle` from now on."""
        handle._generation = former._generation
        interest = former._interest
        self._unregister(former)
        self._register(handle, interest)

    def poll(self, timeout_ns: int, into: list[Any]) -> int:
        """Sleep until something is ready; collect it."""
        raise NotImplementedError

    def hand_over(self) -> int | None:
        """Let `fileno` become readable at events from now on: there will be no poll for a while.

        Return the longest time until the next poll, in nanoseconds; None: there is no limit.
        """
        return None

    def leave_to_parent(self) -> None:
        """Leave the kernel's object to the parent until `renew`: this process was forked.

        From now on `add`, `modify` and `poll` raise RuntimeError, and `remove` tells the kernel nothing.
        """

    def renew(self) -> None:
        """Watch the same handles with a new kernel object: this process was forked."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the kernel's object back."""
        raise NotImplementedError

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` would find something, or -1."""
        return -1

    def name(self) -> str:
        """Return the name of this poller for `poller_name`."""
        return type(self).__name__

    def find(self, fd: int) -> IOHandle | None:
        """Return the handle that watches a descriptor, or None."""
        return watcher(self, fd)

    def handles(self) -> list[IOHandle]:
        """Return all watched handles, in order of their descriptors."""
        return [handle for handle in self._table if handle is not None]

    def _register(self, handle: IOHandle, interest: int) -> None:
        """Enter the handle in the table, with its interest."""
        table = self._table
        if not table:
            self._first = handle._fd
        elif handle._fd < self._first:
            table[:0] = [None] * self._first
            self._first = 0
        place = handle._fd - self._first
        missing = place + 1 - len(table)
        if missing > 0:
            table.extend([None] * max(missing, 64))
        table[place] = handle
        handle._interest = interest
        self.skips.expect_events()

    def _unregister(self, handle: IOHandle) -> None:
        """Forget the handle, and its seen events."""
        if self.find(handle._fd) is handle:
            self._table[handle._fd - self._first] = None
        handle._interest = 0
        handle._seen = 0
        handle._is_idle_watch = False

    def _saw(self, handle: IOHandle, seen: int, into: list[Any]) -> None:
        """Note events on the handle and queue it, once."""
        saw(handle, seen, into)
