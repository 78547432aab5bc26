"""FsPoll: looks at a file again and again, for file systems that report no changes (network file systems)."""

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
    """A handle that reports changes of the status of a path (libuv: ``uv_fs_poll_t``)."""

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
        new error once. `previous` is then the last seen status, or None, and `current` is None. After that,
        the first look that succeeds is a change. The thread pool looks; the next look waits for its end.

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
        """Stop looking; drop the result of a look that is under way."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.end()
        self._callback = self._context = None
        self._deactivate()

    def getpath(self) -> str | bytes:
        """Return the path of the start. Raises OSError (EINVAL) if the handle is not started."""
        if self._polling is None:
            raise os_error(errno.EINVAL)
        return self._polling.path

    def _report(self, *what: Any) -> None:
        if self._callback is not None:
            call_in_context(self._context, self._callback, (self, *what))

    def _release(self) -> None:
        self.stop()


class Polling:
    """The looks of a handle, from its start to its stop."""

    def __init__(self, handle: FsPoll, path: str | bytes, interval_ns: int) -> None:
        self.path = path
        self._handle: FsPoll | None = handle
        self._loop = handle.loop
        self._interval_ns = interval_ns
        self._seen: os.stat_result | None = None  # the last status that was seen
        self._error = 0  # the error number of the last look, or 0
        self._work: Work | None = Work(self._loop, self._status, self._stat_done)
        self._began = self._loop.now()
        self._timer = Timer(self._loop)  # The handle keeps the loop alive, not this timer.
        self._loop._mark_internal(self._timer)
        self._timer.unref()

    def end(self) -> None:
        """End the looks."""
        self._handle = None
        self._timer.close()
        if self._work is not None:
            self._work.cancel()

    def _status(self) -> Any:
        """Return the status of the path; a thread of the pool calls this."""
        return self._loop._kernel.status(self.path, True)

    def _start_stat(self, timer: Timer) -> None:
        self._began = self._loop.now()
        self._work = Work(self._loop, self._status, self._stat_done)

    def _stat_done(self, work: Work, found: Any, error: BaseException | None) -> None:
        self._work = None
        handle = self._handle
        if handle is None:
            return
        if error is not None:  # The path is of a wrong type or value.
            handle.stop()
            raise error
        # The next look comes a whole number of intervals after the last one began, however long that took.
        since = self._loop.now() - self._began
        self._timer.start(self._start_stat, self._interval_ns - since % self._interval_ns)
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
    """Return whether a file changed between two looks; a read of the file is no change."""
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
