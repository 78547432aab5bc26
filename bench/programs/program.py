"""A program: it is opened once, and its operation is repeated and checked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

Operation = Callable[[], Awaitable[None]]


class WrongAnswerError(Exception):
    """A program got a wrong answer; the message says which."""


@dataclass(frozen=True)
class Program:
    """A program: its name, its title on the page, and its requirements."""

    name: str
    title: str
    opened: Callable[[str], AbstractAsyncContextManager[Operation]]  # given the address of its service
    times: int  # operations of a batch, by each of those that work at once
    at_once: int = 1
    counts: int = 1  # so many things are done by one operation
    service: str = ""  # the server that it talks to, one of `services.SERVICES`
    packages: tuple[str, ...] = ()

    @property
    def done_by_batch(self) -> int:
        return self.times * self.at_once * self.counts

    async def run_batch(self, operation: Operation) -> None:
        """Repeat the operation, some at once."""
        if self.at_once == 1:
            await self._repeat(operation)
        else:
            await asyncio.gather(*(self._repeat(operation) for _ in range(self.at_once)))

    async def _repeat(self, operation: Operation) -> None:
        for _ in range(self.times):
            await operation()


def check(found: object, wanted: object) -> None:
    """Raise WrongAnswerError unless both are equal."""
    if found != wanted:
        raise WrongAnswerError(f"{found!r:.80} in place of {wanted!r:.80}")
