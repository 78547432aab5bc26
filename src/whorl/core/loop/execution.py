"""The queues of a loop, and their execution in batches. A batch runs to its end, even if callbacks raise."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from whorl.core import limits, states
from whorl.core.callback import Callback, GuardedCallback, Runnable, current_thread, thread_begins
from whorl.core.handle import Completion, LateCompletion
from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.held_writes import HeldWrites
from whorl.core.loop.state import LoopState
from whorl.core.process.host import Host
from whorl.core.recording import layout

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.recording.loop_recorder import LoopRecorder

if not cython.compiled:
    from whorl.core.callback import (
        call_with_one,
        fetch,
        is_held_alone,
        recycle_guarded,
        reraise_pending,
        run_catching,
    )
    from whorl.core.figures import has_histograms, note
    from whorl.core.lists import empty, only_callback, taken
    from whorl.core.recording.loop_recorder import begin_batch, begins_alike, end_batch, end_call, end_turn
    from whorl.core.recording.slot import time_of
    from whorl.core.recording.steps import may_be_step


class LoopExecution(LoopState):
    """The part of a loop that queues entries and runs them."""

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        LoopState._set_up(self, kernel, host)
        self._passes = 0  # the number of passes over idle, prepare or check handles
        self._current_entry: Runnable | None = None  # the running entry, in debug mode or with a probe
        # The loop calls this with itself and each entry; it runs the entry by `_run_entry`.
        # None: the loop runs entries itself.
        self._run_hook: Callable[[Any, Runnable], object] | None = None
        self._held = HeldWrites(self._kernel)
        self._callback_began = 0  # the end of the callback before it, in a turn that times them

    # The loop's own thread.

    def _enqueue(self, entry: Runnable) -> None:
        """Let an entry run in the next turn, in order with `call_soon`."""
        if self._closed:
            self._check_closed()
        if self._debug:
            self._check_thread()
        if self._posted:
            self._take_posted(entry)
        self._ready_queue.append(entry)

    def _take_posted(self, entry: Runnable) -> None:
        """Collect what was posted earlier, which comes before `entry`; tell the recorder of `entry`."""
        if self._posted == states.SOMETHING:
            self._drain_inbox(self._ready_queue)
        recorder = self._recorder
        if recorder is not None and may_be_step(entry):
            recorder._note_scheduled(entry)

    def _queue_pending(self, entry: Runnable) -> None:
        """Queue an entry for the pending phase, or for asyncio's next turn (libuv: ``uv__io_feed``)."""
        self._pending.append(entry)
        if self._may_sleep:
            self._end_sleep()

    def _unqueue_pending(self, entry: Runnable) -> None:
        """Take an entry out of the pending queue, if it is there."""
        if entry in self._pending:
            self._pending.remove(entry)

    def _collect_pending(self, into: list[Runnable]) -> None:
        """Move the pending entries to `into`."""
        into.extend(self._pending)
        self._pending.clear()

    # Other threads, and signal handlers.

    def _post(self, entry: Runnable) -> None:
        """Queue an entry from any thread, or from a signal handler, in order with `call_soon`."""
        if put_if_at_home(self, entry):
            self._end_sleep()
        else:  # the same as `_post_from_any_thread`, without a lookup of a subclass's override
            size = put_in_inbox(self, entry)
            self._posted = states.SOMETHING
            self._end_sleep()
            if size == limits.CALLBACK_FREELIST_SIZE:  # Those after them would be made anew.
                yield_to_loops()

    def _post_from_any_thread(self, entry: Runnable) -> None:
        """Put an entry in the inbox, from any thread or a signal handler; the next poll drains it."""
        put_in_inbox(self, entry)
        self._posted = states.SOMETHING
        self._end_sleep()

    def _async_sent(self, handle: Runnable) -> None:
        """Let an Async run after the next poll; from any thread, or from a signal handler."""
        put_async(self, handle)
        self._posted = states.SOMETHING
        self._end_sleep()

    def _drain_inbox(self, into: list[Runnable]) -> None:
        """Append the entries of the inbox, but none that is posted meanwhile: such entries may have no end.

        Asyncs come after the entries, as in libuv. One entry calls all sent Asyncs, also those that others
        of them send. Signals come last.
        """
        self._posted = states.NONE_POSTED if self._recorder is None else states.RECORDED
        late: list[Runnable] = []
        index = len(into)
        swap_inbox(self, into)
        while index < len(into):
            entry = into[index]
            if type(entry) is LateCompletion:
                late.append(entry)
                del into[index]
            else:
                index += 1
        sent = taken_async(self)
        if sent is not None:
            into.append(sent)
        elif self._async_handles:
            into.append(next(iter(self._async_handles)))
        into.extend(late)
        if self._may_sleep:
            self._end_sleep()

    def _drop_completions(self) -> None:
        """Drop the completions whose callbacks will never run; other threads may still post some."""
        queued = self._ready_queue + self._pending + self._polled
        while self._inbox:
            swap_inbox(self, queued)
        for entry in queued:
            if isinstance(entry, Completion):
                entry.drop()

    # Running.

    def _run_ready(self) -> None:
        """Run exactly the entries that are ready now; entries added meanwhile wait for the next turn."""
        batch = self._ready_queue
        if not batch:
            return
        if self._observed:
            recorder = self._recorder
            if self._probe is not None:
                self._notify_probe("turn_began", self._turns, len(batch))
            elif (
                recorder is not None and not recorder._in_call and not self._debug and self._run_hook is None
            ):
                entry = only_callback(batch)
                if entry is not None:
                    run_alone_recorded(self, recorder, entry)
                    end_turn_of(self, recorder)
                    return
            if recorder is not None:
                swap_ready(self, batch)
                self._run_batch(batch, self._ready_queue)
                end_turn_of(self, recorder)
                return
        elif not self._debug and self._run_hook is None and self._until_sample:
            entry = only_callback(batch)
            if entry is not None:
                run_alone(self, entry)
                return
        swap_ready(self, batch)
        self._run_batch(batch, self._ready_queue)

    def _run_pending(self) -> None:
        """Run exactly the entries that are pending now; entries added meanwhile wait for the next round."""
        if self._pending:
            batch = self._pending
            swap_pending(self, batch)
            self._run_batch(batch, self._pending)

    def _run_timers(self) -> None:
        """Call the timers that are due by now; timers that are started meanwhile wait."""
        due: list[Any] = []
        try:
            self._collect_timers(due)
        except BaseException:  # an interrupt
            self._pending.extend(due)
            raise
        if due:
            self._run_batch(due, self._pending)

    def _run_phase(self, handles: list[Any]) -> None:
        """Call each handle of a phase; handles that are started meanwhile wait for the next pass."""
        self._passes += 1
        this_pass = self._passes
        for handle in list(handles):
            if handle.is_active() and handle._started_in < this_pass:
                self._run_batch([handle], self._pending)

    def _run_closing(self) -> None:
        """Finish the closing of handles; as in libuv, the handle that was closed last comes first."""
        closing = self._closing_handles
        self._closing_handles = []
        try:
            while closing:
                handle = closing.pop()
                try:
                    handle._finish_close()
                except BaseException as error:
                    self._callback_failed(handle, error)
                if self._observed:
                    self._note_closed(handle)
        finally:
            if closing:  # an error ends the run
                self._closing_handles.extend(closing)

    def _note_closed(self, handle: Any) -> None:
        recorder = self._recorder
        if recorder is not None:
            recorder._handle_changed(handle, layout.HANDLE_CLOSED)
            recorder._last_ns = self._kernel.now()
        if self._probe is not None:
            self._notify_probe("handle_closed", handle)

    def _run_batch(self, batch: list[Any], queue: list[Any]) -> None:
        """Run all of `batch`, and empty it; if an error ends the run, the rest goes to `queue`.

        The first `done` entries have begun. A callback that fails is reported, and the next one runs.
        """
        if self._observes_batch():
            self._run_observed_batch(batch, queue)
            return
        size = len(batch)
        done = 0
        held = self._held
        collects = held.collects
        self._count_batch(size)
        if not cython.compiled:
            entry: Any = None  # An interrupt may come before the first entry is taken.
        try:
            held.thread = self._thread
            while done < size:
                try:
                    for index in range(done, size):
                        done = index + 1
                        held.run = held.run + 1
                        fetch(batch, index + limits.ENTRIES_AHEAD)
                        entry = taken(batch, index)
                        if collects:
                            held.callback_begins(size - done)
                        execute(entry)
                        if held.streams:
                            held.callback_ended()
                except BaseException as error:
                    self._report_callback_error(entry, error)
        finally:
            if done < size:
                queue[:0] = batch[done:]
            empty(batch)
            if not cython.compiled:
                entry = None  # A traceback may keep this frame, which must not keep a failed task.
            self._batch_ended(size - done)

    def _run_observed_batch(self, batch: list[Any], queue: list[Any]) -> None:
        """Do what `_run_batch` does, and let an observer follow each callback."""
        size = len(batch)
        done = 0
        held = self._held
        observer = None
        self._count_batch(size)
        if not cython.compiled:
            entry: Any = None
        try:
            observer = BatchObserver()
            observer.batch_begins(self)
            held.thread = self._thread
            while done < size:
                try:
                    for index in range(done, size):
                        done = index + 1
                        held.run = held.run + 1
                        entry = taken(batch, index)
                        observer.callback_begins(entry, size - done)
                        if observer.is_instrumented:
                            self._run_instrumented(entry)
                        else:
                            execute(entry)
                        if held.streams:
                            held.callback_ended()
                        observer.callback_ended(entry)
                except BaseException as error:
                    observer.callback_failed(entry)
                    self._report_callback_error(entry, error)
                    observer.error_reported()
        finally:
            if done < size:
                queue[:0] = batch[done:]
            empty(batch)
            if not cython.compiled:
                entry = None
            if observer is not None:
                observer.batch_ended()
            self._batch_ended(size - done)

    def _observes_batch(self) -> bool:
        """Return whether something follows each callback of a batch that begins now."""
        return self._observed or self._debug or self._run_hook is not None or not self._until_sample

    def _count_batch(self, size: int) -> None:
        """Count the entries of a batch that begins."""
        self._callbacks = self._callbacks + size
        note(self._figures, states.BATCH, size)

    def _batch_ended(self, rest: int) -> None:
        """Note the end of a batch, of which so many entries have not run."""
        self._callbacks = self._callbacks - rest
        self._held.batch_ended()

    def _run_step(self, context: Any, called: Any, argument: Any) -> None:
        """Call `called(argument)`, which steps a task inside of the running callback."""
        recorder = self._recorder
        if recorder is None:
            call_with_one(context, called, argument)
        else:
            recorder._run_step(context, called, argument)

    def _report_callback_error(self, entry: Runnable, error: BaseException) -> None:
        held = self._held
        held.push_all()
        held.run = held.run + 1
        try:
            self._callback_failed(entry, error)
        finally:
            if held.streams:  # The exception handler has written.
                held.callback_ended()

    def _run_instrumented(self, entry: Runnable) -> None:
        """Run one entry in debug mode, with a probe, or by a runner."""
        began = self._clock() if self._debug else self._kernel.now()
        self._current_entry = entry
        try:
            if self._run_hook is None:
                entry._execute()
            else:
                self._run_hook(self, entry)
        finally:
            self._current_entry = None
            took = (self._clock() if self._debug else self._kernel.now()) - began
            if not self._until_sample and self._recorder is None:
                note(self._figures, states.CALLBACK, took)
            if self._probe is not None:
                self._notify_probe("callback_ran", entry, took)
            if self._debug:
                self._callback_ran(entry, took)
            del entry  # Uncompiled, a traceback keeps this frame: it must not keep a failed task too.

    def _run_entry(self, entry: Runnable) -> None:
        """Run one entry, for the runner."""
        entry._execute()


class BatchObserver:
    """Follows the callbacks of one batch, for whoever wants to know of them.

    The recorder, if the loop is recorded; else in one turn of many the histogram of callbacks. Debug mode, a
    probe and a runner let the loop run each entry by `_run_instrumented`. A loop that collects writes wants
    to know how many callbacks wait. Turns that a recorded callback runs are a part of that callback.
    """

    def __init__(self) -> None:
        self._loop: Any = None
        self._recorder: LoopRecorder | None = None  # None: nothing to end, also after an interrupt
        self.is_instrumented: bool = False
        self._is_timed = False

    def batch_begins(self, loop: LoopExecution) -> None:
        """Note that the first callback is about to begin."""
        recorder = loop._recorder
        self._loop = loop
        self._recorder = None if recorder is None or recorder._in_call else recorder
        self.is_instrumented = loop._debug or loop._probe is not None or loop._run_hook is not None
        self._is_timed = not (
            loop._until_sample or loop._observed or self.is_instrumented or not has_histograms(loop._figures)
        )
        if self._recorder is not None:
            begin_batch_of(loop, self._recorder)
        elif self._is_timed:
            loop._callback_began = loop._kernel.now()

    def callback_begins(self, entry: Runnable, behind: int) -> None:
        """Note that a callback begins, while `behind` others wait."""
        if self._loop._held.collects:
            self._loop._held.callback_begins(behind)
        recorder = self._recorder
        if recorder is not None and not begins_alike(recorder, entry):
            recorder._begin(entry)

    def callback_ended(self, entry: Runnable) -> None:
        """Note that a callback has ended."""
        if self._recorder is not None:
            end_call(self._recorder, entry, time_of(self._recorder))
        elif self._is_timed:
            self._note_callback()

    def callback_failed(self, entry: Runnable) -> None:
        """Note that a callback has failed. Its error is about to be reported."""
        if self._recorder is not None:
            end_call(self._recorder, entry, self._loop._kernel.now())
        elif self._is_timed:
            self._note_callback()

    def error_reported(self) -> None:
        """Leave the time of the exception handler out of the next callback's."""
        if self._recorder is not None:
            self._recorder._last_ns = self._loop._kernel.now()
        elif self._is_timed:
            self._loop._callback_began = self._loop._kernel.now()

    def batch_ended(self) -> None:
        """Note that no callback of the batch runs any more."""
        if self._recorder is not None:
            end_batch(self._recorder)

    def _note_callback(self) -> None:
        now = self._loop._kernel.now()
        note(self._loop._figures, states.CALLBACK, now - self._loop._callback_began)
        self._loop._callback_began = now


def execute(entry: Runnable) -> None:
    """Run an entry. The usual kinds of callbacks are called without a look-up of their method."""
    if type(entry) is Callback:
        if not run_catching(entry, False):
            reraise_pending()
    elif type(entry) is not GuardedCallback:
        entry._execute()
    elif is_held_alone(entry, 1):  # only the caller has it: nobody can cancel it
        if not run_catching(entry, True):
            reraise_pending()
    else:
        entry._execute()
        recycle_guarded(entry)


def count_runs(change: int) -> None:
    """Note that this thread begins to run a loop (1), or ends (-1)."""
    global runs_here
    runs_here += change
    if runs_here == (change > 0):  # the first begins, or the last has ended
        thread_begins(change > 0)


def run_alone(loop: LoopExecution, entry: Callback) -> None:
    """Run the only entry of a turn, as `_run_batch` does, without the bookkeeping of batches."""
    held = loop._held
    loop._callbacks_alone = loop._callbacks_alone + 1
    held.thread = loop._thread
    held.run = held.run + 1
    if not run_catching(entry, False):
        report_pending_error(loop, entry)
    elif held.streams:
        held.batch_ended()
    held.thread = 0


def run_alone_recorded(loop: LoopExecution, recorder: LoopRecorder, entry: Callback) -> None:
    """Do what `run_alone` does, and record it."""
    loop._callbacks_alone = loop._callbacks_alone + 1
    try:
        begin_batch_of(loop, recorder)
    except BaseException:
        loop._callbacks = loop._callbacks - 1
        loop._ready_queue.insert(0, entry)
        raise
    if not begins_alike(recorder, entry):
        recorder._begin(entry)
    held = loop._held
    held.thread = loop._thread
    held.run = held.run + 1
    if run_catching(entry, False):
        held.batch_ended()
        end_call(recorder, entry, time_of(recorder))
        end_batch(recorder)
    else:
        report_recorded_error(loop, recorder, entry)


def report_recorded_error(loop: LoopExecution, recorder: LoopRecorder, entry: Callback) -> None:
    """Record the end of a callback that failed, and report the exception that `run_catching` has left set."""
    try:
        reraise_pending()
    except BaseException as error:
        end_call(recorder, entry, loop._kernel.now())
        end_batch(recorder)
        loop._report_callback_error(entry, error)
    finally:
        loop._held.batch_ended()
    recorder._last_ns = loop._kernel.now()  # after the exception handler


def report_pending_error(loop: LoopExecution, entry: Callback) -> None:
    """Report the exception that `run_catching` has left set."""
    try:
        reraise_pending()
    except BaseException as error:
        loop._report_callback_error(entry, error)
    finally:
        loop._held.batch_ended()


if not cython.compiled:
    runs_here: int = 0
    # No function of its own: a traceback would keep its frame, and so a failed task.
    execute = methodcaller("_execute")  # type: ignore[assignment]

    def begin_batch_of(loop: LoopExecution, recorder: LoopRecorder) -> None:
        """Record that a batch begins; write the loop's numbers now and then."""
        now = begin_batch(recorder, loop._poll_ended)
        if now - recorder._published_ns >= layout.PUBLISHED_NS:
            loop._publish(recorder, now)

    def end_turn_of(loop: LoopExecution, recorder: LoopRecorder) -> None:
        """Record that a turn ends; the machine's own turns go on after their ready entries."""
        if not recorder._in_call and not recorder._in_machine_turn:
            end_turn(recorder, recorder._last_ns, loop._callbacks + loop._callbacks_alone)

    def yield_to_loops() -> None:
        """Let the loop's thread run; uncompiled, the interpreter switches often enough."""

    def swap_inbox(loop: LoopExecution, into: list[Any]) -> None:
        """Append the entries posted by now; other threads may post more between two steps of this."""
        for _ in range(len(loop._inbox)):
            into.append(loop._inbox.popleft())

    def swap_ready(loop: LoopExecution, batch: list[Any]) -> None:
        """Let the ready queue, which is the batch to run, change places with the empty list."""
        loop._ready_queue = loop._ready_swap
        loop._ready_swap = batch

    def swap_pending(loop: LoopExecution, batch: list[Any]) -> None:
        """Do the same with the pending queue."""
        loop._pending = loop._pending_swap
        loop._pending_swap = batch

    def put_in_inbox(loop: LoopExecution, entry: Runnable) -> int:
        """Put an entry in the inbox; return the number of entries there."""
        loop._inbox.append(entry)
        return len(loop._inbox)

    def put_if_at_home(loop: LoopExecution, entry: Runnable) -> bool:
        """Put an entry in the ready queue if the loop last ran in this thread; return whether it did."""
        is_at_home = current_thread() == loop._last_run_thread
        if is_at_home:
            loop._ready_queue.append(entry)
        return is_at_home

    def begin_at_home(loop: LoopExecution) -> None:
        """Note that this thread begins to run the loop."""
        loop._last_run_thread = current_thread()

    def put_async(loop: LoopExecution, handle: Runnable) -> None:
        """Note an Async that was sent."""
        loop._sent_async = handle
        loop._has_sent_async = True

    def taken_async(loop: LoopExecution) -> Runnable | None:
        """Return the Async that was sent, if any, and forget it."""
        sent, loop._sent_async = loop._sent_async, None
        loop._has_sent_async = False
        return sent
