"""The watchdog: one thread that looks at every watched loop from outside, and reports stalls while they last.

A loop stalls when it is awake, in a turn, and has not gone on to the next callback for as long as the
threshold. The watchdog looks four times in that. It reads numbers that the loop counts anyway (`looks`), so
the loop does nothing for it.

While C code holds the interpreter's lock, this thread cannot look. The compiled build's native thread then
reads the stack from outside (`frames.h`), which the stalled thread does not notice. Uncompiled, the stack is
taken when the lock is free, and is marked `late`.

Without the GIL, the watchdog's thread reads each stack from outside. Uncompiled, there is none then.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from whorl.core.loop.lifecycle import running_loops
from whorl.core.loop.loop import Loop
from whorl.inspector.watching import looks, runs, threads
from whorl.inspector.watching.collector import CollectionTimes
from whorl.inspector.watching.looker import Looker
from whorl.inspector.watching.own_thread import has_real_clock
from whorl.inspector.watching.reports import Reports
from whorl.inspector.watching.stacks import are_read_rightly, parse_dumps
from whorl.inspector.watching.teller import Teller
from whorl.inspector.watching.text import warn
from whorl.inspector.watching.watched import WatchedLoop

LOOKS_PER_THRESHOLD = 4
SHORTEST_INTERVAL_NS = 5_000_000
LONGEST_INTERVAL_NS = 250_000_000
LONGEST_REST_NS = 1_000_000_000  # between two looks of the Python thread while all loops go on
MOST_GONE = 16  # loops of which files stay open until the next look
END_WAIT = 2.0  # seconds that `stop` waits for the thread
RETRY_WAIT = 0.02  # seconds after which the thread goes on that had no memory

logger: logging.Logger = logging.getLogger("whorl.inspector")


class Watchdog:
    """Watches `loop`, or with None every loop that runs. One lock guards each look."""

    def __init__(self, loop: Loop | None, threshold: float) -> None:
        self._only = None if loop is None else weakref.ref(loop)
        self.collector: CollectionTimes = CollectionTimes()
        self._teller = Teller()
        self.reports: Reports = Reports(self._teller.tell)
        self._looker = Looker(self.reports, self.collector, self._take_notes)
        self._set_threshold_only(threshold)
        self._forget_everything()

    #: Called when the first loop of the process runs, and again so in a forked child.
    at_start: Callable[[], object] | None = None
    #: Called at each look, in the watchdog's thread.
    at_look: Callable[[], object] | None = None
    #: Whether that is to be called often while all loops go on.
    looks_often: bool = False
    #: How often a loop began to run that is watched.
    runs: int = 0

    @property
    def starved(self) -> int:
        """Return how many callbacks were late only because others had the processor."""
        return self._looker.starved

    def _set_threshold_only(self, threshold: float) -> None:
        self.threshold = threshold
        self._looker.threshold_ns = max(1, round(threshold * 1e9))
        interval = self._looker.threshold_ns // LOOKS_PER_THRESHOLD
        self._interval_ns = min(max(interval, SHORTEST_INTERVAL_NS), LONGEST_INTERVAL_NS)

    def _forget_everything(self) -> None:
        """Begin without loops, stalls and threads: anew, or in a forked child."""
        self._watched: dict[int, WatchedLoop] = {}
        self._gone: collections.deque[tuple[WatchedLoop, int]] = collections.deque()
        self._lock = threading.RLock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._end = threading.Lock()  # released to end the thread's pause
        self._look_ended = threading.Condition()
        self._looks = 0
        self._is_native = False
        self._recording: Any = None  # the memory into which the native thread writes
        self._has_notes = False  # whether this look has found some of the native thread's
        self._teller.forget()
        self.reports.forget()
        self.collector.forget()
        self._looker.forget()

    # Beginning and end.

    def start(self) -> None:
        """Watch the loops that run now, and each that begins to."""
        self._is_on = True
        self.collector.start()
        runs.add_listener(self._loop_runs)
        for loop in running_loops():
            if self._is_meant(loop):
                self._add(loop, _native_number(loop._thread_id))

    def stop(self) -> None:
        """End the thread, and let go of everything."""
        self._is_on = False
        runs.remove_listener(self._loop_runs)
        self.collector.stop()
        with self._starting:  # No thread begins from here on.
            thread, self._thread = self._thread, None
        if thread is not None:
            self._end_pause()
            if thread is not threading.current_thread():
                thread.join(END_WAIT)
        self._teller.stop(END_WAIT)
        self._stop_native()
        self._close_all()
        self.reports.forget_those_that_go_on()

    def _close_all(self) -> None:
        """Let go of what is open for each loop, and for the thread."""
        for watched in [*self._watched.values(), *(watched for watched, _ in self._gone)]:
            watched.close()
        self._watched.clear()
        self._gone.clear()
        self._looker.close()

    def fork_ended(self) -> None:
        """Begin anew in a forked child, with the first loop that runs there."""
        looks.forget_native()  # Also if it was only about to begin: its mutex may have been held.
        self._close_all()
        self._forget_everything()

    def set_threshold(self, threshold: float) -> None:
        """Change the threshold, for stalls that begin from now on."""
        if threshold == self.threshold:
            return
        with self._lock:
            self._set_threshold_only(threshold)
            if self._is_native:
                looks.stop_native()
                self._start_native()
            for watched in list(self._watched.values()):
                watched.key = watched.turn = None
                watched.place = self._place_of(watched.reference(), watched)
                watched.long_ones = looks.count_long(watched.figures, self._looker.threshold_ns)
            self._wake()  # It sleeps for the new interval from now on.

    def look_now(self) -> None:
        """Let the thread look, and wait until it has: a stall that has just ended is known and told then."""
        deadline = time.monotonic() + END_WAIT
        with self._look_ended:
            target = self._looks + 2  # One look may be under way.
            while self._looks < target and time.monotonic() < deadline and self._wake():
                self._look_ended.wait(self._interval_ns / 1e9)
        self._teller.wait(max(0.0, deadline - time.monotonic()))

    def _wake(self) -> bool:
        """End the thread's pause; return whether there is a thread."""
        if self._thread is None:
            return False
        self._end_pause()
        return True

    def _end_pause(self) -> None:
        with contextlib.suppress(RuntimeError):  # It is awake already.
            self._end.release()
        looks.wake()

    def _start_thread(self) -> None:
        with self._starting:
            if self._thread is not None or not self._is_on:
                return
            self._end.acquire()
            if looks.HAS_NATIVE:
                self._start_native()
                self.record_into(self._recording)
            thread = threading.Thread(target=self._run, name="whorl-watchdog", daemon=True)
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:  # The interpreter ends, or the system has no more threads.
                self._thread = None
                self._end.release()
                self._stop_native()
                return
        if self.at_start is not None:
            self.at_start()

    def tell(self, text: str) -> None:
        """Log a warning in another thread: its handlers may block for any time."""
        self._teller.tell(functools.partial(warn, text))

    def record_into(self, memory: Any) -> None:
        """Let the native thread write what it sees into this recording; None ends that."""
        self._recording = memory
        if self._is_native:
            looks.record(memory)

    def _start_native(self) -> None:
        self._is_native = looks.start_native(self._looker.threshold_ns, self._interval_ns, are_read_rightly())

    def _stop_native(self) -> None:
        if self._is_native:
            looks.stop_native()
            looks.record(None)
            self._is_native = False

    # The loops.

    def loops(self) -> list[Loop]:
        """Return the watched loops that are open."""
        watched = [item.reference() for item in list(self._watched.values())]
        return [loop for loop in watched if loop is not None and not loop.is_closed()]

    def _is_meant(self, loop: Loop) -> bool:
        return (self._only is None or self._only() is loop) and has_real_clock(loop)

    def _loop_runs(self, loop: Any) -> None:
        """Note that a loop begins to run, in this thread."""
        if self._is_meant(loop):
            self.runs += 1
            self._add(loop, threading.get_native_id())
            known = self._watched.get(id(loop))
            if known is not None:
                known.begins_run()

    def _add(self, loop: Loop, thread: int | None) -> None:
        known = self._watched.get(id(loop))
        if known is not None and known.reference() is loop and known.thread == thread:
            if known.run_began_ns < known.looked_ns:  # else there were several runs since the last look
                known.run_began_ns = time.monotonic_ns()
            return
        if known is not None:
            known.close()
        self._start_thread()
        number = id(loop)
        watched = WatchedLoop(loop, thread, lambda reference: self._forget_loop(number, reference))
        watched.latest = self._looker.first_usage(watched)
        watched.long_ones = looks.count_long(watched.figures, self._looker.threshold_ns)
        self._watched[number] = watched
        watched.place = self._place_of(loop, watched)

    def _forget_loop(self, number: int, reference: Any) -> None:
        """Let go of a loop that is closed, or whose memory will be freed."""
        watched = self._watched.get(number)
        if watched is None or watched.reference is not reference:
            return
        if self._watched.pop(number, None) is watched:  # else another thread has done it
            watched.leave_place()
            self._gone.append((watched, time.monotonic_ns()))  # The next look ends its stall.
            if watched.stall is not None or len(self._gone) >= MOST_GONE:
                self._wake()

    def _place_of(self, loop: Loop | None, watched: WatchedLoop) -> int:
        if loop is None or watched.thread is None or not self._is_native:
            return -1
        times = watched.times
        return looks.watch(loop, watched.thread, -1 if times is None else times.fd)

    # Looking.

    def _run(self) -> None:
        """Look until told to end: the thread."""
        end = self._end
        self._looker.times = threads.Times(threading.get_native_id())
        while self._is_on and self._end is end:
            try:
                self._look_and_pause(end)
            except Exception:  # There is no memory for a number.
                time.sleep(RETRY_WAIT)
        if self._is_native:
            looks.beat(False)

    def _look_and_pause(self, end: Any) -> None:
        self._looker.began_ns = time.monotonic_ns()  # What it waits for from here on is not the lock.
        try:
            is_awake = self.look()
        except Exception as error:
            is_awake = False
            self._teller.tell(
                functools.partial(logger.error, "The watchdog could not look at the loops", exc_info=error)
            )
        with self._look_ended:
            self._looks += 1
            self._look_ended.notify_all()
        if self._is_native:
            rest = LONGEST_REST_NS if self._all_are_guarded() else self._interval_ns
            self._looker.due_ns = looks.rest(time.monotonic_ns() + rest)
        else:
            now = time.monotonic_ns()
            self._looker.due_ns = self._next_look(now, self._interval_ns * (1 if is_awake else 2))
            end.acquire(timeout=(self._looker.due_ns - now) / 1e9)

    def _next_look(self, now: int, pause: int) -> int:
        """Return when to look next: after a pause, or before that if a callback reaches its next age.

        The native thread wakes this one at that time.
        """
        known = list(self._watched.values())
        ages = [watched.began_ns + watched.next_ns for watched in known if watched.key is not None]
        ages += [turn.began_ns + turn.next_ns for watched in known if (turn := watched.turn) is not None]
        return min([now + pause, *(age for age in ages if age > now)])

    def _all_are_guarded(self) -> bool:
        """Return whether the native thread looks at each loop, and tells if one does not go on."""
        return not self.looks_often and all(
            watched.place >= 0
            and watched.stall is None
            and watched.handler is None
            and not watched.is_starving
            and (watched.turn is None or watched.turn.stall is None)
            for watched in list(self._watched.values())
        )

    def look(self) -> bool:
        """Look at all loops once; return whether one of them is awake. Any thread may call this."""
        with self._lock:
            if self.at_look is not None:  # This may wait for a lock.
                if self._is_native:
                    looks.beat(True)
                self.at_look()
            if self._is_native:
                looks.beat(True)
            self._has_notes = False
            self._take_notes()
            is_awake = False
            for watched in list(self._watched.values()):
                loop = watched.reference()
                if loop is not None:
                    is_awake |= self._looker.look_at(watched, loop, 0)
                    if loop.is_closed():
                        self._forget_loop(id(loop), watched.reference)
                del loop  # A loop that nobody uses any more ends where it would without a watchdog.
            while self._gone:
                watched, gone_ns = self._gone.popleft()
                self._looker.look_at(watched, None, gone_ns)
                watched.close()
            if self._has_notes:
                looks.clear_recorded()
            self.reports.log_the_rest()
            return is_awake

    def _take_notes(self) -> None:
        """Collect what the native thread noted while this one had no lock."""
        notes = looks.captures() if self._is_native else []
        if not notes:
            return
        self._has_notes = True
        places = {watched.place: watched for watched in list(self._watched.values())}
        gone = {watched.last_place: (watched, until) for watched, until in list(self._gone)}
        for place, when, text, call in notes:
            watched = places.get(place)
            if place in gone and when <= gone[place][1]:
                watched = gone[place][0]
            if watched is not None:
                watched.notes.append((when, next(parse_dumps(text), None), call))


def _native_number(ident: Any) -> int | None:
    """Return the kernel's number of a thread, None if Python does not know it."""
    for thread in threading.enumerate():
        if thread.ident == ident:
            return thread.native_id
    return None
