"""FsPoll: looks at a file again and again, where its changes are not told (network file systems)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import call_in_context, current_context
from whorl.core.handle import Handle
from whorl.core.kernel.errors import os_error
from whorl.handles.threads.thread_pool import Work
from whorl.handles.watchers.timer import Timer

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop

Path = str | bytes | os.PathLike[str]
Polled = Callable[[Any, OSError | None, os.stat_result | None, os.stat_result | None], object]


class FsPoll(Handle):
    """Tells when the status of a path has changed (libuv: ``uv_fs_poll_t``)."""

    __slots__ = ("_callback", "_context", "_polling")

    loop: Loop

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._callback: Polled | None = None
        self._context: Any = None
        self._polling: Polling | None = None

    def start(
        self,
        path: Path,
        interval_ns: int,
        callback: Callable[[Self, OSError | None, os.stat_result | None, os.stat_result | None], object],
    ) -> None:
        """Look at `path` every `interval_ns`; call `callback(handle, error, previous, current)` on a change.

        The first look is made at once and calls only if it fails. While looking fails, the callback gets each
        new error once, with the last status that was seen, or None, and None; after that the first look that
        succeeds is a change. A look is made in the thread pool, and the next one not before it is over.

        Raises OSError (EINVAL) if the handle is started, ValueError for an interval that is not positive.
        """
        if self.is_closing() or self.is_active():
            raise OSError(errno.EINVAL, "FsPoll handle is closed or started")
        if not callable(callback):
            raise TypeError(f"a callable object was expected by start(), got {callback!r}")
        if interval_ns <= 0:
            raise ValueError(f"an interval is positive, not {interval_ns!r}")
        self._polling = Polling(self, os.fspath(path), interval_ns)
        self._callback = callback
        self._context = current_context()
        self._activate()

    def stop(self) -> None:
        """Look no more; a look that is under way is forgotten."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.end()
        self._callback = self._context = None
        self._deactivate()

    def getpath(self) -> str | bytes:
        """The path that it was started with. Raises OSError (EINVAL) if it is not started."""
        if self._polling is None:
            raise os_error(errno.EINVAL)
        return self._polling.path

    def _report(self, *what: Any) -> None:
        if self._callback is not None:
            call_in_context(self._context, self._callback, (self, *what))

    def _release(self) -> None:
        self.stop()


class Polling:
    """What a handle does from its start to its stop."""

    def __init__(self, handle: FsPoll, path: str | bytes, interval_ns: int) -> None:
        self.path = path
        self._handle: FsPoll | None = handle
        self._loop = handle.loop
        self._interval_ns = interval_ns
        self._seen: os.stat_result | None = None  # the last status that was seen
        self._error = 0  # how the last look failed
        self._work: Work | None = Work(self._loop, self._status, self._looked)
        self._began = self._loop.now()
        self._timer = Timer(self._loop)  # does not keep the loop alive: the handle does
        self._loop._mark_internal(self._timer)
        self._timer.unref()

    def end(self) -> None:
        """Look no more."""
        self._handle = None
        self._timer.close()
        if self._work is not None:
            self._work.cancel()

    def _status(self) -> Any:
        """Look; called in a thread of the pool."""
        return self._loop._kernel.status(self.path, True)

    def _look(self, timer: Timer) -> None:
        self._began = self._loop.now()
        self._work = Work(self._loop, self._status, self._looked)

    def _looked(self, work: Work, found: Any, error: BaseException | None) -> None:
        self._work = None
        handle = self._handle
        if handle is None:
            return
        if error is not None:  # what is no path
            handle.stop()
            raise error
        # As far from the last look as a whole number of intervals is, however long it took.
        since = self._loop.now() - self._began
        self._timer.start(self._look, self._interval_ns - since % self._interval_ns)
        if isinstance(found, int):
            self._failed(handle, -found)
        else:
            self._succeeded(handle, found)

    def _failed(self, handle: FsPoll, code: int) -> None:
        if code != self._error:
            self._error = code
            handle._report(os_error(code), self._seen, None)

    def _succeeded(self, handle: FsPoll, found: os.stat_result) -> None:
        previous, self._seen = self._seen, found
        is_new = previous is None or _differs(previous, found)
        is_first = previous is None and not self._error
        is_back, self._error = bool(self._error), 0
        if is_back or (is_new and not is_first):
            handle._report(None, previous, found)


def _differs(one: os.stat_result, other: os.stat_result) -> bool:
    """Return whether a file changed between two looks; reading it is no change."""
    return any(
        getattr(one, name) != getattr(other, name)
        for name in (
            "st_ctime_ns",
            "st_mtime_ns",
            "st_size",
            "st_mode",
            "st_uid",
            "st_gid",
            "st_ino",
            "st_dev",
        )
    )
