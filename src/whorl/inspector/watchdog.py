"""The watchdog: one thread that looks at every watched loop from outside, and reports stalls while they last.

A loop stalls when it is awake, in a turn, and has not gone on to the next callback for as long as the
threshold. The watchdog looks four times in that. It reads numbers that the loop counts anyway (`looks`), so
the loop does nothing for it.

A thread that waits for a processor looks like one that stalls. So the watchdog subtracts the time that the
kernel counted as waiting (`threads`). If less than the threshold is left, other programs took it. The
stall counts as `starved`. The kernel adds that time only when the wait is over. So time of which it says
nothing yet counts as waiting while the thread is ready to run.

While C code holds the interpreter's lock, this thread cannot look. The compiled build's native thread then
asks the stalled thread for its stack by a signal. The handler is faulthandler's: it runs in the thread itself
and writes to a file in memory. Uncompiled, the stack is taken when the lock is free, and is marked `late`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import faulthandler
import gc
import linecache
import logging
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.loop import Loop
from whorl.inspector import looks, runs, threads
from whorl.inspector.stalls import Frame, Stack, Stall
from whorl.inspector.text import shown

LOOKS_PER_THRESHOLD = 4
SHORTEST_INTERVAL_NS = 5_000_000
LONGEST_INTERVAL_NS = 250_000_000
MOST_STALLS = 256  # kept for `stalls`
MOST_STACKS = 8  # of one stall
MOST_FRAMES = 100  # of a stack
LOCK_WAIT_NS = 30_000_000  # A wait for the interpreter's lock is no longer, unless C code keeps the lock.
QUIET_NS = 1_000_000_000  # at most one line of the log in this time
LONG_STALL_NS = 1_000_000_000  # A stall that has lasted so long is logged before its end.
END_WAIT = 2.0  # seconds that `stop` waits for the thread
FAULTHANDLER_LINE = re.compile(r'^\s+File "(.*)", line (\d+) in (.*)$')
OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
# Where the frames of loops lie that are not the program's own.
MACHINERY = tuple(
    os.path.join(os.path.dirname(os.path.abspath(module)), "")
    for module in (asyncio.__file__, os.path.dirname(OWN))
)

logger = logging.getLogger("whorl.inspector")

Key = tuple[int, int, int, int, int]


class Usage(NamedTuple):
    """The times of a loop's thread, at one moment."""

    ran_ns: int | None
    starved_ns: int | None
    looker_starved_ns: int
    """How long the watchdog itself had waited for a processor, perhaps with the interpreter's lock."""
    collector_ns: int


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
        self.reference = weakref.ref(loop, forget)
        self.name = f"<{type(loop).__name__} at {id(loop):#x}>"
        self.run_began_ns = self.looked_ns = time.monotonic_ns()
        self.thread = thread
        self.times = None if thread is None else threads.Times(thread)
        self.place = self.last_place = -1  # of the native thread; the last one when the loop is gone
        self.key: Key | None = None  # None unless the loop was awake at the last look
        self.progress: looks.Progress | None = None  # at the last look
        self.began_ns = 0  # when the loop began what it does, as far as is known
        self.seen_ns = 0  # when it was last seen doing that
        self.base = Usage(None, None, 0, 0)  # the times when it began
        self.latest = self.base
        self.asleep_ns = 0  # how long the thread was surely asleep since then
        self.next_ns = 0  # the age at which something is to be done
        self.is_starving = False
        self.lock_kept_ns = 0  # how long C code has kept the interpreter's lock since then
        #: What the native thread saw: when, the stack if it got one, and the system call.
        self.notes: list[tuple[int, tuple[Frame, ...] | None, str]] = []
        self.stall: Stall | None = None
        self.is_logged = False

    def close(self) -> None:
        """Let go of the loop, before its memory is freed, and of the thread's file."""
        looks.unwatch(self.place)
        self.place = -1
        if self.times is not None:
            self.times.close()

    def noted_stacks(self) -> tuple[Stack, ...]:
        """Return the stacks that came by the signal."""
        return tuple(
            Stack(when - self.began_ns, frames, *threads.describe_call(call), False)
            for when, frames, call in self.notes
            if frames is not None and when > self.began_ns
        )


class Watchdog:
    """Watches `loop`, or with None every loop that runs. One lock guards each look."""

    def __init__(self, loop: Loop | None, threshold: float, signal: int | None) -> None:
        self._only = None if loop is None else weakref.ref(loop)
        self._signal = signal or 0
        self.starved = 0  # the callbacks that were late only because others had the processor
        self._listeners: list[Callable[[Stall], object]] = []
        self._set_threshold_only(threshold)
        self._forget_everything()

    #: Called when the first loop of the process runs, and again so in a forked child.
    at_start: Callable[[], object] | None = None

    def _set_threshold_only(self, threshold: float) -> None:
        self.threshold = threshold
        self._threshold_ns = max(1, round(threshold * 1e9))
        interval = self._threshold_ns // LOOKS_PER_THRESHOLD
        self._interval_ns = min(max(interval, SHORTEST_INTERVAL_NS), LONGEST_INTERVAL_NS)

    def _forget_everything(self) -> None:
        """Begin without loops, stalls and threads: anew, or in a forked child."""
        self._watched: dict[int, WatchedLoop] = {}
        self._gone: collections.deque[tuple[WatchedLoop, int]] = collections.deque()
        self._stalls: collections.deque[Stall] = collections.deque(maxlen=MOST_STALLS)
        self._going_on: dict[int, Stall] = {}
        self._lock = threading.RLock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._thread_number = 0
        self._times: threads.Times | None = None  # of that thread
        self._end = threading.Lock()  # released to end the thread's pause
        self._look_ended = threading.Condition()
        self._looks = 0
        self._is_native = False
        self._stack_file = -1
        self._pause_ns = 0  # how long the watchdog sleeps between two looks
        self._collector_began_ns = 0
        self._collector_ns = 0
        self._number = 0
        self._logged_ns = -QUIET_NS
        self._unlogged = 0
        self.starved = 0

    # Beginning and end.

    def start(self) -> None:
        """Watch the loops that run now, and each that begins to."""
        self._is_on = True
        gc.callbacks.append(self._collector_called)
        runs.add_listener(self._loop_runs)
        for loop in runs.running_loops():
            if self._is_meant(loop):
                self._add(loop, _native_number(loop._thread_id))

    def stop(self) -> None:
        """End the thread, and let go of everything."""
        self._is_on = False
        runs.remove_listener(self._loop_runs)
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._collector_called)
        with self._starting:  # No thread begins from here on.
            thread, self._thread = self._thread, None
        if thread is not None:
            with contextlib.suppress(RuntimeError):
                self._end.release()
            if thread is not threading.current_thread():
                thread.join(END_WAIT)
        self._stop_native()
        self._close_all()
        self._going_on.clear()

    def _close_all(self) -> None:
        """Close what is open for each loop, and for the thread."""
        for watched in [*self._watched.values(), *(watched for watched, _ in self._gone)]:
            watched.close()
        self._watched.clear()
        self._gone.clear()
        if self._times is not None:
            self._times.close()
            self._times = None

    def fork_ended(self) -> None:
        """Begin anew in a forked child, with the first loop that runs there."""
        if self._is_native:
            looks.forget_native()
        self._close_stack_file()
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
                self._is_native = looks.start_native(self._threshold_ns, self._interval_ns, self._sends())
            for watched in self._watched.values():
                watched.key = None
                watched.place = self._place_of(watched.reference(), watched.thread)
            self._wake()  # It sleeps for the new interval from now on.

    def look_now(self) -> None:
        """Let the thread look, and wait until it has: a stall that has just ended is known then."""
        deadline = time.monotonic() + END_WAIT
        with self._look_ended:
            target = self._looks + 2  # One look may be under way.
            while self._looks < target and time.monotonic() < deadline and self._wake():
                self._look_ended.wait(self._interval_ns / 1e9)

    def _wake(self) -> bool:
        """End the thread's pause; return whether there is a thread."""
        if self._thread is None:
            return False
        with contextlib.suppress(RuntimeError):  # It is awake already.
            self._end.release()
        return True

    def _start_thread(self) -> None:
        with self._starting:
            if self._thread is not None or not self._is_on:
                return
            self._end.acquire()
            if looks.HAS_NATIVE:
                self._open_stack_file()
                self._is_native = looks.start_native(self._threshold_ns, self._interval_ns, self._sends())
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

    def _stop_native(self) -> None:
        if self._is_native:
            looks.stop_native()
            self._is_native = False
        self._close_stack_file()

    def _sends(self) -> int:
        return self._signal if self._stack_file >= 0 else 0

    def _open_stack_file(self) -> None:
        """Let the signal's handler write stacks to a file in memory, if nobody uses that signal."""
        if not self._signal or not _is_unused(self._signal):
            return
        try:
            fd = os.memfd_create("whorl-stacks")
        except (OSError, AttributeError):
            return
        try:
            faulthandler.register(self._signal, file=fd, all_threads=False, chain=False)
        except (OSError, RuntimeError, ValueError):
            os.close(fd)
        else:
            self._stack_file = fd

    def _close_stack_file(self) -> None:
        if self._stack_file >= 0:
            faulthandler.unregister(self._signal)
            os.close(self._stack_file)
            self._stack_file = -1

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
            self._add(loop, threading.get_native_id())

    def _add(self, loop: Loop, thread: int | None) -> None:
        known = self._watched.get(id(loop))
        if known is not None and known.reference() is loop and known.thread == thread:
            known.run_began_ns = time.monotonic_ns()
            return
        if known is not None:
            known.close()
        self._start_thread()
        number = id(loop)

        def forget(reference: Any) -> None:
            """Let go of a loop before its memory is freed."""
            watched = self._watched.get(number)
            if watched is not None and watched.reference is reference:
                del self._watched[number]
                looks.unwatch(watched.place)
                watched.last_place, watched.place = watched.place, -1
                self._gone.append((watched, time.monotonic_ns()))  # The next look ends its stall.

        watched = WatchedLoop(loop, thread, forget)
        watched.latest = self._usage(watched)
        self._watched[number] = watched
        watched.place = self._place_of(loop, thread)

    def _place_of(self, loop: Loop | None, thread: int | None) -> int:
        return -1 if loop is None or thread is None or not self._is_native else looks.watch(loop, thread)

    # Looking.

    def _run(self) -> None:
        """Look until told to end: the thread."""
        end = self._end
        self._thread_number = threading.get_native_id()
        self._times = threads.Times(self._thread_number)
        while self._is_on and self._end is end:
            try:
                is_awake = self.look()
            except Exception:
                logger.exception("The watchdog could not look at the loops")
                is_awake = False
            with self._look_ended:
                self._looks += 1
                self._look_ended.notify_all()
            self._pause_ns = self._interval_ns * (1 if is_awake else 2)
            end.acquire(timeout=self._pause_ns / 1e9)
        if self._is_native:
            looks.beat(0)

    def look(self) -> bool:
        """Look at all loops once; return whether one of them is awake. Any thread may call this."""
        with self._lock:
            if self._is_native:
                looks.beat(self._thread_number)
                self._take_notes()
            is_awake = False
            while self._gone:
                watched, gone_ns = self._gone.popleft()
                self._look_at(watched, None, gone_ns)
                watched.close()
            for watched in list(self._watched.values()):
                loop = watched.reference()
                if loop is not None:
                    is_awake |= self._look_at(watched, loop, 0)
                del loop  # A loop that nobody uses any more ends where it would without a watchdog.
            if self._unlogged and time.monotonic_ns() - self._logged_ns >= QUIET_NS:
                self._log(None)
            return is_awake

    def _look_at(self, watched: WatchedLoop, loop: Loop | None, gone_ns: int) -> bool:
        """Look at one loop, or note that it is gone since then; return whether it is awake."""
        before, progress = watched.progress, None if loop is None else looks.progress_of(loop)
        is_idle = progress is None or progress[4]
        if loop is not None and is_idle and progress == before:
            watched.looked_ns = time.monotonic_ns()
            watched.notes.clear()
            return False  # It sleeps as before, or does not run.
        # The times are read first: that may end with a wait for the interpreter's lock. What follows is read
        # without giving up the lock.
        earlier, watched.latest = watched.latest, self._usage(watched)
        now = time.monotonic_ns() if loop is not None else gone_ns
        watched.progress = progress = None if loop is None else looks.progress_of(loop)
        looked, watched.looked_ns = watched.looked_ns, now
        late = now - looked - self._pause_ns if threading.get_native_id() == self._thread_number else 0
        kept = _lock_kept(earlier, watched.latest, late)
        key = None if progress is None or progress[4] else progress[:5]
        if loop is not None and key is not None and key == watched.key:
            watched.seen_ns = now
            watched.lock_kept_ns += kept
            if now - watched.began_ns >= watched.next_ns:
                self._is_stalled(watched, loop, now)
            return True
        if watched.stall is not None or watched.is_starving:
            self._has_moved(watched, progress, now)
        elif kept:
            self._passed_unseen(watched, before, earlier, kept, looked, now)
        watched.key = key
        if loop is not None and key is not None and progress is not None:
            watched.began_ns = watched.seen_ns = now
            watched.base = watched.latest
            watched.asleep_ns = watched.lock_kept_ns = 0
            watched.next_ns = self._threshold_ns
            watched.is_logged = False
            if key[3] <= 1 and looked < progress[5] <= now:
                # The first callback since the poll: it began right then. The earlier times are those of the
                # last look. What the thread did between that and the poll is little.
                watched.began_ns = progress[5]
                watched.lock_kept_ns = min(kept, now - watched.began_ns)
                watched.base = watched.latest if earlier.ran_ns is None else earlier
                if now - watched.began_ns >= watched.next_ns:
                    self._is_stalled(watched, loop, now)
        watched.notes.clear()
        return key is not None

    def _is_stalled(self, watched: WatchedLoop, loop: Loop, now: int) -> None:
        """Report a callback that has reached the next age, with a stack of this moment."""
        shares = self._shares(watched, now)
        if watched.stall is None and shares.own_ns < self._threshold_ns:
            watched.is_starving = True
            return
        age = now - watched.began_ns
        is_new = watched.stall is None
        stall = watched.stall or self._new_stall(watched, now)
        late = watched.lock_kept_ns * 2 >= age - (shares.starved_ns or 0)
        stacks = [*stall.stacks, *watched.noted_stacks()]
        if len(stacks) < MOST_STACKS:
            stack, call, task = self._stack_of(watched, loop, age, late)
            if stack is not None and not (late and any(not earlier.late for earlier in stacks)):
                stacks.append(stack)
            stall = _changed(stall, call=stall.call or call, task=stall.task or task)
        stall = _changed(stall, stacks=tuple(stacks[:MOST_STACKS]))
        stall = self._update(watched, stall, shares, now, ended=False)
        watched.notes.clear()
        while watched.next_ns <= age:
            watched.next_ns *= 2
        if is_new:
            self._notify_listeners(stall)
        if not watched.is_logged and age >= max(LONG_STALL_NS, 8 * self._threshold_ns):
            watched.is_logged = True
            self._log(stall)

    def _has_moved(self, watched: WatchedLoop, progress: looks.Progress | None, now: int) -> None:
        """Note the end of what the loop did."""
        if watched.stall is None:
            self.starved += 1
        else:
            # The loop reads the clock at the end of each poll and before it sleeps.
            reads = [] if progress is None else [progress[4], progress[5]]
            end = min((read for read in reads if watched.seen_ns < read <= now), default=now)
            stacks = (*watched.stall.stacks, *watched.noted_stacks())[:MOST_STACKS]
            self._end_stall(watched, _changed(watched.stall, stacks=stacks), end)
        watched.is_starving = False

    def _passed_unseen(
        self,
        watched: WatchedLoop,
        before: looks.Progress | None,
        earlier: Usage,
        kept: int,
        looked: int,
        now: int,
    ) -> None:
        """Report a stall that began and ended while this thread waited for the interpreter's lock.

        The loop was awake since its last sleep. The stall was not longer than the lock was missing. The
        holder kept the lock in one go: it has to hand it over when this thread asks for it.
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
        length = min(end - watched.began_ns - slept, now - looked)
        if length < self._threshold_ns:
            return
        watched.began_ns = end - length
        watched.asleep_ns = 0
        watched.lock_kept_ns = min(kept, length)
        if self._shares(watched, end).own_ns >= self._threshold_ns:
            stall = _changed(self._new_stall(watched, end), stacks=watched.noted_stacks())
            if stall.stacks:
                stall = _changed(stall, call=_called_by(stall.stacks[0].frames))
            self._end_stall(watched, stall, end)

    def _end_stall(self, watched: WatchedLoop, stall: Stall, end: int) -> None:
        stall = self._update(watched, stall, self._shares(watched, end), end, ended=True)
        self._stalls.append(stall)
        self._going_on.pop(stall.number, None)
        watched.stall = None
        self._notify_listeners(stall)
        if watched.is_logged:
            logger.info("%s", stall.summary())
        else:
            self._log(stall)

    # Reports.

    def _new_stall(self, watched: WatchedLoop, now: int) -> Stall:
        self._number += 1
        return Stall(
            number=self._number,
            loop=watched.name,
            thread=watched.thread,
            began_ns=watched.began_ns,
            length_ns=now - watched.began_ns,
            ended=False,
            running_ns=None,
            starved_ns=None,
            asleep_ns=None,
            gc_ns=0,
            gil_held=None,
            call=None,
            task=None,
            stacks=(),
        )

    def _update(self, watched: WatchedLoop, stall: Stall, shares: Shares, now: int, *, ended: bool) -> Stall:
        length = now - watched.began_ns
        stall = _changed(
            stall,
            length_ns=length,
            ended=ended,
            running_ns=shares.running_ns,
            starved_ns=shares.starved_ns,
            asleep_ns=shares.asleep_ns,
            gc_ns=shares.gc_ns,
            gil_held=self._is_lock_held(watched, shares, length),
        )
        watched.stall = self._going_on[stall.number] = stall
        return stall

    def _is_lock_held(self, watched: WatchedLoop, shares: Shares, length: int) -> bool | None:
        """Return whether the loop's thread kept the interpreter's lock most of the time; None: unknown."""
        if watched.lock_kept_ns * 2 < length - (shares.starved_ns or 0):
            return False
        calls = [call for _, _, call in watched.notes if call]
        if calls:  # A thread in futex waits for a lock: for the interpreter's, that is.
            return any(threads.describe_call(call)[0] != "futex" for call in calls)
        if shares.running_ns is None:
            return None
        # A thread that slept may have kept the lock, or may have waited for it.
        return True if shares.running_ns * 2 >= length - (shares.starved_ns or 0) else None

    def _stack_of(
        self, watched: WatchedLoop, loop: Loop, age: int, late: bool
    ) -> tuple[Stack | None, str | None, str | None]:
        """Return the stack of a loop's thread now, the function that the loop called, and the task."""
        frame = sys._current_frames().get(loop._thread_id or 0)
        task, task_code = _task_of(loop)
        lines: list[tuple[CodeType, int]] = []
        while frame is not None and len(lines) < 10 * MOST_FRAMES:
            lines.append((frame.f_code, frame.f_lineno or 0))
            frame = frame.f_back
        syscall, file = (None, None) if watched.thread is None else threads.system_call_of(watched.thread)
        progress = looks.progress_of(loop)
        if progress is None or progress[:5] != watched.key or not lines:
            return None, None, None  # The loop has gone on meanwhile.
        lines.reverse()
        while len(lines) > 1 and lines[-1][0].co_filename.startswith(OWN):
            lines.pop()  # what the collector calls
        frames = tuple(
            Frame(code.co_filename, line, code.co_qualname, linecache.getline(code.co_filename, line).strip())
            for code, line in lines[-MOST_FRAMES:]
        )
        has_task = task_code is not None and any(code is task_code for code, _ in lines)
        call = shown(task_code.co_qualname) if task_code is not None and has_task else _called_by(frames)
        if late:
            syscall = file = None  # That is the call of this moment, not of the stall.
        return Stack(age, frames, syscall, file, late), call, task

    def _take_notes(self) -> None:
        """Collect what the native thread noted while this one had no lock."""
        notes = looks.captures()
        if not notes:
            return
        dumps = iter(self._read_dumps())
        places = {watched.place: watched for watched in list(self._watched.values())}
        gone = {watched.last_place: (watched, until) for watched, until in list(self._gone)}
        for place, when, was_sent, call in notes:
            frames = next(dumps, None) if was_sent else None
            watched = places.get(place)
            if place in gone and when <= gone[place][1]:
                watched = gone[place][0]
            if watched is not None:
                watched.notes.append((when, frames, call))

    def _read_dumps(self) -> list[tuple[Frame, ...]]:
        """Take the stacks that the signal's handler wrote, the oldest first."""
        fd = self._stack_file
        if fd < 0:
            return []
        text = os.pread(fd, 1 << 20, 0).decode("utf-8", "replace")
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        return list(parse_dumps(text))

    # Times.

    def _usage(self, watched: WatchedLoop) -> Usage:
        looker = 0 if self._times is None else self._times.read()[1] or 0
        ran, starved = (None, None) if watched.times is None else watched.times.read()
        collector = self._collector_ns
        if self._collector_began_ns:
            collector += time.monotonic_ns() - self._collector_began_ns
        return Usage(ran, starved, looker, collector)

    def _shares(self, watched: WatchedLoop, now: int) -> Shares:
        """Return what the thread did since `began_ns`."""
        length = now - watched.began_ns
        base, usage = watched.base, watched.latest
        gc_ns = min(usage.collector_ns - base.collector_ns, length)
        if base.ran_ns is None or usage.ran_ns is None:
            return Shares(None, None, None, gc_ns, length)
        running = min(usage.ran_ns - base.ran_ns, length)
        if base.starved_ns is None or usage.starved_ns is None:
            return Shares(running, None, None, gc_ns, length)
        starved = min(usage.starved_ns - base.starved_ns, length - running)
        asleep = length - running - starved
        if watched.thread is not None and threads.is_runnable(watched.thread):
            asleep = min(asleep, watched.asleep_ns)  # The rest may be a wait that is not over.
            starved = length - running - asleep
        watched.asleep_ns = asleep
        # The thread may have slept because this one had the interpreter's lock, and no processor.
        looker_starved = usage.looker_starved_ns - base.looker_starved_ns
        return Shares(running, starved, asleep, gc_ns, running + max(0, asleep - looker_starved))

    def _collector_called(self, phase: str, info: dict[str, int]) -> None:
        """Add up how long Python's garbage collector runs. It holds the interpreter's lock."""
        if phase == "start":
            self._collector_began_ns = time.monotonic_ns()
        elif self._collector_began_ns:
            self._collector_ns += time.monotonic_ns() - self._collector_began_ns
            self._collector_began_ns = 0

    # Telling.

    def stalls(self) -> list[Stall]:
        """Return the last stalls, oldest first; those that go on are among them."""
        return sorted([*self._stalls, *self._going_on.values()], key=lambda stall: stall.number)

    def stalls_seen(self) -> int:
        """Return how many stalls were seen, also those that `stalls` has no longer."""
        return self._number

    def subscribe(self, listener: Callable[[Stall], object]) -> Callable[[], None]:
        """Call `listener` with each stall; return a function that ends that."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    def _notify_listeners(self, stall: Stall) -> None:
        with self._busy():
            for listener in list(self._listeners):
                try:
                    listener(stall)
                except Exception:
                    with contextlib.suppress(ValueError):
                        self._listeners.remove(listener)
                    logger.exception("%r failed and is told of no more stalls", listener)

    def _log(self, stall: Stall | None) -> None:
        """Log a stall, or with None how many were not; at most one line in each second."""
        now = time.monotonic_ns()
        if stall is not None and now - self._logged_ns < QUIET_NS:
            self._unlogged += 1
            return
        more, self._unlogged = self._unlogged, 0
        self._logged_ns = now
        with self._busy():
            if stall is None:
                logger.warning("and %d more", more)
            elif more:
                logger.warning("%s\n(and %d more)", stall.text(), more)
            else:
                logger.warning("%s", stall.text())

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """Tell the native thread that this one runs code of others, which may take long."""
        if self._is_native:
            looks.beat(0)
        try:
            yield
        finally:
            if self._is_native:
                looks.beat(self._thread_number)


def has_real_clock(loop: Loop) -> bool:
    """Return whether a loop's time is that of the system: a simulated world has no stalls."""
    kernel: Any = type(loop._kernel)
    return bool(kernel.now is Kernel.now)


def parse_dumps(text: str) -> Iterator[tuple[Frame, ...]]:
    """Yield the frames of each stack that faulthandler wrote, the outermost first."""
    frames: list[Frame] = []
    for line in [*text.splitlines(), "Stack"]:
        match = FAULTHANDLER_LINE.match(line)
        if match is not None:
            file, number = match[1], int(match[2])
            frames.append(Frame(file, number, match[3], linecache.getline(file, number).strip()))
        elif not line.startswith(" "):
            if frames:
                yield tuple(reversed(frames))
            frames = []


def _lock_kept(earlier: Usage, latest: Usage, late_ns: int) -> int:
    """Return how long C code kept the interpreter's lock before a look that is so late, as far as is known.

    Python's code hands the lock over when the watchdog has waited for 5 ms. If the loop's thread has run for
    much longer meanwhile, it was in C code.
    """
    if late_ns < LOCK_WAIT_NS:
        return 0
    ran = starved = 0
    if earlier.ran_ns is not None and latest.ran_ns is not None:
        ran = min(latest.ran_ns - earlier.ran_ns, late_ns)
    if earlier.starved_ns is not None and latest.starved_ns is not None:
        starved = latest.starved_ns - earlier.starved_ns  # perhaps with the lock
    kept = max(ran, late_ns - starved - (latest.looker_starved_ns - earlier.looker_starved_ns))
    return kept if kept >= LOCK_WAIT_NS else 0


def _changed(stall: Stall, **fields: Any) -> Stall:
    return dataclasses.replace(stall, **fields)


def _native_number(ident: Any) -> int | None:
    """Return the kernel's number of a thread, None if Python does not know it."""
    for thread in threading.enumerate():
        if thread.ident == ident:
            return thread.native_id
    return None


def _is_unused(signal: int) -> bool:
    """Return whether a signal has its default disposition: nobody catches or ignores it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    masks = re.findall(r"^Sig(?:Ign|Cgt):\s*([0-9a-f]+)$", text, re.MULTILINE)
    return len(masks) == 2 and not any(int(mask, 16) >> (signal - 1) & 1 for mask in masks)


def _task_of(loop: Any) -> tuple[str | None, CodeType | None]:
    """Return the name of the task whose step a loop runs, and the code of its coroutine."""
    try:
        task: Any = asyncio.current_task(loop)
        if task is None:
            return None, None
        coroutine = task.get_coro()
        code = getattr(coroutine, "cr_code", None)
        name = getattr(coroutine, "__qualname__", None) or type(coroutine).__name__
        return shown(f"{task.get_name()} ({name})"), code
    except Exception:  # A task of the program's own may do anything.
        return None, None


def _called_by(frames: tuple[Frame, ...]) -> str | None:
    """Return the name of the function that the loop called: the program's first after the loop's own."""
    is_inside = False
    for frame in frames:
        is_ours = frame.file.startswith(MACHINERY)
        if is_inside and not is_ours:
            return shown(frame.function)
        is_inside |= is_ours
    return shown(frames[-1].function) if frames else None
