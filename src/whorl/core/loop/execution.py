"""What waits to run, and running it: one batch after another, each to its end whatever a callback raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whorl.core.callback import Callback, GuardedCallback, Runnable, current_thread
from whorl.core.handle import Completion, LateCompletion
from whorl.core.kernel.kernel import Kernel
from whorl.core.limits import ENTRIES_AHEAD
from whorl.core.loop.state import LoopState
from whorl.core.loop.write_coalescer import WriteCoalescer
from whorl.core.process.host import Host

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    from whorl.core.callback import (
        fetch,
        has_single_reference,
        recycle_guarded,
        reraise_pending,
        run_catching,
    )
    from whorl.core.lists import empty, only_one, taken


class LoopExecution(LoopState):
    """The part of a loop that queues entries and runs them."""

    __slots__ = ("_collector", "_current_entry", "_passes", "_runner")

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        LoopState._set_up(self, kernel, host)
        self._passes = 0  # how many passes over idle, prepare or check handles there were
        self._current_entry: Runnable | None = None  # what runs, in debug mode or with a probe
        # Called with the loop and each entry, to run it by `_run_entry`; None: entries are run at once.
        self._runner: Callable[[Any, Runnable], object] | None = None
        self._collector = WriteCoalescer(self._kernel)

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

    # Running.

    def _run_ready(self) -> None:
        """Run exactly what is ready now; what that makes ready waits for the next turn."""
        batch = self._ready_queue
        if not batch:
            return
        if self._probe is not None:
            self._notify_probe("turn_began", self._turns, len(batch))
        elif not self._debug and self._runner is None:
            entry = only_one(batch, Callback)
            if entry is not None:
                run_alone(self, entry)
                return
        self._ready_queue = self._spare
        self._spare = batch
        self._run_batch(batch, self._ready_queue)

    def _run_pending(self) -> None:
        """Run exactly what is owed now; what comes meanwhile waits for the next round."""
        if self._pending:
            batch = self._pending
            self._pending = self._spare_pending
            self._spare_pending = batch
            self._run_batch(batch, self._pending)

    def _run_timers(self) -> None:
        """Call the timers that are due by now; those that are started meanwhile wait."""
        due: list[Any] = []
        try:
            self._collect_timers(due)
        except BaseException:  # an interrupt
            self._pending.extend(due)
            raise
        if due:
            self._run_batch(due, self._pending)

    def _run_phase(self, handles: list[Any]) -> None:
        """Call each handle of a phase; those started meanwhile wait for the next pass."""
        self._passes += 1
        this_pass = self._passes
        for handle in list(handles):
            if handle.is_active() and handle._started_in < this_pass:
                self._run_batch([handle], self._pending)

    def _run_closing(self) -> None:
        """The second step of closing; as in libuv, the handle that was closed last comes first."""
        closing = self._closing_handles
        self._closing_handles = []
        try:
            while closing:
                handle = closing.pop()
                try:
                    handle._finish_close()
                except BaseException as error:
                    self._callback_failed(handle, error)
                if self._probe is not None:
                    self._notify_probe("handle_closed", handle)
        finally:
            if closing:  # an error ends the run
                self._closing_handles.extend(closing)

    def _run_batch(self, batch: list[Any], queue: list[Any]) -> None:
        """Run all of `batch`, and empty it; if an error ends the run, the rest goes to `queue`."""
        size = len(batch)
        done = 0
        watched = self._debug or self._probe is not None or self._runner is not None
        self._callbacks += size
        collector = self._collector
        collects = collector.is_on
        if not cython.compiled:
            entry: Any = None  # An interrupt may come before the first one is there.
        try:
            if collects:
                collector.batch_began()
            while done < size:
                try:
                    for index in range(done, size):
                        done = index + 1
                        if collects:
                            collector.callback_begins(size - done)
                        fetch(batch, index + ENTRIES_AHEAD)
                        entry = taken(batch, index)
                        if watched:
                            self._run_instrumented(entry)
                        elif not cython.compiled:
                            entry._execute()  # with no other frame that a traceback could keep
                        elif type(entry) is Callback:
                            if not run_catching(entry, False):
                                reraise_pending()
                        elif type(entry) is not GuardedCallback:
                            entry._execute()
                        elif has_single_reference(entry):  # but by this: nobody can cancel it
                            if not run_catching(entry, True):
                                reraise_pending()
                        else:
                            entry._execute()
                            recycle_guarded(entry)
                        if collects:
                            collector.callback_ended()
                except BaseException as error:
                    self._report_callback_error(entry, error)
        finally:
            if not cython.compiled:
                entry = None  # A traceback may keep this frame, which must not keep what failed a task.
            if done < size:
                self._callbacks -= size - done
                queue[:0] = batch[done:]
            empty(batch)
            if collects:
                collector.batch_ended()

    def _report_callback_error(self, entry: Runnable, error: BaseException) -> None:
        self._collector.batch_ended()  # What the exception handler writes is not held, either.
        self._callback_failed(entry, error)

    def _run_instrumented(self, entry: Runnable) -> None:
        """Run one entry with somebody looking: in debug mode, with a probe, or by a runner."""
        began = self._clock() if self._debug else self._kernel.now()
        self._current_entry = entry
        try:
            if self._runner is None:
                entry._execute()
            else:
                self._runner(self, entry)
        finally:
            self._current_entry = None
            took = (self._clock() if self._debug else self._kernel.now()) - began
            if self._probe is not None:
                self._notify_probe("callback_ran", entry, took)
            if self._debug:
                self._callback_ran(entry, took)
            del entry  # Uncompiled, a traceback keeps this frame: it must not keep a failed task too.

    def _run_entry(self, entry: Runnable) -> None:
        """Run one entry, for the runner."""
        entry._execute()


def run_alone(loop: LoopExecution, entry: Callback) -> None:
    """Run the only entry of a turn: what `_run_batch` does, without what batches need."""
    loop._callbacks += 1
    if not run_catching(entry, False):
        attempt_failed(loop, entry)


def attempt_failed(loop: LoopExecution, entry: Callback) -> None:
    """Report the error that an attempt has left."""
    try:
        reraise_pending()
    except BaseException as error:
        loop._report_callback_error(entry, error)


if not cython.compiled:
    thread_number = current_thread

    def swap_inbox(loop: LoopExecution, into: list[Any]) -> None:
        """Append what other threads have posted by now; between two steps of this they may post more."""
        for _ in range(len(loop._inbox)):
            into.append(loop._inbox.popleft())
