"""The basis of every test of a handle: the loops of the machine's tests, and the kinds of streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.conftest import loop, make_loop, no_hang, no_leak
from tests.handles.pairs import Kind

__all__ = ["kind", "loop", "make_loop", "no_hang", "no_leak"]


@pytest.fixture(params=["tcp", "unix"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """Return a kind of stream."""
    return Kind(request.param, tmp_path)
