"""Names and representations of the program's own, as a terminal or a log may show them."""

from __future__ import annotations

from whorl.inspector.tables.wording import shown

__all__ = ["shown"]
