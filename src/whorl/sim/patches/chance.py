"""The chance of a world: `random`, `os.urandom`, `secrets` and `uuid` follow the seed.

A generator that is seeded without a number would ask the system for one. In a world, its host gives one.
"""

from __future__ import annotations

import os
import random
import uuid
from typing import Any

from whorl.sim.patches.current import RUNNING, Replacement, host

_SEED_BYTES = 16

_seed_generator = random.Random.seed


def _urandom(size: int) -> bytes:
    return host().random_bytes(size)


def _getrandom(size: int, flags: int = 0) -> bytes:
    return host().random_bytes(size)


def _uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    return uuid.UUID(bytes=host().random_bytes(16), version=1)


def _seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    if a is None:
        a = host().random_bytes(_SEED_BYTES)
    elif self is random._inst and RUNNING.world is not None:
        RUNNING.world.random_start = None  # What it draws from here on is no longer the world's.
    _seed_generator(self, a, version)


def _seed_module(a: Any = None, version: int = 2) -> None:
    _seed(random._inst, a, version)


CHANCE: list[Replacement] = [
    (os, "urandom", _urandom),
    (os, "getrandom", _getrandom),
    (random, "_urandom", _urandom),
    (random.Random, "seed", _seed),
    (random, "seed", _seed_module),
    (uuid, "uuid1", _uuid1),
]
