"""`add_reader` and `add_writer`: callbacks for any descriptor of the user's, level-triggered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.sockets.watch import (
    DescriptorWatch,
    descriptor_of,
    ensure_no_transport,
    keep_spare,
    new_watch,
    number_of,
    refuse_transport,
)
from whorl.core.callback import Callback, new_callback

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

if not cython.compiled:
    from whorl.aio.sockets.watch import is_possible


def _find(loop: AnyLoop, fileobj: Any, is_checked: bool) -> DescriptorWatch | None:
    """Return the watch of a descriptor; the watch of a closed socket is found by the socket itself.

    If `is_checked`, raise RuntimeError if a transport uses the descriptor.
    """
    fd = number_of(fileobj)
    if is_possible(fd):
        found = loop._poller.find(fd)
        if isinstance(found, DescriptorWatch):
            return found
        if is_checked:
            refuse_transport(loop, fileobj, fd, found)
        return None
    if fd > 0:
        return None
    for handle in loop._poller.handles():
        if isinstance(handle, DescriptorWatch) and handle.fileobj is fileobj:
            return handle
    raise ValueError(f"Invalid file descriptor: {fd}")


def _ours(loop: AnyLoop, fileobj: Any, is_checked: bool) -> DescriptorWatch:
    """Return the watch for a new callback; make one if there is none."""
    if loop._closed or loop._debug:
        if is_checked:
            ensure_no_transport(loop, fileobj)
        loop._check_closed()
        loop._check_thread()
    watched = _find(loop, fileobj, is_checked)
    if watched is not None and watched._is_idle_watch and not watched.belongs_to(fileobj):
        loop._poller.remove(watched)  # The number may mean another file by now.
        watched = None
    if watched is None:
        watched = new_watch(loop, descriptor_of(fileobj), fileobj)
    if watched.fileobj is None:
        watched.fileobj = fileobj
    return watched


def _add(
    loop: AnyLoop,
    fileobj: Any,
    is_reader: bool,
    is_checked: bool,
    callback: Callable[..., object],
    args: tuple[Any, ...],
) -> Callback:
    """Set a callback for one direction; return it."""
    watched = _ours(loop, fileobj, is_checked)
    entry = new_callback(loop, callback, args, None)
    if loop._debug:
        loop._note_origin(entry)
    if is_reader:
        watched.set_reader(entry)
    else:
        watched.set_writer(entry)
    return entry


def _remove(loop: AnyLoop, fileobj: Any, is_reader: bool, is_checked: bool) -> bool:
    """Forget the callback of one direction; return whether there was one."""
    if loop._closed:
        if is_checked:
            ensure_no_transport(loop, fileobj)
        return False
    watched = _find(loop, fileobj, is_checked)
    if watched is None:
        return False
    was_there = watched.set_reader(None) if is_reader else watched.set_writer(None)
    keep_spare(loop, watched)
    return was_there


@cython.binding(True)  # type: ignore[untyped-decorator]
def watch_reader(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> Callback:
    """Do what `add_reader` does, with no check of other users of the descriptor; return the callback."""
    return _add(loop, fd, True, False, callback, args)


@cython.binding(True)  # type: ignore[untyped-decorator]
def watch_writer(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> Callback:
    """Do what `add_writer` does, with no check of other users of the descriptor; return the callback."""
    return _add(loop, fd, False, False, callback, args)


def forget_writer(loop: AnyLoop, fd: int, writer: Callback) -> None:
    """End a `watch_writer`, unless another took its place."""
    watched = None if loop._closed else _find(loop, fd, False)
    if watched is not None and watched.writer is writer:
        watched.set_writer(None)


@cython.binding(True)  # type: ignore[untyped-decorator]
def unwatch_reader(loop: AnyLoop, fd: Any) -> bool:
    """Do what `remove_reader` does without checking other uses of the descriptor."""
    return _remove(loop, fd, True, False)


@cython.binding(True)  # type: ignore[untyped-decorator]
def unwatch_writer(loop: AnyLoop, fd: Any) -> bool:
    """Do what `remove_writer` does without checking other uses of the descriptor."""
    return _remove(loop, fd, False, False)


@cython.binding(True)  # type: ignore[untyped-decorator]
def add_reader(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call `callback(*args)` whenever the descriptor is readable. Replaces a former reader.

    Raises ValueError for an invalid descriptor, RuntimeError if a transport uses it, PermissionError for a
    regular file. Source: ``asyncio.loop.add_reader``.
    """
    _add(loop, fd, True, True, callback, args)


@cython.binding(True)  # type: ignore[untyped-decorator]
def add_writer(loop: AnyLoop, fd: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call `callback(*args)` whenever the descriptor is writable (``asyncio.loop.add_writer``)."""
    _add(loop, fd, False, True, callback, args)


@cython.binding(True)  # type: ignore[untyped-decorator]
def remove_reader(loop: AnyLoop, fd: Any) -> bool:
    """End `add_reader`; return whether there was a reader (``asyncio.loop.remove_reader``)."""
    return _remove(loop, fd, True, True)


@cython.binding(True)  # type: ignore[untyped-decorator]
def remove_writer(loop: AnyLoop, fd: Any) -> bool:
    """End `add_writer`; return whether there was a writer (``asyncio.loop.remove_writer``)."""
    return _remove(loop, fd, False, True)
