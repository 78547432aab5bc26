"""Texts in the log: names of the program's own as it may show them, and warnings."""

from __future__ import annotations

import contextlib
import logging

from whorl.inspector.tables.wording import shown

__all__ = ["shown", "warn"]


def warn(text: str) -> None:
    """Log a warning. A program that makes warnings of the log fatal goes on as well."""
    with contextlib.suppress(Exception):
        logging.getLogger("whorl.inspector").warning("%s", text)
