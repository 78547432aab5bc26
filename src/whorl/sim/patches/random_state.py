"""The state of the `random` module, which each run leaves as it was, and how much a run has drawn from it."""

from __future__ import annotations

import _random
import random
from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

_GENERATOR: Any = random._inst
if not isinstance(_GENERATOR, _random.Random):
    raise TypeError(f"the generator of the random module is replaced by {_GENERATOR!r}")
#: The generator makes so many words of 32 bits at once. Of so many blocks the words are counted.
_BLOCK = 624
MOST_BLOCKS = 200

_SIZE = _random.Random.__basicsize__ - object.__basicsize__

if not cython.compiled:

    def random_numbers(generator: Any, size: int) -> Any:
        """Return the numbers of a generator."""
        return generator.getstate()

    def set_random_numbers(generator: Any, numbers: Any) -> None:
        """Give a generator its numbers back."""
        generator.setstate(numbers)


def random_state() -> Any:
    """Return the state of the module's generator."""
    return random_numbers(_GENERATOR, _SIZE), _GENERATOR.gauss_next


def set_random_state(state: Any) -> None:
    """Restore a state of the module's generator."""
    numbers, _GENERATOR.gauss_next = state
    set_random_numbers(_GENERATOR, numbers)


def words_drawn(start: Any) -> int:
    """Return how many words of 32 bits the module's generator has made since a state."""
    if random_state() == start:
        return 0
    *block, index = _GENERATOR.getstate()[1]
    copy = random.Random(0)
    set_random_numbers(copy, start[0])
    for number in range(MOST_BLOCKS):
        *numbers, first = copy.getstate()[1]
        if numbers == block:
            return _BLOCK * number + int(index) - int(first)
        copy.getrandbits(32 * _BLOCK)
    return _BLOCK * MOST_BLOCKS
