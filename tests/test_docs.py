"""The site has every page, the reference every public name; pages name tests and variables that exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from build_tools import reference
from build_tools.sources import ROOT
from tests.test_features import missing_tests

pytestmark = pytest.mark.text

DOCS = ROOT / "docs"
DIFFERENCES = (DOCS / "guide" / "differences.md").read_text(encoding="utf-8")
VARIABLES = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
PAGES = ("*.md", "docs/**/*.md", "bench/*.md", "examples/*.md", "recipes/*.md", "tests/*/README.md")
INDEXES = (DOCS / "README.md", DOCS / "decisions" / "README.md")


def functions() -> dict[str, Any]:
    """Return the public functions and methods by their dotted names."""
    found: dict[str, Any] = {}
    for module in reference.MODULES:
        for name, thing in reference.public_names(module).items():
            place = f"{module}.{name}"
            if isinstance(thing, type):
                found |= {f"{place}.{key}": one for key, one in reference.public_methods(thing).items()}
            elif callable(thing):
                found[place] = thing
    return {place: getattr(one, "__func__", one) for place, one in found.items()}


FUNCTIONS = functions()


def targets(page: Path) -> set[Path]:
    """Return the files and folders that a page links to."""
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]+`", "", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", text)}


def test_every_page_is_listed() -> None:
    assert set(DOCS.rglob("*.md")) - set().union(*map(targets, INDEXES)) - {INDEXES[0]} == set()


def test_every_link_of_a_page_leads_somewhere() -> None:
    pages = [page for pattern in PAGES for page in ROOT.glob(pattern)]
    assert len(pages) > 60
    assert {(page.name, target) for page in pages for target in targets(page) if not target.exists()} == set()


@pytest.mark.parametrize("module", reference.MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    page = reference.pages_of_reference()[module]
    names = reference.public_names(module)
    assert names
    for name, thing in names.items():
        assert re.search(rf"^{name}\n-+\n", page, re.MULTILINE), f"{module}.{name}"
        if callable(thing):
            assert inspect.getdoc(thing), f"{module}.{name} has no docstring"


def test_every_public_function_has_a_docstring_and_types() -> None:
    assert len(FUNCTIONS) > 700
    for place, function in FUNCTIONS.items():
        assert inspect.getdoc(function), place
        if not isinstance(function, property) and not place.endswith(
            ".create_task"
        ):  # asyncio's own, on 3.11
            parameters = inspect.signature(function).parameters.values()
            assert not [
                one for one in parameters if one.annotation is one.empty and one.name not in ("self", "cls")
            ]


def test_every_parameter_is_explained() -> None:
    missing = [
        f"{place}: {one.name}"
        for place, function in FUNCTIONS.items()
        if not isinstance(function, property)
        for one in reference.unnamed_parameters(function)
        if reference.meaning(one.name, place) is None
    ]
    assert missing == []


def test_every_explained_parameter_is_one_of_some_function() -> None:
    used = {
        (one.name, place)
        for place, function in FUNCTIONS.items()
        if not isinstance(function, property)
        for one in reference.unnamed_parameters(function)
    }
    rows = reference.explained_parameters()
    assert [
        row for row in rows if not any(row[0] == name and place.startswith(row[1]) for name, place in used)
    ] == []


def test_reference_of_a_function_names_parameters_and_source() -> None:
    lines = ["Text."]
    reference.complete("whorl.EventLoop.sock_accept", FUNCTIONS["whorl.EventLoop.sock_accept"], lines)
    assert any(line.startswith("* ``sock``: a socket object") for line in lines)
    assert "Source: ``asyncio.loop.sock_accept``." in lines


def differences() -> list[tuple[str, list[str]]]:
    """Return the rows of the page of differences: the difference, and its tests."""
    cells = [line.strip("|").split(" | ") for line in DIFFERENCES.splitlines() if line.startswith("| ")]
    rows = [
        row for row in cells if len(row) == 3 and not row[0].startswith((" ---", " Difference", " Whorl, as"))
    ]
    return [(row[0].strip(), re.findall(r"`([^`]+)`", row[2])) for row in rows]


@pytest.mark.parametrize("row", differences(), ids=lambda row: row[0][:60])
def test_every_difference_has_a_test_that_exists(row: tuple[str, list[str]]) -> None:
    assert row[1]
    assert missing_tests(row) == []


def test_differences_are_many() -> None:
    assert len(differences()) > 25


def variables_in(text: str) -> set[str]:
    """Return the variables that a source reads: names that stand in quotation marks, alone or before `=`."""
    return set(re.findall(r"[\"'](WHORL_[A-Z_]+)[\"']", text)) | set(
        re.findall(r"^\t@(WHORL_[A-Z_]+)=", text, re.M)
    )


def test_every_environment_variable_is_on_the_page() -> None:
    folders = ("src", "build_tools", "tests", "bench")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found: set[str] = set()
    for path in [*paths, ROOT / "setup.py", ROOT / "Makefile"]:
        if path.name != "test_headers.py" and path != Path(__file__):
            found |= variables_in(path.read_text(encoding="utf-8"))
    told = set(re.findall(r"`(WHORL_[A-Z_]+)`", VARIABLES))
    assert {"WHORL_INSPECT", "WHORL_BUILD", "WHORL_FAULT_SEEDS"} <= found
    assert found - told == set()
    assert told - found <= {"WHORL_SUITE_LOOP"}


def test_one_turn_has_the_phases_of_the_source() -> None:
    source = (ROOT / "src/whorl/core/loop/loop.py").read_text(encoding="utf-8")
    page = (DOCS / "guide" / "one-turn.md").read_text(encoding="utf-8")
    methods = set(re.findall(r"`Loop\.(_\w+)`", page))
    assert len(methods) > 7
    assert {name for name in methods if f"self.{name}(" not in source} == set()
