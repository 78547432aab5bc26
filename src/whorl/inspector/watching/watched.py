"""A watched loop: what was seen of it, and how its thread spent the time."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from whorl.core.loop.loop import Loop
from whorl.core.pollers.selector import SelectorPoller
from whorl.inspector.watching import looks, threads
from whorl.inspector.watching.collector import CollectionTimes
from whorl.inspector.watching.own_thread import has_gil
from whorl.inspector.watching.stalls import Frame, Stack, Stall
from whorl.inspector.watching.text import shown

LOCK_WAIT_NS = 30_000_000  # A wait for the interpreter's lock is no longer, unless C code keeps the lock.

_HERE = os.path.dirname(os.path.abspath(__file__))
_WHORL = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "")

Key = tuple[int, int, int, int, int]


def _signal_handlers(host: Any) -> set[CodeType]:
    """Return the code of the functions that handle signals in a process."""
    codes = set()
    for number in signal.valid_signals():
        handler = host.get_signal(number)
        while type(handler) in (functools.partial, MethodType):
            handler = handler.func if type(handler) is functools.partial else handler.__func__
        if type(handler) is FunctionType:
            codes.add(handler.__code__)
    return codes


class Usage(NamedTuple):
    """The times of a loop's thread, at one moment."""

    ran_ns: int | None
    starved_ns: int | None
    looker_starved_ns: int
    """How long the watchdog itself had waited for a processor, perhaps with the interpreter's lock."""
    collector_ns: int
    """How long Python's collector had run in that thread."""


class Shares(NamedTuple):
    """The time of a stalled thread, by what it did. The first three add up to the length."""

    running_ns: int | None
    starved_ns: int | None
    asleep_ns: int | None
    gc_ns: int
    own_ns: int
    """The least that is left without the time in which others had the processor."""


class WatchedLoop:
    """A loop, what was seen of it, and its stall if there is one."""

    def __init__(self, loop: Loop, thread: int | None, forget: Callable[[Any], object]) -> None:
        self.reference: weakref.ReferenceType[Loop] = weakref.ref(loop, forget)
        self.name: str = f"<{type(loop).__name__} at {id(loop):#x}>"
        #: When a run began, the first one since the last look if there was one; and when that look was.
        self.looked_ns: int = time.monotonic_ns()
        self.run_began_ns: int = self.looked_ns
        self.thread = thread
        self.times: threads.Times | None = None if thread is None else threads.Times(thread)
        self.place: int = -1  # of the native thread
        self.last_place: int = -1  # the same, also when the loop is gone
        self.last_look: looks.Look | None = None  # of the native thread, if the loop is gone
        self.asked: tuple[int, Usage] | None = None  # when it woke the Python thread for this, and the times
        self.key: Key | None = None  # None unless the loop was awake at the last look
        self.progress: looks.Progress | None = None  # at the last look
        self.figures: Any = looks.figures_of(loop)  # outlive the loop
        self.long_ones: tuple[int, int] = (0, 0)  # by `looks.count_long`, for the threshold
        self.active_ns: int = loop.utilization().active_ns  # how long the loop had run and been awake by then
        self.began_ns = 0  # when the loop began what it does, as far as is known
        self.seen_ns = 0  # when it was last seen doing that
        self.base: Usage = Usage(None, None, 0, 0)  # the times when it began
        self.latest: Usage = self.base
        self.asleep_ns: int = 0  # how long the thread was surely asleep since then
        self.next_ns = 0  # the age at which something is to be done
        self.is_starving = False
        self.caller: int = 0  # the identity of the frame that runs the loop; 0: not known
        self.handler: str | None = None  # the signal handler that runs, if one was seen
        self.is_blocked: bool = False  # whether it was seen in a system call that waits for no lock
        self.turn: LongTurn | None = None  # the turn that the loop is in
        self.lock_kept_ns = 0  # how long C code has kept the interpreter's lock since then
        #: What the native thread saw: when, the stack if it got one, and the system call.
        self.notes: list[tuple[int, tuple[Frame, ...] | None, str]] = []
        self.stall: Stall | None = None
        self.is_logged = False

    def begins_run(self) -> None:
        """Note which frame of others runs the loop, in its thread: while the loop sleeps, it calls none."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_filename.startswith(_WHORL):
            frame = frame.f_back
        self.caller = id(frame)

    def handler_in(self, loop: Any, seems_asleep: bool) -> str | None:
        """Return the name of the signal handler that a loop runs between its callbacks; None: none is seen.

        Compiled, the loop is awake meanwhile, so that it may call any other function as well. Uncompiled,
        Python runs handlers inside of the poll. Without the GIL, a frame of another thread may end meanwhile.
        """
        # A poller of the program's own may be Python code, which sleeps.
        if not self.caller or not has_gil() or isinstance(loop._poller, SelectorPoller):
            return None
        frame = sys._current_frames().get(loop._thread_id or 0)
        called = None
        while frame is not None and id(frame) != self.caller:
            if frame.f_code.co_filename.startswith(_WHORL):  # The runner, or uncompiled the poller.
                break
            called = frame.f_code
            frame = frame.f_back
        if frame is None or called is None or not (seems_asleep or called in _signal_handlers(loop._host)):
            return None
        return shown(called.co_qualname)

    def close(self) -> None:
        """Let go of the loop, before its memory is freed, and of the thread's file."""
        looks.unwatch(self.place)
        self.place = -1
        self.times = None

    def leave_place(self) -> None:
        """Let the native thread look no more, as the loop is gone; keep its last look."""
        self.last_place, self.place = self.place, -1
        try:
            self.last_look = looks.before(self.last_place)
        finally:  # also if there was no memory for the look: the loop's own will be freed
            looks.unwatch(self.last_place)

    def take_over(self, collector: CollectionTimes) -> None:
        """Take the native thread's last look before what the loop does for this thread's own, if it is newer.

        While a stall lasts, or a signal handler, the Python thread itself looks often.
        """
        asked = looks.asked(self.place)
        self.asked = None if asked is None else (asked[0], self._usage_by(*asked[1:], asked[0], collector))
        look = self.last_look if self.place < 0 else looks.before(self.place)
        lasts = self.stall is not None or self.is_starving or self.handler is not None
        if look is None or look[0] <= self.looked_ns or lasts:
            return
        self.looked_ns, self.progress, self.active_ns, ran, starved = look
        self.key = None
        self.latest = self._usage_by(ran, starved, self.looked_ns, collector)

    def _usage_by(self, ran: int, starved: int, at_ns: int, collector: CollectionTimes) -> Usage:
        """Return the times that a look of the native thread's has."""
        return Usage(
            None if ran < 0 else ran,
            None if starved < 0 else starved,
            self.latest.looker_starved_ns,
            collector.total_ns(self.thread, at_ns),
        )

    def count_active(self, loop: Loop | None, most: int) -> int:
        """Return how long the loop was awake in runs since the last look; `most` if it is gone."""
        if loop is None:
            return most
        before, self.active_ns = self.active_ns, loop.utilization().active_ns
        return self.active_ns - before

    def noted_stacks(self) -> tuple[Stack, ...]:
        """Return the stacks that the native thread read."""
        return tuple(
            Stack(when - self.began_ns, frames, *threads.describe_call(call), False)
            for when, frames, call in self.notes
            if frames is not None and when > self.began_ns
        )

    def _noted_sleep(self) -> int:
        """Return how long the native thread saw the thread asleep in one system call since `began_ns`."""
        calls = {call for _, _, call in self.notes}
        is_asleep = len(calls) == 1 and threads.describe_call(*calls)[0] not in (None, "running", "futex")
        return max(0, self.notes[-1][0] - self.began_ns) if is_asleep else 0

    def shares(self, now: int, *, has_ended: bool = False) -> Shares:
        """Return what the thread did since `began_ns`."""
        found = shares_of(self, self.latest, now, has_ended, self._noted_sleep())
        self.asleep_ns = found.asleep_ns or 0
        return found


class LongTurn:
    """A turn of a loop, from the end of a poll on, and the stall that its callbacks are together."""

    def __init__(
        self, watched: WatchedLoop, began_ns: int, base: Usage, threshold_ns: int, starved: int
    ) -> None:
        self.name: str = watched.name
        self.thread: int | None = watched.thread
        self.began_ns = began_ns
        self.base: Usage = base  # the times when it began
        self.seen_ns = 0  # when it was last seen to go on
        self.turns: int = 0  # the number of the turn then
        self.key: Key | None = None  # and of its callback
        self.is_many: bool = False  # whether it has had two callbacks
        self.callbacks: int = 0  # of its batch
        self.asleep_ns: int = 0
        self.stalled_ns: int = 0  # the time of those that were stalls themselves
        self.lock_kept_ns = 0  # how long C code has kept the interpreter's lock since then
        self.next_ns = threshold_ns  # the age at which something is to be done
        self.is_starving: bool = False
        self.is_blocked: bool = False
        self.starved_before = starved  # how many callbacks were starved when it began
        self.seen: Counter[str] = Counter()  # how often each call was seen
        self.stacks: dict[str, Stack] = {}  # the first one of each
        self.stall: Stall | None = None
        self.is_logged = False


def shares_of(
    what: WatchedLoop | LongTurn, usage: Usage, now: int, has_ended: bool, noted_sleep: int = 0
) -> Shares:
    """Return what a thread did since `began_ns`, by its times now; if that has ended, by its times then.

    The kernel counts a wait for a processor when it is over. So while what lasts is ready to run, what was
    not surely sleep counts as waiting. A thread that has ended it had a processor since, so no wait is left
    out. `noted_sleep` is how long the native thread saw it asleep in one system call.
    """
    length, base = now - what.began_ns, what.base
    gc_ns = min(usage.collector_ns - base.collector_ns, length)
    if base.ran_ns is None or usage.ran_ns is None:
        return Shares(None, None, None, gc_ns, length)
    running = min(usage.ran_ns - base.ran_ns, length)
    if base.starved_ns is None or usage.starved_ns is None:
        return Shares(running, None, None, gc_ns, length)
    starved = min(usage.starved_ns - base.starved_ns, length - running)
    asleep = length - running - starved
    if not has_ended and what.thread is not None and threads.is_runnable(what.thread):
        asleep = min(asleep, max(what.asleep_ns, noted_sleep))
        starved = length - running - asleep
    blocked = asleep
    if not what.is_blocked:
        # The thread may have slept because the watchdog's had the interpreter's lock, and no processor. Then
        # it was in no system call but futex.
        looker_starved = usage.looker_starved_ns - base.looker_starved_ns
        blocked = max(0, asleep - looker_starved, min(asleep, noted_sleep))
    return Shares(running, starved, asleep, gc_ns, running + blocked)


def usage_at(earlier: Usage, latest: Usage, ago_ns: int) -> Usage:
    """Return the least that the times can have been at a moment between two looks, so long before the later.

    None of them grows faster than the clock.
    """
    if earlier.ran_ns is None or latest.ran_ns is None:
        return latest
    starved = earlier.starved_ns
    if starved is not None and latest.starved_ns is not None:
        starved = max(starved, latest.starved_ns - ago_ns)
    return Usage(
        max(earlier.ran_ns, latest.ran_ns - ago_ns),
        starved,
        max(earlier.looker_starved_ns, latest.looker_starved_ns - ago_ns),
        max(earlier.collector_ns, latest.collector_ns - ago_ns),
    )


def usage_between(earlier: Usage, latest: Usage, after_ns: int, awake_ns: int, ago_ns: int) -> Usage:
    """Return the times at a moment between two looks, so long after the earlier and before the later one.

    The loop was awake for `awake_ns` between the earlier look and that moment. As much of what was counted as
    has room there counts as done before that moment.
    """
    least = usage_at(earlier, latest, ago_ns)
    if least.ran_ns is None or earlier.ran_ns is None or latest.ran_ns is None:
        return least
    starved = least.starved_ns
    if starved is not None and earlier.starved_ns is not None and latest.starved_ns is not None:
        starved = max(starved, min(latest.starved_ns, earlier.starved_ns + after_ns))
    return least._replace(
        ran_ns=max(least.ran_ns, min(latest.ran_ns, earlier.ran_ns + awake_ns)), starved_ns=starved
    )


def lock_kept(earlier: Usage, latest: Usage, before_ns: int, late_ns: int) -> int:
    """Return how long C code kept the interpreter's lock before a look that is so late, as far as is known.

    Python's code hands the lock over when the watchdog has waited for 5 ms. If the loop's thread has run for
    much longer meanwhile, it was in C code. The look was to be `before_ns` after the earlier times.
    """
    if late_ns < LOCK_WAIT_NS:
        return 0
    ran = starved = 0
    if earlier.ran_ns is not None and latest.ran_ns is not None:
        ran = min(latest.ran_ns - earlier.ran_ns - before_ns, late_ns)  # at least, since then
    if earlier.starved_ns is not None and latest.starved_ns is not None:
        starved = latest.starved_ns - earlier.starved_ns  # perhaps with the lock
    waited = late_ns - (latest.looker_starved_ns - earlier.looker_starved_ns)  # else for a processor itself
    kept = min(waited, max(ran, waited - starved))
    return kept if kept >= LOCK_WAIT_NS else 0


def was_lock_kept(what: WatchedLoop | LongTurn, length: int, shares: Shares) -> bool:
    """Return whether C code kept the interpreter's lock most of the time.

    While others had the processor, nobody can tell who had the lock. So that time does not count.
    """
    return 0 < what.lock_kept_ns and length - (shares.starved_ns or 0) <= 2 * what.lock_kept_ns
