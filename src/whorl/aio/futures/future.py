"""Whorl's futures, compiled: the results that Whorl's tasks wait for.

They behave as `asyncio.Future` does, and asyncio's functions accept them as such. A Whorl task that waits for
one stands in its list of callbacks itself. When the future is done, the task goes into the loop's ready queue
itself: switching tasks makes no object.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from asyncio import base_futures, events, format_helpers
from collections.abc import Callable
from contextvars import Context
from types import GenericAlias, TracebackType
from typing import Any

from whorl.aio.futures import states
from whorl.aio.futures.awaited_by import waiter_behind
from whorl.aio.futures.states import NAMES
from whorl.core.callback import Runnable, current_context
from whorl.core.loop.loop import Loop

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

# Whether a future refuses StopIteration as its exception, or makes a RuntimeError of it.
REFUSES_STOP = sys.version_info < (3, 11, 8) or (3, 12) <= sys.version_info < (3, 12, 2)
REFUSES_SECOND_INIT = sys.version_info >= (3, 15)
WARNS_OF_THROW = sys.version_info >= (3, 12)  # of the three arguments that generators used to take

if not cython.compiled:

    def stop_with(value: object) -> None:
        """End an iteration with a value; if that is None, raising StopIteration is left to the caller."""
        if value is not None:
            raise StopIteration(value)


class Future(Runnable):
    """A result that is not there yet (asyncio: ``asyncio.Future``).

    Raises as `asyncio.Future` does. `isinstance` reports it as one.
    """

    # Uncompiled, `asyncio.isfuture` looks for one of these in the class.
    __slots__ = (
        "_asyncio_future_blocking",
        "_cancelled_error",
        "_exception",
        "_first",
        "_first_context",
        "_is_unretrieved",
        "_loop",
        "_message",
        "_more",
        "_result",
        "_source_traceback",
        "_status",
        "_traceback",
    )

    def __init__(self, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        status = self._status if cython.compiled else getattr(self, "_status", 0)  # type: ignore[has-type]
        if status and REFUSES_SECOND_INIT:
            raise RuntimeError(f"{self.__class__.__name__} object is already initialized")
        self._loop: Any = events.get_event_loop() if loop is None else loop
        self._status = states.PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._traceback: Any = None
        self._message: Any = None
        self._cancelled_error: BaseException | None = None  # kept, so that it is raised only once
        # Whether it has an exception that nobody has retrieved, which is reported when this is gone. It is
        # False in memory that is all zeros: a future that is not made, for want of memory, reports nothing.
        self._is_unretrieved = False
        self._asyncio_future_blocking = False  # set while an `await` hands this to its task
        # The first callback, and the others. Without a context it is a task, to be executed.
        self._first: Any = None
        self._first_context: Context | None = None
        self._more: list[tuple[Any, Context | None]] | None = None
        self._source_traceback: Any = None
        if self._loop.get_debug():
            self._source_traceback = origin()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return asyncio.Future if type(self) is Future else type(self)

    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias:
        return GenericAlias(cls, item)

    # State and result.

    def get_loop(self) -> Any:
        """Return the loop of the future."""
        if self._loop is None:
            raise RuntimeError("Future object is not initialized.")
        return self._loop

    def done(self) -> bool:
        """Return whether it has a result or an exception, or was cancelled."""
        return self._status > states.PENDING

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._status == states.CANCELLED

    def result(self) -> Any:
        """Return the result; raise the exception that was set, CancelledError, or InvalidStateError."""
        return self._take_result()

    def exception(self) -> BaseException | None:
        """Return the exception, or None; raise CancelledError or InvalidStateError."""
        if self._status == states.CANCELLED:
            raise self._make_cancelled_error()
        return self._outcome("Exception is not set.")

    def _take_result(self) -> Any:
        if self._status == states.FINISHED and self._exception is None:
            return self._result
        if self._status == states.CANCELLED:
            raise self._make_cancelled_error()
        error = self._outcome("Result is not ready.")
        if error is None:
            return self._result
        self._restore_traceback(error)
        try:
            raise error
        finally:
            if not cython.compiled:
                del self, error  # which the frame in the traceback would keep

    def _restore_traceback(self, error: BaseException) -> None:
        """Restore the traceback that an exception had when it was set, whichever code has raised it since."""
        if self._status == states.FINISHED:
            error.__traceback__ = self._traceback
            self._traceback = None  # which may hold frames that hold this future

    def _outcome(self, complaint: str) -> BaseException | None:
        """Return the exception that waiting for this raises; it need not be logged any more."""
        if self._status == states.CANCELLED:
            return self._make_cancelled_error()
        if self._status != states.FINISHED:
            raise asyncio.InvalidStateError(complaint)
        self._is_unretrieved = False
        return self._exception

    def _make_cancelled_error(self) -> BaseException:
        error = self._cancelled_error
        if error is not None:
            self._cancelled_error = None
            return error
        if self._message is None:
            return asyncio.CancelledError()
        return asyncio.CancelledError(self._message)

    # Changes of state.

    def set_result(self, result: Any) -> None:
        """Set the result. Raises InvalidStateError if this is done already."""
        self._finish(result)

    def set_exception(self, exception: BaseException | type[BaseException]) -> None:
        """Set the exception. Raises InvalidStateError if this is done already."""
        self._fail(exception)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel this, unless it is done already; return whether it was not."""
        return self._cancel(msg)

    def _finish(self, result: Any) -> None:
        if self._status != states.PENDING:
            self._refuse()
        self._result = result
        self._status = states.FINISHED
        if self._first is not None:
            self._call_all()

    def _fail(self, exception: Any) -> None:
        if self._status != states.PENDING:
            self._refuse()
        if isinstance(exception, type):
            exception = exception()
        if not isinstance(exception, BaseException):
            raise TypeError("invalid exception object")
        if isinstance(exception, StopIteration):
            complaint = "StopIteration interacts badly with generators and cannot be raised into a Future"
            if REFUSES_STOP:
                raise TypeError(complaint)
            error = RuntimeError(complaint)
            error.__cause__ = error.__context__ = exception
            exception = error
        self._exception = exception
        self._traceback = exception.__traceback__
        self._status = states.FINISHED
        self._is_unretrieved = True
        if self._first is not None:
            self._call_all()

    def _cancel(self, message: Any) -> bool:
        self._is_unretrieved = False
        if self._status != states.PENDING:
            if self._status == 0:
                self._refuse()
            return False
        self._status = states.CANCELLED
        self._message = message
        if self._first is not None:
            self._call_all()
        return True

    def _refuse(self) -> None:
        """Raise the error for a change of a future that is done, or never began."""
        if self._loop is None:
            raise RuntimeError("Future object is not initialized.")
        raise asyncio.InvalidStateError(f"{self._state}: {self!r}")

    # Callbacks.

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call `fn(self)` by the loop when this is done, in `context`, or in a copy of the caller's."""
        if self._loop is None:
            raise RuntimeError("Future object is not initialized.")
        if self._status != states.PENDING:
            self._loop.call_soon(fn, self, context=context)
        else:
            self._append(fn, current_context() if context is None else context)

    def remove_done_callback(self, fn: object) -> int:
        """Remove a callback, however often it was added; return the number of times."""
        if self._loop is None:
            raise RuntimeError("Future object is not initialized.")
        # Comparing may call anything, which may change the callbacks meanwhile.
        unwanted = [entry for entry, context in self._entries() if context is not None and entry == fn]
        entries = self._entries()
        kept = [pair for pair in entries if not any(pair[0] is entry for entry in unwanted)]
        if len(kept) != len(entries):
            self._first = self._first_context = self._more = None
            for entry, context in kept:
                self._append(entry, context)
        return len(entries) - len(kept)

    def _append(self, entry: Any, context: Context | None) -> None:
        if self._first is None:
            self._first = entry
            self._first_context = context
        elif self._more is None:
            self._more = [(entry, context)]
        else:
            self._more.append((entry, context))

    def _entries(self) -> list[tuple[Any, Context | None]]:
        if self._first is None:
            return []
        return [(self._first, self._first_context), *(self._more or ())]

    def _call_all(self) -> None:
        """Let the loop call all callbacks, as this is done."""
        first, context, more = self._first, self._first_context, self._more
        self._first = self._first_context = self._more = None
        self._call(first, context)
        if more is not None:
            for first, context in more:
                self._call(first, context)

    def _call(self, entry: Any, context: Context | None) -> None:
        if context is not None:
            self._loop.call_soon(entry, self, context=context)
        else:
            machine: Loop = self._loop
            machine._enqueue(entry)

    def __await__(self) -> FutureIterator:
        return FutureIterator(self)

    def __iter__(self) -> FutureIterator:
        return FutureIterator(self)

    # The attributes that asyncio's functions read.

    @property
    def _state(self) -> str:
        return NAMES[self._status]

    @property
    def _callbacks(self) -> list[tuple[Any, Any]] | None:
        entries = self._entries()
        shown = [(entry._wakeup if context is None else entry, context) for entry, context in entries]
        return shown or None

    @property
    def _asyncio_awaited_by(self) -> frozenset[Any] | None:
        """The tasks that wait for this: the call graphs of CPython 3.14 show them."""
        waiters = [entry if context is None else waiter_behind(entry) for entry, context in self._entries()]
        return frozenset([waiter for waiter in waiters if waiter is not None]) or None

    @property
    def _cancel_message(self) -> Any:
        return self._message

    @_cancel_message.setter
    def _cancel_message(self, message: Any) -> None:
        self._message = message

    @_cancel_message.deleter
    def _cancel_message(self) -> None:
        raise AttributeError("_cancel_message cannot be deleted")

    @property
    def _log_traceback(self) -> bool:
        return self._is_unretrieved

    @_log_traceback.setter
    def _log_traceback(self, value: bool) -> None:
        if value:
            raise ValueError("_log_traceback can only be set to False")
        self._is_unretrieved = False

    def __repr__(self) -> str:
        return str(base_futures._future_repr(self))  # type: ignore[attr-defined]

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        """Report an exception that was never retrieved, when the last reference is gone."""
        if self._is_unretrieved and self._loop is not None:
            self._complain(f"{self.__class__.__name__} exception was never retrieved")

    def _complain(self, message: str) -> None:
        context: dict[str, Any] = {"message": message, "future": self, "exception": self._exception}
        if self._source_traceback:
            context["source_traceback"] = self._source_traceback
        self._loop.call_exception_handler(context)


if not cython.compiled:

    def field_of_uninitialized(future: Future, name: str) -> Any:
        """Return a field of a future without a call of `__init__`: 0 or None, as in the compiled build."""
        if name in Future.__slots__:
            return 0 if name == "_status" else None
        raise AttributeError(
            f"{type(future).__name__!r} object has no attribute {name!r}", name=name, obj=future
        )

    Future.__getattr__ = field_of_uninitialized  # type: ignore[attr-defined]


@cython.binding(True)  # type: ignore[untyped-decorator]
def new_future(loop: Any) -> Future:
    """Return a future of a loop, made without the cost of a call by name."""
    if loop._debug or not cython.compiled:
        return Future(loop=loop)
    future = Future.__new__(Future)
    future._loop = loop
    future._status = states.PENDING
    return future


def origin() -> Any:
    """Return, in debug mode, the stack of the code that called into Whorl."""
    frame: Any = sys._getframe(0)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("whorl."):
        frame = frame.f_back
    return format_helpers.extract_stack(frame)


class FutureIterator:
    """The iterator of an `await`: it gives the future to the task, and then the result to the awaiter."""

    def __init__(self, future: Future) -> None:
        self._future: Future | None = future

    def __iter__(self) -> FutureIterator:
        return self

    def __next__(self) -> Future:
        future = self._future
        if future is None:
            raise StopIteration
        if future._status == states.PENDING:
            if future._asyncio_future_blocking:
                raise RuntimeError("await wasn't used with future")
            future._asyncio_future_blocking = True
            return future
        self._future = None
        stop_with(future._take_result())
        raise StopIteration

    def send(self, value: object) -> Future:
        """Go on; the value means nothing."""
        return self.__next__()

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Future:
        """Raise the thrown exception, as a generator that catches nothing does."""
        self._future = None
        if (value is not None or traceback is not None) and WARNS_OF_THROW:
            warnings.warn(
                "the (type, value, traceback) form of throw() is deprecated: throw the exception alone",
                DeprecationWarning,
                stacklevel=2 - cython.compiled,
            )
        if isinstance(kind, BaseException):
            if value is not None:
                raise TypeError("instance exception may not have a separate value")
            value = kind
        elif isinstance(kind, type) and issubclass(kind, BaseException):
            if value is None:
                value = kind()
            elif not isinstance(value, kind):
                value = kind(*value) if isinstance(value, tuple) else kind(value)
        else:
            raise TypeError("exceptions must be classes deriving BaseException or instances of such a class")
        if traceback is not None and not isinstance(traceback, TracebackType):
            raise TypeError("throw() third argument must be a traceback")
        raise value if traceback is None else value.with_traceback(traceback)

    def close(self) -> None:
        """End the wait."""
        self._future = None
