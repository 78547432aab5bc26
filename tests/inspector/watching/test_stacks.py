"""The call of a stack is the step of a task, or what the loop called."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from whorl.inspector.watching import stacks
from whorl.inspector.watching.stalls import Frame

RUNNER = Frame(asyncio.runners.__file__, 120, "Runner.run", "")


class Service:
    """A method of it is a step."""

    async def handle(self) -> None:
        """Do nothing."""


class Watched:
    """The state of a loop that is looked at."""

    thread = 1
    began_ns = 0


def call_of(monkeypatch: pytest.MonkeyPatch, function: Any, *inside: Frame) -> str | None:
    """Return the call of a stack that was read from outside, inside of a task's step."""
    code = function.__code__
    frames = (RUNNER, *inside, Frame(code.co_filename, code.co_firstlineno, code.co_qualname, ""))
    monkeypatch.setattr(stacks, "has_gil", lambda: False)
    monkeypatch.setattr(stacks, "read_stack", lambda thread: frames)
    monkeypatch.setattr(stacks.looks, "progress_of", lambda loop: (1, 2, 3, 4, 5))
    moment = stacks.Moment(5, (1, 2, 3, 4, 5), (), "Task-1", code, None)
    watched: Any = Watched()
    loop: Any = object()
    return stacks.stack_of(watched, loop, moment, False)[1]


def test_step_that_is_a_method_is_found_in_a_stack_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = Frame("/app/main.py", 3, "wrapper", "")
    assert call_of(monkeypatch, Service.handle, wrapper) == "Service.handle"
