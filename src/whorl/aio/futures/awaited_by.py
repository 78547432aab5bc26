"""Tasks that wait for a future by `TaskGroup`, `gather`, `wait`, `shield` or `as_completed` of asyncio's.

asyncio notes them at each call, for the call graphs of Python 3.14. Here they are found in the callbacks that
these functions leave on the future, so nothing is noted while no program asks.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

_MODULES = frozenset(("asyncio.tasks", "asyncio.taskgroups", "asyncio.staggered"))


def waiter_behind(callback: Any) -> Any:
    """Return the task that waits for a future by this callback of the future, None if there is none."""
    if getattr(callback, "__module__", None) not in _MODULES:
        return None
    if isinstance(callback, MethodType):
        known = getattr(callback.__self__, "__dict__", {})
    elif isinstance(callback, FunctionType):
        known = _variables(callback)
    else:
        return None
    outer = known.get("outer")
    if outer is not None and outer.done():  # A `gather` ends with its first error.
        return None
    names = ("cur_task", "parent_task", "_cur_task", "_parent_task")
    return next((known[name] for name in names if known.get(name) is not None), None)


def _variables(function: FunctionType) -> dict[str, Any]:
    """Return the variables that a function has from where it was made."""
    code, defaults = function.__code__, function.__defaults__ or ()
    known = dict(zip(code.co_varnames[code.co_argcount - len(defaults) :], defaults, strict=False))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            known[name] = cell.cell_contents
        except ValueError:  # It has no value yet.
            pass
    return known
