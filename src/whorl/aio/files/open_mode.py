"""The way a file is to be opened: the meaning of the arguments of `open`."""

from __future__ import annotations

import codecs
import io
import locale
import os
from typing import NamedTuple

#: Codecs that keep no state besides the bytes themselves: all of a file can be decoded in one step.
_STATELESS = frozenset({"utf-8", "ascii", "iso8859-1"})

#: The error handlers that encode an unknown character in no more bytes than any other character.
_SHORT_ERRORS = frozenset({None, "strict", "ignore", "replace", "surrogateescape"})


class Mode(NamedTuple):
    """The arguments of `open`, checked."""

    text: str  #: as it was given
    flags: int  #: for the kernel
    reads: bool
    writes: bool
    is_binary: bool
    appends: bool
    buffering: int
    encoding: str | None
    errors: str | None
    newline: str | None
    codec: str  #: the canonical name of the encoding
    decodes_at_once: bool  #: whether all of a file can be decoded without the state of a decoder


def parse(mode: str, buffering: int, encoding: str | None, errors: str | None, newline: str | None) -> Mode:
    """Check the arguments of `open`.

    Raises TypeError, ValueError and LookupError where `io.open` does.
    """
    for name, value in (("mode", mode), ("encoding", encoding), ("errors", errors), ("newline", newline)):
        if not isinstance(value, str) and (value is not None or name == "mode"):
            raise TypeError(f"open() argument '{name}' must be str, not {type(value).__name__}")
    flags = _flags(mode)
    is_binary, codec = "b" in mode, ""
    if is_binary:
        for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
            if value is not None:
                raise ValueError(f"binary mode takes no {name} argument")
    else:
        if buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        if newline not in (None, "", "\n", "\r", "\r\n"):
            raise ValueError(f"illegal newline value: {newline!r}")
        encoding = io.text_encoding(encoding, 3)
        codec = locale.getencoding() if encoding == "locale" else encoding
    return Mode(
        mode,
        flags,
        "r" in mode or "+" in mode,
        "r" not in mode or "+" in mode,
        is_binary,
        "a" in mode,
        buffering,
        encoding,
        errors,
        newline,
        codec,
        not is_binary and codecs.lookup(codec).name in _STATELESS,
    )


def _flags(mode: str) -> int:
    kinds = [letter for letter in mode if letter in "rwxa"]
    if set(mode) - set("rwxab+t") or len(set(mode)) != len(mode) or {"b", "t"} <= set(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    if len(kinds) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    direction = os.O_RDWR if "+" in mode else os.O_RDONLY if kinds == ["r"] else os.O_WRONLY
    how = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
    return direction | how[kinds[0]]


def largest_size(mode: Mode, text: str) -> int | None:
    """Return the greatest number of bytes of a text when it is written; None if that is unknown."""
    if not mode.decodes_at_once or mode.errors not in _SHORT_ERRORS:
        return None
    return len(text) * 4 * (2 if mode.newline == "\r\n" else 1)
