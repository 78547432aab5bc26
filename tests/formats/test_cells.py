"""Texts in the cells of a terminal."""

from __future__ import annotations

from whorl.formats import cells


def test_wide_characters_are_counted_as_two_columns() -> None:
    assert cells.columns_of("日本") == 4
    assert cells.cut("日本語", 4) == "日…"
    assert cells.left("日", 3) == "日 "
    assert cells.right("日", 3) == " 日"


def test_text_is_cut_to_its_columns_and_padded_text_is_not() -> None:
    assert [cells.cut("abc", columns) for columns in (3, 2, 1, 0)] == ["abc", "a…", "…", ""]
    assert cells.padded("abc", 2) == "abc"
    assert cells.padded("日", 4) == "日  "
