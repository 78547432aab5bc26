"""The event loop policy: it makes a whole process use Whorl, as long as Python has policies."""

from __future__ import annotations

from asyncio import events, unix_events
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.loop.event_loop import EventLoop
from whorl.aio.runners.runner import new_event_loop

# The public names are deprecated in newer Pythons, where reading them warns; later there are none.
_events_names: dict[str, Any] = vars(events)
_set_policy = _events_names.get("_set_event_loop_policy") or _events_names.get("set_event_loop_policy")

# The default policy, and not its base: as long as Python has child watchers, programs ask it for them.
if TYPE_CHECKING:
    from asyncio.unix_events import _UnixDefaultEventLoopPolicy as _Base
else:
    _Base = vars(unix_events).get("_UnixDefaultEventLoopPolicy", object)


class EventLoopPolicy(_Base):
    """asyncio's default policy, with Whorl's loops.

    Its child watchers, until Python 3.13, are asyncio's. Whorl's loops watch their children themselves.
    """

    def __init__(self, loop_factory: Callable[[], EventLoop] = new_event_loop) -> None:
        super().__init__()
        self._make_loop = loop_factory

    def _loop_factory(self) -> EventLoop:
        return self._make_loop()

    def new_event_loop(self) -> EventLoop:
        """Return a new loop."""
        return self._loop_factory()


def install(loop_factory: Callable[[], EventLoop] = new_event_loop) -> None:
    """Let every `asyncio.run` of this process run on Whorl, from now on.

    `loop_factory` makes the loops, `whorl.server_loop` for example. Raises RuntimeError where Python has no
    policies any more: pass `whorl.new_event_loop` as `loop_factory` there.
    """
    if _set_policy is None:
        raise RuntimeError(
            "this Python has no event loop policies; use asyncio.run(..., loop_factory=whorl.new_event_loop)"
        )
    _set_policy(EventLoopPolicy(loop_factory))
