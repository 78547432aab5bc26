"""The stalls that were seen: they are kept, told to listeners, and logged, by a thread that may block."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable
from typing import Any

from whorl.formats.units import count
from whorl.inspector.watching.stalls import Stall
from whorl.inspector.watching.watched import LongTurn, WatchedLoop

MOST_STALLS = 256  # kept for `stalls`
QUIET_NS = 1_000_000_000  # at most one line of the log in this time

logger: logging.Logger = logging.getLogger("whorl.inspector")


class Reports:
    """The stalls of a process. `hand_over` lets code of others run elsewhere, and returns if it does."""

    def __init__(self, hand_over: Callable[[Callable[[], object]], bool]) -> None:
        self._hand_over = hand_over
        self._listeners: list[Callable[[Stall], object]] = []
        #: Called with a stall when it is first seen, at each further stack, and when it has ended.
        self.at_change: Callable[[Stall], object] | None = None
        self.forget()

    def forget(self) -> None:
        """Begin without stalls."""
        self._stalls: collections.deque[Stall] = collections.deque(maxlen=MOST_STALLS)
        self._going_on: dict[int, Stall] = {}
        self._number = 0
        self._logged_ns = -QUIET_NS
        self._unlogged = 0
        self._latest: Stall | None = None  # the last of these

    def forget_those_that_go_on(self) -> None:
        """Forget the stalls that nobody watches to their end."""
        self._going_on.clear()

    def begin(self, watched: WatchedLoop | LongTurn, now: int) -> Stall:
        """Return a stall that begins."""
        self._number += 1
        return Stall(
            number=self._number,
            loop=watched.name,
            thread=watched.thread,
            began_ns=watched.began_ns,
            length_ns=now - watched.began_ns,
            ended=False,
            running_ns=None,
            starved_ns=None,
            asleep_ns=None,
            gc_ns=0,
            gil_held=None,
            call=None,
            task=None,
            stacks=(),
        )

    def keep(self, watched: WatchedLoop | LongTurn, stall: Stall) -> None:
        """Keep what is known of a stall that goes on."""
        watched.stall = self._going_on[stall.number] = stall
        if self.at_change is not None:
            self.at_change(stall)

    def end(self, watched: WatchedLoop | LongTurn, stall: Stall) -> None:
        """Keep a stall that has ended, tell of it, and log it unless it was logged before."""
        self._stalls.append(stall)
        self._going_on.pop(stall.number, None)
        watched.stall = None
        self.notify(stall)
        if watched.is_logged:
            self._hand_over(functools.partial(logger.info, "%s", stall.summary()))
        else:
            self.log(stall)

    def stalls(self) -> list[Stall]:
        """Return the last stalls, oldest first; those that go on are among them."""
        return sorted([*self._stalls, *self._going_on.values()], key=lambda stall: stall.number)

    def stalls_seen(self) -> int:
        """Return how many stalls were seen, also those that `stalls` has no longer."""
        return self._number

    def subscribe(self, listener: Callable[[Stall], object]) -> Callable[[], None]:
        """Call `listener` with each stall; return a function that ends that."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    def notify(self, stall: Stall) -> None:
        """Let the listeners be called with a stall. One that does not return keeps the others from it."""
        if self._listeners:
            self._hand_over(functools.partial(self._call_listeners, stall))

    def _call_listeners(self, stall: Stall) -> None:
        for listener in list(self._listeners):
            try:
                listener(stall)
            except Exception:
                with contextlib.suppress(ValueError):
                    self._listeners.remove(listener)
                logger.exception("%r failed and is told of no more stalls", listener)

    def log_the_rest(self) -> None:
        """Log the last stall that was not logged, if the log was quiet for long enough."""
        if self._latest is not None and time.monotonic_ns() - self._logged_ns >= QUIET_NS:
            self._unlogged -= 1
            self.log(self._latest)

    def log(self, stall: Stall) -> None:
        """Log a stall, and how many were not; at most one in each second. The last one is kept for later.

        None is logged while the log blocks.
        """
        now = time.monotonic_ns()
        more = f"\n(and {count(self._unlogged, 'more stall')})" if self._unlogged else ""
        is_quiet = now - self._logged_ns >= QUIET_NS
        if is_quiet and self._hand_over(functools.partial(logger.warning, "%s%s", stall.text(), more)):
            self._unlogged, self._latest, self._logged_ns = 0, None, now
        else:
            self._unlogged += 1
            self._latest = stall


def changed(stall: Stall, **fields: Any) -> Stall:
    """Return a stall with other values of these fields."""
    return dataclasses.replace(stall, **fields)
