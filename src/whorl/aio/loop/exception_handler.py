"""The handling of uncaught errors, and the reports of debug mode about callbacks."""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from asyncio import constants, coroutines, format_helpers
from asyncio.log import logger
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from whorl.core.callback import Callback, GuardedCallback, Runnable
from whorl.core.timers.timed_callback import TimedCallback

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

    Context: TypeAlias = dict[str, Any]
    Handler: TypeAlias = Callable[[asyncio.AbstractEventLoop, Context], object]

# Newer Pythons shorten the arguments they show unless debug mode is on.
_format_source: Any = format_helpers._format_callback_source
_SHORTENS = "debug" in inspect.signature(_format_source).parameters

# The public one is deprecated in newer Pythons, and `inspect` does not know mocks and Cython's functions.
is_coroutine_function: Callable[[object], bool] = (
    getattr(coroutines, "_iscoroutinefunction", None) or coroutines.iscoroutinefunction
)

# From 3.14 on, cancelling a callback of call_soon_threadsafe waits for a running call.
GUARDS_POSTS = hasattr(asyncio.events, "_ThreadSafeHandle")

# From 3.12 on, a handler runs in the context of the task or callback that failed.
_USES_CONTEXT = sys.version_info >= (3, 12)


# The user's handler.


def get_exception_handler(loop: AnyLoop) -> Handler | None:
    """Return the handler that was set, or None. Source: ``asyncio.loop.get_exception_handler``."""
    return loop._exception_handler


def set_exception_handler(loop: AnyLoop, handler: Handler | None) -> None:
    """Call `handler(loop, context)` for uncaught errors; None: log them.

    Source: ``asyncio.loop.set_exception_handler``.
    """
    if handler is not None and not callable(handler):
        raise TypeError(f"A callable object or None is expected, got {handler!r}")
    loop._exception_handler = handler


def call_exception_handler(loop: AnyLoop, context: Context) -> None:
    """Report an error: `context` has a message and the other known facts about it.

    Source: ``asyncio.loop.call_exception_handler``.
    """
    loop._figures.count_error()
    handler = loop._exception_handler
    complaint = "Exception in default exception handler"
    if handler is None:
        _log_by_default(loop, context, complaint)
        return
    try:
        own_context = _context_of(context) if _USES_CONTEXT else None
        if own_context is None:
            handler(loop, context)
        else:
            own_context.run(handler, loop, context)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        report = {
            "message": "Unhandled error in exception handler",
            "exception": error,
            "context": context,
        }
        complaint += " while handling an unexpected error in custom exception handler"
        _log_by_default(loop, report, complaint)


def _log_by_default(loop: AnyLoop, context: Context, complaint: str) -> None:
    """Call the default handler, which a subclass may have replaced by one that fails."""
    try:
        loop.default_exception_handler(context)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        logger.error(complaint, exc_info=True)


def _context_of(context: Context) -> Any:
    """Return the contextvars context of the failed task or callback, if it has one."""
    for key in ("task", "future", "handle"):
        failed = context.get(key)
        if failed is not None:
            own_context = failed.get_context() if hasattr(failed, "get_context") else None
            return own_context if hasattr(own_context, "run") else None
    return None


def default_exception_handler(loop: AnyLoop, context: Context) -> None:
    """Log an error.

    Source: ``asyncio.loop.default_exception_handler``.
    """
    exception = context.get("exception")
    exc_info: Any = False
    if exception is not None:
        exc_info = (type(exception), exception, exception.__traceback__)
    origin = getattr(loop._current_entry, "_source_traceback", None)
    if "source_traceback" not in context and origin:
        context["handle_traceback"] = origin
    lines = [context.get("message") or "Unhandled exception in event loop"]
    logged = ("message", "exception")
    lines += [f"{key}: {_shown(key, context[key])}" for key in sorted(context) if key not in logged]
    logger.error("\n".join(lines), exc_info=exc_info)


def _shown(key: str, value: Any) -> str:
    origins = {"source_traceback": "Object", "handle_traceback": "Handle"}
    if key not in origins:
        return repr(value)
    stack = "".join(traceback.format_list(value)).rstrip()
    return f"{origins[key]} created at (most recent call last):\n{stack}"


# The functions that the machine calls.


def callback_failed(loop: AnyLoop, entry: Runnable, error: BaseException) -> None:
    """Report an exception of a queue's entry, or let it end the run if it is meant to."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    entry = _handle_for(loop, entry)
    context: Context = {"message": f"Exception in {_described(entry)}", "exception": error, "handle": entry}
    if isinstance(entry, Callback):
        context["message"] = f"Exception in callback {_source_of(loop, entry)}"
        if entry._source_traceback:
            context["source_traceback"] = entry._source_traceback
    loop.call_exception_handler(context)


def _described(entry: Runnable) -> str:
    """Return the entry's repr; where that fails, as for a pending task without a coroutine, its class."""
    try:
        return repr(entry)
    except Exception:
        return object.__repr__(entry)


def callback_ran(loop: AnyLoop, entry: Runnable, took_ns: int) -> None:
    """Log in debug mode that an entry took long."""
    took = took_ns / 1e9
    if took < loop.slow_callback_duration:
        return
    if getattr(entry, "is_descriptor_watch", False):
        return  # The callbacks that it calls are timed themselves.
    owner = getattr(getattr(entry, "_callback", None), "__self__", None)
    shown = repr(owner) if isinstance(owner, asyncio.Task) else str(_handle_for(loop, entry))
    logger.warning("Executing %s took %.3f seconds", shown, took)


class _Method:
    """A method of one of Whorl's transports, by the name that asyncio's has."""

    def __init__(self, transport: Any, name: str) -> None:
        kind = type(transport).__name__
        self.__self__ = transport
        self.__name__ = name
        self.__qualname__ = _INHERITED.get((kind, name), f"{kind}.{name}")

    def __call__(self) -> None:
        """Do nothing: the call was made already."""


_INHERITED = {
    ("_SelectorDatagramTransport", "_call_connection_lost"): "_SelectorTransport._call_connection_lost"
}


def _handle_for(loop: AnyLoop, entry: Runnable) -> Runnable:
    """Return the handle that asyncio has in place of an entry.

    In asyncio, a transport is no handle, but the callback that reads its socket is one.
    """
    if isinstance(entry, asyncio.BaseTransport):
        return Callback(loop, _Method(entry, "_read_ready"), ())
    return entry


def check_callback(loop: AnyLoop, callback: object, method: str) -> None:
    """Refuse, in debug mode, objects that cannot be called, and coroutines."""
    if asyncio.coroutines.iscoroutine(callback) or is_coroutine_function(callback):
        raise TypeError(f"coroutines cannot be used with {method}()")
    if not callable(callback):
        raise TypeError(f"a callable object was expected by {method}(), got {callback!r}")


def note_origin(loop: AnyLoop, callback: Callback) -> None:
    """Record, in debug mode, the place where a callback was scheduled."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("whorl."):
        frame = frame.f_back
    callback._source_traceback = format_helpers.extract_stack(frame, limit=constants.DEBUG_STACK_DEPTH)


def shown_class(loop: AnyLoop, cls: type) -> type:
    """Return the class that `isinstance` sees in a callback besides its real class."""
    if issubclass(cls, GuardedCallback) and GUARDS_POSTS:
        return asyncio.events._ThreadSafeHandle  # type: ignore[attr-defined, no-any-return, unused-ignore]
    return asyncio.TimerHandle if issubclass(cls, TimedCallback) else asyncio.Handle


def describe(loop: AnyLoop, callback: Callback) -> str:
    """Return the representation of a callback, as asyncio shows its handles."""
    words = [shown_class(loop, type(callback)).__name__]
    if callback._cancelled:
        words.append("cancelled")
    if isinstance(callback, TimedCallback):
        words.append(f"when={callback.when()}")
    if callback._callback is not None:
        words.append(_source_of(loop, callback))
    if callback._source_traceback:
        origin = callback._source_traceback[-1]
        words.append(f"created at {origin[0]}:{origin[1]}")
    return f"<{' '.join(words)}>"


def _source_of(loop: AnyLoop, callback: Callback) -> str:
    """Return a callback's function, its arguments, and the place of its definition."""
    options = {"debug": loop._debug} if _SHORTENS else {}
    function: Any = callback._callback
    owner = getattr(function, "__self__", None)
    if isinstance(owner, asyncio.BaseTransport) and isinstance(owner, Runnable):
        function = _Method(owner, function.__name__)
    return str(_format_source(function, callback._args, **options))
