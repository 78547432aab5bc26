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
    from whorl.core import uncompiled as cython

if not cython.compiled:
    copy_context = snapshot_context = contextvars.copy_context
    new_context = empty_context = contextvars.Context
    get_ident = thread_ident = threading.get_ident

    def is_unshared(thing: object) -> bool:
        """Whether only the caller refers to an object; uncompiled nobody can tell."""
        return False

    def is_kept(context: Any) -> bool:
        """Keep an empty context for the next if nobody knows of it; uncompiled nobody can tell."""
        return False

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


class Owner:
    """What callbacks and handles ask of their loop."""

    __slots__ = ("_call", "_debug")

    def _set_up_owner(self) -> None:
        self._debug = False
        self._call = 0  # the number of the callback that runs, 0 while none does

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

    def _feed(self, entry: Runnable) -> None:
        raise NotImplementedError

    def _unfeed(self, entry: Runnable) -> None:
        raise NotImplementedError

    def _hold(self, handle: Runnable) -> bool:
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
        loop: Owner,
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
        callback, args = self._callback, self._args
        if not self._cancelled and args is not None:
            # None, too, is tried: that it cannot be called is an error of the run, as in asyncio.
            if self._snapshot is None:
                context = self._snapshot = empty_context()
                run_in_context(context, callback, args)  # type: ignore[arg-type]
                if is_kept(context):
                    self._snapshot = None
            else:
                run_in_context(self._snapshot, callback, args)  # type: ignore[arg-type]

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
        if self._loop._debug:
            self._repr = repr(self)
        self._callback = None
        self._args = None

    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    @property
    def _context(self) -> Any:
        """The context the function runs in, by the name that asyncio has for it."""
        return self.get_context()

    def get_context(self) -> contextvars.Context:
        """The context the function runs in (asyncio: ``Handle.get_context``, 3.12)."""
        if self._snapshot is None:
            self._snapshot = new_context()
        context: contextvars.Context = self._snapshot
        return context

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class this shows to `isinstance` besides its own: the loop's face decides."""
        return self._loop._shown_class(type(self))

    def __repr__(self) -> str:
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
        loop: Owner,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...] | None,
        context: contextvars.Context | None = None,
    ) -> None:
        super().__init__(loop, callback, args, context)
        self._runner = 0  # the thread that runs it
        self._ended: Any = None  # a lock that is released at the end of the call

    def _execute(self) -> None:
        if is_unshared(self):  # but by who runs it: nobody can cancel it
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
            with _one_waiter:
                ended = self._ended
                if ended is None:
                    ended = threading.Lock()
                    ended.acquire()
                    self._ended = ended
            if self._runner != 0:  # else it may have ended without a look at the lock
                with ended:
                    pass

    def cancel(self) -> None:
        """Make sure that the function is not called, and is not being called."""
        Callback.cancel(self)
        if self._runner != 0:
            self._await_end()

    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        if self._runner != 0:
            self._await_end()
        return self._cancelled


_one_waiter = threading.Lock()  # at a time makes the lock that it waits for

# Callbacks that have run and that nobody knew of, each in the `_callback` of the one before; compiled only.
_spare: Callback | None = None
_spares = 0
_guarded_spare: GuardedCallback | None = None
_guarded_spares = 0


def recycle(entry: Runnable) -> None:
    """Keep an entry that has run for the next `new_callback`, if nobody else refers to it.

    Making and freeing objects that the collector watches is a third of the cost of a callback.
    """
    global _spare, _spares
    if not is_unshared(entry) or type(entry) is not Callback or _spares >= SPARE_CALLBACKS:
        return
    callback = entry
    if callback._cancelled or callback._source_traceback is not None:
        return  # Only those that are like new.
    _forget(callback)
    callback._callback = _spare  # type: ignore[assignment]
    _spare = callback
    _spares += 1


def _forget(callback: Callback) -> None:
    """Drop all that a callback refers to. Whatever that ends may schedule, and take one of the spare ones."""
    callback._loop = callback._callback = callback._args = callback._snapshot = None  # type: ignore[assignment]


def recycle_guarded(entry: Runnable) -> None:
    """The same for the next `new_guarded_callback`."""
    global _guarded_spare, _guarded_spares
    if not is_unshared(entry) or type(entry) is not GuardedCallback or _guarded_spares >= SPARE_CALLBACKS:
        return
    callback = entry
    if (
        callback._cancelled
        or callback._source_traceback is not None
        or callback._runner != 0
        or callback._ended is not None
    ):
        return
    _forget(callback)
    callback._callback = _guarded_spare  # type: ignore[assignment]
    _guarded_spare = callback
    _guarded_spares += 1


def new_callback(
    loop: Owner, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
) -> Callback:
    """A `Callback`, made without the cost of a call by name."""
    global _spare, _spares
    entry = _spare
    if entry is not None:
        _spare = entry._callback  # type: ignore[assignment]
        _spares -= 1
    else:
        entry = Callback.__new__(Callback)
        entry._cancelled = False
        entry._source_traceback = None
        entry._repr = None
    entry._loop = loop
    entry._callback = callback
    entry._args = args
    entry._snapshot = snapshot_context() if context is None else context
    return entry


def new_guarded_callback(
    loop: Owner, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
) -> GuardedCallback:
    """A `GuardedCallback`, made in the same way."""
    global _guarded_spare, _guarded_spares
    entry = _guarded_spare
    if entry is not None:
        _guarded_spare = entry._callback  # type: ignore[assignment]
        _guarded_spares -= 1
    else:
        entry = GuardedCallback.__new__(GuardedCallback)
        entry._cancelled = False
        entry._source_traceback = None
        entry._repr = None
    entry._loop = loop
    entry._callback = callback
    entry._args = args
    entry._snapshot = snapshot_context() if context is None else context
    return entry


if not cython.compiled:
    current_thread = threading.get_ident
    new_callback = Callback
    new_guarded_callback = GuardedCallback

    def _run_uncompiled(self: Callback) -> None:
        callback, args = self._callback, self._args
        if not self._cancelled and args is not None:
            if args:
                self._snapshot.run(callback, *args)
            else:
                self._snapshot.run(callback)
            # A traceback may keep this frame, which must not keep the callback.
            del self, callback, args

    Callback._execute = _run_uncompiled  # type: ignore[method-assign]
