"""The machine: the loop, its phases and queues, and the seams to what lies below."""

from __future__ import annotations

import typing as _typing

from whorl.core.callback import Callback
from whorl.core.handle import Handle, Request
from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.loop import Loop
from whorl.core.pollers.contract import IOHandle, Poller
from whorl.core.probe import Probe
from whorl.core.process.host import Host
from whorl.core.states import Event, FsChange, HandleState, RunMode
from whorl.core.timers.timed_callback import TimedCallback

if _typing.TYPE_CHECKING:
    from whorl.core.metrics import Histogram, LoopHistograms, LoopMetrics, LoopUtilization

#: The former name of `HandleState`.
Life = HandleState

__all__ = [
    "Callback",
    "Event",
    "FsChange",
    "Handle",
    "HandleState",
    "Histogram",
    "Host",
    "IOHandle",
    "Kernel",
    "Life",
    "Loop",
    "LoopHistograms",
    "LoopMetrics",
    "LoopUtilization",
    "Poller",
    "Probe",
    "Request",
    "RunMode",
    "TimedCallback",
]


def __getattr__(name: str) -> _typing.Any:
    """Import the classes of what a loop has counted at their first use."""
    if name in ("Histogram", "LoopHistograms", "LoopMetrics", "LoopUtilization"):
        from whorl.core import metrics

        value = globals()[name] = getattr(metrics, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*globals(), *__all__})
