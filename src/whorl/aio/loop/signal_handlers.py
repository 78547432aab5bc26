"""UNIX signals as events of the loop."""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
import warnings
from asyncio.log import logger
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.loop.exception_handler import is_coroutine_function
from whorl.core.callback import Callback
from whorl.core.loop.loop import Loop

if TYPE_CHECKING:
    from typing import TypeVarTuple

    from whorl.aio.loop_type import AnyLoop

    Arguments = TypeVarTuple("Arguments")


def add_signal_handler(
    loop: AnyLoop, sig: int, callback: Callable[[*Arguments], object], *args: *Arguments
) -> None:
    """Call `callback(*args)` in a turn of the loop whenever the process gets the signal.

    Raises ValueError for an invalid signal number. Raises RuntimeError for a signal that cannot be caught,
    and outside the main thread. Source: ``asyncio.loop.add_signal_handler``.
    """
    if asyncio.coroutines.iscoroutine(callback) or is_coroutine_function(callback):
        raise TypeError("coroutines cannot be used with add_signal_handler()")
    _check_signal(sig)
    loop._check_closed()
    _arm(loop)
    loop._signal_handlers[sig] = Callback(loop, callback, args)
    try:
        _set_signal(loop, sig, loop._signal_pipe().on_signal)
    except BaseException:
        del loop._signal_handlers[sig]
        _release(loop)
        raise


def remove_signal_handler(loop: AnyLoop, sig: int) -> bool:
    """Give the signal back to Python's default; return whether there was a handler.

    Source: ``asyncio.loop.remove_signal_handler``.
    """
    _check_signal(sig)
    if loop._signal_handlers.pop(sig, None) is None:
        return False
    _set_signal(loop, sig, signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL)
    _release(loop)
    return True


def remove_all_signal_handlers(loop: AnyLoop) -> None:
    """Remove the handlers of a loop that is closed."""
    if not loop._signal_handlers:
        return
    if sys.is_finalizing():
        warnings.warn(
            f"Closing the loop {loop!r} on interpreter shutdown stage, skipping signal handlers removal",
            ResourceWarning,
            source=loop,
            stacklevel=2,
        )
        loop._signal_handlers.clear()
        return
    for sig in list(loop._signal_handlers):
        loop.remove_signal_handler(sig)


def signal_arrived(loop: AnyLoop, number: int) -> None:
    """Queue the handler, if there is one, of a signal that was written to the loop's pipe."""
    handler = loop._signal_handlers.get(number)
    if handler is not None:
        loop._post_from_any_thread(handler)


def wants_signals(loop: AnyLoop) -> bool:
    """Return whether signals that come between two runs must be kept for the next."""
    return bool(loop._signal_handlers) or Loop._wants_signals(loop)


def _check_signal(sig: Any) -> None:
    if not isinstance(sig, int):
        raise TypeError(f"sig must be an int, not {sig!r}")
    if sig not in signal.valid_signals():
        raise ValueError(f"invalid signal number {sig}")


def _arm(loop: AnyLoop) -> None:
    """Have signals written to the loop's pipe."""
    if not loop._host.is_main_thread():
        raise RuntimeError("set_wakeup_fd only works in main thread of the main interpreter")
    try:
        loop._signal_pipe().arm()
    except (ValueError, OSError) as error:
        raise RuntimeError(str(error)) from error


def _release(loop: AnyLoop) -> None:
    """Give the pipe's place back if it is not needed; a running loop keeps it until it stops."""
    if loop.is_running():
        return
    try:
        loop._release_signals()
    except (ValueError, OSError) as error:
        logger.info("the former wakeup descriptor could not be set again: %s", error)


def _set_signal(loop: AnyLoop, sig: int, handler: Any) -> None:
    if loop._host.signals.replace_former(sig, handler):
        return  # Signal handles listen: their handler lets the pipe be written too.
    try:
        loop._host.set_signal(sig, handler)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise RuntimeError(f"sig {sig} cannot be caught") from error
        raise
