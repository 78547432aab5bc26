"""The machine: the loop, its phases and queues, and the seams to what lies below."""

from __future__ import annotations

from whorl.core.callback import Callback
from whorl.core.handle import Handle, Request
from whorl.core.host import Host
from whorl.core.kernel import Kernel
from whorl.core.loop import Loop
from whorl.core.metrics import LoopMetrics, LoopUtilization
from whorl.core.poller import IOHandle, Poller
from whorl.core.probe import Probe
from whorl.core.states import Event, FsChange, Life, RunMode
from whorl.core.timer import TimedCallback

__all__ = [
    "Callback",
    "Event",
    "FsChange",
    "Handle",
    "Host",
    "IOHandle",
    "Kernel",
    "Life",
    "Loop",
    "LoopMetrics",
    "LoopUtilization",
    "Poller",
    "Probe",
    "Request",
    "RunMode",
    "TimedCallback",
]
