"""Blocking functions that run in other threads or processes."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from whorl.aio.interop.stock import is_stock_executor
from whorl.aio.threads.executor_job import submit_job
from whorl.aio.threads.future_chain import wrap_future

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor
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
    loop._held.push_all()
    future: asyncio.Future[Result]
    if is_stock_executor(executor):
        future = submit_job(loop, executor, func, args)
    else:
        future = wrap_future(loop, executor.submit(func, *args))
    return future


def _make_executor(loop: AnyLoop) -> Executor:
    check_default_executor(loop)
    executor = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="asyncio")
    loop._default_executor = loop._own_executor = executor
    return executor


def check_default_executor(loop: AnyLoop) -> None:
    """Raise RuntimeError once the loop's default executor is shut down."""
    if loop._executor_shutdown_called:
        raise RuntimeError("Executor shutdown has been called")


def set_default_executor(loop: AnyLoop, executor: Executor) -> None:
    """Use these threads from now on where no executor is given.

    Source: ``asyncio.loop.set_default_executor``.
    """
    if not isinstance(executor, concurrent.futures.ThreadPoolExecutor):
        raise TypeError("executor must be ThreadPoolExecutor instance")
    loop._default_executor = executor
