"""The inspector: what a loop does, where it stalls, and why.

`start` begins to watch. It starts no thread before. A name is imported at its first use: the commands need
few of them, and an exporter needs a library.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from whorl.inspector.inspector import Inspector as Inspector
    from whorl.inspector.inspector import read as read
    from whorl.inspector.inspector import start as start
    from whorl.inspector.opentelemetry import instrument as instrument
    from whorl.inspector.prometheus import Collector as Collector
    from whorl.inspector.recordings.recording import NotARecording as NotARecording
    from whorl.inspector.recordings.recording import Recording as Recording
    from whorl.inspector.tables.handles import HandleFigures as HandleFigures
    from whorl.inspector.tables.tasks import TaskFigures as TaskFigures
    from whorl.inspector.tables.waits import TaskWait as TaskWait
    from whorl.inspector.watching.stalls import Frame as Frame
    from whorl.inspector.watching.stalls import Stack as Stack
    from whorl.inspector.watching.stalls import Stall as Stall

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


_MODULES: _typing.Final = {
    "Collector": "prometheus",
    "Frame": "watching.stalls",
    "HandleFigures": "tables.handles",
    "Inspector": "inspector",
    "NotARecording": "recordings.recording",
    "Recording": "recordings.recording",
    "Stack": "watching.stalls",
    "Stall": "watching.stalls",
    "TaskFigures": "tables.tasks",
    "TaskWait": "tables.waits",
    "instrument": "opentelemetry",
    "read": "inspector",
    "start": "inspector",
}


def __getattr__(name: str) -> _typing.Any:
    """Import a public name at its first use; an exporter brings the library that it needs."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    if name in __all__:
        globals()[name] = found
    return found
