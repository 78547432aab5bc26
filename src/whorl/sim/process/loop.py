"""The loop of a simulated host: the production loop, and where its errors are noted."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any

from whorl.aio.runners.seam import SeamLoop
from whorl.sim.errors import RealThread

if TYPE_CHECKING:
    from whorl.sim.process.owner import ProcessHost

#: How often a timer changes its place among those of its time.
TIES = 0.3
_SHIFTS: tuple[tuple[float, ...], ...] = ((), (-math.inf,), (math.inf,), (-math.inf, -math.inf))

#: So many times are kept before those that have passed are dropped.
MANY_TIMES = 256


class SimLoop(SeamLoop):
    """The loop of a simulated host."""

    def __init__(self, host: ProcessHost) -> None:
        self._sim_host = host
        self._sim_thread = threading.get_ident()
        self._sim_ties = host.decisions.stream(f"{host.name}/ties")
        self._sim_times: set[float] = set()  # those of timers that were set, without the ones long past
        super().__init__(kernel=host.kernel, host=host.process)

    def call_at(  # type: ignore[override]  # the callback's type does not name its arguments
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """Set a timer. Among timers of one time the seed decides the order, which asyncio leaves open.

        A timer that changes its place is set a ten-thousandth of a nanosecond off.
        """
        if type(when) is float:
            times = self._sim_times
            if when in times:
                for toward in _SHIFTS[self._sim_ties.decide(len(_SHIFTS), TIES)]:
                    when = math.nextafter(when, toward)
            else:
                if len(times) > MANY_TIMES:
                    now = self.time()
                    self._sim_times = times = {each for each in times if each > now}
                times.add(when)
        return super().call_at(when, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Post a callback; out of a job, when the job has ended."""
        if threading.get_ident() != self._sim_thread:
            raise RealThread("call_soon_threadsafe was called by a thread of the real process")
        host = self._sim_host
        if host.runs_job and host.spent > host.job_began:
            handle = asyncio.Handle(callback, args, self, context)
            host.after(0, self._post_later, handle)
            return handle
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _post_later(self, handle: asyncio.Handle) -> None:
        if self._is_alive() and not handle.cancelled():
            super().call_soon_threadsafe(handle._run)

    def post(self, entry: Any) -> None:
        """Post an entry; out of a job, when the job has ended."""
        host = self._sim_host
        if host.runs_job and host.spent > host.job_began:
            host.after(0, self._post_entry_later, entry)
        else:
            super().post(entry)

    def _post_entry_later(self, entry: Any) -> None:
        if self._is_alive():
            super().post(entry)

    def _is_alive(self) -> bool:
        return not self._sim_host.is_dead and self._sim_host.loop is self and not self.is_closed()

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Note an error that no code has handled: it is a finding."""
        self._sim_host.unhandled(context)
