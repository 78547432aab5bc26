"""asyncio's private `_ready`: the queue of the next turn, for programs that add or remove handles there.

All of it belongs to the loop's thread, but for `add_callback_signalsafe` and `write_to_self`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, MutableSequence
from typing import TYPE_CHECKING, Any

from whorl.core.callback import Callback, Runnable

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop


class ReadyQueue(MutableSequence[Any]):
    """The queue of a loop with the methods of `collections.deque`, which asyncio's queue is.

    It takes handles of asyncio's class, too; anything else is a TypeError.
    """

    __slots__ = ("_loop",)

    def __init__(self, loop: AnyLoop) -> None:
        self._loop = loop

    def __len__(self) -> int:
        return len(self._loop._ready_queue)

    def __getitem__(self, index: Any) -> Any:
        found = self._loop._ready_queue[index]
        if isinstance(index, slice):
            return [_handle_of(self._loop, one) for one in found]
        return _handle_of(self._loop, found)

    def __setitem__(self, index: Any, handle: Any) -> None:
        if isinstance(index, slice):
            self._loop._ready_queue[index] = [_entry_of(self._loop, one) for one in handle]
        else:
            self._loop._ready_queue[index] = _entry_of(self._loop, handle)

    def __delitem__(self, index: Any) -> None:
        del self._loop._ready_queue[index]

    def __repr__(self) -> str:
        return repr(self._loop._ready_queue)

    def insert(self, index: int, value: Any) -> None:
        """Let a handle run before the one that has this index now."""
        self._loop._ready_queue.insert(index, _entry_of(self._loop, value))

    def appendleft(self, handle: Any) -> None:
        """Let a handle run before all others."""
        self.insert(0, handle)

    def extendleft(self, handles: Iterable[Any]) -> None:
        """Call `appendleft` with each of them, so that the last one comes first."""
        for handle in handles:
            self.insert(0, handle)

    def popleft(self) -> Any:
        """Remove and return the first handle. Raises IndexError if there is none."""
        return self.pop(0)


def _entry_of(loop: AnyLoop, handle: Any) -> Runnable:
    """Return the entry of the loop's queue for a handle of Whorl's or of asyncio's class."""
    if isinstance(handle, Runnable):
        return handle
    if isinstance(handle, asyncio.Handle):
        return Callback(loop, _run, (handle,))
    raise TypeError(f"a handle was expected, got {handle!r}")


def _handle_of(loop: AnyLoop, entry: Any) -> Any:
    """Return the handle of an entry, or the entry itself; an entry that is no callback is wrapped in one."""
    if not isinstance(entry, Callback):
        return Callback(loop, loop._run_entry, (entry,))
    return entry._args[0] if entry._callback is _run and entry._args else entry


def _run(handle: Any) -> None:
    if not handle._cancelled:
        handle._run()


def _do_nothing() -> None:
    """Do nothing: the presence of this entry ends the loop's sleep."""


def ready(loop: AnyLoop) -> ReadyQueue:
    """Return the queue."""
    return ReadyQueue(loop)


def replace(loop: AnyLoop, handles: Iterable[Any]) -> None:
    """Let these handles run in place of all that were ready."""
    ReadyQueue(loop)[:] = handles


def call_soon(loop: AnyLoop, callback: Any, args: Any, context: Any) -> Callback:
    """Do what `loop.call_soon` does, without its checks."""
    entry = Callback(loop, callback, tuple(args), context)
    if loop.get_debug():
        loop._note_origin(entry)
    loop._ready_queue.append(entry)
    return entry


def add_callback(loop: AnyLoop, handle: Any) -> None:
    """Let a handle run in the next turn, unless it is cancelled."""
    if not handle._cancelled:
        ReadyQueue(loop).append(handle)


def add_callback_signalsafe(loop: AnyLoop, handle: Any) -> None:
    """Do the same for other threads and signal handlers; end the loop's sleep."""
    if not handle._cancelled:
        loop._post_from_any_thread(_entry_of(loop, handle))


def write_to_self(loop: AnyLoop) -> None:
    """End the loop's sleep, from any thread."""
    if not loop.is_closed():
        loop._post_from_any_thread(Callback(loop, _do_nothing, ()))
