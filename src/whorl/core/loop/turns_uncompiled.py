"""The turns of asyncio's face in one function, for the uncompiled build, in which a call is what costs.

It does what `Loop._turn` does, phase by phase, and leaves the turns in which somebody looks to that.
"""

from __future__ import annotations

from typing import Any

from whorl.core.kernel import kernel
from whorl.core.limits import EMPTY_POLLS_BEFORE_SKIP


def run_turns(self: Any) -> None:
    """The turns of a loop until it is to stop.

    What is looked up once stays the same object as long as the loop lives.
    """
    arrivals, clock_is_patched = self._inbox, kernel.clock_is_patched
    now, timers = self._kernel.now, self._timer_queue._entries
    idle, prepare, check = self._idle_handles, self._prepare_handles, self._check_handles
    has_runner = self._runner is not None
    try:
        self._is_turning = True
        while True:
            poller, ready = self._poller, self._ready_queue
            watched = self._debug or has_runner or self._probe is not None
            if watched or idle or prepare or check or self._time_replaced:
                self._turn()
                if self._stopping:
                    break
                continue
            self._turns += 1
            if not ready:
                if self._arms_signals:
                    self._arm_signals()
                self._may_sleep = True
                self._poll(self._turn_timeout(), ready)
            elif poller.empty_polls < EMPTY_POLLS_BEFORE_SKIP or not self._skip_poll():
                found = poller.poll(0, ready)
                self._now_ns = now()
                if clock_is_patched() != self._follows_patch:
                    self._clock_was_patched()
                    self._now_ns = self._clock()
                if found:
                    self._events_waiting += found
                    self._events += found
                elif poller.empty_polls >= EMPTY_POLLS_BEFORE_SKIP:
                    self._polled_at = self._now_ns
                    self._skipped = 0
                if arrivals or self._sent_async is not None:
                    self._drain_inbox(ready)
            if self._closing_handles:
                self._run_closing()
            if self._pending:
                self._collect_pending(ready)
            if timers:
                self._collect_timers(ready)
            if len(ready) == 1:
                entry: Any = ready[0]
                del ready[0]  # No signal handler can run between the two.
                self._callbacks += 1
                try:
                    entry._execute()
                except BaseException as error:
                    self._report_callback_error(entry, error)
                entry = None  # What failed a task must not be kept by a traceback with this frame.
            elif ready:
                self._ready_queue, self._spare = self._spare, ready
                self._run_batch(ready, self._ready_queue)
            if self._stopping:
                break
    finally:
        self._is_turning = False
