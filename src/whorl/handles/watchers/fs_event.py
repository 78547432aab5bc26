"""FsEvent: reports changes of files and folders, by inotify.

Some facts about inotify:

* An instance watches *files*, each once, by any path; the watch of a folder reports its entries too.
* It ends a watch by itself when the file is gone or its file system unmounted (IN_IGNORED).
* Its queue is bounded. When it overflows, an event reports that, and everything after it is lost.

So all handles of a loop share one instance, and all handles on a file share its watch. A handle keeps the
path of its start. Every handle gets an overflow as an error.
"""

from __future__ import annotations

import collections
import errno
import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import call_in_context, current_context
from whorl.core.handle import Completion, Handle
from whorl.core.kernel.errors import os_error
from whorl.core.limits import CHANGES_SIZE
from whorl.core.pollers.contract import IOHandle
from whorl.core.states import Event, FsChange

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop

Path = str | bytes | os.PathLike[str]

# From <sys/inotify.h>: part of the kernel's interface, the same on all architectures.
IN_MODIFY = 0x002
IN_ATTRIB = 0x004
IN_MOVED_FROM = 0x040
IN_MOVED_TO = 0x080
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
_WATCHED = (
    IN_MODIFY
    | IN_ATTRIB
    | IN_MOVED_FROM
    | IN_MOVED_TO
    | IN_CREATE
    | IN_DELETE
    | IN_DELETE_SELF
    | IN_MOVE_SELF
)
_CHANGES = IN_MODIFY | IN_ATTRIB

_EVENT_HEADER = struct.Struct("=iIII")  # struct inotify_event: watch, mask, cookie, length of the name
_KIND = "inotify"

Changed = Callable[[Any, Any, FsChange, OSError | None], object]


class FsEvent(Handle):
    """A watch of a file or a folder (libuv: ``uv_fs_event_t``)."""

    __slots__ = ("_callback", "_context", "_notifier", "_path", "_watch")

    loop: Loop

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._callback: Changed | None = None
        self._context: Any = None
        self._notifier: Notifier | None = None
        self._path: str | bytes = ""
        self._watch = -1

    def start(self, path: Path, callback: Callable[[Self, Any, FsChange, OSError | None], object]) -> None:
        """Call `callback(handle, name, changes, error)` at each change.

        `name` is the last part of `path`, or the name of the changed entry of the folder; bytes if `path` is.
        `changes` is `FsChange.RENAME` for a created, removed or renamed file, `FsChange.CHANGE` for contents
        and attributes. Folders below the folder are not watched. After the file itself was removed or moved
        elsewhere, no more calls may come; a new start can watch its path again.

        If more changes come at once than the kernel keeps for a program, the rest is lost. Then `error` is
        OSError (EOVERFLOW), `name` is empty and `changes` 0, and the handle goes on.

        Raises OSError: EINVAL if it is started, ENOENT, EACCES, ENOSPC if the user has no watches left,
        EMFILE if the user has no instances left.
        """
        if self.is_closing() or self.is_active():
            raise OSError(errno.EINVAL, "FsEvent handle is closed or started")
        if not callable(callback):
            raise TypeError(f"a callable object was expected by start(), got {callback!r}")
        path = os.fspath(path)
        notifier = Notifier.of(self.loop)
        try:
            self._watch = notifier.watch(path, self)
        finally:
            notifier.close_if_unused()
        self._notifier = notifier
        self._path = path
        self._callback = callback
        self._context = current_context()
        self._activate()

    def stop(self) -> None:
        """Stop watching; drop changes that were not yet reported."""
        notifier, self._notifier = self._notifier, None
        if notifier is not None:
            watch, self._watch = self._watch, -1
            notifier.unwatch(watch, self)
            notifier.close_if_unused()
        self._callback = self._context = None
        self._deactivate()

    def getpath(self) -> str | bytes:
        """Return the path of the start. Raises OSError (EINVAL) if the handle is not started."""
        if self._notifier is None:
            raise os_error(errno.EINVAL)
        return self._path

    def _changed(self, name: bytes, changes: FsChange, error: OSError | None) -> None:
        """Call back for a change; `name` is empty for the watched file itself."""
        callback, context, path = self._callback, self._context, self._path
        if callback is None:
            return
        shown: str | bytes = name
        if not name and error is None:
            shown = os.path.basename(path.rstrip("/") if isinstance(path, str) else path.rstrip(b"/"))
        if isinstance(path, str):
            shown = os.fsdecode(shown)
        call_in_context(context, callback, (self, shown, changes, error))

    def _release(self) -> None:
        self.stop()


class Notifier(IOHandle):
    """The inotify instance of a loop; there is one while any handle watches."""

    loop: Loop

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        loop._mark_internal(self)
        self._handles: dict[int, list[FsEvent]] = {}  # those of each watch, in the order of their starts
        # The kernel's events, and the calls (`_due`) for the first of them that were not made yet.
        self._kernel_events: collections.deque[tuple[int, int, bytes]] = collections.deque()
        self._due: collections.deque[tuple[FsEvent, int, bytes, FsChange, OSError | None]] = (
            collections.deque()
        )
        self._open()

    def _open(self) -> None:
        self._fd = self.loop._kernel.inotify_create()
        if self._fd < 0:
            raise os_error(self._fd)
        try:
            self.loop._poller.add(self, int(Event.READABLE))
        except BaseException:
            self._release()
            raise
        self.loop._shared[_KIND] = self

    def renew(self) -> None:
        """Watch the same paths with a new instance, in a forked child."""
        watched = [handle for handles in self._handles.values() for handle in handles]
        self._release()
        self._handles.clear()
        self._open()
        for handle in watched:
            handle._watch = -1
            try:
                handle._watch = self.watch(handle._path, handle)
            except OSError as error:  # The path is gone.
                self._due.append((handle, -1, b"", FsChange(0), error))
        if self._due:
            self.loop._post_from_any_thread(Completion(self._report, ()))

    @classmethod
    def of(cls, loop: Loop) -> Notifier:
        """Return the instance of a loop."""
        found: Notifier | None = loop._shared.get(_KIND)
        return cls(loop) if found is None else found

    def watch(self, path: str | bytes, handle: FsEvent) -> int:
        """Watch a path for a handle; return the number of the watch."""
        watch = self.loop._kernel.inotify_add(self._fd, os.fsencode(path), _WATCHED)
        if watch < 0:
            raise OSError(-watch, os.strerror(-watch), path)
        self._handles.setdefault(watch, []).append(handle)
        return watch

    def unwatch(self, watch: int, handle: FsEvent) -> None:
        """End the watch of a handle, and with the last handle the kernel's watch."""
        handles = self._handles.get(watch, [])
        if handle in handles:
            handles.remove(handle)
            if not handles:
                del self._handles[watch]
                self.loop._kernel.inotify_remove(self._fd, watch)  # it may be gone already

    def close_if_unused(self) -> None:
        """Close the instance if nothing is watched."""
        if not self._handles:
            self.close()

    def _on_events(self, seen: int) -> None:
        data = self.loop._kernel.read(self._fd, CHANGES_SIZE)
        if isinstance(data, int):
            if data not in (-errno.EAGAIN, -errno.EINTR):
                raise os_error(data)
            return
        self._parse_events(data)
        self._report()

    def _parse_events(self, data: bytes) -> None:
        """Split the kernel's data into events, and note them."""
        position = 0
        while position < len(data):
            watch, mask, _, size = _EVENT_HEADER.unpack_from(data, position)
            position += _EVENT_HEADER.size
            self._kernel_events.append((watch, mask, data[position : position + size].rstrip(b"\0")))
            position += size

    def _report(self) -> None:
        """Call the handles for the noted events."""
        try:
            while self._due or self._kernel_events:
                if not self._due:
                    self._assign(*self._kernel_events.popleft())
                    continue
                handle, watch, name, changes, error = self._due.popleft()
                if handle._watch == watch:
                    handle._changed(name, changes, error)
        finally:
            if self._due or self._kernel_events:  # An error ends the run: the rest comes in the next one.
                self.loop._post_from_any_thread(Completion(self._report, ()))

    def _assign(self, watch: int, mask: int, name: bytes) -> None:
        """Queue the calls of the handles that an event is for."""
        if mask & IN_Q_OVERFLOW:
            lost = OSError(errno.EOVERFLOW, "changes came too fast, some were lost")
            for each, handles in self._handles.items():
                self._due.extend((handle, each, b"", FsChange(0), lost) for handle in handles)
        elif mask & IN_IGNORED:
            # The kernel may give the number to another file, so the handles must forget it.
            for handle in self._handles.pop(watch, []):
                handle._watch = -1
        else:
            changes = FsChange.CHANGE if mask & _CHANGES else FsChange(0)
            if mask & _WATCHED & ~_CHANGES or mask & IN_UNMOUNT:
                changes |= FsChange.RENAME
            self._due.extend((handle, watch, name, changes, None) for handle in self._handles.get(watch, ()))

    def _release(self) -> None:
        if self.loop._shared.get(_KIND) is self:
            del self.loop._shared[_KIND]
        self._kernel_events.clear()
        self._due.clear()
        self.loop._poller.remove(self)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.loop._kernel.close(fd)
