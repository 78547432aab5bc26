"""Bearing faults: a block that is tried again when the network or the system refuses something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType

#: How often something is tried; a world's faults come far more seldom than that in a row.
TRIES = 40


class Attempt:
    """One attempt: an error of the world's ends its block without being raised."""

    def __init__(self, borne: tuple[type[BaseException], ...], is_last: bool) -> None:
        self._borne = borne
        self._is_last = is_last
        self.succeeded = False

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.succeeded = kind is None
        return isinstance(error, self._borne) and not self._is_last


async def attempts(*borne: type[BaseException]) -> AsyncIterator[Attempt]:
    """Yield attempts until one succeeds; OSError and TimeoutError are borne, and what else is named."""
    for number in range(TRIES):
        attempt = Attempt((OSError, asyncio.TimeoutError, *borne), number == TRIES - 1)
        yield attempt
        if attempt.succeeded:
            return
        await asyncio.sleep(0.05)
