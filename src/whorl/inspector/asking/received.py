"""The rows that another process sends: their types are checked, and their texts may be shown on a terminal.

Another user's process may send anything, and root may ask it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

from whorl.inspector.tables.waits import TaskWait
from whorl.inspector.tables.wording import escaped

Row = TypeVar("Row")

#: The most characters of a text that are kept.
LONGEST_TEXT = 4096
#: The greatest number: those of the inspector have 64 bits at most.
GREATEST = 1 << 64


class Unfit(ValueError):
    """An answer is none that the inspector gives."""

    def __init__(self) -> None:
        super().__init__("it is none of the inspector's")


def row_of(kind: type[Row], plain: Any) -> Row:
    """Return a row of a table, without the fields that this Whorl does not know. Raises Unfit."""
    if type(plain) is not dict:
        raise Unfit
    names = {field.name: str(field.type) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{name: _READERS[names[name]](value) for name, value in plain.items() if name in names})
    except TypeError:  # A field is missing.
        raise Unfit from None


def text_of(plain: Any) -> str:
    """Return a text without control characters. Raises Unfit."""
    if type(plain) is not str:
        raise Unfit
    return escaped(plain[:LONGEST_TEXT])


def _number(plain: Any) -> int:
    if type(plain) is not int or not -GREATEST < plain < GREATEST:
        raise Unfit
    return plain


def _seconds(plain: Any) -> float:
    if type(plain) not in (int, float) or not -GREATEST < plain < GREATEST or math.isnan(plain):
        raise Unfit
    return float(plain)


def _numbers(plain: Any) -> tuple[int, ...]:
    if type(plain) is not list:
        raise Unfit
    return tuple(map(_number, plain))


def _place(plain: Any) -> tuple[str, int, str]:
    if type(plain) is not list or len(plain) != 3:
        raise Unfit
    return text_of(plain[0]), _number(plain[1]), text_of(plain[2])


def _maybe(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda plain: None if plain is None else reader(plain)


#: By the types of the fields of rows, as their classes have them.
_READERS: dict[str, Callable[[Any], Any]] = {
    "str": text_of,
    "str | None": _maybe(text_of),
    "int": _number,
    "int | None": _maybe(_number),
    "float | None": _maybe(_seconds),
    "tuple[int, ...]": _numbers,
    "tuple[str, int, str] | None": _maybe(_place),
    "TaskWait | None": _maybe(lambda plain: row_of(TaskWait, plain)),
}
