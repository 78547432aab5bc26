"""The state of a loop: its queues, handles, timers and counters, and what its faces replace."""

from __future__ import annotations

import collections
import logging
from typing import TYPE_CHECKING, Any

from whorl.core import limits, states
from whorl.core.callback import AbstractLoop, Callback, Runnable, current_thread
from whorl.core.handle import Handle
from whorl.core.kernel.kernel import Kernel
from whorl.core.process.host import Host
from whorl.core.recording import layout
from whorl.core.timers.heap import TimerHeap
from whorl.core.timers.timed_callback import TimedCallback, deadline_of

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.metrics import LoopHistograms, LoopMetrics, LoopUtilization
    from whorl.core.probe import Probe
    from whorl.core.recording.loop_recorder import LoopRecorder

if not cython.compiled:
    from whorl.core.callback import is_foreign
    from whorl.core.figures import add_ones, are_made
    from whorl.core.threads import HAS_GIL, barrier

    thread_number = current_thread

    def entries_waiting(loop: LoopState) -> int:
        """Return how many entries are queued, or were posted."""
        return len(loop._ready_queue) + len(loop._pending) + len(loop._inbox)

    def begin_sleep(loop: LoopState) -> None:
        """Set the flag that lets other threads end the sleep, before the queues are looked at."""
        loop._woken = False
        loop._may_sleep = True

    def end_sleep(loop: LoopState) -> None:
        """Clear the flags of the sleep, before the queues are looked at."""
        loop._may_sleep = loop._woken = False


class LoopState(AbstractLoop):
    """The attributes of a loop, and the methods by which its parts and its faces use them."""

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        AbstractLoop._set_up_abstract(self)
        self._closed = True  # until everything has been made
        self._kernel = Kernel() if kernel is None else kernel
        self._host: Host = Host() if host is None else host
        self._probe: Probe | None = None
        self._recorder: LoopRecorder | None = None
        # Without the GIL, another thread may be about to use a former recorder.
        self._kept_for_readers: list[Any] = []
        self._observed = False  # whether there is one of these two
        self._stopping = False
        self._thread = 0  # the thread that runs the loop, or 0
        # The queues.
        self._ready_queue: list[Runnable] = []
        self._ready_swap: list[Runnable] = []  # `_ready_queue` changes places with this list
        self._pending: list[Runnable] = []
        self._pending_swap: list[Runnable] = []  # `_pending` changes places with this list
        self._polled: list[Runnable] = []  # the handles that the machine's poll found ready
        self._inbox: Any = [] if cython.compiled else collections.deque()
        self._inbox_swap: list[Runnable] = []  # compiled, `_inbox` changes places with this list
        # Whether the inbox may have got something since it was last drained.
        self._posted = states.NONE_POSTED
        self._async_handles: dict[Any, None] = {}  # the open Async handles, in the order of their calls
        self._asyncs_made = 0
        self._sent_async: Runnable | None = None  # an Async that was sent; it calls all sent ones
        self._has_sent_async = False  # whether there is one, for those who do not hold the lock
        self._guards_posts = False  # whether cancelling a posted callback waits while it is running
        self._last_run_thread = current_thread()  # the thread that ran the loop last, or made it
        self._may_sleep = False  # from before the timeout is decided until the poll is over
        self._woken = False  # whether the wakeup was written since the last poll
        # The handles.
        self._idle_handles: list[Any] = []
        self._prepare_handles: list[Any] = []
        self._check_handles: list[Any] = []
        self._closing_handles: list[Handle] = []
        self._handles: dict[int, Handle] = {}  # the open handles, by identity, oldest first
        self._active_handles = 0  # the number of handles that are active and referenced
        self._active_requests = 0
        self._shared: dict[str, Any] = {}  # objects that the handles of one kind share, while there are any
        # The timers.
        self._clock_function: Any = None  # asyncio's face keeps its `time` function here
        self._timer_queue = TimerHeap()
        self._now_ns = self._kernel.now()
        self._time_replaced = False  # whether `time` or `call_at` is not the machine's
        self._follows_patch = False  # whether the loop has noticed that `time.monotonic` is patched
        # The counters.
        self._turns = 0
        self._events = 0
        self._callbacks = 0  # the entries of batches ...
        self._callbacks_alone = 0  # ... and those that were the only one of their turn
        self._events_waiting = 0
        self._idle_ns = 0
        self._sleep_began = 0  # 0 unless the loop sleeps
        self._ran_ns = 0  # the total duration of the finished runs
        self._run_began = 0  # 0 unless the loop runs
        self._poll_ended = 0  # the end of the last poll, or the beginning of the run; 0: not known
        self._previous_poll_ended = self._now_ns  # the end of the poll before it
        self._until_sample = limits.SAMPLED_TURNS  # turns until callbacks are timed; 0: in this one

    def is_closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed

    def is_running(self) -> bool:
        """Return whether the loop is being run."""
        return self._thread != 0

    @property
    def _thread_id(self) -> int | None:
        """The thread that runs the loop, or None; any thread may ask."""
        number = self._thread
        return number if number else None

    @_thread_id.setter
    def _thread_id(self, number: int | None) -> None:
        self._thread = number or 0

    def set_probe(self, probe: Probe | None) -> None:
        """Send events to `probe` from now on; None ends that."""
        self._probe = probe
        self._note_observers()

    def _note_observers(self) -> None:
        self._observed = self._probe is not None or self._recorder is not None

    def _set_recorder(self, recorder: Any) -> None:
        """Record the loop from its next turn on; None ends that. `own_thread` says which thread calls this.

        A turn that is under way may be recorded in part. Another thread may call this inside of a call of the
        recorder. So whoever calls the recorder holds it in a variable.
        """
        self._fold_alone()
        if not HAS_GIL:
            self._kept_for_readers.append(self._recorder)
        self._recorder = recorder
        self._note_observers()
        self._posted = states.SOMETHING  # so that `call_soon` looks closer

    def _fold_alone(self) -> None:
        """Count the entries that ran alone as all others: their number is not among the figures."""
        alone, self._callbacks_alone = self._callbacks_alone, 0
        self._figures.begin_histograms(alone)
        add_ones(self._figures, alone)
        self._callbacks += alone

    def _publish(self, recorder: LoopRecorder, now: int) -> None:
        """Write the loop's numbers into its recording."""
        if self._callbacks_alone:
            self._fold_alone()
        recorder._publish(
            now,
            self._last_run_thread,
            self._turns,
            self._events,
            self._callbacks,
            self._idle_ns,
            self._run_began,
            self._ran_ns,
            entries_waiting(self),
            self._timer_queue.count(),
            len(self._handles),
        )

    def get_debug(self) -> bool:
        """Return whether debug mode is on."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Turn debug mode on or off."""
        self._debug = bool(enabled)

    def _check_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    def _check_thread(self) -> None:
        number = self._thread
        if number and number != current_thread():
            raise RuntimeError(
                "Non-thread-safe operation invoked on an event loop other than the current one"
            )

    def _notify_probe(self, what: str, *details: Any) -> None:
        """Call the probe's method `what`; remove the probe if it raises."""
        probe = self._probe
        try:
            getattr(probe, what)(*details)
        except Exception:
            self._probe = None
            self._note_observers()
            _log_failed_probe(probe)

    # Sleep.

    def _end_sleep(self) -> None:
        """End the loop's sleep, if it sleeps or is about to.

        A caller queues its entry first and reads the flags afterwards. The loop sets `_may_sleep` first
        and looks at the queues afterwards. So one of the two always sees the other. Without the GIL, each
        passes a barrier of the processor in between.
        """
        barrier()
        if self._may_sleep and not self._woken:
            self._woken = True
            try:
                self._wake()
            except BaseException:  # An interrupt: the next call must not rely on this one.
                self._woken = False
                raise

    def _wake(self) -> None:
        """Write the wakeup."""

    # Handles.

    def walk(self) -> list[Handle]:
        """Return the open handles, oldest first (``uv_walk``)."""
        return list(self._handles.values())

    def _handle_opened(self, handle: Any) -> None:
        opened: Handle = handle
        self._handles[id(opened)] = opened
        opened._listed = True
        self._internal_handle_opened(opened)

    def _internal_handle_opened(self, handle: Handle) -> None:
        """Tell the probe that a handle was opened; the loop's own handles call this alone."""
        if self._observed:
            if self._probe is not None:
                self._notify_probe("handle_opened", handle)
            recorder = self._recorder
            if recorder is not None:
                recorder._handle_changed(handle, layout.HANDLE_OPENED)

    def _handle_closing(self, handle: Any) -> None:
        self._closing_handles.append(handle)
        if self._may_sleep:
            self._end_sleep()

    def _handle_closed(self, handle: Any) -> None:
        closed: Handle = handle
        if closed._listed:
            self._handles.pop(id(closed), None)
            closed._listed = False

    def _mark_internal(self, handle: Handle) -> None:
        """Hide a handle of the loop's own from users (libuv: ``UV_HANDLE_INTERNAL``)."""
        self._handle_closed(handle)

    def _count_active(self, change: int) -> None:
        self._active_handles += change

    def _count_requests(self, change: int) -> None:
        self._active_requests += change

    # Timers.

    def time(self) -> float:
        """Return the monotonic clock, in seconds, read afresh."""
        return self._kernel.now() / 1e9

    def now(self) -> int:
        """Return the time at which this turn's events were collected, in nanoseconds (``uv_now``)."""
        return self._now_ns

    def update_time(self) -> None:
        """Read the clock for `now` (``uv_update_time``)."""
        self._now_ns = self._clock()

    def _clock(self) -> int:
        return deadline_of(self.time()) if self._time_replaced else self._kernel.now()

    def _schedule(self, timer: TimedCallback) -> None:
        if is_foreign(self):
            self._post_from_any_thread(Arrival(self, timer))
            return
        self._timer_queue.push(timer)
        if self._may_sleep:
            self._end_sleep()  # a loop that is driven from outside, between two turns

    def _timer_cancelled(self, timer: Any) -> None:
        if is_foreign(self):
            self._post_from_any_thread(Withdrawal(self, timer))
            return
        self._timer_queue.note_cancelled(timer)

    def _post_from_any_thread(self, entry: Runnable) -> None:
        """Put an entry in the inbox, from any thread or a signal handler; the next poll drains it."""

    def _is_foreign(self) -> bool:
        """Return whether another thread is the loop's: then the calling thread must not touch its queues.

        It may not do so either while nobody runs the loop: the other thread may begin to at any moment.
        """
        return self._last_run_thread != thread_number()

    def _collect_timers(self, into: list[Any]) -> None:
        """Append the timers that are due by now."""
        collected = len(into)
        limit = self._now_ns
        if self._time_replaced and limit < limits.NEVER_NS:
            limit += 1  # A replaced clock returns floats; two that differ in the last digit are one time.
        # A timer that was late when it was made is late since then. That was after the previous poll.
        since = -1 if self._time_replaced else self._previous_poll_ended
        self._timer_queue.take_due(limit, into, self._figures, since)
        self._figures.counters.timers_fired += len(into) - collected
        if self._observed:
            now, recorder = self._now_ns, self._recorder
            for timer in into[collected:]:
                if self._probe is not None:
                    self._notify_probe("timer_due", timer, now - max(0, timer._deadline_ns))
                if recorder is not None and since >= 0:
                    recorder._timer_was_late(timer, now, now - max(since, timer._deadline_ns))

    def _until_next_timer(self, now_ns: int) -> int:
        """Return the nanoseconds until the first timer falls due, -1 if there is none."""
        deadline = self._timer_queue.next_deadline()
        if deadline == limits.NEVER_NS:
            return -1
        if deadline <= now_ns:
            return 0
        return min(deadline - now_ns, limits.LONGEST_POLL_NS)

    # Counters.

    def metrics(self) -> LoopMetrics:
        """Return the loop's counters; any thread may call this."""
        from whorl.core.metrics import LoopMetrics

        totals = self._figures.totals()
        begun = totals["jobs_begun"]
        return LoopMetrics(
            turns=self._turns,
            events=self._events,
            events_waiting=self._events_waiting,
            callbacks=self._callbacks + self._callbacks_alone,
            idle_ns=self._idle_ns,
            ready=entries_waiting(self),
            timers=self._timer_queue.seen_count(),
            handles=len(self._handles),
            active_handles=self._active_handles,
            active_requests=self._active_requests,
            bytes_in=totals["bytes_in"],
            bytes_out=totals["bytes_out"],
            reads=totals["reads"],
            writes=totals["writes"],
            timers_fired=totals["timers_fired"],
            jobs_waiting=max(0, totals["jobs_submitted"] - begun),
            jobs_running=max(0, begun - totals["jobs_ended"]),
            accepts=totals["accepts"],
            connections_opened=totals["connections_opened"],
            connections_closed=totals["connections_closed"],
            errors_reported=totals["errors_reported"],
            handshakes_failed=self._count_failed_handshakes(),
            handles_by_kind=self._count_kinds(),
        )

    def _count_failed_handshakes(self) -> int:
        """Return the number of TLS handshakes that failed: the machine knows no TLS."""
        return 0

    def _count_kinds(self) -> dict[str, int]:
        """Return the number of open handles by the name of their class."""
        counts: dict[str, int] = {}
        for handle in {id(handle): handle for handle in self._open_handles()}.values():
            name = type(handle).__name__
            counts[name] = counts.get(name, 0) + 1
        return counts

    def _open_handles(self) -> list[Any]:
        """Return the open handles, transports too; some may be there twice."""
        return self.walk()

    def histograms(self) -> LoopHistograms:
        """Return the histograms of the loop's times; any thread may call this.

        A loop keeps them from its first sleep on, or from its 64th turn on.
        """
        from whorl.core.metrics import Histogram, LoopHistograms

        figures = self._figures
        total, most, counts = figures.histogram(states.BATCH)
        if are_made(figures):
            alone = counts.pop(1, 0) + self._callbacks_alone
            if alone > 0:
                total, most, counts[1] = total + self._callbacks_alone, max(most, 1), alone
        return LoopHistograms(
            away=Histogram(*figures.histogram(states.AWAY)),
            late=Histogram(*figures.histogram(states.LATE)),
            slept=Histogram(*figures.histogram(states.SLEPT)),
            batch=Histogram(total, most, counts),
            callback=Histogram(*figures.histogram(states.CALLBACK)),
        )

    def utilization(self, earlier: LoopUtilization | None = None) -> LoopUtilization:
        """Return how busy the loop was while it ran, or since `earlier`; any thread may call this.

        Source: Node's ``performance.eventLoopUtilization``.
        """
        from whorl.core.metrics import LoopUtilization

        began, asleep = self._run_began, self._sleep_began
        now = self._kernel.now()  # after these, which another thread may be changing
        ran = self._ran_ns + (now - began if began else 0)
        idle = self._idle_ns + (now - asleep if asleep else 0)
        total = LoopUtilization.of(min(idle, ran), ran)
        return total if earlier is None else total.since(earlier)

    # The methods that faces replace.

    def _clock_was_patched(self) -> None:
        """Follow `time.monotonic`, which was replaced or put back."""

    def _callback_failed(self, entry: Runnable, error: BaseException) -> None:
        """Handle an error of the user's code. The machine lets it end the run."""
        raise error

    def _callback_ran(self, entry: Runnable, took_ns: int) -> None:
        """Note how long an entry took (debug mode)."""

    def _signal_arrived(self, number: int) -> None:
        """Handle a signal whose number was read from the signal pipe."""

    def _check_callback(self, callback: object, method: str) -> None:
        """Raise TypeError if `callback` cannot be called (debug mode)."""
        if not callable(callback):
            raise TypeError(f"a callable object was expected by {method}(), got {callback!r}")

    def _note_origin(self, callback: Callback) -> None:
        """Note where a callback was scheduled (debug mode)."""


class Arrival(Runnable):
    """A timer that another thread has scheduled, on its way to the heap. It is used without the GIL only."""

    def __init__(self, loop: LoopState, timer: TimedCallback) -> None:
        self._loop = loop
        self._timer = timer

    def _execute(self) -> None:
        if not self._timer._cancelled:
            self._loop._schedule(self._timer)


class Withdrawal(Arrival):
    """A timer that another thread has cancelled, for the heap to count."""

    def _execute(self) -> None:
        self._loop._timer_queue.note_cancelled(self._timer)


def _log_failed_probe(probe: object) -> None:
    logging.getLogger("whorl").exception("Probe %r failed and was removed", probe)
