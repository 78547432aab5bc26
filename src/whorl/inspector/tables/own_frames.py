"""The frames of a stack that are the program's own: they are kept and named first, and others are folded.

Own is what lies neither in Python's library, nor among installed packages, nor in Whorl. The paths tell it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from whorl.inspector.tables.wording import shown


class Frame(NamedTuple):
    """One line of a stack. A line of 0 and no file: `function` says which frames were left out there."""

    file: str
    line: int
    function: str
    source: str  #: the text of the line; empty if it was not found


_INSTALLED = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_LIBRARY = re.compile(r"/lib(?:64)?/python3\.\d+t?/([^/]+)")
_FROZEN = re.compile(r"<frozen ([^>.]+)")
_FOLDERS = tuple(
    os.path.join(os.path.dirname(file), "")
    for file in (os.path.abspath(os.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
)


@functools.lru_cache(maxsize=4096)  # A table of tasks asks of each function that a task is in.
def package_of(file: str) -> str:
    """Return which package of others a file belongs to; an empty text if it is the program's own."""
    for pattern in (_INSTALLED, _LIBRARY, _FROZEN):
        match = pattern.search(file)
        if match is not None:
            return match[1].removesuffix(".py")
    for folder in _FOLDERS:
        if file.startswith(folder):
            inside = file[len(folder) :].partition("/")[0].removesuffix(".py")
            return inside if folder is _FOLDERS[0] else "whorl"
    return ""


def is_own(frame: Frame) -> bool:
    """Return whether a frame is the program's own."""
    return bool(frame.file) and not package_of(frame.file)


def is_of_loop(frame: Frame) -> bool:
    """Return whether a frame is one of asyncio's or Whorl's."""
    return bool(frame.file) and package_of(frame.file) in ("asyncio", "whorl")


def place_in(frames: tuple[Frame, ...]) -> str:
    """Return the innermost own frame, and what it has called of others; an empty text if there is none."""
    for index in range(len(frames) - 1, -1, -1):
        frame = frames[index]
        if is_own(frame):
            function = shown(frame.function.rpartition("<locals>.")[2])
            place = f"{function} ({shown(os.path.basename(frame.file))}:{frame.line})"
            called = next((inner for inner in frames[index + 1 :] if inner.file), None)
            if called is None:
                return place
            return f"{place} → {shown(package_of(called.file))}.{shown(called.function)}"
    return ""


def folded(frames: tuple[Frame, ...], most: int, call: str | None = None) -> tuple[Frame, ...]:
    """Return at most so many of the frames, and one in place of those left out between two of them.

    The innermost frame stays, and those of the program's own, then that of the loop's call. The inner ones
    of the rest come before the outer ones.
    """
    if len(frames) <= most:
        return frames
    last = len(frames) - 1

    def rank(index: int) -> tuple[bool, bool, bool, int]:
        frame = frames[index]
        return index != last, not is_own(frame), shown(frame.function) != call, -index

    kept = sorted(range(len(frames)), key=rank)[: max(1, most)]
    shortened: list[Frame] = []
    after = 0
    for index in sorted(kept):
        if index > after:
            shortened.append(_fold(frames[after:index]))
        shortened.append(frames[index])
        after = index + 1
    return tuple(shortened)


def _fold(frames: Iterable[Frame]) -> Frame:
    """Return a frame that stands for others."""
    number = 0
    packages: dict[str, None] = {}
    for frame in frames:
        number += 1
        packages[package_of(frame.file)] = None
    names = ", ".join(shown(name) for name in packages if name)
    return Frame(
        "", 0, f"{number} {'frame' if number == 1 else 'frames'}{f' of {names}' if names else ''}", ""
    )
