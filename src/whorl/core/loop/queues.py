"""What waits to run: queues, and how entries get into them from callbacks, handles and other threads."""

from __future__ import annotations

import collections
from typing import Any

from whorl.core.callback import Runnable, current_thread
from whorl.core.handle import Completion, LateCompletion
from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.state import LoopState
from whorl.core.process.host import Host

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython


class LoopQueues(LoopState):
    """The part of a loop that keeps what is to run, and is woken for it."""

    __slots__ = (
        "_async_handles",
        "_asyncs_made",
        "_emptied",
        "_guards_posts",
        "_inbox",
        "_last_run_thread",
        "_may_sleep",
        "_pending",
        "_polled",
        "_posted",
        "_ready_queue",
        "_sent_async",
        "_spare",
        "_spare_pending",
        "_woken",
    )

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        LoopState._set_up(self, kernel, host)
        self._ready_queue: list[Runnable] = []
        self._spare: list[Runnable] = []  # the list `_ready_queue` changes places with
        self._pending: list[Runnable] = []
        self._spare_pending: list[Runnable] = []  # the list `_pending` changes places with
        self._polled: list[Runnable] = []  # what the machine's poll brought
        self._inbox: Any = [] if cython.compiled else collections.deque()
        self._emptied: list[Runnable] = []  # compiled, the list `_inbox` changes places with
        self._posted = False  # whether something may have arrived since the loop took what there was
        self._async_handles: dict[Any, None] = {}  # the open ones, in the order in which they are called
        self._asyncs_made = 0
        self._sent_async: Runnable | None = None  # one that was sent: it calls all that were
        self._guards_posts = False  # whether cancelling a posted callback waits while it is running
        self._last_run_thread = current_thread()  # the thread that ran it last, or made it
        self._may_sleep = False  # from before the timeout is decided until the poll is over
        self._woken = False  # whether the wakeup was written since the last poll

    # The loop's own thread.

    def _enqueue(self, entry: Runnable) -> None:
        """Let an entry run in the next turn, in order with `call_soon`."""
        if self._closed:
            self._check_closed()
        if self._debug:
            self._check_thread()
        if self._posted:
            self._drain_inbox(self._ready_queue)  # what was posted earlier comes earlier
        self._ready_queue.append(entry)

    def _queue_pending(self, entry: Runnable) -> None:
        """Owe an entry: it runs in the pending phase, or in asyncio's next turn."""
        self._pending.append(entry)
        if self._may_sleep:
            self._end_sleep()

    def _unqueue_pending(self, entry: Runnable) -> None:
        """Owe an entry no longer."""
        if entry in self._pending:
            self._pending.remove(entry)

    def _collect_pending(self, into: list[Runnable]) -> None:
        """Append the entries that are owed."""
        into.extend(self._pending)
        self._pending.clear()

    # Other threads, and signal handlers.

    def _post(self, entry: Runnable) -> None:
        """Queue an entry from any thread, or from a signal handler, in order with `call_soon`."""
        if thread_number() == self._last_run_thread:
            self._ready_queue.append(entry)
        else:  # as `_post_from_any_thread` does, without a look at what a subclass may have in its place
            self._inbox.append(entry)
            self._posted = True
        self._end_sleep()

    def _post_from_any_thread(self, entry: Runnable) -> None:
        """Let the next poll hand over an entry; from any thread, or from a signal handler."""
        self._inbox.append(entry)
        self._posted = True
        self._end_sleep()

    def _async_sent(self, handle: Runnable) -> None:
        """Have an async run after the next poll; from any thread, or from a signal handler."""
        self._sent_async = handle
        self._posted = True
        self._end_sleep()

    def _end_sleep(self) -> None:
        """End the loop's sleep, if it sleeps or is about to.

        Entries are queued first and the flags are read afterwards; the loop raises `_may_sleep`
        first and looks at the queues afterwards. So one of the two always sees the other.
        """
        if self._may_sleep and not self._woken:
            self._woken = True
            try:
                self._wake()
            except BaseException:  # An interrupt: the next call must not rely on this one.
                self._woken = False
                raise

    def _wake(self) -> None:
        """Write the wakeup."""

    def _drain_inbox(self, into: list[Runnable]) -> None:
        """Append what other threads posted, but not what they post meanwhile: that may have no end.

        Asyncs come after it, as in libuv, and all at once, those that the others send among them; signals
        come last.
        """
        self._posted = False
        late: list[Runnable] = []
        index = len(into)
        swap_inbox(self, into)
        while index < len(into):
            entry = into[index]
            if type(entry) is LateCompletion:
                late.append(entry)
                del into[index]
            else:
                index += 1
        sent = self._sent_async
        self._sent_async = None
        if sent is not None:
            into.append(sent)
        elif self._async_handles:
            into.append(next(iter(self._async_handles)))
        into.extend(late)
        if self._may_sleep:
            self._end_sleep()

    def _drop_completions(self) -> None:
        """Tell the requests whose end nobody will hear of; other threads may still post some."""
        owed = self._ready_queue + self._pending + self._polled
        while self._inbox:
            swap_inbox(self, owed)
        for entry in owed:
            if isinstance(entry, Completion):
                entry.drop()


if not cython.compiled:
    thread_number = current_thread

    def swap_inbox(loop: LoopQueues, into: list[Any]) -> None:
        """Append what other threads have posted by now; between two steps of this they may post more."""
        for _ in range(len(loop._inbox)):
            into.append(loop._inbox.popleft())
