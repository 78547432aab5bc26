"""The thread pool: work that is done, fails, is cancelled, and how many threads it takes."""

from __future__ import annotations

import contextvars
import errno
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.children import bare_environment
from tests.core.conftest import MakeLoop
from tests.core.loop_fakes import in_child, run_turns
from whorl.core import Host, Loop, RunMode
from whorl.handles import Prepare, ThreadPool, Work, thread_pool

MAY_FORK = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Gate:
    """Holds threads of a pool at work until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.entered.release()
        self.opened.wait()

    def await_entries(self, count: int) -> None:
        for _ in range(count):
            self.entered.acquire()


class PoolHost(Host):
    """A process with a thread pool of its own size."""

    def __init__(self, size: int) -> None:
        self.pool = ThreadPool(size)

    def thread_pool(self) -> ThreadPool:
        return self.pool


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def host() -> PoolHost:
    return PoolHost(4)


@pytest.fixture
def loop(host: PoolHost, gate: Gate, no_leak: None) -> Iterator[Loop]:
    """Yield a loop with a pool of four threads."""
    loop = Loop(host=host)
    yield loop
    gate.opened.set()
    for handle in loop.walk():
        handle.close()
    loop.run()
    loop.close()


def test_work_is_done_in_another_thread_and_reported_in_the_loops(loop: Loop) -> None:
    seen: list[Any] = []
    work = Work(loop, threading.get_ident, lambda *args: seen.append((args, threading.get_ident())))
    assert work.is_pending()
    assert loop.alive()
    loop.run()
    ((reported, thread),) = seen
    assert reported[0] is work
    assert reported[1] != threading.get_ident() == thread
    assert reported[2] is None
    assert not work.is_pending()


def test_work_reports_the_error_of_its_function(loop: Loop) -> None:
    seen: list[Any] = []
    Work(loop, lambda: 1 / 0, lambda work, result, error: seen.append((result, type(error))))
    loop.run()
    assert seen == [(None, ZeroDivisionError)]


def test_work_only_reports_an_exit_of_its_function(loop: Loop) -> None:
    seen: list[Any] = []
    Work(loop, sys.exit, lambda work, result, error: seen.append(type(error)))
    loop.run()
    assert seen == [SystemExit]


def test_work_without_a_callback_keeps_the_loop_alive_until_it_is_done(loop: Loop) -> None:
    done = threading.Event()
    Work(loop, done.set)
    loop.run()
    assert done.is_set()


def test_the_end_of_work_wakes_a_sleeping_loop(make_loop: MakeLoop, gate: Gate) -> None:
    loop = make_loop()
    seen: list[str] = []
    prepare = Prepare(loop)
    prepare.start(lambda handle: (gate.opened.set(), handle.unref()))
    Work(loop, gate, lambda *args: seen.append("done"))
    loop.run(RunMode.ONCE)
    assert seen == ["done"]


def test_work_is_reported_in_asyncios_order_too(loop: Loop) -> None:
    seen: list[Any] = []
    Work(loop, lambda: 42, lambda work, result, error: seen.append(result))
    while not seen:
        run_turns(loop)
    assert seen == [42]


def test_much_work_is_done_once_each(loop: Loop) -> None:
    seen: list[int] = []
    for number in range(500):
        Work(loop, lambda number=number: number, lambda work, result, error: seen.append(result))
    loop.run()
    assert sorted(seen) == list(range(500))
    assert loop.metrics().active_requests == 0


def test_threads_are_started_when_there_is_work_for_them(loop: Loop, host: PoolHost, gate: Gate) -> None:
    pool = host.pool
    assert (pool.size, pool.threads) == (4, 0)
    for count in range(1, 5):
        Work(loop, gate)
        gate.await_entries(1)
        assert (pool.threads, pool.busy) == (count, count)
    Work(loop, gate)
    assert (pool.threads, pool.busy, pool.queue_length) == (4, 4, 1)


def test_a_waiting_thread_is_used_again(loop: Loop, host: PoolHost) -> None:
    for _ in range(20):
        Work(loop, list)
        loop.run()
        while host.pool.busy:  # it reports its work before it waits again
            threading.Event().wait(0)
    assert host.pool.threads == 1


def test_threads_do_not_keep_the_process_running(loop: Loop, gate: Gate) -> None:
    Work(loop, gate)
    gate.await_entries(1)
    assert [t.daemon for t in threading.enumerate() if t.name.startswith("whorl-pool")]
    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("whorl-pool"))


def test_slow_work_takes_at_most_half_of_the_threads(loop: Loop, host: PoolHost, gate: Gate) -> None:
    seen: list[str] = []
    for _ in range(6):
        Work(loop, gate, slow=True)
    gate.await_entries(2)
    Work(loop, lambda: None, lambda *args: (seen.append("quick"), loop.stop()))
    loop.run()
    assert seen == ["quick"]
    assert host.pool.queue_length == 4
    assert not gate.entered.acquire(blocking=False)
    gate.opened.set()
    loop.run()
    assert host.pool.queue_length == 0


@pytest.mark.parametrize(("size", "slow"), [(1, 1), (2, 1), (3, 2), (4, 2), (1024, 512)])
def test_half_of_the_threads_is_rounded_up(size: int, slow: int) -> None:
    assert ThreadPool(size).slow_size == slow


def test_work_is_begun_in_the_order_of_its_arrival(gate: Gate, no_leak: None) -> None:
    loop = Loop(host=PoolHost(1))
    seen: list[int] = []
    Work(loop, gate)
    for number in range(10):
        Work(loop, lambda number=number: seen.append(number), slow=number % 3 == 0)
    gate.opened.set()
    loop.run()
    assert seen == list(range(10))
    loop.close()


def test_waiting_work_can_be_cancelled(loop: Loop, host: PoolHost, gate: Gate) -> None:
    seen: list[Any] = []
    for _ in range(4):
        Work(loop, gate)
    gate.await_entries(4)
    work = Work(loop, lambda: seen.append("done"), lambda *args: seen.append(args))
    assert work.cancel()
    assert not work.cancel()
    assert seen == []
    assert work.is_pending()
    assert host.pool.queue_length == 0
    loop.run(RunMode.NOWAIT)
    ((reported, result, error),) = seen
    assert (reported, result) == (work, None)
    assert isinstance(error, OSError)
    assert error.errno == errno.ECANCELED
    assert not work.is_pending()


def test_work_under_way_cannot_be_cancelled(loop: Loop, gate: Gate) -> None:
    seen: list[Any] = []
    work = Work(loop, gate, lambda work, result, error: seen.append(error))
    gate.await_entries(1)
    assert not work.cancel()
    gate.opened.set()
    loop.run()
    assert seen == [None]
    assert not work.cancel()


def test_a_loop_is_not_closed_while_work_is_under_way(loop: Loop, gate: Gate) -> None:
    Work(loop, gate)
    with pytest.raises(OSError, match="in flight") as caught:
        loop.close()
    assert caught.value.errno == errno.EBUSY


def test_the_callback_runs_in_the_context_of_the_making(loop: Loop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[str] = []

    def make() -> None:
        variable.set("made")
        Work(loop, list, lambda *args: seen.append(variable.get()))

    contextvars.copy_context().run(make)
    loop.run()
    assert seen == ["made"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_out_of_a_callback_keeps_the_others(loop: Loop, error: type[BaseException]) -> None:
    seen: list[int] = []

    def report(work: Work, result: int, problem: BaseException | None) -> None:
        if result == 2:
            raise error("on purpose")
        seen.append(result)

    for number in range(5):
        Work(loop, lambda number=number: number, report)
    with pytest.raises(error, match="on purpose"):
        loop.run()
    loop.run()
    assert sorted(seen) == [0, 1, 3, 4]


def test_finished_work_keeps_nothing_alive(loop: Loop) -> None:
    class Task:
        def __call__(self) -> None:
            raise ValueError("with a traceback")

    task = Task()
    watched = weakref.ref(task)
    work = Work(loop, task, lambda *args: None)
    loop.run()
    del task
    gc.collect()
    assert watched() is None
    assert not work.is_pending()


def test_work_refuses_a_non_callable(loop: Loop) -> None:
    with pytest.raises(TypeError, match="callable"):
        Work(loop, 42)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        Work(loop, list, 42)  # type: ignore[arg-type]
    assert not loop.alive()


def test_work_that_no_thread_can_be_started_for_is_refused(
    loop: Loop, host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        Work(loop, list)
    assert host.pool.queue_length == 0
    assert not loop.alive()


def test_loops_of_a_process_share_one_pool(make_loop: MakeLoop) -> None:
    first, second = Work(make_loop(), list), Work(make_loop(), list)
    assert first._pool is second._pool
    first.loop.run()
    second.loop.run()


@MAY_FORK
def test_a_forked_child_gets_a_pool_of_its_own(make_loop: MakeLoop, gate: Gate) -> None:
    loop = make_loop()
    Work(loop, gate)
    gate.await_entries(1)

    def work_in_child() -> None:
        fresh = Loop()
        seen: list[Any] = []
        Work(fresh, lambda: "done", lambda work, result, error: seen.append(result))
        fresh.run()
        assert seen == ["done"]

    assert in_child(work_in_child) == 0
    gate.opened.set()
    loop.run()


def pool_size(text: str | None) -> str:
    """Return the size of the pool in a new process with this setting, or the error."""
    code = (
        "from whorl.core import Loop\n"
        "from whorl.handles.threads.thread_pool import pool_of\n"
        "print(pool_of(Loop()._host).size)"
    )
    environment = bare_environment(PYTHONWARNINGS="ignore")
    if text is not None:
        environment["WHORL_THREADPOOL_SIZE"] = text
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return (answer.stdout + answer.stderr).strip().splitlines()[-1]


@pytest.mark.parametrize(("text", "size"), [(None, "4"), ("", "4"), ("1", "1"), ("1024", "1024")])
def test_the_environment_sets_the_size(text: str | None, size: str) -> None:
    assert pool_size(text) == size


@pytest.mark.parametrize("text", ["0", "-1", "1025", "many"])
def test_a_size_that_cannot_be_is_refused(text: str) -> None:
    assert f"from 1 to 1024, not '{text}'" in pool_size(text)


@pytest.mark.parametrize("size", [0, 1025])
def test_a_pool_has_at_least_one_thread_and_at_most_1024(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 1024 threads"):
        ThreadPool(size)


def test_a_pool_at_work_does_not_hold_up_the_end_of_the_process() -> None:
    code = (
        "import threading\n"
        "from whorl.core import Loop\n"
        "from whorl.handles import Work\n"
        "begun = threading.Event()\n"
        "Work(Loop(), lambda: (begun.set(), threading.Event().wait()))\n"
        "begun.wait()\n"
    )
    environment = bare_environment(PYTHONWARNINGS="ignore")
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_the_pool_of_a_loop_is_visible(loop: Loop, host: PoolHost) -> None:
    assert thread_pool(loop) is host.pool
    first, second = Loop(), Loop()
    pool = thread_pool(first)
    assert thread_pool(second) is pool is not host.pool
    assert 1 <= pool.slow_size <= pool.size
    assert pool.busy <= pool.threads <= pool.size
    first.close()
    second.close()
