"""A call that waits for its turn: asyncio calls it a Handle.

The loop's queues hold `Runnable` objects: callbacks, timers that fell due, and the I/O handles themselves. So
an event needs no object of its own.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from whorl.core import limits
from whorl.core.copying import refuse_copy
from whorl.core.figures import Figures

try:
    import cython
except ImportError:  # A pure installation needs no Cython.
    from whorl.core import cython_shim as cython

if not cython.compiled:
    from whorl.core.threads import HAS_GIL, barrier

    copy_context: Callable[[], contextvars.Context] = contextvars.copy_context
    snapshot_context = copy_context
    new_context = contextvars.Context
    get_ident: Callable[[], int] = threading.get_ident
    thread_ident = get_ident

    def is_foreign(loop: AbstractLoop) -> bool:
        """Return whether there is no GIL, and another thread runs the loop; uncompiled, nobody has to ask."""
        return False

    def fetch(entries: list[Any], place: int) -> None:
        """Prefetch the memory of an entry into the processor's cache; uncompiled, do nothing."""

    def has_single_reference(thing: object) -> bool:
        """Return whether only the caller refers to an object; uncompiled, always return False."""
        return False

    def is_held_alone(thing: object, count: int) -> bool:
        """Return whether the caller has all `count` references to an object; uncompiled, return False."""
        return False

    def set_freelist_size(size: int) -> None:
        """Set how many callbacks the freelist may keep; uncompiled, there is no freelist."""

    def freelist_put(callback: Any, guarded: bool) -> bool:
        """Put a callback on the freelist; return whether there was room."""
        return False

    def freelist_pop(guarded: bool) -> Callback | None:
        """Return a callback of the freelist, None if there is none."""
        return None

    def freelist_pop_guarded(guarded: bool) -> GuardedCallback | None:
        """Return a guarded callback of the freelist, None if there is none."""
        return None

    def fill_in(entry: Any, loop: AbstractLoop, callback: Any, args: Any, context: Any) -> None:
        """Set the attributes of a callback that is new or comes from the freelist."""
        type(entry).__init__(entry, loop, callback, args, context)

    def forget(callback: Any) -> None:
        """Drop all objects that a callback refers to."""

    def has_run(callback: Any) -> bool:
        """Run a callback; return False if it raised, and leave the error set. Uncompiled, raise it."""
        callback._snapshot.run(callback._callback, *callback._args)
        del callback  # A traceback may keep this frame, which must not keep the callback.
        return True

    def reraise_pending() -> Any:
        """Raise the error that is still set."""

    def run_in_context(context: Any, callback: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call `callback` in `context`."""
        return context.run(callback, *args)

    def call_with_one(context: Any, callback: Callable[[Any], Any], argument: Any) -> Any:
        """Call `callback(argument)` in `context`."""
        return context.run(callback, argument)

    def call_with_two(context: Any, callback: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
        """Call `callback(first, second)` in `context`."""
        return context.run(callback, first, second)

    def call_with_three(
        context: Any, callback: Callable[[Any, Any, Any], Any], first: Any, second: Any, third: Any
    ) -> Any:
        """Call `callback(first, second, third)` in `context`."""
        return context.run(callback, first, second, third)


def current_context() -> contextvars.Context:
    """Return a copy of the calling code's context."""
    return copy_context()


def call_in_context(context: contextvars.Context, callback: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call `callback(*args)` in `context`."""
    return run_in_context(context, callback, args)


def current_thread() -> int:
    """Return the number of the calling thread."""
    return get_ident()


class Runnable:
    """An entry for a queue of the loop: it runs once, in the turn after it was queued."""

    __reduce__ = refuse_copy

    def _execute(self) -> None:
        """Run the entry. The loop reports what this raises."""
        raise NotImplementedError


class AbstractLoop:
    """The interface of a loop, for callbacks and handles, and for users by `handle.loop`."""

    __reduce__ = refuse_copy

    def _set_up_abstract(self) -> None:
        self._debug = False
        self._figures = Figures()

    # The methods that users call.

    def is_closed(self) -> bool:
        raise NotImplementedError

    def now(self) -> int:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        raise NotImplementedError

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        raise NotImplementedError

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Callback:
        raise NotImplementedError

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Callback:
        raise NotImplementedError

    # The methods that callbacks and handles call.

    def _timer_cancelled(self, timer: Runnable) -> None:
        raise NotImplementedError

    def _count_active(self, change: int) -> None:
        raise NotImplementedError

    def _count_requests(self, change: int) -> None:
        raise NotImplementedError

    def _handle_opened(self, handle: Runnable) -> None:
        raise NotImplementedError

    def _handle_closing(self, handle: Runnable) -> None:
        raise NotImplementedError

    def _handle_closed(self, handle: Runnable) -> None:
        raise NotImplementedError

    def _queue_pending(self, entry: Runnable) -> None:
        raise NotImplementedError

    def _unqueue_pending(self, entry: Runnable) -> None:
        raise NotImplementedError

    def _check_closed(self) -> None:
        raise NotImplementedError

    def _shown_class(self, cls: type) -> type:
        """Return the class that `isinstance` sees in a callback of the class `cls`."""
        return cls

    def _describe(self, callback: Callback) -> str:
        """Return the representation of a callback."""
        state = " cancelled" if callback._cancelled else ""
        return f"<{type(callback).__name__}{state} {callback._callback!r}>"

    def _is_foreign(self) -> bool:
        """Return whether another thread runs the loop."""
        return False


class Callback(Runnable):
    """A function, its arguments and the context in which it runs.

    `cancel` may be called from any thread and any number of times. The loop skips a cancelled
    callback, which forgets its function and arguments at once. Without the GIL, the thread of a loop may be
    about to use them. Then a `cancel` by another thread leaves them to the end of the callback.
    """

    def __init__(
        self,
        loop: AbstractLoop,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...] | None,
        context: contextvars.Context | None = None,
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        # The context to run in; None: an empty one, which is not made yet.
        self._snapshot: Any = snapshot_context() if context is None else context
        self._cancelled = False
        self._source_traceback: Any = None
        self._repr: str | None = None

    def _execute(self) -> None:
        # A callback of None is tried, too: calling it is an error of the run, as in asyncio.
        if not self._cancelled and self._args is not None and not has_run(self):
            reraise_pending()
        if not cython.compiled:
            del self  # A traceback may keep this frame, which must not keep the callback.

    def _run(self) -> None:
        """Run the callback and let the loop report its error: for code that uses asyncio's private name."""
        try:
            self._execute()
        except BaseException as error:
            loop: Any = self._loop
            loop._callback_failed(self, error)

    def cancel(self) -> None:
        """Make sure that the function is not called."""
        if not self._cancelled:
            self._mark_cancelled()

    def _mark_cancelled(self) -> None:
        self._cancelled = True
        if is_foreign(self._loop):
            return
        if self._loop is not None and self._loop._debug:
            self._repr = repr(self)
        self._callback = None
        self._args = None

    def cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self._cancelled

    @property
    def _context(self) -> Any:
        """The context in which the function runs, by asyncio's private name."""
        return self.get_context()

    def get_context(self) -> contextvars.Context:
        """Return the context in which the function runs (asyncio: ``Handle.get_context``, 3.12)."""
        context: contextvars.Context = new_context() if self._snapshot is None else self._snapshot
        if self._loop is not None:
            self._snapshot = context
        return context

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that `isinstance` sees besides the callback's own: the loop's face decides."""
        return type(self) if self._loop is None else self._loop._shown_class(type(self))

    def __repr__(self) -> str:
        if self._loop is None:  # a callback of the freelist, as the collector shows it
            return f"<{type(self).__name__}>"
        return self._repr or self._loop._describe(self)


class GuardedCallback(Callback):
    """A callback whose `cancel`, from another thread, waits for a call that is under way.

    So after `cancel` the callback does not run, and will not (asyncio since 3.14). The running thread sets
    `_running_thread` and then reads `_cancelled`; the cancelling thread sets `_cancelled` and then reads
    `_running_thread`. So one of them sees the other. A lock is made only if a thread has to wait. Without the
    GIL, both pass a barrier in between.
    """

    def __init__(
        self,
        loop: AbstractLoop,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...] | None,
        context: contextvars.Context | None = None,
    ) -> None:
        super().__init__(loop, callback, args, context)
        self._running_thread = 0  # the thread that runs it now, or 0
        self._ended: Any = None  # a lock that is released at the end of the call
        self._is_awaited = False  # whether there is one

    def _execute(self) -> None:
        if is_held_alone(self, 1):  # only the caller has it: nobody can cancel it
            Callback._execute(self)
            return
        outer = self._running_thread
        self._running_thread = thread_ident()
        barrier()
        try:
            Callback._execute(self)
        finally:
            self._running_thread = outer
            barrier()
            if self._is_awaited:
                self._release_waiters()

    def _release_waiters(self) -> None:
        """Let those go on who wait for the end of the call."""
        _one_waiter.acquire()
        try:
            ended, self._ended = self._ended, None
            self._is_awaited = False
        finally:
            _one_waiter.release()
        if ended is not None:
            ended.release()

    def _await_end(self) -> None:
        """Wait until no other thread runs the callback."""
        while self._running_thread != 0 and self._running_thread != thread_ident():
            ended = self._end_lock()
            barrier()
            if self._running_thread != 0:  # else the call may have ended before the lock was set
                ended.acquire()
                ended.release()

    def _end_lock(self) -> Any:
        """Return the lock that is released at the end of the call; all waiting threads share it."""
        _one_waiter.acquire()
        try:
            ended = self._ended
            if ended is None:
                ended = threading.Lock()
                ended.acquire()
                self._ended = ended
                self._is_awaited = True
            return ended
        finally:
            _one_waiter.release()

    def cancel(self) -> None:
        """Make sure that the function is not called, and is not being called."""
        Callback.cancel(self)
        barrier()
        if self._running_thread != 0:
            self._await_end()

    def cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        if self._running_thread != 0:
            self._await_end()
        return self._cancelled


_one_waiter = threading.Lock()  # One waiter at a time makes the lock that it waits for.


def run_catching(entry: Callback, guarded: bool) -> bool:
    """Run a callback, and put it on the freelist if only the caller refers to it.

    Return False if it raised; then the error is still set, for `reraise_pending`. `guarded`: the entry is a
    `GuardedCallback` with no other reference. Making and freeing objects that the collector watches is a
    third of the cost of a callback.
    """
    if entry._cancelled or entry._args is None:
        return True
    if not has_run(entry):
        return False
    if is_held_alone(entry, 1) and not entry._cancelled and entry._source_traceback is None:
        forget(entry)  # This may free objects whose end schedules, and takes from the freelist.
        freelist_put(entry, guarded)
    return True


def recycle_guarded(entry: GuardedCallback) -> None:
    """Put a guarded callback on the freelist if the others that referred to it during its run do no more."""
    if (
        is_held_alone(entry, 1)
        and not entry._cancelled
        and entry._source_traceback is None
        and entry._running_thread == 0
        and not entry._is_awaited
    ):
        forget(entry)
        freelist_put(entry, True)


def drop_callback(entry: Callback) -> None:
    """Cancel a callback that is not wanted any more; reuse it if only the caller refers to it."""
    if (
        type(entry) is Callback
        and is_held_alone(entry, 1)
        and not entry._cancelled
        and entry._source_traceback is None
    ):
        forget(entry)
        freelist_put(entry, False)
    else:
        entry.cancel()


def new_callback(
    loop: AbstractLoop,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: contextvars.Context | None,
) -> Callback:
    """Return a `Callback`, made without the cost of calling its class."""
    snapshot = snapshot_context() if context is None else context
    entry = freelist_pop(False)
    if entry is None:
        entry = Callback.__new__(Callback)
    entry._cancelled = False  # Other code may have cancelled one of the freelist.
    fill_in(entry, loop, callback, args, snapshot)
    return entry


def new_guarded_callback(
    loop: AbstractLoop,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: contextvars.Context | None,
) -> GuardedCallback:
    """Return a `GuardedCallback`, made as `new_callback` makes a `Callback`."""
    snapshot = snapshot_context() if context is None else context
    entry = freelist_pop_guarded(True)
    if entry is None:
        entry = GuardedCallback.__new__(GuardedCallback)
    entry._cancelled = False  # Other code may have cancelled one of the freelist.
    fill_in(entry, loop, callback, args, snapshot)
    return entry


def thread_begins(runs_loop: bool) -> None:
    """Note that the calling thread runs a loop now, or none any more.

    Without the GIL, it keeps callbacks that have run as long as it runs a loop.
    """
    if not HAS_GIL:
        set_freelist_size(limits.THREAD_FREELIST_SIZE if runs_loop else 0)


if HAS_GIL:
    set_freelist_size(limits.CALLBACK_FREELIST_SIZE)
