"""A module to import inside a world: it asks the process, draws a number, and takes a clock by name."""

import os
import random
from time import monotonic

PROCESS_ID = os.getpid()
DRAWN = random.random()

__all__ = ["DRAWN", "PROCESS_ID", "monotonic"]
