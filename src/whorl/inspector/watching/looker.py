"""Looking at one loop: whether it has gone on since the last look, and what its stall is.

A thread that waits for a processor looks like one that stalls. So what the kernel counted as waiting is
subtracted (`threads`). If less than the threshold is left, other programs took it. The stall counts as
`starved`. The kernel adds that time only when the wait is over. So time of which it says nothing yet counts
as waiting while the thread is ready to run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from whorl.core.loop.loop import Loop
from whorl.inspector.watching import looks, threads
from whorl.inspector.watching.collector import CollectionTimes
from whorl.inspector.watching.own_thread import has_gil
from whorl.inspector.watching.reports import Reports, changed
from whorl.inspector.watching.stacks import Moment, called_by, moment_of, stack_of
from whorl.inspector.watching.stalls import Stack, Stall
from whorl.inspector.watching.turns import Turns
from whorl.inspector.watching.watched import (
    LOCK_WAIT_NS,
    Shares,
    Usage,
    WatchedLoop,
    lock_kept,
    shares_of,
    usage_at,
    usage_between,
    was_lock_kept,
)

MOST_STACKS = 8  # of one stall
LONG_STALL_NS = 1_000_000_000  # A stall that has lasted so long is logged before its end.


class Looker:
    """Looks at loops, one at a time."""

    def __init__(
        self,
        reports: Reports,
        collector: CollectionTimes,
        take_notes: Callable[[], object],
    ) -> None:
        self.reports = reports
        self.turns: Turns = Turns(reports)
        self.collector = collector
        self.take_notes = take_notes  # collects what the native thread has noted by now
        self.threshold_ns = 0
        self.starved: int = 0  # the callbacks that were late only because others had the processor
        self.forget()

    def forget(self) -> None:
        """Begin without a thread."""
        self.times: threads.Times | None = None  # of the watchdog's thread
        self._looker_starved = 0  # how long that thread has waited for a processor, by its last look
        self.due_ns = 0  # when that thread was to look; 0: at once
        self.began_ns = 0  # when it began to: it had waited for the interpreter's lock until then
        self.starved = 0

    def close(self) -> None:
        """Let go of what is open for the thread."""
        self.times = None

    def look_at(self, watched: WatchedLoop, loop: Loop | None, gone_ns: int) -> bool:
        """Look at one loop, or note that it is gone since then; return whether it is awake."""
        watched.take_over(self.collector)
        before, progress = watched.progress, None if loop is None else looks.progress_of(loop)
        watched.handler = watched.handler_in(loop, True) if progress is not None and progress[4] else None
        is_idle = progress is None or (progress[4] and watched.handler is None)
        now = time.monotonic_ns()
        is_late = self.began_ns - max(watched.looked_ns, self.due_ns) >= LOCK_WAIT_NS
        if loop is not None and is_idle and progress == before and not is_late and watched.turn is None:
            watched.looked_ns = now
            watched.notes.clear()
            return False  # It sleeps as before, or does not run.
        moment = None
        if loop is not None and progress is not None and not is_idle and self._is_due(watched, progress, now):
            moment = moment_of(loop, progress, now)
        # The times are read first: that may end with a wait for the interpreter's lock. So the notes of that
        # time are taken after it. What follows is read without giving up the lock.
        read_ns = time.monotonic_ns()
        earlier, watched.latest = watched.latest, self.usage(watched)
        self.take_notes()
        now = time.monotonic_ns() if loop is not None else gone_ns
        seen = progress
        watched.progress = progress = None if loop is None else looks.progress_of(loop)
        if progress != seen:
            watched.handler = None  # It has returned meanwhile.
        looked, watched.looked_ns = watched.looked_ns, now
        asked_ns, then = watched.asked or (looked, earlier)
        due_ns = max(looked, asked_ns, self.due_ns)
        kept = lock_kept(then, watched.latest, due_ns - asked_ns, self.began_ns - due_ns)
        active = watched.count_active(loop, now - looked)
        (aways, calls), watched.long_ones = (
            watched.long_ones,
            looks.count_long(watched.figures, self.threshold_ns),
        )
        is_idle = progress is None or (progress[4] and watched.handler is None)
        key = None if progress is None or is_idle else progress[:5]
        is_one_call = not kept or watched.long_ones[1] > calls or not looks.count_long(watched.figures, 0)[1]
        unseen_ns = 0
        if loop is not None and key is not None and key == watched.key:
            watched.seen_ns = now
            watched.lock_kept_ns += kept
            if now - watched.began_ns >= watched.next_ns:
                self._is_stalled(watched, loop, now, moment)
            elif 2 * (now - watched.began_ns) >= watched.next_ns:
                watched.shares(now)  # notes how long it was surely asleep
            self._look_at_turn(watched, loop, earlier, looked, now, kept)
            return True
        if watched.stall is not None or watched.is_starving:
            self._has_moved(watched, loop, earlier, read_ns, now)
        elif moment is not None and moment.key == watched.key:
            self._has_just_ended(watched, moment, progress, now)
        elif kept and (watched.long_ones[0] > aways or self._is_away(loop, now)):
            self._passed_unseen(watched, before, earlier, kept, looked, active, now, is_one_call)
        if kept and loop is not None and is_one_call:
            unseen_ns = self._passed_in_turn(watched, loop, earlier, kept, looked, now)
        watched.key = key
        if loop is not None and key is not None and progress is not None:
            watched.began_ns = watched.seen_ns = now
            watched.base = watched.latest
            watched.asleep_ns = watched.lock_kept_ns = 0
            watched.next_ns = self.threshold_ns
            watched.is_logged = watched.is_blocked = False
            began = looks.call_began(loop)
            if not began and key[3] <= 1 and not key[4]:
                began = progress[5]  # The first callback since the poll: it began right then.
            if looked < began <= now:
                ago = now - began
                watched.began_ns = began
                watched.lock_kept_ns = min(kept, ago)
                awake = max(0, active - ago)
                watched.base = usage_between(earlier, watched.latest, began - looked, awake, ago)
                if ago >= watched.next_ns:
                    self._is_stalled(watched, loop, now, moment)
        self._look_at_turn(watched, loop, earlier, looked, now, kept, unseen_ns)
        watched.notes.clear()
        return key is not None

    def _look_at_turn(
        self,
        watched: WatchedLoop,
        loop: Loop | None,
        earlier: Usage,
        looked: int,
        now: int,
        kept: int,
        unseen_ns: int = 0,
    ) -> None:
        self.turns.threshold_ns = self.threshold_ns
        if self.turns.look_at(
            watched, loop, watched.progress, earlier, looked, now, self.starved, kept, unseen_ns
        ):
            self.starved += 1

    def _is_away(self, loop: Loop | None, now: int) -> bool:
        """Return whether a loop has been away from its poll for as long as the threshold."""
        return loop is not None and now - looks.polled_at(loop) >= self.threshold_ns

    def _is_due(self, watched: WatchedLoop, progress: looks.Progress, now: int) -> bool:
        """Return whether what a loop does has reached the age at which something is to be done."""
        if progress[:5] == watched.key:
            return now - watched.began_ns >= watched.next_ns
        return now - progress[5] >= self.threshold_ns

    def _is_stalled(self, watched: WatchedLoop, loop: Loop, now: int, moment: Moment | None) -> None:
        """Report a callback that has reached the next age, with its stack."""
        shares = watched.shares(now)
        if watched.stall is None and shares.own_ns < self.threshold_ns and not watched.is_blocked:
            watched.is_blocked = _waits_for_no_lock(watched)
            shares = watched.shares(now)
        if watched.stall is None and shares.own_ns < self.threshold_ns:
            watched.is_starving = True
            return
        age = now - watched.began_ns
        is_new = watched.stall is None
        stall = watched.stall or self.reports.begin(watched, now)
        late = was_lock_kept(watched, age, shares)
        noted = watched.noted_stacks()
        stacks = [*stall.stacks, *noted]
        if len(stacks) < MOST_STACKS:
            if (moment is None or moment.key != watched.key) and watched.progress is not None:
                moment = moment_of(loop, watched.progress, now)
            stack = call = task = None
            if moment is not None:
                stack, call, task = stack_of(watched, loop, moment, late)
            if stack is not None and not noted and not (late and any(not earlier.late for earlier in stacks)):
                stacks.append(stack)
            handler = watched.handler or watched.handler_in(loop, False)
            is_handler = stall.handler or (stall.call is None and handler is not None)
            stall = changed(
                stall, call=stall.call or handler or call, task=stall.task or task, handler=is_handler
            )
        stall = _with_stacks(stall, tuple(stacks[:MOST_STACKS]))
        stall = self._update(watched, stall, shares, now, ended=False)
        watched.notes.clear()
        # A stack that could not be read is tried again at each look.
        while stall.stacks and watched.next_ns <= age:
            watched.next_ns *= 2
        if is_new:
            self.reports.notify(stall)
        if not watched.is_logged and age >= max(LONG_STALL_NS, 8 * self.threshold_ns):
            watched.is_logged = True
            self.reports.log(stall)

    def _has_moved(
        self, watched: WatchedLoop, loop: Loop | None, earlier: Usage, read_ns: int, now: int
    ) -> None:
        """Note the end of what the loop did."""
        end = _end_of(watched.progress, watched.seen_ns, now)
        began = 0 if loop is None else looks.call_began(loop)
        if watched.seen_ns < began < end:
            end = began  # of the callback that runs now: the one before it has ended by then
        later = now
        if read_ns < end:
            # A wait for a processor that was not over at that time is not in the times of it.
            watched.latest, later = self.usage(watched), time.monotonic_ns()
        shares = shares_of(watched, usage_at(earlier, watched.latest, later - end), end, True)
        if watched.stall is None and shares.own_ns < self.threshold_ns:
            self.starved += 1
        else:
            stall = watched.stall or self.reports.begin(watched, end)
            stacks = (*stall.stacks, *watched.noted_stacks())[:MOST_STACKS]
            self._end_stall(watched, _with_stacks(stall, stacks), end, shares)
        watched.is_starving = False

    def _has_just_ended(
        self, watched: WatchedLoop, moment: Moment, progress: looks.Progress | None, now: int
    ) -> None:
        """Report a stall that this look still saw, and that has ended since this look began."""
        end = _end_of(progress, moment.when_ns, now)
        shares = watched.shares(end, has_ended=True)
        if shares.own_ns < self.threshold_ns:
            return
        stall = self.reports.begin(watched, end)
        stack, call, task = stack_of(watched, None, moment, False)
        stall = changed(stall, call=call, task=task)
        stacks = (*watched.noted_stacks(), *(() if stack is None else (stack,)))
        self._end_stall(watched, _with_stacks(stall, stacks), end, shares)

    def _passed_unseen(
        self,
        watched: WatchedLoop,
        before: looks.Progress | None,
        earlier: Usage,
        kept: int,
        looked: int,
        active: int,
        now: int,
        is_one_call: bool,
    ) -> None:
        """Report a stall that began and ended while this thread waited for the interpreter's lock.

        Only a loop that was away from its poll for so long has stalled. A loop that polls often gives up the
        lock, and takes it again before this thread has woken up. So this thread may wait long for a lock that
        nobody keeps.
        The loop was awake since its last sleep. The stall was not longer than the lock was missing, and not
        longer than `active`: so long the loop was awake since then. The holder kept the lock in one go: it
        has to hand it over when this thread asks for it.
        """
        progress = watched.progress
        slept = 0 if before is None or progress is None else progress[2] - before[2]
        if watched.key is None:
            if before is not None and before[4] and not slept:
                return  # The loop slept all the time.
            if before is not None and before[4]:
                watched.began_ns = before[4] + slept
            else:
                watched.began_ns = max(looked, watched.run_began_ns)
            watched.base = earlier
            slept = 0
        end = now
        if progress is not None and progress[4]:
            end = progress[4]
        elif progress is not None and progress[5] > looked:
            end = progress[5]
            active -= now - end  # What the loop does since then is no part of it.
        length = min(end - watched.began_ns - slept, now - looked, active)
        callbacks = 0 if before is None or progress is None else progress[1] - before[1]
        self._report_unseen(watched, length, end, kept, 0 if is_one_call else callbacks)

    def _passed_in_turn(
        self, watched: WatchedLoop, loop: Loop, earlier: Usage, kept: int, looked: int, now: int
    ) -> int:
        """Report a stall as above, of a callback before the one that runs; return how long it was."""
        progress = watched.progress
        if progress is None or progress[4] or progress[5] <= looked or progress[3] <= 1:
            return 0
        began = looks.call_began(loop)  # of the callback that runs now
        end = began if progress[5] < began < now else now
        watched.base = earlier
        return self._report_unseen(watched, end - progress[5], end, kept, 0)

    def _report_unseen(self, watched: WatchedLoop, length: int, end: int, kept: int, callbacks: int) -> int:
        """Report a stall if it was long enough; return how long it was, or 0."""
        if length < self.threshold_ns:
            return 0
        watched.began_ns = end - length
        watched.asleep_ns = 0
        watched.lock_kept_ns = min(kept, length)
        shares = watched.shares(end, has_ended=True)
        if shares.own_ns < self.threshold_ns:
            return 0
        stall = _with_stacks(self.reports.begin(watched, end), watched.noted_stacks())
        self._end_stall(watched, changed(stall, callbacks=callbacks if callbacks > 1 else 0), end, shares)
        return length

    def _end_stall(self, watched: WatchedLoop, stall: Stall, end: int, shares: Shares) -> None:
        if watched.turn is not None:
            watched.turn.stalled_ns += end - watched.began_ns
        self.reports.end(watched, self._update(watched, stall, shares, end, ended=True))

    def _update(self, watched: WatchedLoop, stall: Stall, shares: Shares, now: int, *, ended: bool) -> Stall:
        length = now - watched.began_ns
        stall = changed(
            stall,
            length_ns=length,
            ended=ended,
            running_ns=shares.running_ns,
            starved_ns=shares.starved_ns,
            asleep_ns=shares.asleep_ns,
            gc_ns=shares.gc_ns,
            gil_held=self._is_lock_held(watched, shares, length),
        )
        self.reports.keep(watched, stall)
        return stall

    def _is_lock_held(self, watched: WatchedLoop, shares: Shares, length: int) -> bool | None:
        """Return whether the loop's thread kept the interpreter's lock most of the time; None: unknown."""
        if not has_gil() or not was_lock_kept(watched, length, shares):
            return False
        calls = [call for _, _, call in watched.notes if call]
        if calls:  # A thread in futex waits for a lock: for the interpreter's, that is.
            return any(threads.describe_call(call)[0] != "futex" for call in calls)
        if shares.running_ns is None:
            return None
        # A thread that slept may have kept the lock, or may have waited for it.
        return True if shares.running_ns * 2 >= length - (shares.starved_ns or 0) else None

    def usage(self, watched: WatchedLoop) -> Usage:
        """Return the times of a loop's thread now."""
        times = self.times
        self._looker_starved = 0 if times is None else times.read()[1] or 0
        return self.first_usage(watched)

    def first_usage(self, watched: WatchedLoop) -> Usage:
        """Return the same in the loop's own thread, without a look at the times of the watchdog's thread."""
        times = watched.times
        ran, starved = (None, None) if times is None else times.read()
        return Usage(
            ran, starved, self._looker_starved, self.collector.total_ns(watched.thread, time.monotonic_ns())
        )


def _end_of(progress: looks.Progress | None, after: int, now: int) -> int:
    """Return when what a loop did has ended, which it did after that time.

    The loop reads the clock at the end of each poll and before it sleeps.
    """
    reads = [] if progress is None else [progress[4], progress[5]]
    return min((read for read in reads if after < read <= now), default=now)


def _waits_for_no_lock(watched: WatchedLoop) -> bool:
    """Return whether a thread sleeps in a system call of its own. In futex it may wait for the watchdog."""
    call = None if watched.thread is None else threads.system_call_of(watched.thread)[0]
    return call not in (None, "futex", "running")


def _with_stacks(stall: Stall, stacks: tuple[Stack, ...]) -> Stall:
    """Return a stall with these stacks, of which the first names the call if nothing else has."""
    call = stall.call or (called_by(stacks[0].frames) if stacks else None)
    return changed(stall, stacks=stacks, call=call)
