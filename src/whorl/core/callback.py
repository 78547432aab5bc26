"""One call waiting for its turn: what asyncio calls a Handle.

The loop's queues hold `Runnable` objects: callbacks, timers that fell due, and the I/O handles
themselves, so that an event needs no object of its own.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from whorl.core.limits import SPARE_CALLBACKS

try:
    import cython
except ImportError:  # A pure installation needs no Cython.
    from whorl.core import cython_shim as cython

if not cython.compiled:
    copy_context = snapshot_context = contextvars.copy_context
    new_context = contextvars.Context
    get_ident = thread_ident = threading.get_ident

    def fetch(entries: list[Any], place: int) -> None:
        """Have the memory of an entry brought into the processor's cache; uncompiled nobody can."""

    def has_single_reference(thing: object) -> bool:
        """Return whether only the caller refers to an object; uncompiled nobody can tell."""
        return False

    def set_freelist_size(room: int) -> None:
        """For callbacks that are kept; uncompiled none are."""

    def freelist_put(callback: Any, guarded: bool) -> bool:
        """Keep a callback, whether it is kept."""
        return False

    def freelist_pop(guarded: bool) -> Callback | None:
        """A callback that was kept, None if there is none."""
        return None

    def freelist_pop_guarded(guarded: bool) -> GuardedCallback | None:
        """The same of the guarded ones."""
        return None

    def fill_in(entry: Any, loop: AbstractLoop, callback: Any, args: Any, context: Any) -> None:
        """Fill in a new callback, or one that was kept."""
        type(entry).__init__(entry, loop, callback, args, context)

    def forget(callback: Any) -> None:
        """Drop all that a callback refers to."""

    def has_run(callback: Any) -> bool:
        """Run a callback, whether it raised nothing; uncompiled it raises."""
        callback._snapshot.run(callback._callback, *callback._args)
        del callback  # A traceback may keep this frame, which must not keep the callback.
        return True

    def reraise_pending() -> Any:
        """Raise what is still set."""

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
    """A copy of the calling code's context."""
    return copy_context()


def call_in_context(context: contextvars.Context, callback: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call `callback(*args)` in `context`."""
    return run_in_context(context, callback, args)


def current_thread() -> int:
    """The number of the calling thread."""
    return get_ident()


class Runnable:
    """Something a queue of the loop can hold: it is run once, in the turn after it was queued."""

    __slots__ = ()

    def _execute(self) -> None:
        """Do it. What this raises is for the loop to report."""
        raise NotImplementedError


class AbstractLoop:
    """The interface of a loop: what callbacks and handles ask of it, and users by `handle.loop`."""

    __slots__ = ("_debug",)

    def _set_up_abstract(self) -> None:
        self._debug = False

    # What users call.

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

    # What callbacks and handles tell it.

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
        """What `isinstance` is to see in a callback of the given class."""
        return cls

    def _describe(self, callback: Callback) -> str:
        """The representation of a callback."""
        state = " cancelled" if callback._cancelled else ""
        return f"<{type(callback).__name__}{state} {callback._callback!r}>"


class Callback(Runnable):
    """A function, its arguments and the context it is to run in.

    `cancel` may be called from any thread and any number of times; a cancelled callback is
    skipped, and it forgets its function and arguments at once.
    """

    __slots__ = (
        "__weakref__",
        "_args",
        "_callback",
        "_cancelled",
        "_loop",
        "_repr",
        "_snapshot",
        "_source_traceback",
    )

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
        # The context to run in; None: one that is empty, and not made yet.
        self._snapshot: Any = snapshot_context() if context is None else context
        self._cancelled = False
        self._source_traceback: Any = None
        self._repr: str | None = None

    def _execute(self) -> None:
        # None, too, is tried: that it cannot be called is an error of the run, as in asyncio.
        if not self._cancelled and self._args is not None and not has_run(self):
            reraise_pending()
        if not cython.compiled:
            del self  # A traceback may keep this frame, which must not keep the callback.

    def _run(self) -> None:
        """Do it now, and let the loop report what it raises: for those who know asyncio's private name."""
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
        if self._loop is not None and self._loop._debug:
            self._repr = repr(self)
        self._callback = None
        self._args = None

    def cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self._cancelled

    @property
    def _context(self) -> Any:
        """The context the function runs in, by the name that asyncio has for it."""
        return self.get_context()

    def get_context(self) -> contextvars.Context:
        """The context the function runs in (asyncio: ``Handle.get_context``, 3.12)."""
        context: contextvars.Context = new_context() if self._snapshot is None else self._snapshot
        if self._loop is not None:
            self._snapshot = context
        return context

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class this shows to `isinstance` besides its own: the loop's face decides."""
        return type(self) if self._loop is None else self._loop._shown_class(type(self))

    def __repr__(self) -> str:
        if self._loop is None:  # one that is kept for later, as the collector shows it
            return f"<{type(self).__name__}>"
        return self._repr or self._loop._describe(self)


class GuardedCallback(Callback):
    """A callback whose `cancel`, from another thread, waits for a call that is under way.

    So who has cancelled it knows that it does not run, and will not (asyncio since 3.14). Who runs it says so
    and then looks whether it is cancelled; who cancels it says that and then looks whether it is run: one of
    them sees the other. A lock is made only where somebody has to wait.
    """

    __slots__ = ("_ended", "_runner")

    def __init__(
        self,
        loop: AbstractLoop,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...] | None,
        context: contextvars.Context | None = None,
    ) -> None:
        super().__init__(loop, callback, args, context)
        self._runner = 0  # the thread that runs it
        self._ended: Any = None  # a lock that is released at the end of the call

    def _execute(self) -> None:
        if has_single_reference(self):  # but by who runs it: nobody can cancel it
            Callback._execute(self)
            return
        outer = self._runner
        self._runner = thread_ident()
        try:
            Callback._execute(self)
        finally:
            self._runner = outer
            if self._ended is not None:
                ended, self._ended = self._ended, None
                ended.release()

    def _await_end(self) -> None:
        """Wait until no other thread runs it."""
        while self._runner != 0 and self._runner != thread_ident():
            ended = self._end_lock()
            if self._runner != 0:  # else it may have ended without a look at the lock
                ended.acquire()
                ended.release()

    def _end_lock(self) -> Any:
        """The lock that is released at the end of the call, for all who wait for that."""
        _one_waiter.acquire()
        try:
            ended = self._ended
            if ended is None:
                ended = threading.Lock()
                ended.acquire()
                self._ended = ended
            return ended
        finally:
            _one_waiter.release()

    def cancel(self) -> None:
        """Make sure that the function is not called, and is not being called."""
        Callback.cancel(self)
        if self._runner != 0:
            self._await_end()

    def cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        if self._runner != 0:
            self._await_end()
        return self._cancelled


_one_waiter = threading.Lock()  # at a time makes the lock that it waits for


def run_catching(entry: Callback, guarded: bool) -> bool:
    """Run a callback, and keep it for the next `new_callback` if nobody else refers to it.

    Returns whether nothing was raised; else the error is still set, for `reraise_pending`. `guarded`: it is a
    guarded one that nobody else refers to. Making and freeing objects that the collector watches is a third
    of the cost of a callback.
    """
    if entry._cancelled or entry._args is None:
        return True
    if not has_run(entry):
        return False
    if has_single_reference(entry) and not entry._cancelled and entry._source_traceback is None:
        forget(entry)  # Whatever that ends may schedule, and take one of the spare ones.
        freelist_put(entry, guarded)
    return True


def recycle_guarded(entry: GuardedCallback) -> None:
    """Keep a guarded callback that others knew of while it ran, if they do no more."""
    if (
        has_single_reference(entry)
        and not entry._cancelled
        and entry._source_traceback is None
        and entry._runner == 0
        and entry._ended is None
    ):
        forget(entry)
        freelist_put(entry, True)


def new_callback(
    loop: AbstractLoop,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: contextvars.Context | None,
) -> Callback:
    """A `Callback`, made without the cost of a call by name."""
    snapshot = snapshot_context() if context is None else context
    entry = freelist_pop(False)
    if entry is None:
        entry = Callback.__new__(Callback)
    entry._cancelled = False  # Somebody may have cancelled a spare one.
    fill_in(entry, loop, callback, args, snapshot)
    return entry


def new_guarded_callback(
    loop: AbstractLoop,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: contextvars.Context | None,
) -> GuardedCallback:
    """A `GuardedCallback`, made in the same way."""
    snapshot = snapshot_context() if context is None else context
    entry = freelist_pop_guarded(True)
    if entry is None:
        entry = GuardedCallback.__new__(GuardedCallback)
    entry._cancelled = False  # Somebody may have cancelled a spare one.
    fill_in(entry, loop, callback, args, snapshot)
    return entry


set_freelist_size(SPARE_CALLBACKS)
