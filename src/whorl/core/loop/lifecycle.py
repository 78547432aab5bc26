"""The life of a loop: its poller and wakeup, the beginning and end of its runs, signals, closing, fork."""

from __future__ import annotations

import errno
import functools
import operator
import signal
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import current_thread
from whorl.core.kernel.kernel import Kernel
from whorl.core.limits import LONGEST_SPIN_NS
from whorl.core.loop.execution import LoopExecution, count_runs
from whorl.core.loop.wakeup import SignalPipe, Wakeup
from whorl.core.pollers import choose
from whorl.core.pollers.contract import refuse_in_child
from whorl.core.process.host import Host, call_at_forks

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    import selectors

    from whorl.core.pollers.contract import Poller

if not cython.compiled:
    from whorl.core.figures import note_away
    from whorl.core.kernel.kernel import clock_is_patched
    from whorl.core.loop.execution import begin_at_home, taken_async
    from whorl.core.loop.state import end_sleep

SIGPROF = int(getattr(signal, "SIGPROF", -1))
UNCHANGED: Any = object()
#: The errors of a process that cannot open another descriptor.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})


_run_listener: Callable[[Any], object] | None = None


def set_run_listener(listener: Callable[[Any], object] | None) -> None:
    """Call `listener` with each loop that begins to run, in its thread; None ends that."""
    global _run_listener
    _run_listener = listener


#: References to the loops that exist, by their ids. Each removes itself when its loop ends.
_loops: dict[int, weakref.ref[Any]] = {}


def running_loops() -> list[Any]:
    """Return the loops that run now, on any thread."""
    loops = [reference() for reference in list(_loops.values())]
    return [loop for loop in loops if loop is not None and loop._thread_id is not None]


def _leave_loops_to_parent() -> None:
    """Keep this forked child from its parent's events, which the two would share. It holds no writes."""
    for reference in list(_loops.values()):
        loop: LoopLifecycle | None = reference()
        if loop is not None:
            loop._poller.leave_to_parent()
            loop._held.thread = 0  # The parent may keep the socket, so nothing would push.


call_at_forks(in_child=_leave_loops_to_parent)


class LoopLifecycle(LoopExecution):
    """The part of a loop that opens its poller, wakeup and signal pipe, and closes them."""

    def _set_up_lifecycle(
        self,
        poller: Poller | selectors.BaseSelector | str | None,
        kernel: Kernel | None,
        host: Host | None,
    ) -> None:
        LoopExecution._set_up(self, kernel, host)
        self._process_id = self._host.process_id()
        self._signals: SignalPipe | None = None  # made when the loop first sleeps in the main thread
        self._arms_signals = False  # whether the next sleep must arm the signal pipe first
        self._is_counted = False  # among the loops that its thread runs
        self._signal_handles = 0  # the number of started Signal handles
        self._spare_watch: Any = None  # a handle of asyncio's face, to watch the next descriptor
        self._poller = choose.make_poller(poller, self._kernel)
        self._closed = False
        try:
            self._wakeup = Wakeup(self, self._kernel)
        except BaseException:
            self._closed = True
            self._poller.close()
            raise
        number = id(self)
        _loops[number] = weakref.ref(self, functools.partial(_loops.pop, number))

    def _wake(self) -> None:
        self._wakeup.wake()

    def configure(self, *, block_signal: int | None = UNCHANGED, spin_ns: int = UNCHANGED) -> None:
        """Set how the loop sleeps; options that are not given stay as they are (``uv_loop_configure``).

        `block_signal`: SIGPROF is blocked during sleep, so that a profiler that sends it by the clock does
        not wake the loop; None blocks no signal. `spin_ns`: before it sleeps, the loop asks for events for so
        many nanoseconds, and keeps its core busy. With 0, the initial value, it sleeps at once.

        Raises OSError. EINVAL: the signal is another one, or `spin_ns` is negative or more than a second.
        ENOSYS: the poller cannot spin; epoll can. Idle time is always measured, and spinning is idle.
        """
        if spin_ns is not UNCHANGED:
            spin_ns = operator.index(spin_ns)
        if block_signal not in (UNCHANGED, None, SIGPROF):
            raise OSError(errno.EINVAL, "only SIGPROF can be held back")
        if spin_ns != UNCHANGED and not 0 <= spin_ns <= LONGEST_SPIN_NS:
            raise OSError(errno.EINVAL, "a loop spins for at most a second")
        if spin_ns not in (UNCHANGED, 0) and not self._poller.can_spin:
            raise OSError(errno.ENOSYS, "this poller cannot spin")
        if block_signal != UNCHANGED:
            self._kernel.blocked_signal = block_signal or 0
        if spin_ns != UNCHANGED:
            self._kernel.spin_ns = spin_ns

    def poller_name(self) -> str:
        """Return the name of the poller: "epoll", or the class of a selector."""
        return self._poller.name()

    def backend_fd(self) -> int:
        """Return a descriptor that is readable when events wait; -1 if the poller has none."""
        return self._poller.fileno()

    # Beginning and ending a run.

    def _check_may_run(self) -> None:
        """Raise RuntimeError if the loop is closed or runs already."""
        if self._closed:
            self._check_closed()
        if self._thread:
            raise RuntimeError("This event loop is already running")

    def _begin_run(self) -> None:
        """Prepare the first turn of a run. If this raises, the loop does not run."""
        LoopLifecycle._check_may_run(self)  # A driver's loop runs beside that of its host.
        host = self._host
        if self._process_id != host.process_id():
            refuse_in_child()
        self._arms_signals = host.is_main_thread()
        if self._arms_signals and host.signals.main_loop() is not self:
            host.signals.loop_began(self)
        if clock_is_patched() != self._follows_patch:
            self._clock_was_patched()
        self._poller.skips.expect_events()  # the first turns of every run poll
        listener = _run_listener  # Another thread may change it.
        if listener is not None:
            listener(self)
        self._run_began = self._poll_ended = self._previous_poll_ended = self._kernel.now()
        if not self._is_counted:  # A run that could not begin may be counted.
            self._is_counted = True
            count_runs(1)
        begin_at_home(self)
        self._thread = current_thread()  # the last step: until here nothing runs

    def _end_run(self) -> None:
        """Clean up after the last turn of a run. If this raises, another call does the rest."""
        self._thread = 0
        self._arms_signals = False
        end_sleep(self)
        self._sleep_began = 0
        if self._signals is not None:
            self._release_signals()
        if self._run_began:
            self._poller.hand_over()
            now = self._kernel.now()
            if self._poll_ended:
                note_away(self._figures, now - self._poll_ended, self._turns, self._callbacks_alone)
                self._poll_ended = 0
            self._ran_ns, self._run_began = self._ran_ns + (now - self._run_began), 0
            if self._recorder is not None:
                self._publish(self._recorder, now)
        if self._is_counted:
            self._is_counted = False
            count_runs(-1)

    def _open_handles(self) -> list[Any]:
        """Return the open handles, transports too; some may be there twice."""
        watched = self._poller.handles()
        own = self._wakeup, self._signals
        return self.walk() + [handle for handle in watched if handle is not own[0] and handle is not own[1]]

    def _is_in_creating_process(self) -> bool:
        """Return whether the loop belongs to this process, and not to one that it was forked from."""
        return self._process_id == self._host.process_id()

    # Signals.

    def _arm_signals(self) -> None:
        """Let signals end the sleep that is about to begin, and the later ones of this run.

        Python handlers of earlier signals run in here. So the caller computes the timeout afterwards.
        """
        try:
            pipe = self._signal_pipe()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            # Signals interrupt most sleeps all the same; the next sleep tries again.
        else:
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
        """Return whether signals must be written to the pipe also while the loop does not run."""
        return self._signal_handles > 0

    def _count_signal_handles(self, change: int) -> None:
        """Count a Signal handle that was started (1) or stopped (-1)."""
        self._signal_handles += change
        if not self._host.is_main_thread():
            return  # The pipe ends the sleep of the main thread's loop only.
        if change > 0:
            self._signal_pipe().arm()
        elif not self._thread and not self._closed:
            self._release_signals()

    # The end, and a fork.

    def close(self) -> None:
        """Close the loop and release its descriptors (``uv_loop_close``).

        Raises OSError (EBUSY) while handles are open or requests in flight, RuntimeError while
        the loop runs. Closing again does nothing.
        """
        if self._closed:
            return
        if self._thread:
            raise RuntimeError("Cannot close a running event loop")
        if self._handles or self._closing_handles or self._active_requests:
            raise OSError(errno.EBUSY, "handles are open or requests in flight")
        self._close_machine()

    def _close_machine(self) -> None:
        self._closed = True
        recorder = self._recorder
        if recorder is not None:
            self._set_recorder(None)
            recorder.close()
        self._drop_completions()
        self._ready_queue.clear()
        self._pending.clear()
        self._polled.clear()
        self._async_handles.clear()
        taken_async(self)
        self._timer_queue.clear()
        self._spare_watch = None
        # The poller goes first. A forked child shares the kernel's set with the parent; taking
        # handles out of it one by one would take them out of the parent's.
        self._poller.close()
        if self._signals is not None:
            if self._host.is_main_thread():
                self._signals.disarm()
            self._signals.close()
            self._signals._drop_loop_reference()
        self._wakeup._begin_close()
        self._wakeup._drop_loop_reference()
        self._closing_handles.clear()

    def __del__(self) -> None:
        if getattr(self, "_poller", None) is None or self._closed:
            return  # It is closed, or was never made.
        if warnings is None:
            return  # The interpreter is ending, and the names of this module are gone.
        left_open = self.walk()
        self._close_machine()
        for handle in left_open:
            handle.close()
        warnings.warn(f"unclosed loop {self!r}", ResourceWarning, source=self, stacklevel=1)

    def fork(self) -> None:
        """Let the loop go on in a forked child, with its handles (``uv_loop_fork``).

        Call it in the child. The loop gets a poller, a wakeup and an inotify instance of its own. Its handles
        share their descriptors with the parent: data that one process reads, the other does not get.
        Work that was in flight in the thread pool does not end here. Children of the parent are not
        children of this process.
        """
        self._check_closed()
        self._process_id = self._host.process_id()
        self._last_run_thread = current_thread()
        if self._thread:
            self._thread = self._last_run_thread
        self._poller.renew()
        self._wakeup.renew()
        if self._signals is not None:
            self._signals.renew()
        for shared in list(self._shared.values()):
            shared.renew()
