"""What the sources ask of Cython where it is not installed: that nothing is compiled."""

from __future__ import annotations

from typing import Final

compiled: Final = False
