"""add_reader and add_writer: callbacks for any descriptor of the user's, level-triggered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.pipe_transport import ReadPipe, WritePipe
from whorl.core.callback import Callback
from whorl.core.poller import IOHandle
from whorl.core.states import Event, Life

if TYPE_CHECKING:
    from whorl.aio.loop import EventLoop

OPEN = int(Life.OPEN)
READABLE = int(Event.READABLE)
WRITABLE = int(Event.WRITABLE)
ERROR = int(Event.ERROR)
HANGUP = int(Event.HANGUP)


class DescriptorCallbacks(IOHandle):
    """What is to be called when a descriptor is readable, and when it is writable."""

    __slots__ = ("_runner", "fileobj", "reader", "writer")

    def __init__(self, loop: EventLoop, fileobj: Any) -> None:
        super().__init__(loop)
        loop._hide(self)
        self._runner = loop
        self._fd = descriptor_of(fileobj)
        self.fileobj = fileobj  # Kept open by whoever watches it, and known by it when it was closed.
        self.reader: Callback | None = None
        self.writer: Callback | None = None

    def _on_events(self, seen: int) -> None:
        # Errors and hang-ups concern both directions, as the selectors module has it.
        reader, writer = self.reader, self.writer
        if reader is not None and seen & (READABLE | HANGUP | ERROR):
            if reader._cancelled:
                self.set_reader(None)
            else:
                self._call(reader)
        # A writer that the reader has just removed was cancelled, and does not run.
        if writer is not None and seen & (WRITABLE | HANGUP | ERROR):
            if not writer._cancelled:
                self._call(writer)
            elif writer is self.writer:
                self.set_writer(None)

    def _call(self, callback: Callback) -> None:
        """Run one of the two; an error of the one does not cost the other its call."""
        try:
            if self._runner._debug:
                self._runner._run_watched(callback)
            else:
                callback._run()
        except BaseException as error:
            self._runner._callback_failed(callback, error)

    def _watch(self, replaced: bool) -> None:
        """Let the poller watch for what somebody waits for.

        A callback that is replaced may be for another file with the same number, which the kernel does
        not watch yet: so it is told again.
        """
        wanted = 0
        if self.reader is not None:
            wanted |= READABLE
        if self.writer is not None:
            wanted |= WRITABLE
        if wanted != self._interest or replaced:
            self._runner._poller.modify(self, wanted)
            if wanted:
                self._activate()
            else:
                self._deactivate()

    def set_reader(self, callback: Callback | None) -> bool:
        """Call this when readable from now on; whether there was another before."""
        former = self.reader
        self.reader = callback
        try:
            self._watch(former is not None and callback is not None)
        except BaseException:
            self.reader = former
            raise
        if former is not None:
            former.cancel()
        return former is not None

    def set_writer(self, callback: Callback | None) -> bool:
        """Call this when writable from now on; whether there was another before."""
        former = self.writer
        self.writer = callback
        try:
            self._watch(former is not None and callback is not None)
        except BaseException:
            self.writer = former
            raise
        if former is not None:
            former.cancel()
        return former is not None


#: The handles that do not mind if others use their descriptor too.
SHARE = (DescriptorCallbacks, ReadPipe, WritePipe)


def descriptor_of(fileobj: Any) -> int:
    """The descriptor of an int or of an object with `fileno()`; ValueError if there is none."""
    fd = _number_of(fileobj)
    if not _is_possible(fd):
        raise ValueError(f"Invalid file descriptor: {fd}")
    return fd


def _number_of(fileobj: Any) -> int:
    """What an int or `fileno()` gives, -1 for a closed socket; ValueError for anything else."""
    if isinstance(fileobj, int):
        return fileobj
    try:
        return int(fileobj.fileno())
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"Invalid file object: {fileobj!r}") from None


def _is_possible(fd: int) -> bool:
    return 0 <= fd < 1 << 31


def ensure_no_transport(loop: EventLoop, fileobj: Any) -> None:
    """Raise RuntimeError if a transport or another handle of the loop's uses the descriptor."""
    fd = _number_of(fileobj)
    if not _is_possible(fd):
        return
    handle = loop._poller.find(fd)
    if handle is None:
        handle = loop._transports.get(fd)  # One that is not watched at the moment.
    if handle is not None and not isinstance(handle, SHARE) and not handle.is_closing():
        raise RuntimeError(f"File descriptor {fileobj!r} is used by transport {handle!r}")


def _find(loop: EventLoop, fileobj: Any) -> DescriptorCallbacks | None:
    """The callbacks of a descriptor; those of a closed socket are found by the socket itself."""
    fd = _number_of(fileobj)
    if _is_possible(fd):
        handle = loop._poller.find(fd)
        return handle if isinstance(handle, DescriptorCallbacks) else None
    for handle in loop._poller.handles():
        if isinstance(handle, DescriptorCallbacks) and handle.fileobj is fileobj:
            return handle
    raise ValueError(f"Invalid file descriptor: {fd}")


def _set(loop: EventLoop, fileobj: Any, callback: Callable[..., object], args: tuple[Any, ...]) -> Any:
    """The descriptor's callbacks, new if need be, and the callback to be put there."""
    loop._check_closed()
    if loop._debug:
        loop._check_thread()
    watched = _find(loop, fileobj)
    if watched is None:
        other = loop._poller.find(descriptor_of(fileobj))
        if isinstance(other, (ReadPipe, WritePipe)):
            other._make_room()
        watched = DescriptorCallbacks(loop, fileobj)
    entry = Callback(loop, callback, args)
    if loop._debug:
        loop._note_origin(entry)
    return watched, entry


def watch_reader(loop: EventLoop, fd: Any, callback: Callable[..., object], *args: Any) -> Callback:
    """`add_reader` without asking who else uses the descriptor; returns what can be cancelled."""
    watched, entry = _set(loop, fd, callback, args)
    watched.set_reader(entry)
    return entry  # type: ignore[no-any-return]


def watch_writer(loop: EventLoop, fd: Any, callback: Callable[..., object], *args: Any) -> Callback:
    """`add_writer` without asking who else uses the descriptor; returns what can be cancelled."""
    watched, entry = _set(loop, fd, callback, args)
    watched.set_writer(entry)
    return entry  # type: ignore[no-any-return]


def forget_writer(loop: EventLoop, fd: int, writer: Callback) -> None:
    """End a `watch_writer`, unless another took its place."""
    watched = None if loop._closed else _find(loop, fd)
    if watched is not None and watched.writer is writer:
        watched.set_writer(None)


def unwatch_reader(loop: EventLoop, fd: Any) -> bool:
    """`remove_reader` without asking who else uses the descriptor."""
    if loop._closed:
        return False
    watched = _find(loop, fd)
    return watched is not None and watched.reader is not None and watched.set_reader(None)


def unwatch_writer(loop: EventLoop, fd: Any) -> bool:
    """`remove_writer` without asking who else uses the descriptor."""
    if loop._closed:
        return False
    watched = _find(loop, fd)
    return watched is not None and watched.writer is not None and watched.set_writer(None)


def add_reader(loop: EventLoop, fd: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call `callback(*args)` whenever the descriptor is readable.

    Replaces a former reader. Raises ValueError for what is no descriptor, RuntimeError if a
    transport uses it, PermissionError for a regular file. Source: ``asyncio.loop.add_reader``.
    """
    ensure_no_transport(loop, fd)
    watch_reader(loop, fd, callback, *args)


def add_writer(loop: EventLoop, fd: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call `callback(*args)` whenever the descriptor is writable (``asyncio.loop.add_writer``)."""
    ensure_no_transport(loop, fd)
    watch_writer(loop, fd, callback, *args)


def remove_reader(loop: EventLoop, fd: Any) -> bool:
    """End `add_reader`; whether there was a reader (``asyncio.loop.remove_reader``)."""
    ensure_no_transport(loop, fd)
    return unwatch_reader(loop, fd)


def remove_writer(loop: EventLoop, fd: Any) -> bool:
    """End `add_writer`; whether there was a writer (``asyncio.loop.remove_writer``)."""
    ensure_no_transport(loop, fd)
    return unwatch_writer(loop, fd)
