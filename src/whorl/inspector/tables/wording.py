"""Texts that the inspector shows: names cut and escaped, addresses, types in place of values.

A name may come from a peer, and must not drive a terminal. No code of the program runs here: no `repr`, no
`str`, no property of the program's classes.
"""

from __future__ import annotations

import asyncio
import functools
import types
from typing import Any

from whorl.formats.units import count, duration

#: The longest name that is shown, in bytes; a program may give a task a name of any length.
LONGEST = 256

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.CoroutineType, types.GeneratorType)
_NAMED = (*_FUNCTIONS, types.AsyncGeneratorType, type)


def shown(text: object) -> str:
    """Return a text with control characters escaped, cut at 256 bytes; of anything else, its type's name."""
    if type(text) is bytes:
        text = text.decode("utf-8", "backslashreplace")
    if not issubclass(type(text), str):
        return type_name(text)
    some: Any = text
    plain = str.__getitem__(some, slice(LONGEST + 1))
    whole = escaped(plain[:LONGEST])
    encoded = whole.encode("utf-8", "replace")
    if len(encoded) <= LONGEST and len(plain) <= LONGEST:
        return whole
    return encoded[: LONGEST - 3].decode("utf-8", "ignore") + "…"


def escaped(text: str) -> str:
    """Return a text of any length with its control characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def type_name(thing: object) -> str:
    """Return the name of the type of any object."""
    return shown(type.__dict__["__name__"].__get__(type(thing)))


def identity(thing: object) -> str:
    """Return the type and the address of an object, which tell two of them apart."""
    return f"{type_name(thing)} {id(thing):#x}"


def function_name(function: Any) -> str:
    """Return the name of a function, or of what a `partial` or a method calls."""
    for _ in range(8):
        kind = type(function)
        if kind is functools.partial:
            inner = function.func
            # `asyncio.to_thread` has the function called in a context.
            runs = type(inner) is types.BuiltinMethodType and inner.__name__ == "run" and function.args
            function = function.args[0] if runs else inner
        elif kind is types.MethodType:
            function = function.__func__
        else:
            break
    return shown(function.__qualname__) if issubclass(type(function), _NAMED) else type_name(function)


def address(name: object) -> str | None:
    """Return an address of a socket as text, None if there is none."""
    if type(name) is tuple and len(name) >= 2 and type(name[0]) is str and type(name[1]) is int:
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        return shown(f"{host}:{name[1]}")
    if type(name) is bytes and name[:1] == b"\0":
        return shown(b"@" + name[1:])
    if type(name) in (str, bytes) and name:
        return shown(name)
    return None


def due_text(seconds: float, begin: str = "due in") -> str:
    """Return when something is due, or for how long it has been."""
    return f"{begin} {duration(seconds)}" if seconds >= 0 else f"overdue by {duration(-seconds)}"


def field(thing: object, name: str) -> Any:
    """Return an attribute that an object of asyncio's keeps in its dictionary, or None; no property runs."""
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return dict.get(attributes, name) if issubclass(type(attributes), dict) else None


def size(thing: object) -> int:
    """Return how many entries a collection of Python's own has, 0 for anything else."""
    kind = type(thing)
    return len(thing) if kind.__module__ in ("builtins", "collections") and hasattr(kind, "__len__") else 0  # type: ignore[arg-type]


def task_name(task: Any) -> str:
    """Return the name of a task."""
    try:
        return shown(asyncio.Task.get_name(task))
    except TypeError:  # a task of another class
        try:
            return shown(task.get_name())
        except Exception:
            return type_name(task)


def starved(number: int) -> str:
    """Return in words how many callbacks only waited for a processor."""
    return f"{count(number, 'callback')} took long only because other programs had the processor"
