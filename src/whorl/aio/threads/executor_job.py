"""A loop's jobs for threads of a `ThreadPoolExecutor`, without a future of `concurrent.futures`.

A job stands in the executor's queue as the executor's own work items do, and is run by the same threads.
"""

from __future__ import annotations

from asyncio import events
from collections.abc import Callable
from concurrent.futures import _base, thread
from typing import Any

from whorl.aio.futures.future import Future as OwnFuture
from whorl.aio.threads.future_chain import ASKS_WHICH_LOOP_RUNS, chain_future, in_terms_of_asyncio
from whorl.core.loop.loop import Loop

try:
    from _asyncio import Future as _Future
except ImportError:
    from asyncio import Future as _Future

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

_thread: Any = thread
_global_lock: Any = _thread._global_shutdown_lock
_unfinished: set[Any] = set()  # the jobs that are queued or run, for those who ask what a future waits for

if not cython.compiled:

    def function_of(job: ExecutorJob) -> Callable[..., Any] | None:
        """Return the function of a job, which another thread may drop meanwhile."""
        return job._function

    def drop_call(job: ExecutorJob) -> None:
        """Drop the function and the arguments of a job."""
        job._function = job._args = None


class ExecutorJob:
    """One call of a function in a thread, and the future of the loop that gets its result.

    The code that takes it out of the queue, and no other, calls one of `run`, `cancel` and `set_exception`.
    """

    def __init__(self, loop: Loop, future: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._loop = loop
        self._future = future
        self._function: Callable[..., Any] | None = function
        self._args: tuple[Any, ...] | None = args
        self._result: Any = None
        self._error: BaseException | None = None
        self._is_cancelled = False

    @property
    def function(self) -> Callable[..., Any] | None:
        """The function, None once it was called; any thread may ask."""
        return function_of(self)

    # For the executor and its threads.

    @property
    def future(self) -> ExecutorJob:
        """The object that an executor cancels when it is shut down, and fails if it is broken."""
        return self

    def run(self, worker: Any = None) -> None:
        """Call the function, unless its future is cancelled; newer executors pass their worker."""
        self._loop._figures.count_jobs(0, 1, 0)
        if self._future.cancelled():
            self._loop._figures.count_jobs(0, 0, 1)
            _unfinished.discard(self)
            return
        function: Any = self._function
        args: Any = self._args
        try:
            self._result = function(*args)
        except BaseException as error:
            self._error = error
        self._loop._figures.count_jobs(0, 0, 1)
        drop_call(self)
        self._post()  # Function and arguments are dropped afterwards, here and not in the loop's thread.
        if not cython.compiled:
            self = None  # type: ignore[assignment]  # The traceback of an error refers to this frame.

    def cancel(self) -> bool:
        """Keep the function from being called, and return True."""
        self._is_cancelled = True
        self._loop._figures.count_jobs(-1, 0, 0)
        drop_call(self)
        self._post()
        return True

    def set_exception(self, error: BaseException) -> None:
        """Fail the call, as the function cannot be called."""
        self._error = error
        self._loop._figures.count_jobs(-1, 0, 0)
        drop_call(self)
        self._post()

    def _post(self) -> None:
        """Tell the loop."""
        _unfinished.discard(self)
        loop = self._loop
        if loop._closed:
            return
        try:
            running: Any = events._get_running_loop() if ASKS_WHICH_LOOP_RUNS else None
            if running is loop:
                self.finish()
            else:
                loop.call_soon_threadsafe(self.finish)
        except Exception:  # as a future of `concurrent.futures` says it
            _base.LOGGER.exception("exception calling callback for %r", self)

    # In the loop's thread.

    def finish(self) -> None:
        """Let the future be done."""
        future, result, error = self._future, self._result, self._error
        self._result = self._error = None
        if future.cancelled():
            return
        assert not future.done()
        if self._is_cancelled:
            future.cancel()
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(in_terms_of_asyncio(error))


def submit_job(loop: Any, executor: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return a future of the loop for a call in a thread of an executor that takes jobs.

    Raises RuntimeError if the executor was shut down or is broken.
    """
    future: Any = loop.create_future()
    kind = type(future)
    if kind is _Future or kind is OwnFuture:  # Another thread may ask these whether they are cancelled.
        figures = loop._figures
        figures.count_jobs(1, 0, 0)
        if _is_queued(executor, ExecutorJob(loop, future, function, args)):
            return future
        figures.count_jobs(-1, 0, 0)
    return chain_future(loop, future, executor.submit(function, *args))


def _is_queued(executor: Any, job: ExecutorJob) -> bool:
    """Give a job to an executor, and return whether that takes any."""
    executor._shutdown_lock.acquire()
    try:
        _global_lock.acquire()
        try:
            if executor._broken or executor._shutdown or _thread._shutdown:
                return False
            _unfinished.add(job)  # first: a thread may run it before `put` returns
            try:
                executor._work_queue.put(job)
                executor._adjust_thread_count()
            except BaseException:
                _unfinished.discard(job)
                raise
            return True
        finally:
            _global_lock.release()
    finally:
        executor._shutdown_lock.release()


def unfinished_jobs() -> list[Any]:
    """Return the jobs of all loops that are queued or run; any thread may call this."""
    return list(_unfinished)
