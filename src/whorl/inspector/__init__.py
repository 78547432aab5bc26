"""The inspector: what a loop does, where it stalls, and why.

`start` begins to watch. It imports nothing and starts no thread before.
"""

from __future__ import annotations

from typing import Any

from whorl.inspector.inspector import Inspector, start
from whorl.inspector.stalls import Frame, Stack, Stall

__all__ = ["Frame", "Inspector", "Stack", "Stall", "start"]  # and by name: Collector, instrument


def __getattr__(name: str) -> Any:
    """Import an exporter, and the library that it needs, where it is first used."""
    if name == "Collector":
        from whorl.inspector.prometheus import Collector

        return Collector
    if name == "instrument":
        from whorl.inspector.opentelemetry import instrument

        return instrument
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
