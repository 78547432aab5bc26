"""The event loop policy: how a whole process is made to use Whorl, as long as Python has policies."""

from __future__ import annotations

from asyncio import events
from typing import TYPE_CHECKING, Any

from whorl.aio.loop import EventLoop

# The public names are deprecated in newer Pythons, where reading them warns; later there are none.
_Base: Any = (
    getattr(events, "_BaseDefaultEventLoopPolicy", None)
    or vars(events).get("BaseDefaultEventLoopPolicy")
    or object
)
_set_policy: Any = getattr(events, "_set_event_loop_policy", None) or vars(events).get(
    "set_event_loop_policy"
)

if TYPE_CHECKING:
    from asyncio import DefaultEventLoopPolicy as _Base


class EventLoopPolicy(_Base):
    """asyncio's default policy, with loops of Whorl's."""

    def _loop_factory(self) -> EventLoop:
        return EventLoop()

    def new_event_loop(self) -> EventLoop:
        """A new loop."""
        return self._loop_factory()


def install() -> None:
    """Let every `asyncio.run` of this process run on Whorl, from now on.

    Raises RuntimeError where Python has no policies any more: pass `whorl.new_event_loop` as
    `loop_factory` there.
    """
    if _set_policy is None:
        raise RuntimeError(
            "this Python has no event loop policies; use asyncio.run(..., loop_factory=whorl.new_event_loop)"
        )
    _set_policy(EventLoopPolicy())
