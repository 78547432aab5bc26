"""A list of the tasks that wait, and for what, when nothing goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 20


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


def _place(task: asyncio.Task[Any]) -> str:
    """Return where a task's innermost coroutine waits."""
    coroutine: Any = task.get_coro()
    where = "at an unknown place"
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        where = f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return where


def _waits_for(task: asyncio.Task[Any]) -> str:
    """Return what a task waits for."""
    waiter: Any = getattr(task, "_fut_waiter", None)
    if waiter is None:
        return "its next step"
    if isinstance(waiter, asyncio.Task):
        return f"task {waiter.get_name()!r}"
    return "a future"
