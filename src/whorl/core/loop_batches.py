"""Running what is due: one batch after another, each to its end whatever a callback raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whorl.core.callback import Callback, GuardedCallback, Runnable, current_thread
from whorl.core.handle import Handle
from whorl.core.host import Host
from whorl.core.kernel import Kernel
from whorl.core.limits import ENTRIES_AHEAD, LONGEST_COLLECTED_TICKS
from whorl.core.loop_figures import LoopFigures
from whorl.core.states import Collecting

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython

BY_TURN = int(Collecting.BY_TURN)

if not cython.compiled:
    from whorl.core.callback import attempt, fetch, is_unshared, recycle_guarded
    from whorl.core.lists import empty, last_taken, only_one, taken

    def still_raised() -> Any:
        """Raise what is still set."""


class LoopBatches(LoopFigures):
    """The part of a loop that runs entries."""

    __slots__ = ("_holding", "_holding_since", "_passes", "_runner", "_watched_entry")

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        LoopFigures._set_up(self, kernel, host)
        self._passes = 0  # how many passes over idle, prepare or check handles there were
        self._watched_entry: Runnable | None = None  # what runs, in debug mode or with a probe
        # Called with the loop and each entry, to run it by `_run_entry`; None: entries are run at once.
        self._runner: Callable[[Any, Runnable], object] | None = None
        self._holding: list[Handle] = []  # those that wait for the end of the callback or of the batch
        self._holding_since = 0  # in ticks

    def _run_ready(self) -> None:
        """Run exactly what is ready now; what that makes ready waits for the next turn."""
        batch = self._ready_queue
        if not batch:
            return
        if self._probe is not None:
            self._tell("turn_began", self._turns, len(batch))
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
                    self._tell("handle_closed", handle)
        finally:
            if closing:  # an error ends the run
                self._closing_handles.extend(closing)

    def _run_batch(self, batch: list[Any], queue: list[Any]) -> None:
        """Run all of `batch`, and empty it; if an error ends the run, the rest goes to `queue`."""
        size = len(batch)
        done = 0
        watched = self._debug or self._probe is not None or self._runner is not None
        before = self._callbacks
        self._callbacks += size
        try:
            while done < size:
                try:
                    for index in range(done, size):
                        done = index + 1
                        self._call = before + done
                        fetch(batch, index + ENTRIES_AHEAD)
                        entry = taken(batch, index)
                        if watched:
                            self._run_watched(entry)
                        elif type(entry) is Callback:
                            if not attempt(entry, False):
                                still_raised()
                        elif type(entry) is not GuardedCallback:
                            entry._execute()
                        elif is_unshared(entry):  # but by this: nobody can cancel it
                            if not attempt(entry, True):
                                still_raised()
                        else:
                            entry._execute()
                            recycle_guarded(entry)
                        if self._holding:
                            self._callback_held(done == size)
                except BaseException as error:
                    self._entry_failed(entry, error)
        finally:
            self._call = 0
            if done < size:
                self._callbacks -= size - done
                queue[:0] = batch[done:]
            empty(batch)
            if self._holding:  # an interrupt
                self._tell_holding()

    def _entry_failed(self, entry: Runnable, error: BaseException) -> None:
        self._call = 0  # What the exception handler writes is not held back.
        if self._holding:
            self._tell_holding()
        self._callback_failed(entry, error)

    def _run_watched(self, entry: Runnable) -> None:
        """Run one entry with somebody looking: in debug mode, with a probe, or by a runner."""
        began = self._clock() if self._debug else self._kernel.now()
        self._watched_entry = entry
        try:
            if self._runner is None:
                entry._execute()
            else:
                self._runner(self, entry)
        finally:
            self._watched_entry = None
            took = (self._clock() if self._debug else self._kernel.now()) - began
            if self._probe is not None:
                self._tell("callback_ran", entry, took)
            if self._debug:
                self._callback_ran(entry, took)
            del entry  # Uncompiled, a traceback keeps this frame: it must not keep a failed task too.

    def _run_entry(self, entry: Runnable) -> None:
        """Run one entry, for the runner."""
        entry._execute()

    # What waits for the end of a callback, or of a batch: a turn's callbacks are one.

    def _hold(self, handle: Runnable) -> bool:
        """Have `handle._callback_ended` called when the callback ends that runs, or its batch.

        False, and nothing will be, in other threads: what they write may come when it has just ended.
        """
        if self._thread_id != current_thread():
            return False
        if not self._holding:
            self._holding_since = self._kernel.ticks()
        self._holding.append(handle)  # type: ignore[arg-type]  # `Owner` does not know of handles.
        return True

    def _callback_held(self, is_last: bool) -> None:
        """Send what is held back when a callback has ended, unless it may wait for the rest of the batch."""
        if self._collects_writes == BY_TURN and not is_last:
            waited = self._kernel.ticks() - self._holding_since
            if 0 <= waited <= LONGEST_COLLECTED_TICKS:
                return
        self._tell_holding()

    def _send_held(self) -> None:
        """Have everything sent now that is held back."""
        self._tell_holding()

    def _tell_holding(self) -> None:
        if len(self._holding) > 1:
            self._holding.reverse()
        while self._holding:
            handle = last_taken(self._holding)
            handle._callback_ended()


def run_alone(loop: LoopBatches, entry: Callback) -> None:
    """Run the only entry of a turn: what `_run_batch` does, without what batches need."""
    loop._callbacks += 1
    loop._call = loop._callbacks
    if not attempt(entry, False):
        attempt_failed(loop, entry)
    if loop._holding:
        send_held_by(loop, entry)
    loop._call = 0


def attempt_failed(loop: LoopBatches, entry: Callback) -> None:
    """Report the error that an attempt has left."""
    try:
        still_raised()
    except BaseException as error:
        loop._entry_failed(entry, error)


def send_held_by(loop: LoopBatches, entry: Callback) -> None:
    """Have everything sent that a callback held back, and report what that raises."""
    try:
        loop._tell_holding()
    except BaseException as error:
        loop._entry_failed(entry, error)
    finally:
        loop._call = 0
        if loop._holding:  # an interrupt
            loop._tell_holding()


if not cython.compiled:

    def _run_batch(self: LoopBatches, batch: list[Any], queue: list[Any]) -> None:
        """The same in fewer steps: uncompiled, each of them costs as much as a whole turn compiled."""
        batch.reverse()
        call = self._callbacks
        holding = self._holding
        try:
            while batch:
                watched = self._debug or self._probe is not None or self._runner is not None
                self._callbacks += len(batch)
                try:
                    while batch:
                        call = self._call = call + 1
                        entry = batch.pop()
                        if watched:
                            self._run_watched(entry)
                        else:
                            entry._execute()
                        if holding:
                            self._callback_held(not batch)
                    entry = None  # A traceback may keep this frame, which must not keep what failed a task.
                except BaseException as error:
                    self._callbacks -= len(batch)
                    self._entry_failed(entry, error)
        finally:
            self._call = 0
            if batch:
                queue[:0] = reversed(batch)
                batch.clear()
            if holding:  # an interrupt
                self._tell_holding()

    LoopBatches._run_batch = _run_batch  # type: ignore[method-assign]
