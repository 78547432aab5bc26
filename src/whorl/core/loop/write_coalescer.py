"""Collecting: small writes of a turn's callbacks wait for one another, and leave together.

A loop collects writes only if the program asks for it. An answer that a server sends at once may wake a
sleeping client, and waking costs the server more than the send itself. Answers that leave one right after
the other wake the client once.

    callback writes -> hold() -> the handle's own queue, and the list here
    callback ends   -> callback_ended() -> send_all(), once more handles hold something than callbacks wait

So the last callback of a turn sends at once, and so does the only one: no write waits in vain. The answers
of a turn leave in shrinking halves, and the peers work while the rest of the turn runs.

**The duty.** For the program, held data is written already. So a handle sends it, by `_flush_held`, before
it does or returns anything that the program or the peer could compare with it. `SENDERS` names the public
methods of a stream transport that do so; the others may wait, or queue behind the held data. All held data
leaves before a fork, before a program starts, before an error is reported, and before a descriptor is
handed out.
"""

from __future__ import annotations

from typing import Any

from whorl.core.handle import Handle
from whorl.core.kernel.kernel import Kernel
from whorl.core.limits import LONGEST_HELD_TICKS, SMALL_WRITE

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    from whorl.core.callback import thread_ident
    from whorl.core.lists import last_taken

#: The public methods of a stream transport that send held data before they do anything.
SENDERS = frozenset(
    "abort close fileno get_write_buffer_size set_write_buffer_limits write_eof writelines".split()
)


class WriteCoalescer:
    """The writes that a loop's handles hold until other callbacks of the turn have run."""

    __slots__ = ("_behind", "_held", "_kernel", "_resumes", "_since", "_thread", "is_on")

    def __init__(self, kernel: Kernel) -> None:
        self.is_on: bool = False  # whether the program asked for it
        self._resumes = False  # whether to collect after a fork
        self._kernel = kernel
        self._behind = 0  # the number of callbacks of the turn that wait behind the running one
        self._held: list[Handle] = []
        self._since = 0  # the time of the first held write, in ticks
        self._thread = 0  # the thread that runs the callbacks

    # The questions of a handle.

    def hold(self, handle: Any, size: int) -> bool:
        """Return whether a handle may hold its first write until `_flush_held`; if so, list the handle.

        It may not outside of callbacks, in other threads, or if no callback waits behind the running one.
        """
        if not self.is_on or size > SMALL_WRITE or self._thread != thread_ident():
            return False
        if not self._behind:
            self.send_all()  # Others have written before.
            return False
        if not self._held:
            self._since = self._kernel.ticks()
        self._held.append(handle)
        return True

    def is_late(self) -> bool:
        """Return whether the held data has waited long enough."""
        return not 0 <= self._kernel.ticks() - self._since <= LONGEST_HELD_TICKS

    # The calls of the loop.

    def batch_began(self) -> None:
        """Note that callbacks of a turn begin to run, in this thread."""
        self._thread = thread_ident()

    def callback_begins(self, behind: int) -> None:
        """Note that a callback begins to run, and that `behind` callbacks of the turn wait behind it."""
        self._behind = behind

    def callback_ended(self) -> None:
        """Send the held data if more handles hold some than callbacks wait, or if it has waited long."""
        if self._held and (len(self._held) > self._behind or not self.is_on or self.is_late()):
            self.send_all()

    def batch_ended(self) -> None:
        """Send the held data: from now on no callback runs."""
        self._behind = 0
        self.send_all()

    def fork_begins(self) -> None:
        """Send the held data, so that only one process sends it; the child of the fork collects nothing."""
        self.send_all()
        self._resumes, self.is_on = self.is_on, False

    def fork_ended(self) -> None:
        """Collect again: in the parent, or in a child that keeps running the loop."""
        self.is_on = self._resumes

    def send_all(self) -> None:
        """Send the held data, in the order in which the handles wrote first."""
        held = self._held
        if not held:
            return
        handle: Any = None
        if len(held) > 1:
            held.reverse()
        try:
            while held:
                handle = last_taken(held)
                handle._flush_held()
        except BaseException:  # an interrupt
            if handle is not None:
                held.append(handle)  # It sends nothing twice.
            held.reverse()
            raise
