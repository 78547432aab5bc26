"""The machine: the loop, its phases and queues, and the seams to what lies below."""

from __future__ import annotations

from whorl.core.callback import Callback
from whorl.core.handle import Handle, Request
from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.loop import Loop
from whorl.core.metrics import Histogram, LoopHistograms, LoopMetrics, LoopUtilization
from whorl.core.pollers.contract import IOHandle, Poller
from whorl.core.probe import Probe
from whorl.core.process.host import Host
from whorl.core.states import Event, FsChange, HandleState, RunMode
from whorl.core.timers.timed_callback import TimedCallback

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
