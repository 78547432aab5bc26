"""The module that has the loop's class in uvloop; here the class is Whorl's."""

from __future__ import annotations

from whorl import EventLoop as Loop

__all__ = ["Loop"]
