"""Names that modules have imported: `from time import monotonic` left them a function of the process."""

from __future__ import annotations

import datetime
import sys
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from whorl.sim.patches.clocks import SimDatetime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whorl.sim.patches.current import Replacement

#: Modules that keep what they have: the simulator itself, and where the functions come from.
_LEFT = {
    "time",
    "posix",
    "os",
    "_socket",
    "socket",
    "select",
    "signal",
    "_signal",
    "_datetime",
    "_pydatetime",
}

_RealDatetime = datetime.datetime
_found_names: dict[int, tuple[int, list[Replacement]]] = {}


def imported(places: Sequence[Replacement], *, datetimes: bool) -> list[Replacement]:
    """Return all places where modules keep a function of their own that `places` replace in its module."""
    key = len(places) * 2 + datetimes
    number, found = _found_names.get(key, (0, []))
    if number == len(sys.modules):
        return found
    replaced: dict[int, Any] = {}
    for owner, name, replacement in places:
        original = getattr(owner, name)
        if isinstance(original, (BuiltinFunctionType, FunctionType)) and not isinstance(owner, type):
            replaced[id(original)] = replacement
    found = [(datetime, "datetime", SimDatetime)] if datetimes else []
    owners = {owner.__name__ for owner, _, _ in places if not isinstance(owner, type)}
    for module_name, module in list(sys.modules.items()):
        if module_name in _LEFT or module_name.startswith(("whorl.", "datetime")):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is _RealDatetime:
                if datetimes:
                    found.append((module, attribute, SimDatetime))
            elif (
                type(value) in (BuiltinFunctionType, FunctionType)
                and id(value) in replaced
                and not (module_name in owners and any(o is module and n == attribute for o, n, _ in places))
            ):
                found.append((module, attribute, replaced[id(value)]))
    _found_names[key] = (len(sys.modules), found)
    return found
