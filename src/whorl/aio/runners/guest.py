"""Guest mode: a program on one of Whorl's loops, as the guest of a host with another loop.

    host's thread     step, step ... nothing to do: "wait for 3 s"            step ...
                                          |                                    ^
    waiting thread                        +-- sleeps on the loop's descriptor -+ run_sync_soon_threadsafe

Guest mode is trio's idea (``trio.lowlevel.start_guest_run``).
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from whorl.aio.loop.event_loop import EventLoop
from whorl.aio.runners.driver import Driver
from whorl.aio.runners.runner import new_event_loop

Result = TypeVar("Result")
Schedule = Callable[[Callable[[], object]], object]


def start_guest_run(
    main: Coroutine[Any, Any, Result],
    *,
    run_sync_soon_threadsafe: Schedule,
    done_callback: Callable[[Future[Result]], object],
    loop: EventLoop | None = None,
) -> EventLoop:
    """Run a coroutine in the host's thread while the host runs another loop; return the guest's loop at once.

    `run_sync_soon_threadsafe(function)` has the host call a function in its thread, soon. It is called from
    any thread, and must not call the function itself.

    In the end `done_callback(outcome)` is called in the host's thread. `outcome.result()` returns the result
    of `main`, or raises its exception or the one that ended the run. Before that, as after `asyncio.run`,
    other tasks are cancelled, and asynchronous generators and the default executor are shut down. The loop is
    closed, unless it was given.

    Call this in the host's thread. Raises RuntimeError if the given loop is closed or runs.
    """
    guest = _Guest(run_sync_soon_threadsafe, done_callback, loop)
    guest.start(main)
    return guest.loop


class _Guest:
    """One guest run: its steps in the host's thread, and the thread that waits in between."""

    def __init__(
        self, schedule: Schedule, done: Callable[[Future[Any]], object], loop: EventLoop | None
    ) -> None:
        self.loop = new_event_loop() if loop is None else loop
        self._owns_loop = loop is None
        self._schedule = schedule
        self._done = done
        self._outcome: Future[Any] = Future()
        self._error: BaseException | None = None  # the exception that ended the run
        self._driver = Driver(self.loop)
        self._sleeps: SimpleQueue[float | None] = SimpleQueue()  # seconds; None: the end
        self._thread = threading.Thread(target=self._wait, name="whorl-guest", daemon=True)

    def start(self, main: Coroutine[Any, Any, Any]) -> None:
        try:
            self._thread.start()
            self._main = self.loop.create_task(_run_and_tidy(main, self.loop))
            self._main.add_done_callback(lambda main: self.loop.stop())
            self._schedule(self._tick)
        except BaseException:
            self._sleeps.put(None)
            self._driver.close()
            raise

    def _tick(self) -> None:
        """Run one turn in the host's thread, then let other code of the host run."""
        try:
            goes_on = self._driver.step()
        except BaseException as error:
            self._fail(error)
            goes_on = True
        if not goes_on:
            if self._main.done():
                self._finish()
                return
            self._driver = Driver(self.loop)
            self._fail(RuntimeError("the guest's loop was stopped before the end"))
        timeout = self._driver.timeout()
        if timeout == 0:
            self._schedule(self._tick)
        else:
            self._sleeps.put(-1 if timeout is None else timeout)

    def _fail(self, error: BaseException) -> None:
        """Record the exception that ended the run, and cancel the program, which may clean up."""
        if self._error is None:
            self._error = error
        self._main.cancel()

    def _wait(self) -> None:
        """Sleep, in the waiting thread, on each request, and let the host make a turn after that."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._driver, selectors.EVENT_READ)
            while (timeout := self._sleeps.get()) is not None:
                selector.select(None if timeout < 0 else timeout)
                self._schedule(self._tick)

    def _finish(self) -> None:
        self._sleeps.put(None)
        self._thread.join()
        if self._owns_loop:
            self.loop.close()
        was_cancelled = self._main.cancelled()
        error = self._error or (None if was_cancelled else self._main.exception())
        if error is not None:
            self._outcome.set_exception(error)
        elif was_cancelled:
            self._outcome.cancel()
        else:
            self._outcome.set_result(self._main.result())
        self._done(self._outcome)


async def _run_and_tidy(main: Coroutine[Any, Any, Result], loop: EventLoop) -> Result:
    """Run the program, then end the tasks, generators and threads that it left."""
    try:
        return await main
    finally:
        others = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for task in others:
            if not task.cancelled() and task.exception() is not None:
                loop.call_exception_handler(
                    {
                        "message": "unhandled exception while a guest run was ending",
                        "exception": task.exception(),
                        "task": task,
                    }
                )
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()
