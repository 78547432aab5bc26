"""The state of the `random` module, which each run leaves as it was."""

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
