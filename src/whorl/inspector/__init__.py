"""The inspector: what a loop does, where it stalls, and why.

`start` begins to watch. It imports nothing and starts no thread before.
"""

from __future__ import annotations

from whorl.inspector.inspector import Inspector, start
from whorl.inspector.stalls import Frame, Stack, Stall
from whorl.inspector.tables.handles import HandleFigures
from whorl.inspector.tables.tasks import TaskFigures
from whorl.inspector.tables.waits import TaskWait

__all__ = ["Frame", "HandleFigures", "Inspector", "Stack", "Stall", "TaskFigures", "TaskWait", "start"]
