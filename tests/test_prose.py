"""The documents are in plain English: short sentences that begin with their subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_tools.sources import ROOT

pytestmark = pytest.mark.text

LONGEST = 25  # words of a sentence
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")),
    *(ROOT / "docs" / name for name in ("features.md", "frameworks.md", "performance.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    ROOT / "docs" / "decisions" / "README.md",
]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
RELATIVE = re.compile(r"(Who|Whoever|What|Whatever|That)\b")
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


def sentences(paragraph: str) -> Iterator[str]:
    """Return the sentences of a paragraph; a piece of code, or a list of such, is one word."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph).replace("**", "")
    plain = re.sub(r"`[^`]*`", "X", plain)
    plain = re.sub(r"\bX((, and |, | and | or )X\b)+", "X", plain)
    yield from re.split(r"(?<=[.!?])\)? +|(?<=:) +(?=[A-Z])", plain)


def offences(text: str) -> list[str]:
    """Return the sentences that break a rule, each with the rule."""
    found = []
    for paragraph in paragraphs(text):
        for sentence in sentences(paragraph):
            words = re.findall(r"[^\s]*\w[^\s]*", sentence)
            if len(words) > LONGEST:
                found.append(f"{len(words)} words: {sentence}")
            if RELATIVE.match(sentence):
                found.append(f"begins with a relative: {sentence}")
    return found


def head(text: str) -> str:
    """Return the first paragraph below the title."""
    return text.split("\n\n")[1]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_document_is_in_plain_english(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decision_begins_in_plain_english(path: Path) -> None:
    assert offences(head(path.read_text(encoding="utf-8"))) == []


def test_offence_is_noticed() -> None:
    long = "A sentence of this kind has " + "word " * 20 + "in it."
    assert offences(f"Short. {long}") == [f"28 words: {long}"]
    assert offences("Short.\n\n* Who reads this stops.") == ["begins with a relative: Who reads this stops."]
    assert (
        offences("```\nWhat is code.\n```\n\n| What is a cell |\n\n    What is indented\n\n# What is a title")
        == []
    )
    assert offences("Names are one word: " + ", ".join(["`name`"] * 30) + ".") == []
