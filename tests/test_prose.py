"""Pages and docstrings are in plain English: short sentences that begin with their subject."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from build_tools.sources import ROOT

pytestmark = pytest.mark.text

LONGEST = 25  # words of a sentence
PAGE_PATTERNS = ("*.md", "bench/*.md", "docs/**/*.md", "examples/*.md", "recipes/*.md", "tests/**/README.md")
PAGES = sorted(path for pattern in PAGE_PATTERNS for path in ROOT.glob(pattern))
FOLDERS = ("bench", "build_tools", "examples", "recipes", "src", "tests")
SOURCES = {folder: f"{folder}/**/*.py" for folder in FOLDERS}
RELATIVE = re.compile(r"(Who|Whoever|What|Whatever|That)\b")
CLAUSE = re.compile(r"(How|Where|Whether|Which)\b")  # no docstring begins like this
NOUN = re.compile(r"(A|An|The|All|Each|Every|One|Two|Many|Several|Both)\b")  # nor that of a function's result
NO_PROSE = re.compile(r"\s*[#|<]|\s*!\[|    (?! *[-*] )")  # titles, tables, HTML, pictures, indented code
ITEM = re.compile(r"\s*([-*]|\d+\.) ")


def paragraphs(text: str) -> Iterator[str]:
    """Return the paragraphs and list items of a page, each on one line."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        item = ITEM.match(line)
        if item or not line.strip() or NO_PROSE.match(line):
            if lines:
                yield " ".join(lines)
            lines = []
        if line.strip() and not NO_PROSE.match(line):
            lines.append(line[item.end() :] if item else line.strip())


def cells(text: str) -> Iterator[str]:
    """Return the cells of a page's tables, without the heads."""
    for line, following in pairwise([*text.splitlines(), ""]):
        if line.startswith("|") and not re.match(r"\| ?-", line) and not re.match(r"\| ?-", following):
            yield from (cell.strip() for cell in line.strip("|").split(" | "))


def sentences(paragraph: str) -> Iterator[str]:
    """Return the sentences of a paragraph; a piece of code, or a list of such, is one word."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph).replace("**", "")
    plain = re.sub(r"`[^`]*`", "X", plain)
    plain = re.sub(r"\bX((, and |, | and | or )X\b)+", "X", plain)
    yield from re.split(r"(?<=[.!?])\)? +|(?<=:) +(?=[A-Z])", plain)


def offences(text: str) -> list[str]:
    """Return the sentences that break a rule, each with the rule."""
    found = []
    for paragraph in [*paragraphs(text), *cells(text)]:
        for sentence in sentences(paragraph):
            words = re.findall(r"[^\s]*\w[^\s]*", sentence)
            if len(words) > LONGEST:
                found.append(f"{len(words)} words: {sentence}")
            if RELATIVE.match(sentence):
                found.append(f"begins with a relative: {sentence}")
    return found


def bare(node: ast.AST, docstring: str) -> bool:
    """Return whether a docstring begins with a clause, or that of a function's result with no verb."""
    if CLAUSE.match(docstring):
        return True
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not NOUN.match(docstring):
        return False
    is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    return not is_property and node.returns is not None and "None" not in ast.unparse(node.returns)


def offences_of_docstrings(source: str) -> list[str]:
    """Return the offences in the docstrings of a module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            found += offences(docstring)
            if bare(node, docstring):
                found.append(f"begins without a verb: {docstring}")
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_page_is_in_plain_english(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("pattern", SOURCES.values(), ids=SOURCES)
def test_docstrings_are_in_plain_english(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {offence}"
        for path in sorted(ROOT.glob(pattern))
        for offence in offences_of_docstrings(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_offence_is_noticed() -> None:
    long = "A sentence of this kind has " + "word " * 20 + "in it."
    assert offences(f"Short. {long}") == [f"28 words: {long}"]
    assert offences("Short.\n\n* Who reads this stops.") == ["begins with a relative: Who reads this stops."]
    assert (
        offences(
            "```\nWhat is code.\n```\n\n| What is a head |\n| --- |\n\n    What is indented\n\n# What a title"
        )
        == []
    )
    assert offences("Names are one word: " + ", ".join(["`name`"] * 30) + ".") == []
    assert offences("| head |\n| --- |\n| What is a cell |") == ["begins with a relative: What is a cell"]


def test_offence_of_a_docstring_is_noticed() -> None:
    source = 'def name() -> str:\n    """{}"""'
    assert offences_of_docstrings(source.format("Return the name.")) == []
    assert offences_of_docstrings(source.format("The name.")) == ["begins without a verb: The name."]
    assert offences_of_docstrings('"""Whether it runs."""') == ["begins without a verb: Whether it runs."]
