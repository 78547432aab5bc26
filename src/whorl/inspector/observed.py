"""The loops that exporters show, and what they are seen to do.

A loop is shown from its first run until it is closed, under a number that no other loop of the process gets.
So the series of a closed loop end, and no other loop goes on with them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from whorl.core.loop.lifecycle import running_loops
from whorl.core.loop.loop import Loop
from whorl.core.metrics import Histogram, LoopUtilization
from whorl.inspector.inspector import current
from whorl.inspector.tables import tasks
from whorl.inspector.views.exported import FIELDS, LoopLook
from whorl.inspector.watching import runs
from whorl.inspector.watching.own_thread import read


class Observed:
    """The loops of one exporter: those given, or with None all that run. It keeps none of them alive."""

    def __init__(self, loops: Iterable[Any] | None) -> None:
        self._given = None if loops is None else [weakref.ref(_checked(loop)) for loop in loops]
        self._latest: weakref.WeakKeyDictionary[Any, LoopLook] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Give a number to each loop that runs, and from now on to each that begins to."""
        if self._given is None:
            runs.add_listener(self._loop_runs)
            for loop in running_loops():
                runs.number_of(loop)

    def stop(self) -> None:
        """Give no more numbers."""
        runs.remove_listener(self._loop_runs)

    def _loop_runs(self, loop: Any) -> None:
        runs.number_of(loop)

    def look(self) -> list[LoopLook]:
        """Look at the open loops of this process, in the order of their numbers; any thread may call this."""
        if self._given is None:
            found = runs.numbered_loops()
        else:
            found = [loop for reference in self._given if (loop := reference()) is not None]
        shown = [loop for loop in found if not loop.is_closed() and loop._is_in_creating_process()]
        return [self._look_at(loop) for loop in sorted(shown, key=runs.number_of)]

    def _look_at(self, loop: Any) -> LoopLook:
        latest = self._latest.get(loop)
        all_of = loop.histograms()
        histograms: dict[str, Histogram] = {name: getattr(all_of, field) for name, field in FIELDS.items()}
        used: LoopUtilization = loop.utilization()
        if latest is None:
            recent, utilization = histograms, used.utilization
        else:
            # Uncompiled, a sleep that ends meanwhile may be counted twice. The figures shown never go back.
            idle = max(used.idle_ns, latest.used.idle_ns)
            used = LoopUtilization.of(idle, idle + max(used.active_ns, latest.used.active_ns))
            recent = {name: histogram - latest.histograms[name] for name, histogram in histograms.items()}
            utilization = used.since(latest.used).utilization
        look = LoopLook(
            str(runs.number_of(loop)),
            loop.metrics(),
            histograms,
            recent,
            used,
            utilization,
            _states_of_tasks(loop),
        )
        self._latest[loop] = look
        return look


def _checked(loop: Any) -> Loop:
    if not isinstance(loop, Loop):
        raise TypeError(f"loops must be loops of Whorl's, not {loop!r}")
    return loop


def _states_of_tasks(loop: Any) -> dict[str, int]:
    try:
        return read(loop, tasks.states)
    except RuntimeError:
        return {}  # They change all the time, or the loop is stuck; another look may succeed.


def stalls_and_starved() -> tuple[int, int] | None:
    """Return how many stalls and starved callbacks the inspector has seen; None if it does not run."""
    inspector = current()
    if inspector is None or inspector.watchdog is None:
        return None
    return inspector.watchdog.reports.stalls_seen(), inspector.starved()
