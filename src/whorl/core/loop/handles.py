"""Which handles a loop has, and how many of them and of the requests keep it alive."""

from __future__ import annotations

from typing import Any

from whorl.core.handle import Handle
from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.queues import LoopQueues
from whorl.core.process.host import Host


class LoopHandles(LoopQueues):
    """The part of a loop that knows its handles."""

    __slots__ = (
        "_active_handles",
        "_active_requests",
        "_check_handles",
        "_closing_handles",
        "_handles",
        "_idle_handles",
        "_prepare_handles",
        "_shared",
    )

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        LoopQueues._set_up(self, kernel, host)
        self._idle_handles: list[Any] = []
        self._prepare_handles: list[Any] = []
        self._check_handles: list[Any] = []
        self._closing_handles: list[Handle] = []
        self._handles: dict[int, Handle] = {}  # the open handles, by identity, oldest first
        self._active_handles = 0  # those that are active and referenced
        self._active_requests = 0
        self._shared: dict[str, Any] = {}  # what handles of a kind have in common, while there are any

    def walk(self) -> list[Handle]:
        """The open handles, oldest first (``uv_walk``)."""
        return list(self._handles.values())

    def _handle_opened(self, handle: Any) -> None:
        opened: Handle = handle
        self._handles[id(opened)] = opened
        opened._listed = True
        self._internal_handle_opened(opened)

    def _internal_handle_opened(self, handle: Handle) -> None:
        """A handle of the loop's own was opened that users do not see."""
        if self._probe is not None:
            self._notify_probe("handle_opened", handle)

    def _handle_closing(self, handle: Any) -> None:
        self._closing_handles.append(handle)
        if self._may_sleep:
            self._end_sleep()

    def _handle_closed(self, handle: Any) -> None:
        closed: Handle = handle
        if closed._listed:
            self._handles.pop(id(closed), None)
            closed._listed = False

    def _mark_internal(self, handle: Handle) -> None:
        """Leave a handle of the loop's own out of what users see."""
        self._handle_closed(handle)

    def _count_active(self, change: int) -> None:
        self._active_handles += change

    def _count_requests(self, change: int) -> None:
        self._active_requests += change
