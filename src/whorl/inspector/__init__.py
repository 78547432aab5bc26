"""The inspector: what a loop does, where it stalls, and why.

`start` begins to watch. It imports nothing and starts no thread before.
"""

from __future__ import annotations

import typing as _typing

from whorl.inspector.inspector import Inspector, read, start
from whorl.inspector.recordings.recording import NotARecording, Recording
from whorl.inspector.tables.handles import HandleFigures
from whorl.inspector.tables.tasks import TaskFigures
from whorl.inspector.tables.waits import TaskWait
from whorl.inspector.watching.stalls import Frame, Stack, Stall

if _typing.TYPE_CHECKING:
    from whorl.inspector.opentelemetry import instrument as instrument
    from whorl.inspector.prometheus import Collector as Collector

__all__ = [
    "Frame",
    "HandleFigures",
    "Inspector",
    "NotARecording",
    "Recording",
    "Stack",
    "Stall",
    "TaskFigures",
    "TaskWait",
    "read",
    "start",
]


def __getattr__(name: str) -> _typing.Any:
    """Import an exporter, `Collector` or `instrument`, with the library that it needs, at its first use."""
    if name == "Collector":
        from whorl.inspector.prometheus import Collector

        return Collector
    if name == "instrument":
        from whorl.inspector.opentelemetry import instrument

        return instrument
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
