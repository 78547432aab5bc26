"""Names that modules have imported: `from time import monotonic` left them a function of the process."""

from __future__ import annotations

import datetime
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from whorl.sim.patches.clocks import SimDatetime
from whorl.sim.patches.current import Replacement
from whorl.sim.world.isolation import PerHost

if TYPE_CHECKING:
    from collections.abc import Sequence

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

#: Places in classes, and those in modules, by the names of each module.
Places = tuple[list[Replacement], list[tuple[dict[str, Any], str, Any]]]

_found_places: dict[int, tuple[int, Places]] = {}


def imported(places: Sequence[Replacement], *, datetimes: bool) -> Places:
    """Return the places, and those where modules keep a function of their own that `places` replace."""
    key = len(places) * 2 + datetimes
    number, found = _found_places.get(key, (0, ([], [])))
    if number != len(sys.modules):
        found = _sorted([*places, *_copies(places, datetimes)])
        _found_places[key] = (len(sys.modules), found)
    return found


def _sorted(places: Sequence[Replacement]) -> Places:
    classes = [place for place in places if not isinstance(place[0], ModuleType)]
    return classes, [(vars(place[0]), *place[1:]) for place in places if isinstance(place[0], ModuleType)]


def _copies(places: Sequence[Replacement], datetimes: bool) -> list[Replacement]:
    replaced: dict[int, Any] = {}
    for owner, name, replacement in places:
        original = getattr(owner, name)
        if isinstance(original, (BuiltinFunctionType, FunctionType)) and not isinstance(owner, type):
            replaced[id(original)] = replacement
    found = [(datetime, "datetime", SimDatetime)] if datetimes else []
    owners = {owner.__name__ for owner, _, _ in places if not isinstance(owner, type)}
    for module_name, module in list(sys.modules.items()):
        if isinstance(module, PerHost):
            continue  # Its names are those of a host, and were made in the world.
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
    return found
