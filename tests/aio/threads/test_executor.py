"""Functions that block, run in other threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver, resource_tracker
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio

pytestmark = pytest.mark.usefixtures("no_leak")


async def test_a_function_runs_in_another_thread(loop: whorl.EventLoop) -> None:
    assert await loop.run_in_executor(None, threading.get_ident) != threading.get_ident()


async def test_arguments_are_passed_on(loop: whorl.EventLoop) -> None:
    assert await loop.run_in_executor(None, divmod, 17, 5) == (3, 2)


async def test_an_exception_comes_back(loop: whorl.EventLoop) -> None:
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(None, divmod, 17, 0)


async def test_an_executor_may_be_given(loop: whorl.EventLoop) -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="ours") as executor:
        name = await loop.run_in_executor(executor, lambda: threading.current_thread().name)
    assert name.startswith("ours")


async def test_the_default_executor_has_asyncios_thread_names(loop: whorl.EventLoop) -> None:
    name = await loop.run_in_executor(None, lambda: threading.current_thread().name)
    assert name.startswith("asyncio_")


async def test_the_default_executor_can_be_set(loop: whorl.EventLoop) -> None:
    loop.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="ours"))
    name = await asyncio.to_thread(lambda: threading.current_thread().name)
    assert name.startswith("ours")


@pytest.mark.parametrize("wrong", [None, 1])
def test_set_default_executor_refuses_other_types_than_thread_pools(wrong: Any) -> None:
    assert error_as_in_asyncio(lambda loop: loop.set_default_executor(wrong))[0] is TypeError


async def test_a_cancelled_wait_lets_the_function_go_on(loop: whorl.EventLoop) -> None:
    began, release, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        release.wait()
        done.set()

    waiting = loop.run_in_executor(None, work)
    await loop.run_in_executor(None, began.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    assert await loop.run_in_executor(None, done.wait)


async def test_shutdown_waits_for_the_functions(loop: whorl.EventLoop) -> None:
    release = threading.Event()
    job = loop.run_in_executor(None, release.wait)
    shutdown = loop.create_task(loop.shutdown_default_executor())
    await asyncio.sleep(0)
    assert not shutdown.done()
    release.set()
    await shutdown
    assert await job


async def test_after_the_shutdown_functions_are_refused(loop: whorl.EventLoop) -> None:
    await loop.shutdown_default_executor()
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        loop.run_in_executor(None, print)


async def test_the_shutdown_gives_up_in_time_with_a_warning(loop: whorl.EventLoop) -> None:
    release = threading.Event()
    job = loop.run_in_executor(None, release.wait)
    with pytest.warns(RuntimeWarning, match="within 0 seconds"):
        await loop.shutdown_default_executor(timeout=0)
    release.set()
    assert await job


# Other processes and interpreters.


@pytest.fixture(scope="module")
def helpers() -> None:
    """Start the processes that multiprocessing starts once and keeps to the end."""
    resource_tracker.ensure_running()
    forkserver.ensure_running()


HOWEVER_STARTED = pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.usefixtures("helpers")
@HOWEVER_STARTED
async def test_a_pool_of_processes(loop: whorl.EventLoop, method: str) -> None:
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        assert await loop.run_in_executor(executor, math.factorial, 5) == 120
        with pytest.raises(ValueError, match="negative"):
            await loop.run_in_executor(executor, math.factorial, -1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.usefixtures("helpers")
@HOWEVER_STARTED
async def test_a_process_runs_a_loop_of_its_own(loop: whorl.EventLoop, method: str) -> None:
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        assert await loop.run_in_executor(executor, run_own_loop, 3) == [0, 1, 2]


def run_own_loop(count: int) -> list[int]:
    """Run a loop in a child."""

    async def main() -> list[int]:
        return list(await asyncio.gather(*(asyncio.sleep(0.001, number) for number in range(count))))

    return whorl.run(main())


@pytest.mark.skipif(not hasattr(concurrent.futures, "InterpreterPoolExecutor"), reason="new in Python 3.14")
async def test_a_pool_of_interpreters(loop: whorl.EventLoop) -> None:
    with concurrent.futures.InterpreterPoolExecutor(1) as executor:  # type: ignore[attr-defined, unused-ignore]
        assert await loop.run_in_executor(executor, math.factorial, 5) == 120
