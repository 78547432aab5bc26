"""asyncio's private `_selector`: the loop's watches and its sleep, as an object of the `selectors` module.

Programs with their own time replace its `select`, or the whole object, and call the former one from theirs.
Once a program has read this attribute, the loop polls through it, which takes a little longer.
"""

from __future__ import annotations

import math
import selectors
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from whorl.core.loop.wakeup import Wakeup
from whorl.core.pollers.contract import Poller
from whorl.core.pollers.selector import SelectorPoller
from whorl.core.states import Event

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop
    from whorl.core.pollers.contract import IOHandle


def selector(loop: AnyLoop) -> Any:
    """Return the object that the loop sleeps by; None once the loop is closed."""
    if loop.is_closed():
        return None
    poller = loop._poller
    if not isinstance(poller, SelectorPoller | _ProxyPoller):
        poller = loop._poller = _ProxyPoller(poller)
    return poller._selector


def replace(loop: AnyLoop, other: Any) -> None:
    """Let the loop sleep by `other.select`, which calls the former `select`, or knows what to wait for."""
    if selector(loop) is not None:
        poller: Any = loop._poller
        poller._selector = other


def process_events(loop: AnyLoop, event_list: list[Any]) -> None:
    """Let the events of `_selector.select` run, for programs that make the turns of a loop themselves."""
    poller: Any = loop._poller
    if isinstance(poller, _ProxyPoller) and not poller.is_polling:
        loop._ready_queue.extend(poller._loop_selector.take_found())


_PROCESS_EVENTS = process_events


def call_process_events(loop: AnyLoop) -> None:
    """Let the loop call a subclass's method `_process_events` with all events that are found."""
    if type(loop)._process_events is not _PROCESS_EVENTS and selector(loop) is not None:
        poller: Any = loop._poller
        if isinstance(poller, _ProxyPoller):
            poller.events_loop = weakref.ref(loop)


class _ProxyPoller(Poller):
    """A poller that polls by the `select` of its selector, which ends in the replaced poller."""

    def __init__(self, poller: Poller) -> None:
        super().__init__()
        self._poller = poller
        self._loop_selector = LoopSelector(poller)
        self._selector: Any = self._loop_selector
        self.is_polling = False
        self.events_loop: Callable[[], Any] | None = None  # the loop that gets the events

    def add(self, handle: IOHandle, interest: int) -> None:
        """Watch the handle's descriptor."""
        self._poller.add(handle, interest)

    def modify(self, handle: IOHandle, interest: int) -> None:
        """Watch for other events from now on."""
        self._poller.modify(handle, interest)

    def remove(self, handle: IOHandle) -> None:
        """Watch no more; does nothing if the handle is not watched."""
        self._poller.remove(handle)

    def find(self, fd: int) -> IOHandle | None:
        """Return the handle that watches a descriptor, or None."""
        return self._poller.find(fd)

    def handles(self) -> list[IOHandle]:
        """Return all watched handles, in order of their descriptors."""
        return self._poller.handles()

    def poll(self, timeout_ns: int, into: list[Any]) -> int:
        """Sleep by the selector; collect the handles that it found."""
        events = self._selector.select(None if timeout_ns < 0 else timeout_ns / 1e9)
        if self.events_loop is not None:
            self.is_polling = True
            try:
                self.events_loop()._process_events(events)
            finally:
                self.is_polling = False
        found = self._loop_selector.take_found()
        into.extend(found)
        return len(found)

    def hand_over(self) -> int | None:
        """Let `fileno` report the current state from now on."""
        return self._poller.hand_over()

    def leave_to_parent(self) -> None:
        """Leave the kernel's object to the parent: this process was forked."""
        self._poller.leave_to_parent()

    def renew(self) -> None:
        """Watch the same handles with another object of the kernel."""
        self._poller.renew()

    def close(self) -> None:
        """Give the kernel's object back."""
        self._poller.close()

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` would find something, or -1."""
        return self._poller.fileno()

    def name(self) -> str:
        """Return the same value of the poller that this one replaces."""
        return self._poller.name()


class LoopSelector(selectors.BaseSelector):
    """The watches of a loop.

    The handles that `select` found run in the next turn, whichever code called it.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._found: list[Any] = []
        for handle in poller.handles():
            if isinstance(handle, Wakeup):
                # A `select` that is called twice in a turn must not sleep through a wakeup.
                handle.make_visible()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Sleep until something is ready or `timeout` seconds have passed; return all that is ready."""
        timeout_ns = -1 if timeout is None else max(0, math.ceil(timeout * 1e9))
        self._poller.poll(0 if self._found else timeout_ns, self._found)
        return [(_key_of(handle), _mask_of(handle._seen)) for handle in self._found]

    def take_found(self) -> list[Any]:
        """Return the handles that were found since the last call."""
        found, self._found = self._found, []
        return found

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return the watches by descriptor, with the loop's descriptor for wakeups too."""
        return _Watched(self._poller)

    def register(self, fileobj: Any, events: int, data: Any = None) -> NoReturn:
        """Refuse: `loop.add_reader` and `add_writer` do it."""
        raise RuntimeError("the loop registers what it watches itself: use add_reader() and add_writer()")

    def unregister(self, fileobj: Any) -> NoReturn:
        """Refuse: `loop.remove_reader` and `remove_writer` do it."""
        raise RuntimeError(
            "the loop registers what it watches itself: use remove_reader() and remove_writer()"
        )


class _Watched(Mapping[Any, selectors.SelectorKey]):
    """The keys of the watches; they are found by a descriptor, or by an object that has one."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller

    def __iter__(self) -> Iterator[int]:
        return (handle._fd for handle in self._poller.handles() if not handle._is_idle_watch)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, fileobj: Any) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        handle = self._poller.find(fd)
        if handle is None or handle._is_idle_watch:
            raise KeyError(f"{fileobj!r} is not registered")
        return _key_of(handle)


def _key_of(handle: Any) -> selectors.SelectorKey:
    """Return a key. asyncio's data are the callbacks of a descriptor, for reading and for writing."""
    fd = handle._fd
    mask = _mask_of(handle._interest)
    if not getattr(handle, "is_descriptor_watch", False):
        reads, writes = mask & selectors.EVENT_READ, mask & selectors.EVENT_WRITE
        return selectors.SelectorKey(fd, fd, mask, (handle if reads else None, handle if writes else None))
    if handle.receiver is None and handle.sender is None:  # The watch may ask for more than is wanted.
        mask = selectors.EVENT_READ if handle.reader is not None else 0
        mask |= selectors.EVENT_WRITE if handle.writer is not None else 0
    return selectors.SelectorKey(handle.fileobj or fd, fd, mask, (handle.reader, handle.writer))


def _mask_of(events: int) -> int:
    reads = events & (Event.READABLE | Event.DISCONNECT | Event.PRIORITIZED)
    writes = events & Event.WRITABLE
    return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
