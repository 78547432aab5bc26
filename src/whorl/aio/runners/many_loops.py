"""Several loops at once, each in a thread of its own: `run_loops`."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import warnings
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from whorl.aio.runners.runner import _factory, has_gil

Result = TypeVar("Result")

LONGEST_WAIT = 1.0  # seconds; a Ctrl-C that comes just before a wait begins does not end that wait

_has_warned = False


def run_loops(
    main: Callable[[int], Coroutine[Any, Any, Result]],
    count: int | None = None,
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **options: Any,
) -> list[Result]:
    """Run `main(index)` on `count` new loops at once, and return the results in the order of the indexes.

    Without `count` there is a loop for each core that this process may use. Loop 0 runs in the calling
    thread, the others in threads of their own. `debug`, `loop_factory` and `options` are those of `run`.

    Ctrl-C in the main thread cancels all loops, as it does in `asyncio.run`. An error of one loop cancels
    the others. `run_loops` returns or raises when all have ended, so their `finally` blocks have run. It
    raises the first error; a later one is a note of it. A second Ctrl-C does not wait for other threads.

    Loops use several cores only in a free-threaded Python whose GIL is off. Elsewhere they take turns, and
    the first call warns with a RuntimeWarning. Raises RuntimeError in a running loop, and ValueError for a
    `count` below 1.
    """
    if events._get_running_loop() is not None:
        raise RuntimeError("whorl.run_loops() cannot be called from a running event loop")
    if count is None:
        count = _usable_cores()
    if count < 1:
        raise ValueError(f"at least one loop has to run, not {count}")
    if count > 1:
        _warn_of_gil()
    return _Runs(main, count, debug, _factory(loop_factory, options)).run()


class _LoopThread(threading.Thread):
    """A thread that runs one loop.

    Before Python 3.13, `join` takes a thread for ended when Ctrl-C interrupts the wait, though the thread
    still runs (bpo-45274). So `wait_until_ended` waits for an event, which the thread sets at its end.
    """

    def __init__(self, run_one: Callable[[int], None], index: int) -> None:
        super().__init__(name=f"whorl-loop-{index}")
        self._run_one = run_one
        self._index = index
        self._has_ended = threading.Event()

    def run(self) -> None:
        try:
            self._run_one(self._index)
        finally:
            self._has_ended.set()

    def wait_until_ended(self) -> None:
        while not self._has_ended.wait(LONGEST_WAIT):
            pass
        self.join()


class _Runs(Generic[Result]):
    """The runs of one call of `run_loops`."""

    def __init__(
        self,
        main: Callable[[int], Coroutine[Any, Any, Result]],
        count: int,
        debug: bool | None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        self._function = main
        self._count = count
        self._debug = debug
        self._loop_factory = loop_factory
        self._contexts = [contextvars.copy_context() for _ in range(count)]
        self._lock = threading.Lock()  # guards all attributes below
        self._results: dict[int, Result] = {}
        self._running: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = {}
        self._is_ending = False
        self._first_error: BaseException | None = None

    def run(self) -> list[Result]:
        threads: list[_LoopThread] = []
        try:
            for index in range(1, self._count):
                thread = _LoopThread(self._run_one, index)
                thread.start()
                threads.append(thread)
            self._run_one(0)
            for thread in threads:
                thread.wait_until_ended()
        except BaseException as error:  # Ctrl-C while this thread waits, or a thread that cannot be started
            self._end_all(0, error)
            for thread in threads:
                thread.wait_until_ended()
        if self._first_error is not None:
            try:
                raise self._first_error
            finally:
                self._first_error = None  # The traceback refers to this frame.
        return [self._results[index] for index in range(self._count)]

    def _run_one(self, index: int) -> None:
        """Run one loop, to its end."""
        try:
            with asyncio.Runner(debug=self._debug, loop_factory=self._loop_factory) as runner:
                result = runner.run(self._main(index), context=self._contexts[index])
            with self._lock:
                self._results[index] = result
        except BaseException as error:
            self._end_all(index, error)

    async def _main(self, index: int) -> Result:
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._is_ending:
                raise asyncio.CancelledError
            self._running[index] = task.get_loop(), task
        try:
            return await self._function(index)
        finally:
            with self._lock:
                del self._running[index]

    def _end_all(self, index: int, error: BaseException) -> None:
        """Note an error of a loop, and cancel the other loops, unless that was done."""
        with self._lock:
            is_first = not self._is_ending
            self._is_ending = True
            running = list(self._running.values()) if is_first else []
            if is_first:
                self._first_error = error
            elif self._first_error is not None and not isinstance(error, asyncio.CancelledError):
                self._first_error.add_note(f"Then loop {index} raised {error!r}.")
        for loop, task in running:
            with contextlib.suppress(RuntimeError):  # It has ended meanwhile.
                loop.call_soon_threadsafe(task.cancel)


def _usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _warn_of_gil() -> None:
    """Warn, once, that the loops take turns because of the GIL."""
    global _has_warned
    if has_gil() and not _has_warned:
        _has_warned = True
        message = "the loops of whorl.run_loops() take turns: this Python has a GIL, or it is switched on"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
