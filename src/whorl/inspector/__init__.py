"""The inspector: what a loop does, where it stalls, and why.

`start` begins to watch. It imports nothing and starts no thread before.
"""

from __future__ import annotations

from whorl.inspector.inspector import Inspector, start
from whorl.inspector.stalls import Frame, Stack, Stall

__all__ = ["Frame", "Inspector", "Stack", "Stall", "start"]
