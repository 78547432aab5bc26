"""The ways in: `whorl.run`, `Runner`, `new_event_loop`, and the policy."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from whorl.core import Kernel

pytestmark = pytest.mark.usefixtures("no_leak")


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.fixture
def installed() -> Iterator[None]:
    """Install Whorl's policy for one test."""
    known = vars(asyncio.events)
    get = known.get("_get_event_loop_policy") or known["get_event_loop_policy"]
    set_ = known.get("_set_event_loop_policy") or known["set_event_loop_policy"]
    before = get()
    whorl.install()
    yield
    set_(before)


# Running a program.


def test_run_gives_the_result_and_closes_the_loop() -> None:
    loop = whorl.run(running_loop())
    assert isinstance(loop, whorl.EventLoop)
    assert loop.is_closed()


def test_run_raises_what_the_program_raises() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        whorl.run(fail())


@pytest.mark.parametrize("debug", [False, True])
def test_run_sets_debug_mode(debug: bool) -> None:
    assert whorl.run(running_loop(), debug=debug).get_debug() is debug


def test_run_passes_options_to_the_loop() -> None:
    kernel = Kernel()
    loop = whorl.run(running_loop(), kernel=kernel)
    assert isinstance(loop, whorl.EventLoop)
    assert loop._kernel is kernel


def test_run_inside_a_run_is_refused() -> None:
    async def run_again() -> None:
        coroutine = running_loop()
        try:
            with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
                whorl.run(coroutine)
        finally:
            coroutine.close()

    whorl.run(run_again())


def test_run_cancels_what_is_left() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    async def leave() -> None:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        assert not task.done()

    whorl.run(leave())
    assert ended == ["cancelled"]


def test_ctrl_c_cancels_the_program_and_raises_keyboard_interrupt() -> None:
    cancelled: list[bool] = []

    async def wait() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(KeyboardInterrupt):
        whorl.run(wait())
    assert cancelled == [True]


def test_a_runner_runs_several_programs_on_one_loop() -> None:
    with whorl.Runner() as runner:
        first = runner.run(running_loop())
        second = runner.run(running_loop())
        assert first is second is runner.get_loop()
        assert isinstance(first, whorl.EventLoop)
    assert first.is_closed()


def test_asyncios_runner_takes_our_factory() -> None:
    with asyncio.Runner(loop_factory=whorl.new_event_loop) as runner:
        assert isinstance(runner.run(running_loop()), whorl.EventLoop)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio.run takes a factory since Python 3.12")
def test_asyncio_run_takes_our_factory() -> None:
    assert isinstance(asyncio.run(running_loop(), loop_factory=whorl.new_event_loop), whorl.EventLoop)


def test_new_event_loop_makes_loops() -> None:
    first, second = whorl.new_event_loop(), whorl.new_event_loop()
    assert isinstance(first, whorl.EventLoop)
    assert isinstance(second, whorl.EventLoop)
    assert first is not second
    first.close()
    second.close()


# The policy.


def test_install_makes_asyncio_run_on_whorl(installed: None) -> None:
    assert isinstance(asyncio.run(running_loop()), whorl.EventLoop)


def test_install_makes_new_event_loops_ours(installed: None) -> None:
    loop = asyncio.new_event_loop()
    assert isinstance(loop, whorl.EventLoop)
    loop.close()


def test_the_policy_keeps_a_loop_for_the_thread() -> None:
    policy = whorl.EventLoopPolicy()
    loop = policy.new_event_loop()
    policy.set_event_loop(loop)
    assert policy.get_event_loop() is loop
    policy.set_event_loop(None)
    loop.close()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="child watchers are gone since Python 3.14")
@pytest.mark.filterwarnings("ignore:.*child_watcher:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*ChildWatcher:DeprecationWarning")
def test_programs_may_ask_for_child_watchers_and_set_them(installed: None) -> None:
    known: Any = asyncio

    async def run_true() -> int:
        process = await asyncio.create_subprocess_exec("true")
        return await process.wait()

    assert isinstance(known.get_child_watcher(), known.AbstractChildWatcher)
    watcher = known.ThreadedChildWatcher()
    known.set_child_watcher(watcher)
    assert known.get_child_watcher() is watcher
    assert asyncio.run(run_true()) == 0


@pytest.mark.parametrize(
    "use", ["pass", "whorl.install()", "whorl.EventLoopPolicy().new_event_loop().close()"]
)
def test_policies_do_not_warn(use: str) -> None:
    program = f"import whorl; {use}"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


def test_whorl_is_imported_where_there_are_no_policies() -> None:
    program = (
        "import asyncio.events as events\n"
        "for name in [name for name in vars(events) if 'Policy' in name or '_policy' in name]:\n"
        "    delattr(events, name)\n"
        "import whorl\n"
        "assert whorl.run(__import__('asyncio').sleep(0, 5)) == 5\n"
        "try:\n"
        "    whorl.install()\n"
        "except RuntimeError as error:\n"
        "    assert 'loop_factory' in str(error)\n"
        "else:\n"
        "    raise AssertionError('there is nothing to install into')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
