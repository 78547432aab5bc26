"""The chance of a world: `random`, `os.urandom`, `secrets` and `uuid` follow the seed."""

from __future__ import annotations

import os
import random
import uuid

from whorl.sim.patches.current import Replacement, host


def _urandom(size: int) -> bytes:
    return host().random_bytes(size)


def _getrandom(size: int, flags: int = 0) -> bytes:
    return host().random_bytes(size)


def _uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    return uuid.UUID(bytes=host().random_bytes(16), version=1)


CHANCE: list[Replacement] = [
    (os, "urandom", _urandom),
    (os, "getrandom", _getrandom),
    (random, "_urandom", _urandom),
    (uuid, "uuid1", _uuid1),
]
