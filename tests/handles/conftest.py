"""What every test of a handle stands on: the loops of the machine's tests, and their watch for leaks."""

from __future__ import annotations

from tests.core.conftest import loop, make_loop, no_hang, no_leak

__all__ = ["loop", "make_loop", "no_hang", "no_leak"]
