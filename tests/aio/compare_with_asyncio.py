"""The same scenario on asyncio's own loop and on Whorl's: what must be alike."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import whorl

Scenario = Callable[[Any], Any]


def outcome(make_loop: Callable[[], Any], scenario: Scenario) -> Any:
    """Return a scenario's result on a new loop, or the type and the text of its exception.

    A scenario is a function or a coroutine function of the loop.
    """
    loop = make_loop()
    loop.set_debug(False)
    try:
        result = scenario(loop)
        if inspect.iscoroutine(result):
            result = loop.run_until_complete(result)
        return result
    except BaseException as error:
        return type(error), str(error)
    finally:
        if not loop.is_closed():
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


def is_as_in_asyncio(scenario: Scenario) -> Any:
    """Check that both loops do the same in a scenario; what they do."""
    expected = outcome(asyncio.SelectorEventLoop, scenario)
    ours = outcome(whorl.EventLoop, scenario)
    assert ours == expected, f"{ours!r} is not asyncio's {expected!r}"
    return expected


def error_as_in_asyncio(scenario: Scenario) -> tuple[type[BaseException], str]:
    """Check that both loops raise the same in a scenario; what they raise."""
    expected = is_as_in_asyncio(scenario)
    assert isinstance(expected, tuple)
    kind, text = expected
    assert issubclass(kind, BaseException)
    return kind, text
