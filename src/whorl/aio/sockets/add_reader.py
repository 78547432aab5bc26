"""`add_reader` and `add_writer`: callbacks for any descriptor of the user's, level-triggered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.sockets.watch import (
    DescriptorWatch,
    descriptor_of,
    is_possible,
    new_watch,
    number_of,
)
from whorl.aio.sockets.watch import ensure_no_transport as ensure_no_transport
from whorl.core.callback import Callback, new_callback

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop


def _find(loop: AnyLoop, fileobj: Any) -> DescriptorWatch | None:
    """Return the watch of a descriptor; the watch of a closed socket is found by the socket itself."""
    fd = number_of(fileobj)
    if is_possible(fd):
        found = loop._poller.find(fd)
        return found if isinstance(found, DescriptorWatch) else None
    if fd > 0:
        return None
    for handle in loop._poller.handles():
        if isinstance(handle, DescriptorWatch) and handle.fileobj is fileobj:
            return handle
    raise ValueError(f"Invalid file descriptor: {fd}")


def _ours(loop: AnyLoop, fileobj: Any) -> DescriptorWatch:
    """Return the watch for a new callback; make one if there is none."""
    loop._check_closed()
    if loop._debug:
        loop._check_thread()
    watched = _find(loop, fileobj)
    if watched is not None and watched._is_idle_watch and not watched.belongs_to(fileobj):
        loop._poller.remove(watched)  # The number may mean another file by now.
        watched = None
    if watched is None:
        watched = new_watch(loop, descriptor_of(fileobj), fileobj)
    if watched.fileobj is None:
        watched.fileobj = fileobj
    return watched


def _entry(loop: AnyLoop, callback: Callable[..., object], args: tuple[Any, ...]) -> Callback:
    entry = new_callback(loop, callback, args, None)
    if loop._debug:
        loop._note_origin(entry)
    return entry


@cython.binding(True)  # type: ignore[untyped-decorator]
def watch_reader(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> Callback:
    """Do what `add_reader` does, with no check of other users of the descriptor; return the callback."""
    watched = _ours(loop, fd)
    entry = _entry(loop, callback, args)
    watched.set_reader(entry)
    return entry


@cython.binding(True)  # type: ignore[untyped-decorator]
def watch_writer(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> Callback:
    """Do what `add_writer` does, with no check of other users of the descriptor; return the callback."""
    watched = _ours(loop, fd)
    entry = _entry(loop, callback, args)
    watched.set_writer(entry)
    return entry


def forget_writer(loop: AnyLoop, fd: int, writer: Callback) -> None:
    """End a `watch_writer`, unless another took its place."""
    watched = None if loop._closed else _find(loop, fd)
    if watched is not None and watched.writer is writer:
        watched.set_writer(None)


@cython.binding(True)  # type: ignore[untyped-decorator]
def unwatch_reader(loop: AnyLoop, fd: Any) -> bool:
    """Do what `remove_reader` does without checking other uses of the descriptor."""
    if loop._closed:
        return False
    watched = _find(loop, fd)
    return watched is not None and watched.set_reader(None)


@cython.binding(True)  # type: ignore[untyped-decorator]
def unwatch_writer(loop: AnyLoop, fd: Any) -> bool:
    """Do what `remove_writer` does without checking other uses of the descriptor."""
    if loop._closed:
        return False
    watched = _find(loop, fd)
    return watched is not None and watched.set_writer(None)


@cython.binding(True)  # type: ignore[untyped-decorator]
def add_reader(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call `callback(*args)` whenever the descriptor is readable. Replaces a former reader.

    Raises ValueError for an invalid descriptor, RuntimeError if a transport uses it, PermissionError for a
    regular file. Source: ``asyncio.loop.add_reader``.
    """
    ensure_no_transport(loop, fd)
    _ours(loop, fd).set_reader(_entry(loop, callback, args))


@cython.binding(True)  # type: ignore[untyped-decorator]
def add_writer(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call `callback(*args)` whenever the descriptor is writable (``asyncio.loop.add_writer``)."""
    ensure_no_transport(loop, fd)
    _ours(loop, fd).set_writer(_entry(loop, callback, args))


@cython.binding(True)  # type: ignore[untyped-decorator]
def remove_reader(loop: AnyLoop, fd: Any) -> bool:
    """End `add_reader`; return whether there was a reader (``asyncio.loop.remove_reader``)."""
    ensure_no_transport(loop, fd)
    was_there: bool = unwatch_reader(loop, fd)
    return was_there


@cython.binding(True)  # type: ignore[untyped-decorator]
def remove_writer(loop: AnyLoop, fd: Any) -> bool:
    """End `add_writer`; return whether there was a writer (``asyncio.loop.remove_writer``)."""
    ensure_no_transport(loop, fd)
    was_there: bool = unwatch_writer(loop, fd)
    return was_there
