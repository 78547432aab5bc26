"""The portable poller, over any selector of the `selectors` module (kqueue, poll, select, epoll).

Selectors know level-triggered readiness only, so handles modify their interest as they go.
"""

from __future__ import annotations

import errno
import selectors
from typing import TYPE_CHECKING, Any

from whorl.core.pollers.contract import Poller, refuse_in_child
from whorl.core.states import Event

if TYPE_CHECKING:
    from whorl.core.pollers.contract import IOHandle

_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE
#: Descriptors from here on are seldom open, and the table of handles has a place for each up to the highest.
_FAR = 1 << 20


def _mask_of(interest: int) -> int:
    mask = 0
    if interest & (Event.READABLE | Event.DISCONNECT | Event.PRIORITIZED):
        mask |= _READ
    if interest & Event.WRITABLE:
        mask |= _WRITE
    return mask


class SelectorPoller(Poller):
    """Readiness by a `selectors` object, given or the platform's best."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        super().__init__()
        self._selector = selector if selector is not None else selectors.DefaultSelector()
        self._watched: dict[IOHandle, Any] = {}  # the object by which each handle was registered
        self._is_inherited = False  # whether the selector is the parent's, in a forked child

    def add(self, handle: IOHandle, interest: int) -> None:
        """Watch the handle's descriptor."""
        if handle._interest:
            self.modify(handle, interest)
            return
        self._check_process()
        if self.find(handle._fd) is not None:
            raise OSError(errno.EEXIST, f"descriptor {handle._fd} is watched already")
        loop: Any = handle._loop
        if handle._fd >= _FAR and loop._kernel.file_flags(handle._fd) < 0:  # A selector may take any number.
            raise OSError(errno.EBADF, f"descriptor {handle._fd} is not open")
        # A foreign selector may need the user's object and not its descriptor.
        watched = getattr(handle, "fileobj", None)
        if watched is None:
            watched = handle._fd
        self._selector.register(watched, _mask_of(interest), handle)
        self._watched[handle] = watched
        self._register(handle, interest)

    def modify(self, handle: IOHandle, interest: int) -> None:
        """Watch for `interest` from now on."""
        if not interest:
            self.remove(handle)
        elif not handle._interest:
            self.add(handle, interest)
        else:
            self._check_process()
            self._selector.modify(self._watched[handle], _mask_of(interest), handle)
            handle._interest = interest

    def remove(self, handle: IOHandle) -> None:
        """End the watch; do nothing if the handle is not watched."""
        if handle._interest:
            watched = self._watched.pop(handle)
            try:
                if not self._is_inherited:
                    self._selector.unregister(watched)
            finally:
                self._unregister(handle)

    def poll(self, timeout_ns: int, into: list[Any]) -> int:
        """Sleep until something is ready; collect it."""
        self._check_process()
        timeout = None if timeout_ns < 0 else timeout_ns / 1e9
        found = 0
        for key, mask in self._selector.select(timeout):
            seen = 0
            if mask & _READ:
                seen |= Event.READABLE
            if mask & _WRITE:
                seen |= Event.WRITABLE
            self._saw(key.data, seen, into)
            found += 1
        return found

    def _check_process(self) -> None:
        if self._is_inherited:
            refuse_in_child()

    def leave_to_parent(self) -> None:
        """Use the selector no more: this process was forked, and its parent has the same one."""
        self._is_inherited = True

    def renew(self) -> None:
        """Watch the same handles with a new selector of the same kind; the parent's stays as it is."""
        self._is_inherited = False
        former, self._selector = self._selector, type(self._selector)()
        close = getattr(former, "close", None)
        for handle in self.handles():
            self._selector.register(self._watched[handle], _mask_of(handle._interest), handle)
        if close is not None:
            close()

    def close(self) -> None:
        """Close the selector."""
        for handle in self.handles():
            self._unregister(handle)
        self._watched.clear()
        self._selector.close()

    def name(self) -> str:
        """Return the name of the selector's class."""
        return type(self._selector).__name__

    def fileno(self) -> int:
        """Return the selector's descriptor if it has one, else -1."""
        fileno = getattr(self._selector, "fileno", None)
        return -1 if fileno is None else int(fileno())
