"""The log of a run among many: kept instead of written to the terminal, for the report of a failure."""

from __future__ import annotations

import logging
import sys
from typing import Any

from whorl.sim.patches.current import RUNNING, Replacement

_emit = logging.StreamHandler.emit


def _keep(self: logging.StreamHandler[Any], record: logging.LogRecord) -> None:
    """Keep a line that would go to the terminal if the world keeps its log; write all others."""
    world = RUNNING.world
    terminal = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    if world is None or world.log is None or self.stream not in terminal:
        _emit(self, record)
        return
    try:
        world.log.append(f"{world.now() * 1000:12.3f} ms  {self.format(record)}")
    except Exception:
        self.handleError(record)


LOGS: list[Replacement] = [(logging.StreamHandler, "emit", _keep)]
