"""The page that maps libuv's functions to Whorl is complete, and its names exist."""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import whorl
from build_tools.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "libuv-map.md"
FUNCTIONS = (Path(__file__).parent / "libuv_functions.txt").read_text(encoding="ascii").split()

Row = tuple[list[str], str, str]


def rows(text: str) -> list[Row]:
    """Return libuv's names, Whorl's, and the remark of each row."""
    found = []
    for line in text.splitlines():
        if line.startswith("| `"):
            theirs, ours, remark = (part.strip() for part in line.strip("|").split("|"))
            found.append((re.findall(r"`(\w+)`", theirs), ours, remark))
    return found


def resolve(name: str) -> Any:
    """Return the object of a dotted name."""
    first, *rest = name.split(".")
    thing = getattr(builtins, first, None)
    path = first
    if thing is None:
        thing = importlib.import_module(first)
    for part in rest:
        path += f".{part}"
        try:
            thing = getattr(thing, part)
        except AttributeError:
            is_class = isinstance(thing, type) and not whorl.compiled
            if is_class and f"self.{part}: " in inspect.getsource(thing):
                return None  # Uncompiled, the class does not know an attribute of its objects.
            thing = importlib.import_module(path)
    return thing


ROWS = rows(PAGE.read_text(encoding="utf-8"))


@pytest.mark.text
def test_every_function_of_libuv_is_on_the_page_once() -> None:
    assert len(FUNCTIONS) == len(set(FUNCTIONS)) > 300
    assert sorted(name for theirs, _, _ in ROWS for name in theirs) == FUNCTIONS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][0])
def test_names_in_a_row_exist(row: Row) -> None:
    _, ours, remark = row
    if ours == "none":
        assert remark, "there is no reason why not"
    else:
        (name,) = re.findall(r"^`([\w.]+)`$", ours)
        resolve(name)
    for name in re.findall(r"`(\w+(?:\.\w+)+)`", remark):
        resolve(name)


@pytest.mark.parametrize("name", ["whorl.handles.Timer.begin", "os.nothing", "whorl.nowhere", "uv_run"])
def test_missing_names_are_noticed(name: str) -> None:
    with pytest.raises((AttributeError, ImportError)):
        resolve(name)
