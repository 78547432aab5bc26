"""Driving a loop one turn at a time, from a host that runs another loop."""

from __future__ import annotations

from asyncio import tasks
from asyncio.events import _get_running_loop, _set_running_loop
from typing import TYPE_CHECKING, Any

from whorl.aio.loop import clock
from whorl.aio.loop.lifecycle import set_running, unset_running
from whorl.core.loop.loop import Loop

if TYPE_CHECKING:
    from typing import Self

    from whorl.aio.loop_type import AnyLoop

# From 3.12 on; from 3.14 on the running task is one of the thread, not of the loop.
_swap_task: Any = getattr(tasks, "_swap_current_task", None)


class Driver:
    """Runs a loop one turn at a time; the host decides when, and sleeps in its place.

    The host calls `step` when `fileno` is readable or `timeout` has passed; it has to call `timeout` again
    after each step. From `Driver(loop)` to `close` the loop counts as running, and is the running loop of the
    thread during a step. All of this belongs to one thread, that of the host.
    """

    def __init__(self, loop: AnyLoop) -> None:
        """Raise RuntimeError if the loop is closed, or runs, or has a poller without a descriptor."""
        loop._check_closed()
        if loop.is_running():
            raise RuntimeError("This event loop is already running")
        if loop.backend_fd() < 0:
            raise RuntimeError("the loop's poller has no descriptor for a host to watch")
        self._loop = loop
        self._is_open = True
        try:
            clock.refresh_overrides(loop)
            Loop._begin_run(loop)
        except BaseException:  # An interrupt, which may come when the run has begun.
            self.close()
            raise

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is something to do."""
        return self._loop.backend_fd()

    def timeout(self) -> float | None:
        """Return the seconds until a step is due even if the descriptor stays silent; None: no limit.

        A later call of the loop's methods, in this thread or another, makes the descriptor readable.
        """
        rest_ns = self._rest_ns()
        return None if rest_ns < 0 else rest_ns / 1e9

    def _rest_ns(self) -> int:
        self._check_open()
        return Loop._prepare_external_poll(self._loop)

    def step(self) -> bool:
        """Run one turn, which does not sleep; return False if the loop was stopped, which closes the driver.

        Raises the errors that end a run: KeyboardInterrupt and SystemExit out of a callback. Raises
        RuntimeError inside a turn, and after `close`.
        """
        self._check_open()
        loop = self._loop
        host: Any = _get_running_loop()
        task = tasks.current_task(host) if _swap_task and host is not None else None
        try:
            if task is not None:
                _swap_task(host, None)
            self._enter()
            Loop._step(loop, False)
        finally:
            try:
                self._leave(host, task)
            except BaseException:  # An interrupt: the host goes on with its loop and task.
                self._leave(host, task)
                raise
        if loop._stopping:
            self.close()
        return self._is_open

    def _enter(self) -> None:
        set_running(self._loop)

    def _exit(self) -> None:
        unset_running(self._loop)

    def _leave(self, host: Any, task: Any) -> None:
        """Give the host its running loop and its task back; may be called again."""
        self._exit()
        _set_running_loop(host)
        if task is not None:
            _swap_task(host, task)

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("the driver is closed")

    def close(self) -> None:
        """Release the loop: it runs no more, and may be run in another way or closed."""
        if self._is_open:
            try:
                self._loop._stopping = False
                Loop._end_run(self._loop)
            except BaseException:  # An interrupt: it must not keep the loop from running again.
                Loop._end_run(self._loop)
                raise
            finally:
                self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
