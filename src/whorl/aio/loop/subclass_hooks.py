"""Subclasses of the loop that override the private methods that asyncio's methods call.

asyncio's `call_soon` calls `_call_soon`, and so on. Whorl's methods do not. A subclass that overrides one of
these names gets public methods that do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.first_use import found_in
from whorl.core.loop.loop import Loop

if TYPE_CHECKING:
    from contextvars import Context

    from whorl.aio.loop_type import AnyLoop
    from whorl.core.callback import Callback


def _call_soon(
    loop: AnyLoop, callback: Callable[..., object], *args: Any, context: Context | None = None
) -> Callback:
    """Call `callback(*args)` in the next turn (``asyncio.loop.call_soon``)."""
    loop._check_closed()
    if loop._debug:
        loop._check_thread()
        loop._check_callback(callback, "call_soon")
    return loop._call_soon(callback, args, context)


def _call_soon_threadsafe(
    loop: AnyLoop, callback: Callable[..., object], *args: Any, context: Context | None = None
) -> Callback:
    """Do the same from any thread (``asyncio.loop.call_soon_threadsafe``)."""
    handle = Loop.call_soon_threadsafe(loop, callback, *args, context=context)
    loop._write_to_self()
    return handle


def _add_reader(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call `callback(*args)` whenever the descriptor is readable (``asyncio.loop.add_reader``)."""
    loop._ensure_fd_no_transport(fd)
    loop._add_reader(fd, callback, *args)


def _remove_reader(loop: AnyLoop, fd: Any) -> bool:
    """End `add_reader`; return whether there was a reader (``asyncio.loop.remove_reader``)."""
    loop._ensure_fd_no_transport(fd)
    was_there: bool = loop._remove_reader(fd)
    return was_there


def _add_writer(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call `callback(*args)` whenever the descriptor is writable (``asyncio.loop.add_writer``)."""
    loop._ensure_fd_no_transport(fd)
    loop._add_writer(fd, callback, *args)


def _remove_writer(loop: AnyLoop, fd: Any) -> bool:
    """End `add_writer`; return whether there was a writer (``asyncio.loop.remove_writer``)."""
    loop._ensure_fd_no_transport(fd)
    was_there: bool = loop._remove_writer(fd)
    return was_there


#: The private names that asyncio calls, each with the method that calls it.
_CALLERS: tuple[tuple[str, str, Any], ...] = (
    ("_call_soon", "call_soon", _call_soon),
    ("_write_to_self", "call_soon_threadsafe", _call_soon_threadsafe),
    ("_add_reader", "add_reader", _add_reader),
    ("_remove_reader", "remove_reader", _remove_reader),
    ("_add_writer", "add_writer", _add_writer),
    ("_remove_writer", "remove_writer", _remove_writer),
)


def install(kind: type, ours: type) -> None:
    """Let the public methods of a new subclass call the private ones that it overrides."""
    for called, name, calling in _CALLERS:
        if _overrides(kind, ours, called) and not _overrides(kind, ours, name):
            setattr(kind, name, calling)


def _overrides(kind: type, ours: type, name: str) -> bool:
    """Return whether a subclass has another method than ours. A method is not imported to learn that."""
    return found_in(kind, name) is not found_in(ours, name)
