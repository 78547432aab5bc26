"""The seeds of the tests over faults.

WHORL_FAULT_SEEDS says how many there are, WHORL_FAULT_FIRST which is the first, WHORL_FAULT_SEED picks one.
"""

from __future__ import annotations

import os


def seeds_of_run(count: int) -> range:
    """Return the seeds of this run; by default `count` of them."""
    picked = os.environ.get("WHORL_FAULT_SEED")
    first = int(picked or os.environ.get("WHORL_FAULT_FIRST", "0"))
    return range(first, first + (1 if picked else int(os.environ.get("WHORL_FAULT_SEEDS", count))))
