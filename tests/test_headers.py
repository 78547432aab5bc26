"""C stands in headers, each of which can be included twice, and says by sentences why it is C."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build_tools.sources import SOURCES, compiled_modules, included, inputs

pytestmark = pytest.mark.text
HEADERS = sorted(SOURCES.rglob("*.h"))
EACH = pytest.mark.parametrize("path", HEADERS, ids=lambda path: str(path.relative_to(SOURCES)))
FUNCTION = re.compile(r"^(?:WHORL_ALWAYS_INLINE )?static (?:inline )?[^\n=;]*\(", re.MULTILINE)
QUOTED = re.compile(r'(?:include|extern\s+from)\s*"([^"]+)"')


def test_declarations_hold_no_c() -> None:
    assert [str(path) for path in SOURCES.rglob("*.pxd") if '"""' in path.read_text(encoding="utf-8")] == []


def test_each_header_is_included() -> None:
    assert set(HEADERS) <= {path for module in compiled_modules() for path in inputs(module)}


def test_includes_in_quotes_are_whole_paths() -> None:
    """The build finds these, and knows what to compile again when they change."""
    for path in [*HEADERS, *SOURCES.rglob("*.pxd")]:
        for name in QUOTED.findall(path.read_text(encoding="utf-8")):
            is_ours = not name.startswith(("<", "Python.h"))
            assert not is_ours or SOURCES / name in included(path, SOURCES), f"{path} includes {name}"


@EACH
def test_a_header_can_be_included_twice(path: Path) -> None:
    assert "*/\n#pragma once\n" in path.read_text(encoding="utf-8")


@EACH
def test_a_header_has_short_lines(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 110 or line != line.rstrip() or "\t" in line] == []


@EACH
def test_a_comment_stands_before_each_c_function(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    functions = list(FUNCTION.finditer(text))
    assert [match[0] for match in functions if not text[: match.start()].endswith("*/\n")] == []
