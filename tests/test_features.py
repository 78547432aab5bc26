"""The page of features tells the truth: its tests exist, and its methods are there or are not."""

from __future__ import annotations

import ast
import asyncio
import re
from functools import cache
from pathlib import Path

import pytest

import whorl
from build_tools.sources import ROOT

PAGE = ROOT / "docs" / "features.md"
TESTS = ROOT / "tests"

Row = tuple[str, list[str]]


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the tests of a file, those in classes as `Class::test`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        members = [node] if not isinstance(node, ast.ClassDef) else node.body
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and member.name.startswith("test"):
                names.add(prefix + member.name)
    return frozenset(names)


def rows(text: str) -> list[Row]:
    """Return the features that work, and their tests."""
    found = []
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(("| What works |", "| --- |")):
            what, tests = line.strip("| ").rsplit(" | ", 1)
            found.append((what, re.findall(r"`([^`]+)`", tests)))
    return found


def not_yet(text: str) -> list[str]:
    """Return the features that do not work yet."""
    parts = re.findall(r"^### Not yet\n\n((?:- .*\n(?:  .*\n)*)+)", text, re.MULTILINE)
    return [item.strip() for part in parts for item in part.removeprefix("- ").split("\n- ")]


def missing_tests(row: Row) -> list[str]:
    """Return the tests of a row that do not exist."""
    missing = []
    for test in row[1]:
        file, _, name = test.partition("::")
        path = TESTS / file
        if not path.is_file() or not (name in names_in(path) if name else names_in(path)):
            missing.append(test)
    return missing


def methods(lines: list[str]) -> set[str]:
    """Return the methods of asyncio's loop that are named in some lines."""
    known = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    return known & {name for line in lines for name in re.findall(r"`(\w+)`", line)}


TEXT = PAGE.read_text(encoding="utf-8")
ROWS = rows(TEXT)


@pytest.mark.text
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_every_feature_has_tests_that_exist(row: Row) -> None:
    assert row[1], "a feature without a test"
    assert missing_tests(row) == []


@pytest.mark.text
def test_no_feature_is_told_twice() -> None:
    told = [what for what, _ in ROWS] + not_yet(TEXT)
    assert len(told) == len(set(told))


def test_every_method_of_asyncios_loop_is_where_it_belongs() -> None:
    every = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    ours = {
        name
        for name in every
        if getattr(whorl.EventLoop, name) is not getattr(asyncio.AbstractEventLoop, name)
    }
    assert methods([what for what, _ in ROWS]) == ours
    assert methods(not_yet(TEXT)) == every - ours


@pytest.mark.text
def test_every_handle_is_told() -> None:
    told = " ".join(what for what, _ in ROWS)
    for name in whorl.handles.__all__:
        if isinstance(getattr(whorl.handles, name), type) and name not in ("StreamHandle", "ThreadPool"):
            assert re.search(rf"\b{name}\b", told), f"{name} works, and the page does not say so"


@pytest.mark.text
def test_mistakes_on_the_page_are_noticed(tmp_path: Path) -> None:
    page = """
| What works | Tests |
| --- | --- |
| A | B, with `call_soon` | `test_features.py`, `test_features.py::test_no_feature_is_told_twice` |
| C | `test_features.py::test_that_never_was`, `nowhere/test_it.py`, `conftest.py` |

### Not yet

- `sendfile`, and more
"""
    first, second = rows(page)
    assert first[0] == "A | B, with `call_soon`"
    assert missing_tests(first) == []
    assert missing_tests(second) == second[1]
    assert methods([first[0]]) == {"call_soon"}
    assert methods(not_yet(page)) == {"sendfile"}
