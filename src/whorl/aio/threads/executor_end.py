"""The end of a loop's default executor. Each run of a program asks for it, also if there is none."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from whorl.aio.loop_type import AnyLoop


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
