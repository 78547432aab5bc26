"""Blocking functions that run in other threads or processes."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from whorl.aio.interop.stock import is_stock_executor
from whorl.aio.threads.executor_job import submit_job
from whorl.aio.threads.future_chain import wrap_future

if TYPE_CHECKING:
    from typing import TypeVarTuple

    from whorl.aio.loop_type import AnyLoop

    Arguments = TypeVarTuple("Arguments")
    Result = TypeVar("Result")


def run_in_executor(
    loop: AnyLoop,
    executor: Executor | None,
    func: Callable[[*Arguments], Result],
    *args: *Arguments,
) -> asyncio.Future[Result]:
    """Call `func(*args)` in an executor; None: in the loop's default executor.

    Source: ``asyncio.loop.run_in_executor``.
    """
    if loop._closed:
        loop._check_closed()
    if loop._debug:
        loop._check_callback(func, "run_in_executor")
    if executor is None:
        executor = loop._default_executor
        if executor is None or loop._executor_shutdown_called:
            executor = _make_executor(loop)
    future: asyncio.Future[Result]
    if is_stock_executor(executor):
        future = submit_job(loop, executor, func, args)
    else:
        future = wrap_future(loop, executor.submit(func, *args))
    return future


def _make_executor(loop: AnyLoop) -> Executor:
    check_default_executor(loop)
    loop._default_executor = loop._own_executor = executor = ThreadPoolExecutor(thread_name_prefix="asyncio")
    return executor


def check_default_executor(loop: AnyLoop) -> None:
    """Raise RuntimeError once the loop's default executor is shut down."""
    if loop._executor_shutdown_called:
        raise RuntimeError("Executor shutdown has been called")


def set_default_executor(loop: AnyLoop, executor: Executor) -> None:
    """Use these threads from now on where no executor is given.

    Source: ``asyncio.loop.set_default_executor``.
    """
    if not isinstance(executor, ThreadPoolExecutor):
        raise TypeError("executor must be ThreadPoolExecutor instance")
    loop._default_executor = executor


async def shutdown_default_executor(loop: AnyLoop, timeout: float | None = None) -> None:
    """Wait until the threads of the default executor have ended, at most `timeout` seconds.

    The loop gets no new ones. Source: ``asyncio.loop.shutdown_default_executor``.
    """
    loop._executor_shutdown_called = True
    executor = loop._default_executor
    if executor is None:
        return
    done = loop.create_future()
    thread = loop._host.start_thread(_shut_down, loop, executor, done)
    try:
        async with asyncio.timeouts.timeout(timeout):
            await done
    except TimeoutError:
        warnings.warn(
            f"The executor did not finishing joining its threads within {timeout} seconds.",
            RuntimeWarning,
            stacklevel=2,
        )
        executor.shutdown(wait=False)
    else:
        thread.join()


def _shut_down(loop: AnyLoop, executor: Executor, done: asyncio.Future[None]) -> None:
    """Wait, in a separate thread, for the executor's threads, then notify the loop."""
    failure: BaseException | None = None
    try:
        executor.shutdown(wait=True)
    except Exception as error:
        failure = error
    if not loop.is_closed():
        loop.call_soon_threadsafe(_finish_shutdown, done, failure)


def _finish_shutdown(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
