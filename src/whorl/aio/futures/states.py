"""The states of a future."""

from __future__ import annotations

from asyncio import base_futures
from typing import Final

PENDING: Final = 1  # not 0, which is the state of a future without a call of `__init__`
CANCELLED: Final = 2
FINISHED: Final = 3

NAMES = ("", base_futures._PENDING, base_futures._CANCELLED, base_futures._FINISHED)
