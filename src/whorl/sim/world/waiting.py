"""The tasks that wait: a list of them when nothing goes on, and those that wait too long."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from whorl.sim.wire.timeline import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST = 20

#: What waits by design: for a time, for ever, or for tasks that are looked at themselves.
_PATIENT = frozenset(
    {"sleep", "Server.serve_forever", "_wait", "wait_for", "TaskGroup.__aexit__", "TaskGroup._aexit"}
)

#: Futures of tasks: gather's, and a task that is awaited.
_OF_OTHERS = (asyncio.Task, asyncio.tasks._GatheringFuture)  # type: ignore[attr-defined]

_ASYNCIO = os.path.dirname(asyncio.__file__)

#: So often in the time that a task may wait, the waits are looked at, but not more often than that.
_LOOKS = 20
_SHORTEST_INTERVAL = 10 * MILLISECOND


class Waits:
    """Since when each task has been waiting for the same future."""

    def __init__(self, patience: int) -> None:
        """Let a task wait so many nanoseconds."""
        self.patience: int = patience
        self.interval: int = max(_SHORTEST_INTERVAL, patience // _LOOKS)
        self._since: dict[asyncio.Task[Any], tuple[Any, int]] = {}

    def stalled(self, loop: asyncio.AbstractEventLoop, now: int) -> list[str]:
        """Return a line for each task that waits too long, by this look and the earlier ones.

        A look is due once in `interval`. A wait counts from the first look that sees it.
        """
        former, self._since = self._since, {}
        found = []
        for task in asyncio.all_tasks(loop):
            waiter = getattr(task, "_fut_waiter", None)
            if waiter is None or waiter.done() or isinstance(waiter, _OF_OTHERS) or _is_patient(task):
                continue
            known = former.get(task)
            since = known[1] if known is not None and known[0] is waiter else now
            self._since[task] = waiter, since
            if now - since > self.patience:
                found.append(f"task {task.get_name()!r} waits {_place(task)}")
        return sorted(found)


def describe_tasks(hosts: Iterable[Any]) -> str:
    """Return one line for each waiting task: its host, its name, where it waits and for what."""
    lines = []
    for host in hosts:
        if host.is_dead:
            continue
        for task in sorted(asyncio.all_tasks(host.loop), key=lambda each: each.get_name()):
            lines.append(f"{host.name}: task {task.get_name()!r} waits {_place(task)} for {_waits_for(task)}")
    if not lines:
        return "There is no task."
    shown = lines[:_MOST]
    if len(lines) > _MOST:
        shown.append(f"and {len(lines) - _MOST} more")
    return "\n  ".join(["Tasks:", *shown])


def _coroutines(task: asyncio.Task[Any]) -> Iterator[Any]:
    """Iterate over a task's coroutines, from the outermost to the one that waits."""
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        yield coroutine
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


def _is_patient(task: asyncio.Task[Any]) -> bool:
    """Return whether a task waits for a time, for ever, or for tasks."""
    names = [name for each in _coroutines(task) if (name := getattr(each, "__qualname__", None)) is not None]
    return bool(names) and names[-1] in _PATIENT


def _place(task: asyncio.Task[Any]) -> str:
    """Return where a task waits: the line outside asyncio, and the coroutine of asyncio that it awaits."""
    where, within = "at an unknown place", ""
    for coroutine in _coroutines(task):
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        if os.path.dirname(code.co_filename) == _ASYNCIO:
            within = f" ({code.co_qualname})"
        else:
            where, within = f"at {code.co_filename}:{frame.f_lineno} in {code.co_qualname}", ""
    return where + within


def _waits_for(task: asyncio.Task[Any]) -> str:
    """Return what a task waits for."""
    waiter: Any = getattr(task, "_fut_waiter", None)
    if waiter is None:
        return "its next step"
    if isinstance(waiter, asyncio.Task):
        return f"task {waiter.get_name()!r}"
    return "a future"
