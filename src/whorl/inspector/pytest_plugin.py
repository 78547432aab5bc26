"""A plugin of pytest: a test fails if a callback keeps a loop of Whorl's busy for too long.

The limit is the option `--whorl-max-stall`, the setting `whorl_max_stall`, or the mark
`whorl(max_stall="50ms")` of a test, which comes first. Without a limit nothing is watched. Time in which the
machine gave the processor to others does not count.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest

from whorl.inspector import inspector
from whorl.inspector.inspector import Inspector
from whorl.inspector.settings import checked, duration

_OPTION = "whorl_max_stall"
_STARTED = pytest.StashKey[Inspector]()
#: Whether a loop of Whorl's has run in a test with a limit; absent: no test had one.
_HAS_WATCHED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting."""
    text = "fail a test if a callback keeps a loop of Whorl's busy for longer: 50ms, 0.2"
    parser.getgroup("whorl").addoption("--whorl-max-stall", dest=_OPTION, metavar="DURATION", help=text)
    parser.addini(_OPTION, text)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark, and check the limit of all tests."""
    config.addinivalue_line("markers", "whorl(max_stall): how long a callback may keep a loop busy")
    try:
        _limit_of_all(config)
    except ValueError as error:
        raise pytest.UsageError(f"{_OPTION}: {error}") from None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say so if there was a limit and no loop that it could watch."""
    if config.stash.get(_HAS_WATCHED, True) is False:
        terminalreporter.write_line(
            "whorl: no test with a limit for stalls ran a loop of Whorl's", yellow=True
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the inspector that the plugin has started."""
    if (started := config.stash.get(_STARTED, None)) is not None:
        started.stop()


@pytest.fixture
def whorl_inspector(request: pytest.FixtureRequest) -> Inspector:
    """Return the inspector; it watches every loop."""
    return _inspector(request.config, _limit_of(request.node))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watch the loops during a test, and fail it with the stacks of its stalls."""
    limit = _limit_of(item)
    if limit is None:
        return (yield)
    watchdog = _inspector(item.config, limit).watchdog
    assert watchdog is not None  # It watches every loop.
    before, began_ns, runs = watchdog.threshold, time.monotonic_ns(), watchdog.runs
    watchdog.set_threshold(limit)
    try:
        result = yield
        watchdog.look_now()
    finally:
        watchdog.set_threshold(before)
        has_watched = item.config.stash.get(_HAS_WATCHED, False) or watchdog.runs != runs
        item.config.stash[_HAS_WATCHED] = has_watched
    stalls = [stall for stall in watchdog.reports.stalls() if stall.began_ns >= began_ns]
    if stalls:
        texts = "\n\n".join(stall.text() for stall in stalls)
        pytest.fail(f"A loop was blocked for more than {limit * 1000:g} ms.\n\n{texts}", pytrace=False)
    return result


def _inspector(config: pytest.Config, limit: float | None) -> Inspector:
    """Return the inspector of the process, which is started if there is none."""
    running = inspector.current()
    if running is None or running.watchdog is None:
        running = inspector.start() if limit is None else inspector.start(threshold=limit)
        config.stash[_STARTED] = running
    return running


def _limit_of(item: pytest.Item) -> float | None:
    """Return the seconds that a callback of this test may take, None for any time."""
    mark = item.get_closest_marker("whorl")
    if mark is None or "max_stall" not in mark.kwargs:
        return _limit_of_all(item.config)
    return _seconds(mark.kwargs["max_stall"])


def _limit_of_all(config: pytest.Config) -> float | None:
    return _seconds(config.getoption(_OPTION) or config.getini(_OPTION) or None)


def _seconds(limit: Any) -> float | None:
    if limit is None:
        return None
    return checked(duration(limit) if isinstance(limit, str) else limit).threshold
