"""Texts for people: cut, escaped, and made without a call of the program's code."""

from __future__ import annotations

import functools

import pytest

from whorl.inspector.tables import wording


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r", "a\\nb\\r"),
        ("\u202e", "\\u202e"),
        ("\ud800", "\\ud800"),
        (b"\xff\x00a", "\\\\xff\\x00a".replace("\\\\", "\\")),
        (3, "int"),
    ],
)
def test_control_characters_are_escaped(text: object, shown: str) -> None:
    assert wording.shown(text) == shown


def test_long_texts_are_cut() -> None:
    assert len(wording.shown("é" * 10_000).encode()) <= wording.LONGEST
    assert wording.shown("x" * 256) == "x" * 256
    assert wording.shown("x" * 257).endswith("…")


def test_a_class_of_text_is_not_asked() -> None:
    class Text(str):
        def __getitem__(self, place: object) -> str:
            raise AssertionError

        def __str__(self) -> str:
            raise AssertionError

    assert wording.shown(Text("plain")) == "plain"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("127.0.0.1", 80), "127.0.0.1:80"),
        (("::1", 80, 0, 0), "[::1]:80"),
        ("/run/socket", "/run/socket"),
        (b"\0name", "@name"),
        ("", None),
        (None, None),
        ((1, 2), None),
    ],
)
def test_addresses_are_shown(name: object, text: str | None) -> None:
    assert wording.address(name) == text


def test_time_that_has_passed_is_overdue() -> None:
    assert (wording.due_text(1.5), wording.due_text(-1.5)) == ("due in 1.5 s", "overdue by 1.5 s")


def test_functions_are_named_behind_what_calls_them() -> None:
    assert wording.function_name(functools.partial(functools.partial(len), 1)) == "len"
    assert wording.function_name([].append) == "list.append"
    assert wording.function_name(object()) == "object"
