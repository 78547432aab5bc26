"""The loop: one turn after another, each the same list of phases.

Two faces share the phases. The machine's face is `Loop.run`, in libuv's order; asyncio's face
(`whorl.aio`) runs `_turn`. The poller only collects; nothing of the user's runs inside it.

Two queues feed a turn. *Pending* holds the machine's finished requests and the entries that run again.
*Ready* holds `call_soon` entries, and in asyncio's turn also I/O events and due timers.
Other threads post entries to a third queue, the *inbox*; the loop drains it into the other two.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from whorl.core import limits, states
from whorl.core.callback import Callback, Runnable, current_thread, new_callback, new_guarded_callback
from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.lifecycle import LoopLifecycle
from whorl.core.pollers.contract import IOHandle
from whorl.core.process.host import Host
from whorl.core.states import RunMode
from whorl.core.timers.timed_callback import TimedCallback, new_timer, new_timer_after

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    import selectors

    from whorl.core.cython_shim import binding
    from whorl.core.pollers.contract import Poller
else:
    try:
        from cython import binding
    except ImportError:
        from whorl.core.cython_shim import binding

if not cython.compiled:
    from whorl.core.callback import is_foreign
    from whorl.core.figures import has_histograms, note, note_away
    from whorl.core.kernel.kernel import clock_is_patched
    from whorl.core.lists import append
    from whorl.core.loop.state import begin_sleep, end_sleep
    from whorl.core.loop.wakeup import run_signal_handlers
    from whorl.core.recording.loop_recorder import end_turn
    from whorl.core.recording.steps import stepped_by

COMPILED = bool(cython.compiled)


class Loop(LoopLifecycle):
    """An event loop (libuv: ``uv_loop_t``). It belongs to the thread that runs it.

    `kernel` and `host` stand for the operating system; by default they are the real ones. `poller` is one of
    Whorl's pollers, a `selectors` object, or "epoll", which is the default on Linux.
    """

    def __init__(
        self,
        *,
        poller: Poller | selectors.BaseSelector | str | None = None,
        kernel: Kernel | None = None,
        host: Host | None = None,
    ) -> None:
        self._set_up_loop(poller, kernel, host)

    def _set_up_loop(
        self,
        poller: Poller | selectors.BaseSelector | str | None,
        kernel: Kernel | None,
        host: Host | None,
    ) -> None:
        if getattr(self, "_kernel", None) is not None:
            raise RuntimeError("the loop is initialized already")
        self._is_driven = False  # whether an external driver decides when to sleep
        self._is_turning = False  # whether a turn is under way
        self._is_machine_run = False  # whether turns are in libuv's order
        LoopLifecycle._set_up_lifecycle(self, poller, kernel, host)

    # Scheduling.

    @binding(True)
    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        """Call `callback(*args)` in the next turn; calls run in the order in which they were made.

        Source: ``asyncio.loop.call_soon``.
        """
        if cython.compiled and not isinstance(self, Loop):
            _refuse_self(self)
        return self._call_soon_with(callback, args, context)

    @binding(True)
    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        """Call `callback(*args)` soon, from any thread or a signal handler; end the loop's sleep.

        Source: ``asyncio.loop.call_soon_threadsafe``.
        """
        if cython.compiled and not isinstance(self, Loop):
            _refuse_self(self)
        return self._post_with(callback, args, context)

    @binding(True)
    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimedCallback:
        """Call `callback(*args)` when `time()` has reached `when`, in seconds.

        Source: ``asyncio.loop.call_at``.
        """
        if cython.compiled and not isinstance(self, Loop):
            _refuse_self(self)
        return self._call_at_with(when, callback, args, context)

    @binding(True)
    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimedCallback:
        """Call `callback(*args)` after `delay` seconds.

        Source: ``asyncio.loop.call_later``.
        """
        if cython.compiled and not isinstance(self, Loop):
            _refuse_self(self)
        return self._call_later_with(delay, callback, args, context)

    # The same four, with the arguments as a tuple. In the compiled build, C code takes their arguments.

    def _call_soon_with(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Callback:
        if self._closed:
            self._check_closed()
        entry = new_callback(self, callback, args, context)
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_soon")
            self._note_origin(entry)
        if is_foreign(self):
            self._post_from_any_thread(entry)
            return entry
        if self._posted:
            self._take_posted(entry)
        self._ready_queue.append(entry)
        return entry

    def _call_step_soon(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Callback:
        """Do what `call_soon` does, in a loop that is recorded, with what may be the step of a task."""
        entry = new_callback(self, callback, args, context)
        task = stepped_by(callback)
        recorder = self._recorder
        if task is not None and recorder is not None:
            recorder._note_queued(task)
        append(self._ready_queue, entry)
        return entry

    def _post_with(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Callback:
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

    def _call_at_with(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> TimedCallback:
        if when is None:
            raise TypeError("when cannot be None")
        if self._closed:
            self._check_closed()
        timer = new_timer(self, when, callback, args, context)
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_at")
            self._note_origin(timer)
        self._schedule(timer)
        return timer

    def _call_later_with(
        self, delay: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> TimedCallback:
        if delay is None:
            raise TypeError("delay must not be None")
        if self._closed:
            self._check_closed()
        if self._time_replaced or (not cython.compiled and "call_at" in vars(self)):
            return self.call_at(self.time() + delay, callback, *args, context=context)
        timer = new_timer_after(self, self._kernel.now(), delay, callback, args, context)
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_at")  # as asyncio says it
            self._note_origin(timer)
        self._schedule(timer)
        return timer

    # Running in libuv's order.

    def run(self, mode: RunMode = RunMode.DEFAULT) -> bool:
        """Run turns in libuv's order; return whether anything is still alive (``uv_run``).

        Raises RuntimeError if the loop runs already. Raises any error of a callback; the entries
        collected by then run when the loop runs again.
        """
        run_mode = int(RunMode(mode))
        self._check_may_run()
        try:
            self._begin_run()
            self._is_turning = self._is_machine_run = True
            alive = self._alive()
            if not alive:
                self.update_time()
            elif run_mode == states.DEFAULT and not self._stopping:
                self.update_time()
                self._run_timers()
            while alive and not self._stopping:
                self._machine_turn(run_mode)
                alive = self._alive()
                if run_mode != states.DEFAULT:
                    break
            return bool(alive)
        finally:
            self._is_turning = self._is_machine_run = self._stopping = False
            try:
                self._end_run()
            except BaseException:  # An interrupt: it must not keep the loop from running again.
                self._end_run()
                raise

    def _machine_turn(self, mode: int) -> None:
        """Run one turn of the machine, in libuv's order."""
        self._turns = self._turns + 1
        if not self._until_sample:
            self._until_sample = limits.SAMPLED_TURNS
        self._until_sample = self._until_sample - 1
        if self._observed:
            self._note_machine_turn(True)
        can_sleep = not (self._ready_queue or self._pending or self._idle_handles)
        self._run_ready()
        self._run_pending()
        if self._idle_handles:
            self._run_phase(self._idle_handles)
        if self._prepare_handles:
            self._run_phase(self._prepare_handles)
        may_sleep = mode == states.DEFAULT or (mode == states.ONCE and can_sleep)
        if self._arms_signals and may_sleep and self._machine_timeout() != 0:
            self._arm_signals()
        begin_sleep(self)
        self._poll(self._machine_timeout() if may_sleep else 0, self._polled)
        if self._polled:
            self._run_batch(self._polled, self._pending)
        for _ in range(limits.PENDING_ROUNDS):
            if not self._pending:
                break
            self._run_pending()
        if self._check_handles:
            self._run_phase(self._check_handles)
        if self._closing_handles:
            self._run_closing()
        self._now_ns = self._clock()
        if self._timer_queue._entries or self._timer_queue._line:
            self._run_timers()
        if self._observed:
            self._note_machine_turn(False)

    def _note_machine_turn(self, begins: bool) -> None:
        recorder = self._recorder
        if recorder is not None and not recorder._in_call:
            if not begins and recorder._in_machine_turn:
                now = max(self._now_ns, recorder._last_ns)
                end_turn(recorder, now, self._callbacks + self._callbacks_alone)
            recorder._in_machine_turn = begins

    def stop(self) -> None:
        """End the run soon: not later than the next turn, and the poll before that does not sleep."""
        self._stopping = True
        self._end_sleep()

    def alive(self) -> bool:
        """Return whether something is left to wait for or to run (``uv_loop_alive``)."""
        return self._alive()

    # One turn of asyncio.

    def _run_turns(self) -> None:
        """Turn until `stop`."""
        try:
            self._is_turning = True
            while True:
                self._turn()
                if self._stopping:
                    break
        finally:
            self._is_turning = False

    def _turn(self) -> None:
        """Run one turn of asyncio: sleep until something is due, collect it, run the ready entries."""
        self._turns = self._turns + 1
        if not self._until_sample:
            self._until_sample = limits.SAMPLED_TURNS
        self._until_sample = self._until_sample - 1
        if not (self._ready_queue and self._poller.skips.is_possible and self._skip_poll()):
            self._poll_and_collect()
        self._run_ready()  # the only place callbacks are run

    def _poll_and_collect(self) -> None:
        """Run the phases of a turn up to the ready entries."""
        if self._idle_handles:
            self._run_phase(self._idle_handles)
        if self._prepare_handles:
            self._run_phase(self._prepare_handles)
        if self._ready_queue:
            self._poll(0, self._ready_queue)
        else:
            if self._arms_signals:
                self._arm_signals()
            begin_sleep(self)
            self._poll(self._turn_timeout(), self._ready_queue)  # the only place the loop sleeps
        if self._check_handles:
            self._run_phase(self._check_handles)
        if self._closing_handles:
            self._run_closing()  # closed handles are let go
        if self._pending:
            self._collect_pending(self._ready_queue)
        if self._timer_queue._entries or self._timer_queue._line:
            self._collect_timers(self._ready_queue)  # due timers join the ready queue

    # One turn at a time, driven from outside.

    def _step(self, may_sleep: bool) -> None:
        """Run one turn of asyncio. Raises RuntimeError inside a turn."""
        if self._is_turning:
            raise RuntimeError("This event loop is in the middle of a turn")
        end_sleep(self)
        self._poller.skips.expect_events()  # The host made this step because there was something to collect.
        try:
            self._is_turning = True
            self._is_driven = not may_sleep
            self._turn()
        finally:
            self._is_turning = self._is_driven = False

    # Turns inside of a callback.

    def _may_nest(self) -> bool:
        """Return whether the calling code runs in a callback of a turn in asyncio's order."""
        return self._held.thread == current_thread() and not self._is_machine_run

    def _begin_nested(self, states: list[tuple[Any, ...]], keeps_stop: bool) -> None:
        """Let turns run inside of the running callback, until `_end_nested` takes what this adds to `states`.

        The rest of the batch that is under way runs in these turns, as somebody may wait for it. The outer
        frame finds entries that do nothing in its place. With `keeps_stop`, an earlier `stop` ends none of
        these turns. No handler of a signal runs within this call, so an interrupt finds all done or nothing.
        """
        held = self._held
        fresh: list[Runnable] = []  # The outer frame keeps the list of its batch.
        batch = self._ready_swap
        moved, rest = Moved(self), [entry for entry in batch if entry is not None]
        recorder = self._recorder
        began = 0 if recorder is None else recorder._last_ns
        stops = keeps_stop and self._stopping
        states.append(
            (self._is_driven, self._current_entry, self._callback_began, self._run_hook, began, stops)
        )
        held.batch_ended()
        self._ready_queue[:0] = rest
        for index in range(len(batch)):
            if batch[index] is not None:
                batch[index] = moved
        self._ready_swap = fresh
        if keeps_stop:
            self._stopping = False
        self._is_turning = False

    def _end_nested(self, states: list[tuple[Any, ...]], put_off: list[Runnable]) -> None:
        """Go on with the callback in which the turns ran, and then with the entries that were put off."""
        if not states:
            return
        self._is_driven, self._current_entry, self._callback_began, self._run_hook, began, stops = (
            states.pop()
        )
        recorder = self._recorder
        if recorder is not None and began:
            recorder._last_ns = began  # The inner turns are a part of the callback.
        self._stopping = self._stopping or stops
        for entry in put_off:
            if isinstance(entry, IOHandle) and not entry._edge:
                handle = entry
                handle._seen = 0  # Its events may be over. The poller will see those that are not.
        self._ready_queue[:0] = put_off
        held = self._held
        held.thread = self._thread
        self._is_turning = True

    def _prepare_external_poll(self) -> int:
        """Begin a sleep outside the loop; return how long it may last, in nanoseconds (-1: no limit).

        A request of the same thread before the next step ends this sleep, as a call from another
        thread does.
        """
        if self._arms_signals:
            self._arm_signals()
        if self._poll_ended:  # The time until the next step is a sleep, or the host's.
            self._note_away(self._kernel.now())
            self._poll_ended = 0
        self._posted = states.SOMETHING
        begin_sleep(self)
        limit = self._poller.hand_over()
        timeout_ns = self._turn_timeout()
        return timeout_ns if limit is None or 0 <= timeout_ns < limit else limit

    # The poll.

    def _poll(self, timeout_ns: int, into: list[Runnable]) -> None:
        """Sleep for at most `timeout_ns`; append the handles that became ready to `into`.

        Python's signal handlers run before the sleep, or when nothing else has ended it. So their time is
        no sleep, and what they raise costs no events that were taken from the kernel.
        """
        run_signal_handlers()
        idle_before = self._idle_ns
        found = self._poll_now(into) if timeout_ns == 0 else self._sleep(timeout_ns, into)
        if self._poller.skips.is_possible:
            self._poller.skips.polled_at = ticks_of(self)
        if clock_is_patched() != self._follows_patch:
            self._clock_was_patched()
        if self._time_replaced:
            self._now_ns = self._clock()
        if self._may_sleep:
            end_sleep(self)
        if found == 0 and timeout_ns != 0:
            self._run_interrupting_handlers()
        self._events = self._events + found
        if self._inbox or self._has_sent_async:
            self._drain_inbox(into)
        if self._probe is not None:
            self._notify_probe("polled", self._idle_ns - idle_before, found)

    def _poll_now(self, into: list[Runnable]) -> int:
        """Append the handles that are ready now; return their number."""
        found = self._poller.poll(0, into)
        now = self._kernel.now()
        self._events_waiting = self._events_waiting + found
        self._note_away(now)  # This poll is a part of it.
        self._now_ns = self._poll_ended = now
        return found

    def _sleep(self, timeout_ns: int, into: list[Runnable]) -> int:
        """Sleep for at most `timeout_ns`, append the handles that became ready, and return their number."""
        began = self._sleep_began = self._kernel.now()
        recorder = self._recorder
        if recorder is not None:
            self._publish(recorder, began)
            recorder._falls_asleep(began)
        if not has_histograms(self._figures):
            self._figures.begin_histograms(self._callbacks_alone)
        self._note_away(began)
        self._poll_ended = 0
        found = self._poller.poll(timeout_ns, into)
        now = self._kernel.now()
        note(self._figures, states.SLEPT, now - began)
        self._sleep_began = 0
        self._idle_ns = self._idle_ns + now - began
        if recorder is not None:
            recorder._has_slept(began, now, found, self._callbacks + self._callbacks_alone)
        self._now_ns = self._poll_ended = now
        return found

    def _note_away(self, until: int) -> None:
        """Note how long the loop was away from its poll."""
        if self._poll_ended:
            note_away(self._figures, until - self._poll_ended, self._turns, self._callbacks_alone)
            self._previous_poll_ended = self._poll_ended

    def _run_interrupting_handlers(self) -> None:
        """Run the handlers of a signal that may have ended the sleep; the next callback begins after them."""
        run_signal_handlers()
        recorder = self._recorder
        if recorder is not None:
            recorder._last_ns = max(recorder._last_ns, self._kernel.now())

    def _skip_poll(self) -> bool:
        """Return whether this turn skips the poll and the phases; if so, collect the inbox and due timers.

        The timers need the clock only if one of them could be due by now.
        """
        skips = self._poller.skips
        is_single = skips.is_single
        if is_single:
            skips.expect_events()  # from the next turn on
        if (
            skips.skipped >= limits.TURNS_WITHOUT_POLL
            or self._stopping
            or self._time_replaced
            or self._pending
            or self._idle_handles
            or self._prepare_handles
            or self._check_handles
            or self._closing_handles
        ):
            return False
        if is_single:  # Nobody knew at the poll that one would be skipped, so no ticks were read.
            since = self._kernel.now() - self._poll_ended
        elif self._recorder is not None and not self._recorder._in_call:
            since = self._recorder._last_ns - self._poll_ended  # It knows when the last callback ended.
        else:
            since = ticks_of(self) - skips.polled_at
        if not 0 <= since <= limits.LONGEST_WITHOUT_POLL_NS:
            return False
        skips.skipped = skips.skipped + 1
        if self._inbox or self._has_sent_async:
            self._drain_inbox(self._ready_queue)
        timers = self._timer_queue
        if (timers._entries or timers._line) and timers.next_deadline() <= self._now_ns + since:
            self._now_ns = self._kernel.now()
            self._collect_timers(self._ready_queue)
        return True

    # The timeout of a turn's poll.

    def backend_timeout(self) -> int:
        """Return how long the machine's next poll may sleep, in nanoseconds (``uv_backend_timeout``).

        -1 means no limit. The time until the next timer is counted from `now()`. If there are `call_at`
        timers too, it is counted from the clock, since their deadlines are times of the clock.
        """
        return self._machine_timeout()

    def _machine_timeout(self) -> int:
        if (
            self._stopping
            or self._ready_queue
            or self._pending
            or self._inbox
            or self._has_sent_async
            or self._idle_handles
            or self._closing_handles
        ):
            return 0
        if (
            self._active_handles <= 0
            and self._active_requests <= 0
            and self._timer_queue._keep_alive_count == 0
        ):
            return 0
        return self._until_next_timer(self._clock() if self._timer_queue._keep_alive_count else self._now_ns)

    def _turn_timeout(self) -> int:
        if (
            self._ready_queue
            or self._pending
            or self._inbox
            or self._has_sent_async
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

    def _alive(self) -> bool:
        return bool(
            self._active_handles > 0
            or self._active_requests > 0
            or self._closing_handles
            or self._ready_queue
            or self._pending
            or self._inbox
            or self._timer_queue._keep_alive_count > 0
        )


class Moved(Runnable):
    """An entry in place of those that a nested run has taken out of a batch."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def _execute(self) -> None:
        self._loop._callbacks -= 1  # The batch has counted it, and so will that of the entry.


def _refuse_self(other: object) -> None:
    """Raise TypeError: a method that binds as Python's functions do was called on some other object."""
    raise TypeError(f"a Loop was expected, got {other!r}")


def keep_current_tasks(tasks: dict[Any, Any]) -> None:
    """Let loops keep their running tasks until somebody looks for one in this dictionary.

    `current_task.h` says where they do, and why.
    """
    know_current_tasks(tasks)


if not cython.compiled:

    def ticks_of(loop: Loop) -> int:
        """Return the ticks of the loop's kernel."""
        return loop._kernel.ticks()

    def know_current_tasks(tasks: dict[Any, Any]) -> None:
        """Do nothing; uncompiled, each step enters the dictionary."""

    def take_arguments(cls: type, methods: dict[str, object]) -> None:
        """Let the scheduling methods take their arguments in C. Uncompiled, the interpreter takes them."""


take_arguments(Loop, dict(vars(Loop)))
