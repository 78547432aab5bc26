"""The loop: one turn after another, each the same list of phases.

Two faces share the phases. The machine's face is `Loop.run`, in libuv's order; asyncio's face
(`whorl.aio`) runs `_turn`. The poller only collects; nothing of the user's runs inside it.

Two queues feed a turn. *Pending* holds the machine's finished requests and whatever wants to run
again; *ready* holds `call_soon` entries, and in asyncio's turn I/O events and due timers too.
Entries that other threads post arrive in a third one, from which the loop takes them.
"""

from __future__ import annotations

import collections
import errno
import operator
import select
import signal
import warnings
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from whorl.core.callback import (
    Callback,
    Owner,
    Runnable,
    current_thread,
    new_callback,
    new_guarded_callback,
    recycle,
)
from whorl.core.epoll import EpollPoller
from whorl.core.handle import Completion, Handle, LateCompletion
from whorl.core.host import Host
from whorl.core.kernel import Kernel
from whorl.core.limits import (
    LONGEST_POLL_NS,
    LONGEST_SPIN_NS,
    LONGEST_WITHOUT_POLL_NS,
    NEVER_NS,
    PENDING_ROUNDS,
    QUIET_POLLS,
    TURNS_WITHOUT_POLL,
)
from whorl.core.metrics import LoopMetrics, LoopUtilization
from whorl.core.poller import Poller
from whorl.core.states import RunMode
from whorl.core.timer import TimedCallback, deadline_of, new_timer
from whorl.core.timer_heap import TimerHeap
from whorl.core.wakeup import SignalPipe, Wakeup

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython

if TYPE_CHECKING:
    import selectors

    from whorl.core.probe import Probe
    from whorl.core.uncompiled import binding
else:
    try:
        from cython import binding
    except ImportError:
        from whorl.core.uncompiled import binding

DEFAULT = int(RunMode.DEFAULT)
SIGPROF = int(getattr(signal, "SIGPROF", -1))
ONCE = int(RunMode.ONCE)
UNCHANGED: Any = object()
#: What a process lacks that cannot open another descriptor.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})
COMPILED = bool(cython.compiled)


def make_poller(wanted: Poller | selectors.BaseSelector | str | None, kernel: Kernel) -> Poller:
    """The poller asked for: one of ours, one around a `selectors` object, or the best there is."""
    if isinstance(wanted, Poller):
        return wanted
    refusal = ""
    if isinstance(wanted, str):
        if wanted not in ("epoll", "io_uring"):
            raise ValueError(f"a poller is called 'epoll' or 'io_uring', not {wanted!r}")
        if wanted == "io_uring":
            from whorl.core.uring_poller import UringPoller

            try:
                return UringPoller(kernel)
            except OSError as error:
                refusal = f"io_uring: {error.strerror}"
        wanted = None
    if wanted is None and hasattr(select, "epoll"):
        poller: Poller = EpollPoller(kernel)
    else:
        from whorl.core.selector import SelectorPoller

        poller = SelectorPoller(wanted)
    poller.in_place_of = refusal
    return poller


class Loop(Owner):
    """An event loop (libuv: ``uv_loop_t``). It belongs to the thread that runs it.

    `kernel` and `host` are what the loop sees of the world, the real one by default. `poller` is
    one of Whorl's pollers, a `selectors` object, or the name of one: "epoll", which is what Linux has by
    default, or "io_uring". Where io_uring does not work the loop uses what it would by default, and
    `poller_name` says so.
    """

    __slots__ = (
        "__weakref__",
        "_active_handles",
        "_active_requests",
        "_arms_signals",
        "_arrivals",
        "_async_handles",
        "_asyncs_made",
        "_callbacks",
        "_check_handles",
        "_closed",
        "_closing_handles",
        "_emptied",
        "_events",
        "_events_waiting",
        "_guards_posts",
        "_handles",
        "_holding",
        "_home_thread",
        "_host",
        "_idle_handles",
        "_idle_ns",
        "_is_driven",
        "_is_turning",
        "_kernel",
        "_may_sleep",
        "_now_ns",
        "_passes",
        "_pending",
        "_polled",
        "_polled_at",
        "_poller",
        "_posted",
        "_prepare_handles",
        "_probe",
        "_process_id",
        "_ran_ns",
        "_ready",
        "_run_began",
        "_sent_async",
        "_shared",
        "_signal_handles",
        "_signals",
        "_skipped",
        "_sleep_began",
        "_spare",
        "_stopping",
        "_thread_id",
        "_time_replaced",
        "_timer_queue",
        "_turns",
        "_wakeup",
        "_watched_entry",
        "_woken",
    )

    def __init__(
        self,
        *,
        poller: Poller | selectors.BaseSelector | str | None = None,
        kernel: Kernel | None = None,
        host: Host | None = None,
    ) -> None:
        if getattr(self, "_kernel", None) is not None:
            raise RuntimeError("the loop is initialized already")
        super().__init__()
        self._closed = True  # until everything below has been made
        self._kernel = Kernel() if kernel is None else kernel
        self._host: Host = Host() if host is None else host
        self._probe: Probe | None = None
        self._ready: list[Runnable] = []
        self._spare: list[Runnable] = []  # the list `_ready` changes places with
        self._pending: list[Runnable] = []
        self._polled: list[Runnable] = []  # what the machine's poll brought
        self._arrivals: Any = [] if cython.compiled else collections.deque()
        self._emptied: list[Runnable] = []  # compiled, the list `_arrivals` changes places with
        self._posted = False  # whether something may have arrived since the loop took what there was
        self._timer_queue = TimerHeap()
        self._idle_handles: list[Any] = []
        self._prepare_handles: list[Any] = []
        self._check_handles: list[Any] = []
        self._async_handles: dict[Any, None] = {}  # the open ones, in the order in which they are called
        self._asyncs_made = 0
        self._sent_async: Runnable | None = None  # one that was sent: it calls all that were
        self._passes = 0  # how many passes over idle, prepare or check handles there were
        self._closing_handles: list[Handle] = []
        self._handles: dict[int, Handle] = {}  # the open handles, by identity, oldest first
        self._active_handles = 0  # those that are active and referenced
        self._active_requests = 0
        self._now_ns = self._kernel.now()
        self._polled_at = 0  # in ticks, once polls may be skipped
        self._skipped = 0  # turns since then
        self._guards_posts = False  # whether cancelling a posted callback waits while it is running
        self._time_replaced = False  # whether `time` or `call_at` is not the one below
        self._stopping = False
        self._holding: list[Handle] = []  # those that wait for the end of the callback that runs
        self._is_driven = False  # whether somebody else decides when to sleep
        self._is_turning = False  # whether a turn is under way
        self._thread_id: int | None = None  # the thread that runs the loop
        self._home_thread = current_thread()  # the thread that ran it last, or made it
        self._process_id = self._host.process_id()
        self._may_sleep = False  # from before the timeout is decided until the poll is over
        self._woken = False  # whether the wakeup was written since the last poll
        self._watched_entry: Runnable | None = None  # what runs, in debug mode or with a probe
        self._turns = 0
        self._events = 0
        self._callbacks = 0
        self._events_waiting = 0
        self._idle_ns = 0
        self._sleep_began = 0  # 0 unless the loop sleeps
        self._ran_ns = 0  # how long the runs took that are over
        self._run_began = 0  # 0 unless the loop runs
        self._signals: SignalPipe | None = None  # made when the loop first sleeps in the main thread
        self._arms_signals = False  # whether the next sleep must not begin before signals can end it
        self._shared: dict[str, Any] = {}  # what handles of a kind have in common, while there are any
        self._signal_handles = 0  # Signal handles that are started
        self._poller = make_poller(poller, self._kernel)
        self._closed = False
        try:
            self._wakeup = Wakeup(self, self._kernel)
        except BaseException:
            self._closed = True
            self._poller.close()
            raise

    # Scheduling.

    @binding(True)
    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        """Call `callback(*args)` in the next turn; calls run in the order in which they were made.

        Source: ``asyncio.loop.call_soon``.
        """
        if not isinstance(self, Loop):
            _refuse_self(self)
        if self._closed:
            self._check_closed()
        entry = new_callback(self, callback, args, context)
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_soon")
            self._note_origin(entry)
        if self._posted:
            self._take_arrivals(self._ready)  # what was posted earlier comes earlier
        self._ready.append(entry)
        return entry

    @binding(True)
    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        """`call_soon` for other threads and for signal handlers; ends the loop's sleep.

        Source: ``asyncio.loop.call_soon_threadsafe``.
        """
        if not isinstance(self, Loop):
            _refuse_self(self)
        if self._closed:
            self._check_closed()
        if self._guards_posts:
            entry: Callback = new_guarded_callback(self, callback, args, context)
        else:
            entry = new_callback(self, callback, args, context)
        if self._debug:
            self._check_callback(callback, "call_soon_threadsafe")
            self._note_origin(entry)
        self._post(entry)
        return entry

    @binding(True)
    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimedCallback:
        """Call `callback(*args)` when `time()` has reached `when`, in seconds.

        Source: ``asyncio.loop.call_at``.
        """
        if not isinstance(self, Loop):
            _refuse_self(self)
        if when is None:
            raise TypeError("when cannot be None")
        if self._closed:
            self._check_closed()
        timer = new_timer(self, when, callback, args, context)
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_at")
            self._note_origin(timer)
        self._timer_queue.push(timer)
        if self._may_sleep:
            self._end_sleep()  # a loop that is driven from outside, between two turns
        return timer

    @binding(True)
    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimedCallback:
        """Call `callback(*args)` after `delay` seconds.

        Source: ``asyncio.loop.call_later``.
        """
        if not isinstance(self, Loop):
            _refuse_self(self)
        if delay is None:
            raise TypeError("delay must not be None")
        if self._closed:
            self._check_closed()
        if self._time_replaced or (not cython.compiled and "call_at" in getattr(self, "__dict__", ())):
            return self.call_at(self.time() + delay, callback, *args, context=context)
        when = self._kernel.now() / 1e9 + delay
        timer = new_timer(self, when, callback, args, context)
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_at")  # as asyncio says it
            self._note_origin(timer)
        self._timer_queue.push(timer)
        if self._may_sleep:
            self._end_sleep()  # a loop that is driven from outside, between two turns
        return timer

    # Time.

    def time(self) -> float:
        """The monotonic clock, in seconds, read afresh."""
        return self._kernel.now() / 1e9

    def now(self) -> int:
        """The time at which this turn's events were collected, in nanoseconds (``uv_now``)."""
        return self._now_ns

    def update_time(self) -> None:
        """Read the clock for `now` (``uv_update_time``)."""
        self._now_ns = self._clock()

    # Life.

    def run(self, mode: RunMode = RunMode.DEFAULT) -> bool:
        """Run turns in libuv's order; whether anything is still alive (``uv_run``).

        Raises RuntimeError if the loop runs already, and whatever a callback raises; what had
        been collected by then runs when the loop runs again.
        """
        run_mode = int(RunMode(mode))
        self._begin_run()
        self._is_turning = True
        try:
            alive = self._alive()
            if not alive:
                self.update_time()
            elif run_mode == DEFAULT and not self._stopping:
                self.update_time()
                self._run_timers()
            while alive and not self._stopping:
                self._machine_turn(run_mode)
                alive = self._alive()
                if run_mode != DEFAULT:
                    break
            return bool(alive)
        finally:
            self._is_turning = self._stopping = False
            self._end_run()

    def _machine_turn(self, mode: int) -> None:
        """One turn of the machine, in libuv's order."""
        self._turns += 1
        can_sleep = not (self._ready or self._pending or self._idle_handles)
        self._run_ready()
        self._run_pending()
        if self._idle_handles:
            self._run_phase(self._idle_handles)
        if self._prepare_handles:
            self._run_phase(self._prepare_handles)
        may_sleep = mode == DEFAULT or (mode == ONCE and can_sleep)
        if self._arms_signals and may_sleep and self.backend_timeout() != 0:
            self._arm_signals()
        self._may_sleep = True
        self._poll(self.backend_timeout() if may_sleep else 0, self._polled)
        if self._polled:
            self._run_batch(self._polled, self._pending)
        for _ in range(PENDING_ROUNDS):
            if not self._pending:
                break
            self._run_pending()
        if self._check_handles:
            self._run_phase(self._check_handles)
        if self._closing_handles:
            self._run_closing()
        self.update_time()
        self._run_timers()

    def stop(self) -> None:
        """End the run soon: not later than the next turn, and the poll before that does not sleep."""
        self._stopping = True
        if self._may_sleep:
            self._end_sleep()

    def alive(self) -> bool:
        """Whether something is left to wait for or to run (``uv_loop_alive``)."""
        return self._alive()

    def close(self) -> None:
        """Give everything back (``uv_loop_close``).

        Raises OSError (EBUSY) while handles are open or requests in flight, RuntimeError while
        the loop runs. Closing again does nothing.
        """
        if self._closed:
            return
        if self._thread_id is not None:
            raise RuntimeError("Cannot close a running event loop")
        if self._handles or self._closing_handles or self._active_requests:
            raise OSError(errno.EBUSY, "handles are open or requests in flight")
        self._close_machine()

    def _close_machine(self) -> None:
        self._closed = True
        self._drop_completions()
        self._ready.clear()
        self._pending.clear()
        self._polled.clear()
        self._async_handles.clear()
        self._sent_async = None
        self._timer_queue.clear()
        # The poller goes first: in a forked child the kernel's set is shared with the parent,
        # and taking handles out of it one by one would take them out of the parent's.
        self._poller.close()
        if self._signals is not None:
            if self._host.is_main_thread():
                self._signals.disarm()
            self._signals.close()
            self._signals._let_go_of_loop()
        self._wakeup.close()
        self._wakeup._let_go_of_loop()
        self._closing_handles.clear()

    def _drop_completions(self) -> None:
        """Tell the requests whose end nobody will hear of; other threads may still post some."""
        owed = self._ready + self._pending + self._polled
        while self._arrivals:
            move_arrivals(self, owed)
        for entry in owed:
            if isinstance(entry, Completion):
                entry.drop()

    def __del__(self) -> None:
        if getattr(self, "_poller", None) is None or self._closed:
            return  # It is closed, or was never made.
        left_open = self.walk()
        self._close_machine()
        for handle in left_open:
            handle.close()
        warnings.warn(f"unclosed loop {self!r}", ResourceWarning, source=self, stacklevel=1)

    def fork(self) -> None:
        """Let the loop go on in a forked child, with its handles (``uv_loop_fork``).

        To be called in the child. The loop gets a poller, a wakeup and an inotify instance of its own; the
        descriptors of its handles are those of the parent, and what either reads the other does not get.
        Work that was in flight in the thread pool does not end here, and children of the parent's are none
        of this process.
        """
        self._check_closed()
        self._process_id = self._host.process_id()
        self._home_thread = current_thread()
        if self._thread_id is not None:
            self._thread_id = self._home_thread
        self._poller.renew()
        self._wakeup.renew()
        if self._signals is not None:
            self._signals.renew()
        for shared in list(self._shared.values()):
            shared.renew()

    def configure(self, *, block_signal: int | None = UNCHANGED, spin_ns: int = UNCHANGED) -> None:
        """Say how the loop sleeps; what is not named stays as it is (``uv_loop_configure``).

        `block_signal`: SIGPROF is held back meanwhile, so that a profiler that sends it by the clock does not
        wake the loop; None: it is not. `spin_ns`: the loop asks for events for so many nanoseconds before
        it sleeps, and keeps its core busy for so long; 0, as it is at first: it sleeps at once.

        Raises OSError: EINVAL for any other signal, and for less than nothing or more than a second; ENOSYS
        where the poller cannot spin, which epoll can. Idle time is always measured, and spinning is idle.
        """
        from whorl.core.epoll import EpollPoller

        if spin_ns is not UNCHANGED:
            spin_ns = operator.index(spin_ns)
        if block_signal not in (UNCHANGED, None, SIGPROF):
            raise OSError(errno.EINVAL, "only SIGPROF can be held back")
        if spin_ns != UNCHANGED and not 0 <= spin_ns <= LONGEST_SPIN_NS:
            raise OSError(errno.EINVAL, "a loop spins for at most a second")
        if spin_ns not in (UNCHANGED, 0) and not isinstance(self._poller, EpollPoller):
            raise OSError(errno.ENOSYS, "this poller cannot spin")
        if block_signal != UNCHANGED:
            self._kernel.blocked_signal = block_signal or 0
        if spin_ns != UNCHANGED:
            self._kernel.spin_ns = spin_ns

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def is_running(self) -> bool:
        """Whether the loop is being run."""
        return self._thread_id is not None

    # Looking.

    def walk(self) -> list[Handle]:
        """The open handles, oldest first (``uv_walk``)."""
        return list(self._handles.values())

    def metrics(self) -> LoopMetrics:
        """What the loop has counted; may be read from any thread."""
        return LoopMetrics(
            turns=self._turns,
            events=self._events,
            events_waiting=self._events_waiting,
            callbacks=self._callbacks,
            idle_ns=self._idle_ns,
            ready=len(self._ready) + len(self._pending) + len(self._arrivals),
            timers=len(self._timer_queue),
            handles=len(self._handles),
            active_handles=self._active_handles,
            active_requests=self._active_requests,
        )

    def utilization(self, earlier: LoopUtilization | None = None) -> LoopUtilization:
        """How busy the loop was while it ran, or since an earlier utilization; from any thread.

        Source: Node's ``performance.eventLoopUtilization``.
        """
        began, asleep = self._run_began, self._sleep_began
        now = self._kernel.now()  # after these, which another thread may be changing
        ran = self._ran_ns + (now - began if began else 0)
        idle = self._idle_ns + (now - asleep if asleep else 0)
        total = LoopUtilization.of(min(idle, ran), ran)
        return total if earlier is None else total.since(earlier)

    def set_probe(self, probe: Probe | None) -> None:
        """Let `probe` listen from now on; None ends that."""
        self._probe = probe

    def get_debug(self) -> bool:
        """Whether debug mode is on."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Turn debug mode on or off."""
        self._debug = bool(enabled)

    def poller_name(self) -> str:
        """What the loop waits with: "epoll", "io_uring", the class of a selector.

        If io_uring was asked for and refused, the reason: "epoll (io_uring: Operation not permitted)".
        """
        name, reason = self._poller.name(), self._poller.in_place_of
        return f"{name} ({reason})" if reason else name

    def backend_fd(self) -> int:
        """A descriptor that is readable when events wait; -1 if the poller has none."""
        return self._poller.fileno()

    def backend_timeout(self) -> int:
        """How long the machine's next poll may sleep, in nanoseconds; -1: no limit (``uv_backend_timeout``).

        The time until the next timer is counted from `now()`; where there are `call_at` timers too,
        whose deadlines are times of the clock, from the clock.
        """
        if (
            self._stopping
            or self._ready
            or self._pending
            or self._arrivals
            or self._sent_async is not None
            or self._idle_handles
            or self._closing_handles
        ):
            return 0
        if self._active_handles <= 0 and self._active_requests <= 0 and self._timer_queue._keepers == 0:
            return 0
        return self._until_next_timer(self._clock() if self._timer_queue._keepers else self._now_ns)

    # One turn of asyncio.

    def _run_turns(self) -> None:
        """Turn until `stop`."""
        self._is_turning = True
        try:
            while True:
                self._turn()
                if self._stopping:
                    break
        finally:
            self._is_turning = False

    def _turn(self) -> None:
        """One turn of asyncio: sleep until something is due, collect it, run what is ready."""
        self._turns += 1
        if self._idle_handles:
            self._run_phase(self._idle_handles)
        if self._prepare_handles:
            self._run_phase(self._prepare_handles)
        if self._ready:
            if self._poller.quiet < QUIET_POLLS or not self._skip_poll():
                self._poll(0, self._ready)
        else:
            if self._arms_signals:
                self._arm_signals()
            self._may_sleep = True
            self._poll(self._turn_timeout(), self._ready)  # the only place the loop sleeps
        if self._check_handles:
            self._run_phase(self._check_handles)
        if self._closing_handles:
            self._run_closing()  # closed handles are let go
        if self._pending:
            self._collect_pending(self._ready)
        if self._timer_queue._entries or self._timer_queue._line:
            self._collect_timers(self._ready)  # due timers join the ready queue
        self._run_ready()  # the only place callbacks are run

    # One turn at a time, driven from outside.

    def _step(self, may_sleep: bool) -> None:
        """One turn of asyncio. Raises RuntimeError inside a turn."""
        if self._is_turning:
            raise RuntimeError("This event loop is in the middle of a turn")
        self._may_sleep = self._woken = False
        self._poller.quiet = 0  # The host made this step because there was something to collect.
        self._is_turning = True
        self._is_driven = not may_sleep
        try:
            self._turn()
        finally:
            self._is_turning = self._is_driven = False

    def _rest(self) -> int:
        """How long nothing need be done, in nanoseconds, -1: no limit. From now on the loop sleeps.

        What the same thread asks of the loop before the next step ends this sleep, as a call from
        another thread does.
        """
        if self._arms_signals:
            self._arm_signals()
        self._may_sleep = self._posted = True
        self._poller.rest()
        return self._turn_timeout()

    # The phases, in the order in which they run.

    def _poll(self, timeout_ns: int, into: list[Runnable]) -> None:
        """Sleep for at most `timeout_ns`; append what became ready to `into`."""
        slept = 0
        if timeout_ns == 0:
            found = self._poller.poll(0, into)
            self._events_waiting += found
            if self._poller.quiet >= QUIET_POLLS:
                self._polled_at = self._kernel.ticks()
                self._skipped = 0
        else:
            before = self._sleep_began = self._kernel.now()
            found = self._poller.poll(timeout_ns, into)
            slept = self._kernel.now() - before
            self._sleep_began = 0
            self._idle_ns += slept
        self._now_ns = self._clock() if self._time_replaced else self._kernel.now()
        if self._may_sleep:
            self._may_sleep = self._woken = False
        self._events += found
        if self._arrivals or self._sent_async is not None:
            self._take_arrivals(into)
        if self._probe is not None:
            self._tell("polled", slept, found)

    def _skip_poll(self) -> bool:
        """Whether this turn does without a poll; what else a poll would have brought is collected.

        The timers need the clock only if one of them could be due by now.
        """
        since = self._kernel.ticks() - self._polled_at
        if (
            self._skipped >= TURNS_WITHOUT_POLL
            or not 0 <= since <= LONGEST_WITHOUT_POLL_NS
            or self._stopping
            or self._time_replaced
            or self._idle_handles
            or self._prepare_handles
            or self._check_handles
        ):
            return False
        self._skipped += 1
        if self._arrivals or self._sent_async is not None:
            self._take_arrivals(self._ready)
        timers = self._timer_queue
        if (timers._entries or timers._line) and timers.next_deadline() <= self._now_ns + since:
            self._now_ns = self._kernel.now()
        return True

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

    def _run_pending(self) -> None:
        if self._pending:
            batch = self._pending
            self._pending = []
            self._run_batch(batch, self._pending)

    def _collect_pending(self, into: list[Runnable]) -> None:
        """Append the entries that are owed."""
        into.extend(self._pending)
        self._pending.clear()

    def _collect_timers(self, into: list[Any]) -> None:
        """Append the timers that are due by now."""
        collected = len(into)
        self._timer_queue.take_due(self._now_ns, into)
        if self._probe is not None:
            for timer in into[collected:]:
                self._tell("timer_due", timer, self._now_ns - max(0, timer._deadline_ns))

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

    def _run_ready(self) -> None:
        """Run exactly what is ready now; what that makes ready waits for the next turn."""
        batch = self._ready
        if not batch:
            return
        if self._probe is not None:
            self._tell("turn_began", self._turns, len(batch))
        self._ready = self._spare
        self._spare = batch
        self._run_batch(batch, self._ready)

    def _run_batch(self, batch: list[Any], queue: list[Any]) -> None:
        """Run all of `batch`, and empty it; if an error ends the run, the rest goes to `queue`."""
        size = len(batch)
        done = 0
        watched = self._debug or self._probe is not None
        before = self._callbacks
        self._callbacks += size
        try:
            while done < size:
                try:
                    for index in range(done, size):
                        done = index + 1
                        self._call = before + done
                        entry = batch[index]
                        batch[index] = None
                        if watched:
                            self._run_watched(entry)
                        else:
                            entry._execute()
                            recycle(entry)
                        if self._holding:
                            self._send_held()
                except BaseException as error:
                    self._call = 0  # What the exception handler writes is not held back.
                    if self._holding:
                        self._send_held()
                    self._callback_failed(entry, error)
        finally:
            self._call = 0
            if done < size:
                self._callbacks -= size - done
                queue[:0] = batch[done:]
            batch.clear()
            if self._holding:  # an interrupt
                self._send_held()

    def _hold(self, handle: Runnable) -> bool:
        """Have `handle._callback_ended` called when the callback ends that runs; whether that will be.

        Not for other threads: what they write may come when it has just ended.
        """
        if self._thread_id != current_thread():
            return False
        self._holding.append(handle)  # type: ignore[arg-type]  # `Owner` does not know of handles.
        return True

    def _send_held(self) -> None:
        """Have everything sent now that was held back until the end of the callback that runs."""
        self._holding.reverse()
        while self._holding:
            handle = self._holding.pop()
            handle._callback_ended()

    def _run_watched(self, entry: Runnable) -> None:
        """Run one entry with somebody looking: in debug mode, or with a probe."""
        began = self._kernel.now()
        self._watched_entry = entry
        try:
            entry._execute()
        finally:
            self._watched_entry = None
            took = self._kernel.now() - began
            if self._probe is not None:
                self._tell("callback_ran", entry, took)
            if self._debug:
                self._callback_ran(entry, took)
            del entry  # Uncompiled, a traceback keeps this frame: it must not keep a failed task too.

    def _take_arrivals(self, into: list[Runnable]) -> None:
        """Append what other threads posted, but not what they post meanwhile: that may have no end.

        Asyncs come after it, as in libuv, and all at once, those that the others send among them; signals
        come last.
        """
        self._posted = False
        late: list[Runnable] = []
        index = len(into)
        move_arrivals(self, into)
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

    # How long a turn may sleep.

    def _turn_timeout(self) -> int:
        if (
            self._ready
            or self._pending
            or self._arrivals
            or self._sent_async is not None
            or self._stopping
            or self._closing_handles
            or self._idle_handles
            or self._is_driven
        ):
            return 0
        if not (self._timer_queue._entries or self._timer_queue._line):
            return -1
        self._now_ns = self._clock()
        return self._until_next_timer(self._now_ns)

    def _until_next_timer(self, now_ns: int) -> int:
        """Nanoseconds until the first timer falls due, -1 if there is none."""
        deadline = self._timer_queue.next_deadline()
        if deadline == NEVER_NS:
            return -1
        if deadline <= now_ns:
            return 0
        return min(deadline - now_ns, LONGEST_POLL_NS)

    def _clock(self) -> int:
        return deadline_of(self.time()) if self._time_replaced else self._kernel.now()

    def _alive(self) -> bool:
        return bool(
            self._active_handles > 0
            or self._active_requests > 0
            or self._closing_handles
            or self._ready
            or self._pending
            or self._arrivals
            or self._timer_queue._keepers > 0
        )

    # Entries from other threads.

    def _post(self, entry: Runnable) -> None:
        """Queue an entry from any thread, or from a signal handler, in order with `call_soon`."""
        if thread_number() == self._home_thread:
            self._ready.append(entry)
            self._end_sleep()
        else:
            self._arrive(entry)

    def _arrive(self, entry: Runnable) -> None:
        """Let the next poll hand over an entry; from any thread, or from a signal handler."""
        self._arrivals.append(entry)
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
                self._wakeup.wake()
            except BaseException:  # An interrupt: the next call must not rely on this one.
                self._woken = False
                raise

    # What callbacks and handles ask of their loop.

    def _check_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    def _check_thread(self) -> None:
        if self._thread_id is not None and self._thread_id != current_thread():
            raise RuntimeError(
                "Non-thread-safe operation invoked on an event loop other than the current one"
            )

    def _schedule(self, timer: TimedCallback) -> None:
        self._timer_queue.push(timer)
        if self._may_sleep:
            self._end_sleep()

    def _timer_cancelled(self, timer: Any) -> None:
        self._timer_queue.note_cancelled(timer)

    def _count_active(self, change: int) -> None:
        self._active_handles += change

    def _count_requests(self, change: int) -> None:
        self._active_requests += change

    def _handle_opened(self, handle: Any) -> None:
        self._handles[id(handle)] = handle
        if self._probe is not None:
            self._tell("handle_opened", handle)

    def _handle_closing(self, handle: Any) -> None:
        self._closing_handles.append(handle)
        if self._may_sleep:
            self._end_sleep()

    def _handle_closed(self, handle: Any) -> None:
        self._handles.pop(id(handle), None)

    def _hide(self, handle: Handle) -> None:
        """Leave a handle of the loop's own out of what users see."""
        self._handles.pop(id(handle), None)

    def _enqueue(self, entry: Runnable) -> None:
        """Let an entry run in the next turn, in order with `call_soon`."""
        if self._closed:
            self._check_closed()
        if self._debug:
            self._check_thread()
        if self._posted:
            self._take_arrivals(self._ready)  # what was posted earlier comes earlier
        self._ready.append(entry)

    def _feed(self, entry: Runnable) -> None:
        """Owe an entry: it runs in the pending phase, or in asyncio's next turn."""
        self._pending.append(entry)
        if self._may_sleep:
            self._end_sleep()

    def _unfeed(self, entry: Runnable) -> None:
        """Owe an entry no longer."""
        if entry in self._pending:
            self._pending.remove(entry)

    # What faces replace.

    def _callback_failed(self, entry: Runnable, error: BaseException) -> None:
        """What to do about an error of the user's code. The machine lets it end the run."""
        raise error

    def _callback_ran(self, entry: Runnable, took_ns: int) -> None:
        """Debug mode: an entry took this long."""

    def _signal_arrived(self, number: int) -> None:
        """A signal was written to the signal pipe."""

    def _check_callback(self, callback: object, method: str) -> None:
        """Debug mode: refuse what cannot be called."""
        if not callable(callback):
            raise TypeError(f"a callable object was expected by {method}(), got {callback!r}")

    def _note_origin(self, callback: Callback) -> None:
        """Debug mode: note where a callback was scheduled."""

    # Beginning and ending a run.

    def _begin_run(self) -> None:
        self._check_closed()
        if self._thread_id is not None:
            raise RuntimeError("This event loop is already running")
        if not self._is_at_home():
            raise RuntimeError("This event loop was made before a fork and cannot run in the child")
        if self._host.is_main_thread():
            self._arms_signals = True
            self._host.signals.loop_began(self)
        self._thread_id = self._home_thread = current_thread()
        self._run_began = self._kernel.now()
        self._poller.quiet = 0  # the first turns of every run poll

    def _end_run(self) -> None:
        self._thread_id = None
        self._ran_ns += self._kernel.now() - self._run_began
        self._run_began = self._sleep_began = 0
        self._may_sleep = self._arms_signals = False
        self._woken = False
        self._host.signals.loop_ended(self)
        self._release_signals()
        self._poller.rest()

    def _arm_signals(self) -> None:
        """Let signals end the sleep that is about to begin, and those that follow in this run.

        Handlers of signals that came before run in here: how long to sleep is to be decided after it.
        """
        try:
            pipe = self._signal_pipe()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            return  # Signals interrupt most sleeps all the same; the next sleep tries again.
        pipe.arm(yield_to_others=not self._wants_signals())
        self._arms_signals = False

    def _signal_pipe(self) -> SignalPipe:
        if self._signals is None:
            self._signals = SignalPipe(self, self._kernel)
        return self._signals

    def _release_signals(self) -> None:
        """Give the signal pipe's place back, unless signal handlers need it."""
        if self._signals is not None and self._signals.is_armed() and not self._wants_signals():
            self._signals.disarm()

    def _wants_signals(self) -> bool:
        """Whether signals must be written to the pipe also while the loop does not run."""
        return self._signal_handles > 0

    def _count_signal_handles(self, change: int) -> None:
        """A Signal handle was started (1) or stopped (-1)."""
        self._signal_handles += change
        if not self._host.is_main_thread():
            return  # The pipe ends the sleep of the main thread's loop only.
        if change > 0:
            self._signal_pipe().arm()
        elif self._thread_id is None and not self._closed:
            self._release_signals()

    def _is_at_home(self) -> bool:
        """Whether this is the process in which the loop runs, and not one forked from it."""
        return self._process_id == self._host.process_id()

    def _tell(self, what: str, *details: Any) -> None:
        """Tell the probe; one that raises is removed."""
        probe = self._probe
        try:
            getattr(probe, what)(*details)
        except Exception:
            self._probe = None
            _log_failed_probe(probe)


def _refuse_self(other: object) -> None:
    """A method that binds as Python's functions do was given something else for its object."""
    raise TypeError(f"a Loop was expected, got {other!r}")


def _log_failed_probe(probe: object) -> None:
    import logging

    logging.getLogger("whorl").exception("Probe %r failed and was removed", probe)


if not cython.compiled:
    from whorl.core import keyed_timers

    new_timer, TimerHeap = keyed_timers.KeyedTimedCallback, keyed_timers.KeyedTimers  # type: ignore[misc]
    thread_number = current_thread

    def move_arrivals(loop: Loop, into: list[Any]) -> None:
        """Append what other threads have posted by now; between two steps of this they may post more."""
        for _ in range(len(loop._arrivals)):
            into.append(loop._arrivals.popleft())

    def _run_batch(self: Loop, batch: list[Any], queue: list[Any]) -> None:
        """The same in fewer steps: uncompiled, each of them costs as much as a whole turn compiled."""
        batch.reverse()
        call = self._callbacks
        holding = self._holding
        try:
            while batch:
                watched = self._debug or self._probe is not None
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
                            self._send_held()
                    entry = None  # A traceback may keep this frame, which must not keep what failed a task.
                except BaseException as error:
                    self._callbacks -= len(batch)
                    self._call = 0
                    if holding:
                        self._send_held()
                    self._callback_failed(entry, error)
        finally:
            self._call = 0
            if batch:
                queue[:0] = reversed(batch)
                batch.clear()
            if holding:  # an interrupt
                self._send_held()

    Loop._run_batch = _run_batch  # type: ignore[method-assign]
