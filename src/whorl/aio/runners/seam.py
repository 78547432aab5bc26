"""The seam: all that the simulator, or another owner of worlds, has to know of the loops in them.

A world answers a loop's system calls, stands for its process, and lets it take its turns. It uses these
modules of Whorl, and of them only public names:

* `core.kernel.kernel`: `Kernel` has every system call and the time. A world overrides all its methods.
* `core.kernel.files`, `core.kernel.datagrams`, `core.file_system_status`: what some of these calls take, and
  what they return.
* `core.limits`: how much a call may be asked for at once.
* `core.process.host`, `core.process.signal_dispatch`: `Host` is the process: threads, signals, children,
  names. A world overrides all its methods, and has a `SignalTable` for each process.
* `aio.runners.host_driver`: `HostDriver` runs a loop one turn at a time, and says when the next one is due.
* `aio.runners.seam`: `SeamLoop`, below, has hooks for what a world watches, and says what is in use.
* `aio.loop.lifecycle`: `set_running` and `unset_running`, for code of a process that no turn calls.
* `aio.futures.future`, `aio.futures.task`, `aio.futures.task_factory`, `aio.runners.compiled_tasks_loop`:
  Whorl's own futures and tasks, for subclasses with hashes of the world's.
* `aio.files.open_mode`, `aio.files.raw_io`: what `open` does with its arguments.
* `core.cython_shim`: what compiled modules import in the uncompiled build.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from whorl.aio.loop.event_loop import EventLoop, import_methods

import_methods()  # A world replaces modules such as `socket`, which these have to find as they are.


class SeamLoop(EventLoop):
    """An `EventLoop` of another world."""

    #: The descriptors of the pipe for signals, once the loop has it.
    signal_descriptors: frozenset[int] = frozenset()

    # What a subclass may override.

    def post(self, entry: Any) -> None:
        """Put an entry into the inbox, from any thread; all that threads post comes through here."""
        super()._post_from_any_thread(entry)

    def _post_from_any_thread(self, entry: Any) -> None:
        self.post(entry)

    # The clock.

    def keep_clock(self) -> None:
        """Stay with the kernel's clock, also if a subclass has a `call_at` of its own."""
        self._time_replaced = False

    def _begin_run(self) -> None:
        super()._begin_run()
        self.keep_clock()

    # What is in use.

    def _signal_pipe(self) -> Any:
        pipe = super()._signal_pipe()
        self.signal_descriptors = frozenset(end.fileno() for end in pipe._pair)
        return pipe

    def closing_descriptors(self) -> set[int]:
        """Return the descriptors of transports that are being closed, or have a TLS above them that is."""
        table: Any = self._transports
        return {fd for fd, transport in table.items() if _is_closing(transport)}

    # The work of the thread pool.

    def count_queued(self, change: int) -> None:
        """Count a request that waits for a thread (1), or that was taken back (-1)."""
        self._figures.count_jobs(change, 0, 0)

    def do_work(self, work: Any) -> None:
        """Do the work of a request that waited, as a thread of the pool does it."""
        self._figures.count_jobs(0, 1, 0)
        try:
            work._execute()
        finally:
            self._figures.count_jobs(0, 0, 1)

    # The end.

    def abandon(self) -> None:
        """Close the loop with its transports, even within a run; no code that runs on it counts any more."""
        for transport in self._transports.values():
            with suppress(BaseException):
                transport.abort()
                transport._close_now()
        with suppress(BaseException):
            self._thread_id = None
            self.close()


def _is_closing(transport: Any) -> bool:
    return transport.is_closing() or bool(getattr(transport.get_protocol(), "_closing", False))
