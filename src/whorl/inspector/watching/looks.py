"""Looks at a loop from other threads, which cost the loop nothing.

The watchdog's Python thread looks by `progress_of`. It cannot while C code holds the interpreter's lock.
Compiled, a native thread looks too. It needs no lock of Python's. The Python thread sleeps (`rest`) until the
native one finds that a loop has not gone on. It takes over the look that the native thread made before that
(`before`).

If the Python thread does not get the lock, the native one notes the system call of the loop's thread. It
reads the thread's stack from outside. Both are also written into the recording.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from whorl.core.callback import current_thread
from whorl.core.figures import Figures
from whorl.core.loop.loop import Loop
from whorl.core.states import AWAY, CALLBACK

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

Progress = tuple[int, int, int, int, int, int]
#: When, the numbers or None, active time, the thread's running and waiting time (-1: unknown).
Look = tuple[int, Progress | None, int, int, int]
_is_gil_enabled: Any = getattr(sys, "_is_gil_enabled", lambda: True)
HAS_NATIVE = bool(cython.compiled)

if not cython.compiled:
    from whorl.core.figures import place_of
    from whorl.core.recording import layout
    from whorl.core.recording.loop_recorder import LoopRecorder
    from whorl.core.threads import HAS_GIL

    def call_began_in(recorder: LoopRecorder) -> int:
        """Return when the call began that runs; 0: none runs."""
        return int(recorder._fields[layout.CALL_BEGAN])

    def call_name_in(recorder: LoopRecorder) -> int:
        """Return the number of that call's name."""
        return int(recorder._fields[layout.CALL_NAME])

    def native_start(threshold_ns: int, interval_ns: int, reads_stacks: bool) -> int:
        """Start the native thread; uncompiled, there is none."""
        return 0

    def native_stop() -> None:
        """End the native thread."""

    def native_follow_forks() -> None:
        """Let each forked child forget the native thread of its parent; uncompiled, there is none."""

    def native_forked() -> None:
        """Forget, in a forked child, the native thread of the parent."""

    def native_watch(state: Loop, loop: Loop, thread: int, times: int) -> int:
        """Let the native thread look at a loop; return the loop's place, or -1."""
        return -1

    def native_unwatch(place: int) -> None:
        """Let the native thread look at a loop no more."""

    def native_times(thread: int, times: int) -> Any:
        """Return how long a thread has run and waited, without giving up the lock; -1: not known."""

    def native_file(thread: int, name: str) -> Any:
        """Return the text of a file about a thread, without giving up the lock."""

    def native_stack(thread: int, times: int) -> str:
        """Return the stack of a thread, read from outside; uncompiled, none is."""
        return ""

    def native_rest(until_ns: int) -> int:
        """Let the Python thread sleep until there is something to tell it."""
        raise NotImplementedError("there is no native thread")

    def native_wake() -> None:
        """End that sleep, or the next one."""

    def native_before(place: int) -> Any:
        """Return the native thread's last look before what a loop does; uncompiled, there is none."""
        return None

    def native_asked(place: int) -> Any:
        """Return when the native thread woke the Python thread for a loop; uncompiled, there is none."""
        return None

    def native_beat(looks: bool) -> None:
        """Note that the Python thread has the interpreter's lock now."""

    def native_record(memory: Any) -> int:
        """Let the native thread write into a recording; None: nowhere."""
        return 0

    def native_clear() -> None:
        """Forget in the recording what the native thread saw."""

    def native_take() -> Any:
        """Return the oldest note, or None."""

    def native_end_at_once(number: int) -> None:
        """Let the system end the process at a signal; Python still knows its handler."""
        with contextlib.suppress(ImportError):
            import ctypes

            ctypes.CDLL(None).signal(number, None)


native_follow_forks()


def progress_of(loop: Loop) -> Progress | None:
    """Return numbers of which one changes whenever the loop goes on; None while it is in no turn.

    They are: turns, entries of batches, idle time, and entries taken out of this batch. Then come the
    beginning of the sleep or 0, and the end of the last poll. A batch leaves None where it took an entry.
    Without the GIL, the loop changes its batch meanwhile. Nothing was taken out of it then.
    """
    if not loop._is_turning:
        return None
    taken = 0
    if has_gil():
        for entry in loop._ready_swap:  # Uncompiled, the loop may run between any two steps and shorten it.
            if entry is not None:
                break
            taken += 1
    return (loop._turns, loop._callbacks, loop._idle_ns, taken, loop._sleep_began, loop._now_ns)


def has_gil() -> bool:
    """Return whether another thread may follow what belongs to a loop."""
    return bool(HAS_GIL and (cython.compiled or _is_gil_enabled()))


def turn_began(loop: Loop) -> int:
    """Return when the loop's last poll ended; 0 if it sleeps or does not run, and without the GIL."""
    return loop._poll_ended if has_gil() and loop._is_turning else 0


def batch_size(loop: Loop) -> int:
    """Return how many entries the batch has that the loop runs; 0 without the GIL."""
    return len(loop._ready_swap) if has_gil() else 0


def call_began(loop: Loop) -> int:
    """Return when the callback began that runs, by the loop's recorder; 0 if that does not tell."""
    recorder = loop._recorder if has_gil() else None
    return 0 if recorder is None else call_began_in(recorder)


def call_name(loop: Loop) -> str | None:
    """Return the name of the callback that runs, by the loop's recorder; None if that does not tell."""
    recorder = loop._recorder if has_gil() else None
    if recorder is None or not call_began_in(recorder):
        return None
    return recorder._recorder._name_text(call_name_in(recorder))


def figures_of(loop: Loop) -> Figures:
    """Return the figures of a loop."""
    return loop._figures


def count_long(figures: Figures, least_ns: int) -> tuple[int, int]:
    """Return how often a loop was away from its poll for so long, and how many callbacks took so long.

    Both are by histograms: a sixteenth off. Only the callbacks of a recorded loop are known.
    """
    least = place_of(least_ns)
    return _sum_from(figures.histogram(AWAY), least), _sum_from(figures.histogram(CALLBACK), least)


def _sum_from(histogram: Any, least: int) -> int:
    _, _, counts = histogram
    return sum([count for place, count in counts.items() if place >= least])


def polled_at(loop: Loop) -> int:
    """Return when the loop last ended a poll, also while it does not run."""
    return loop._now_ns


def ran_last_here(loop: Loop) -> bool:
    """Return whether the calling thread is the last one that ran the loop, or made it."""
    return loop._last_run_thread == current_thread()


def start_native(threshold_ns: int, interval_ns: int, reads_stacks: bool) -> bool:
    """Start the native thread, if there is one; say whether it reads the stacks of stalled threads."""
    return bool(native_start(threshold_ns, interval_ns, reads_stacks))


def stop_native() -> None:
    """End the native thread, and wait for its end."""
    native_stop()


def forget_native() -> None:
    """Forget the native thread, in a child that was forked without it."""
    native_forked()


def watch(loop: Loop, thread: int, times: int) -> int:
    """Let the native thread look at a loop; return its place there, -1 if there is none.

    `times` is the descriptor of the thread's `schedstat`, or -1. The loop must be unwatched before the
    descriptor is closed, and before its memory is freed.
    """
    return int(native_watch(loop, loop, thread, times))


def unwatch(place: int) -> None:
    """Let the native thread look at a loop no more."""
    native_unwatch(place)


def times(thread: int, fd: int) -> tuple[int, int]:
    """Return how long a thread has run, and has waited for a processor; -1: the system does not tell.

    `fd` is the descriptor of its `schedstat` or -1. The interpreter's lock is not given up meanwhile.
    """
    ran, starved = native_times(thread, fd)
    return ran, starved


def file(thread: int, name: str) -> str:
    """Return the text of a small file of `/proc` about a thread, without giving up the lock; or ""."""
    return str(native_file(thread, name))


def stack(thread: int, times: int) -> str:
    """Return the stack of a thread as `faulthandler` writes one; empty if it could not be taken.

    It is read from outside, while the thread goes on. `thread` is the kernel's number of it. `times` is how
    often it is read, the last time counts: that is for tests.
    """
    return str(native_stack(thread, times))


def rest(until_ns: int) -> int:
    """Sleep until then, or until there is something to look at; return when that was, in nanoseconds.

    Only the watchdog's Python thread may call this. It has no lock meanwhile.
    """
    return int(native_rest(until_ns))


def wake() -> None:
    """End that sleep, or the next one."""
    native_wake()


def before(place: int) -> Look | None:
    """Take the native thread's last look before what a loop does now, None if there was none.

    If the Python thread was woken for this loop, it is the look before what the loop did then.
    """
    look = native_before(place)
    if look is None:
        return None
    when, is_turning, progress, active, ran, starved = look
    return when, progress if is_turning else None, active, ran, starved


def asked(place: int) -> tuple[int, int, int] | None:
    """Return when the native thread woke the Python thread for a loop, and the times of its thread then.

    The times are those that a look has; the next call returns None unless it was woken again.
    """
    moment = native_asked(place)
    return None if moment is None else tuple(moment)


def beat(looks: bool) -> None:
    """Tell the native thread that the Python thread has the lock and looks, or is busy for a while."""
    native_beat(looks)


def record(memory: Any) -> None:
    """Let the native thread write into this recording what it sees while the lock is held; None: nowhere.

    It holds the memory until then.
    """
    native_record(memory)


def clear_recorded() -> None:
    """Forget in the recording what the native thread saw: a stall of it has been written."""
    native_clear()


def end_at_once(number: int) -> None:
    """Let the system end the process at a signal, as without a handler; Python still knows its handler."""
    native_end_at_once(number)


def captures() -> list[tuple[int, int, str, str]]:
    """Take the native thread's notes: the loop's place, when, the stack or an empty text, the system call."""
    taken = []
    note = native_take()
    while note is not None:
        taken.append(note)
        note = native_take()
    return taken
