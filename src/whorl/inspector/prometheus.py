"""`Collector`: what loops do, for Prometheus, by `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import Metric

from whorl.inspector.observed import Observed, stalls_and_starved
from whorl.inspector.views.exposition import families


class Collector:
    """Shows the given loops, or with None every loop that runs. Register it in a registry.

    Raises TypeError if one of `loops` is not a loop of Whorl's.
    """

    def __init__(self, loops: Iterable[Any] | None = None) -> None:
        self._observed = Observed(loops)
        self._observed.start()

    def describe(self) -> Iterable[Metric]:
        """Return all families that `collect` may return, without values."""
        return families([], (0, 0))

    def collect(self) -> Iterable[Metric]:
        """Return what the loops have done by now. Any thread may call this, also while a loop is stuck."""
        return families(self._observed.look(), stalls_and_starved())
