"""The watchdog says which callback keeps a loop busy, and why, and is silent otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import hashlib
import logging
import math
import multiprocessing
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.core.loop_fakes import in_child
from tests.inspector.conftest import StallsSeen, needs_stacks
from whorl import sim
from whorl.core import Probe
from whorl.inspector import Inspector, Stall
from whorl.inspector.inspector import current
from whorl.inspector.watching import looks, own_thread, stacks, threads
from whorl.inspector.watching import watchdog as watchdogs
from whorl.inspector.watching.collector import CollectionTimes
from whorl.inspector.watching.looker import Looker
from whorl.inspector.watching.reports import Reports
from whorl.inspector.watching.stalls import Frame
from whorl.inspector.watching.watched import Usage, WatchedLoop, usage_at

Inspect = Callable[..., Inspector]
THRESHOLD = 0.05
# Compiled, tasks are Whorl's own where CPython's names have no lock.
HAS_NAMES = own_thread.has_gil() or stacks._NAMES_HAVE_LOCK or whorl.compiled


async def run_step(function: Callable[[], object]) -> None:
    await asyncio.sleep(0)
    function()


def stalls_of(inspected: Inspector, function: Callable[[], object]) -> list[Stall]:
    """Return the stalls of a task that calls a function."""

    async def main() -> None:
        await asyncio.create_task(run_step(function), name="the task")

    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    return inspected.stalls()


def lines_of(stall: Stall) -> str:
    return "\n".join(f"{frame.function}: {frame.source}" for stack in stall.stacks for frame in stack.frames)


def at_once(work: Callable[[], object]) -> bool:
    """Do what the thread that tells of stalls would do."""
    work()
    return True


def busy_for(seconds: float) -> None:
    """Use the processor for so long, however long that takes."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@needs_stacks
def test_a_stall_shows_the_stack_the_task_and_the_system_call(inspect: Inspect) -> None:
    [stall] = stalls_of(inspect(threshold=THRESHOLD), lambda: time.sleep(0.25))
    assert stall.ended
    assert stall.reason == "asleep"
    assert stall.syscall == "clock_nanosleep"
    assert stall.call == "run_step"
    assert stall.task == ("the task (run_step)" if HAS_NAMES else "run_step")
    assert "time.sleep(0.25)" in lines_of(stall)
    assert not stall.late
    assert stall.length_ns >= 2 * THRESHOLD * 1e9
    assert stall.asleep_ns is not None
    assert stall.asleep_ns > stall.length_ns // 2
    assert "clock_nanosleep" in stall.text()


@needs_stacks
def test_a_stall_is_reported_while_it_lasts(inspect: Inspect) -> None:
    seen = StallsSeen(inspect(threshold=THRESHOLD))
    reader, writer = os.pipe()

    def block() -> None:
        os.read(reader, 1)

    thread = threading.Thread(target=lambda: whorl.run(run_step(block)))
    thread.start()
    try:
        stall = seen.wait_for(lambda stall: not stall.ended)
        assert f"pipe:[{os.fstat(reader).st_ino}]" == stall.file
        assert stall.syscall == "read"
        assert "os.read(reader, 1)" in lines_of(stall)
    finally:
        os.write(writer, b"x")
        thread.join()
        os.close(reader)
        os.close(writer)
    ended = seen.wait_for(lambda stall: stall.ended)
    assert ended.number == stall.number
    assert ended.length_ns > stall.length_ns


@needs_stacks
def test_a_blocking_open_names_the_path(inspect: Inspect, tmp_path: Path) -> None:
    seen = StallsSeen(inspect(threshold=THRESHOLD))
    fifo = tmp_path / "a fifo"
    os.mkfifo(fifo)
    thread = threading.Thread(target=lambda: whorl.run(run_step(fifo.read_bytes)))
    thread.start()
    stall = seen.wait_for(lambda stall: not stall.ended)
    fifo.write_bytes(b"x")
    thread.join()
    assert (stall.syscall, stall.file) == ("openat", str(fifo))


@needs_stacks
def test_blocking_receive_names_the_peer(inspect: Inspect) -> None:
    seen = StallsSeen(inspect(threshold=THRESHOLD))
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        thread = threading.Thread(target=lambda: whorl.run(run_step(lambda: ours.recv(1))))
        thread.start()
        stall = seen.wait_for(lambda stall: not stall.ended)
        theirs.send(b"x")
        thread.join()
        host, port = ours.getpeername()
        ours.close()
        theirs.close()
    assert (stall.syscall, stall.file) == ("recvfrom", f"a socket to {host}:{port}")


@needs_stacks
def test_a_long_stall_has_several_stacks(inspect: Inspect) -> None:
    [stall] = stalls_of(inspect(threshold=0.02), lambda: time.sleep(0.4))
    ages = [stack.after_ns for stack in stall.stacks]
    # There is one each time that the stall is twice as old, and the native thread may have taken the last.
    assert 2 <= len(ages) <= 2 + math.log2(stall.length_ns / 20_000_000)
    assert all(later > earlier for earlier, later in pairwise(ages))


@needs_stacks
def test_running_code_is_told_from_sleep(inspect: Inspect) -> None:
    [stall] = stalls_of(inspect(threshold=THRESHOLD), lambda: busy_for(0.2))
    assert stall.running_ns is not None
    assert stall.starved_ns is not None
    assert stall.reason == ("running" if stall.running_ns >= stall.starved_ns else "starved")
    assert stall.running_ns >= 180_000_000
    assert "busy_for" in lines_of(stall)


@pytest.mark.gil("C code that runs holds no lock")
def test_c_code_that_holds_the_lock_is_named(inspect: Inspect) -> None:
    def hold() -> None:
        sum(range(20_000_000))

    [stall] = stalls_of(inspect(threshold=THRESHOLD), hold)
    assert stall.gil_held
    assert stall.reason == "gil held"
    if looks.HAS_NATIVE or stall.stacks:  # Uncompiled, the loop may have gone on before the stack was taken.
        assert "hold" in lines_of(stall)
    assert stall.late is not looks.HAS_NATIVE
    shares = (stall.running_ns, stall.starved_ns, stall.asleep_ns)
    assert sum(share or 0 for share in shares) == stall.length_ns


@pytest.mark.slow
def test_a_collection_is_told_from_other_code(inspect: Inspect) -> None:
    heap = [[number] for number in range(1_500_000)]
    stalls = stalls_of(inspect(threshold=THRESHOLD), gc.collect)
    assert heap
    assert [stall.reason for stall in stalls] == ["collector"]
    assert stalls[0].gc_ns >= 0.9 * stalls[0].length_ns


def test_a_sleeping_loop_does_not_stall(inspect: Inspect) -> None:
    inspected = inspect(threshold=0.02)
    whorl.run(asyncio.sleep(0.2))
    assert inspected.stalls() == []


def inside(seconds: float, function: Callable[[], object]) -> None:
    """Sleep, then call a function, in a run inside of the running callback."""

    async def inner() -> None:
        await asyncio.sleep(seconds)
        function()

    loop: Any = asyncio.get_running_loop()
    whorl.allow_nested_runs(loop)
    loop.run_until_complete(inner())


@needs_stacks
def test_a_stall_inside_of_a_nested_run_names_the_inner_callback(inspect: Inspect) -> None:
    [stall] = stalls_of(inspect(threshold=THRESHOLD), lambda: inside(0.01, lambda: time.sleep(0.25)))
    assert stall.ended
    assert stall.reason == "asleep"
    assert "inner: function()" in lines_of(stall)
    assert stall.length_ns >= 2 * THRESHOLD * 1e9


def test_a_nested_run_that_sleeps_does_not_stall(inspect: Inspect) -> None:
    assert stalls_of(inspect(threshold=THRESHOLD), lambda: inside(0.2, gc.isenabled)) == []


@pytest.mark.xfail(not whorl.compiled, strict=False, reason="uncompiled, each look gives up the lock")
@pytest.mark.gil("the watchdog sees whole batches without it")
def test_many_short_callbacks_of_one_turn_are_one_stall(inspect: Inspect) -> None:
    inspected = inspect(threshold=THRESHOLD)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(300):
            loop.call_soon(busy_for, 0.001)
        await asyncio.sleep(0)

    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    [stall] = inspected.stalls()
    assert (stall.reason, stall.call, stall.ended) == ("many callbacks", "busy_for", True)
    assert 300 <= stall.callbacks <= 302
    assert stall.length_ns >= 300_000_000
    assert stall.callers[0].call == "busy_for"
    assert stall.callers[0].took_ns > stall.length_ns // 2
    assert "busy_for" in lines_of(stall)
    assert inspected.watchdog.reports.stalls_seen() == 1


def keeps_the_lock(seconds: float) -> Callable[[], object]:
    """Return a function of C's that keeps the interpreter's lock for so long, or somewhat longer."""
    size, took = 1 << 20, 0.0
    while took < seconds:
        size *= 2
        text = b"." * size  # Its memory is there: no later call is faster.
        began = time.thread_time()
        text.count(b".x")
        took = time.thread_time() - began
    return functools.partial(text.count, b".x")


@pytest.mark.gil("the watchdog needs no lock")
@pytest.mark.parametrize("ends", ["in Python's code", "in the poll"])
def test_many_callbacks_in_c_that_keep_the_lock_are_one_stall(inspect: Inspect, ends: str) -> None:
    """Compiled, nobody else gets the lock between two of them. So the watchdog looks when all have ended."""
    inspected = inspect(threshold=0.2)
    call = keeps_the_lock(0.002)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.01)
        began = time.monotonic_ns()
        for _ in range(250):
            loop.call_soon(call)
        await asyncio.sleep(0)
        took.append(time.monotonic_ns() - began)
        while not inspected.stalls() and time.monotonic() < patience:
            if ends == "in the poll":
                await asyncio.sleep(0.01)

    took: list[int] = []
    patience = time.monotonic() + 30
    whorl.run(main())
    stall = inspected.stalls()[0]
    if whorl.compiled:
        assert stall.length_ns >= took[0] * 9 // 10
        assert stall.reason == "gil held"


@pytest.mark.gil("the watchdog needs no lock")
def test_c_code_that_kept_the_lock_before_other_callbacks_of_its_turn_is_a_stall(inspect: Inspect) -> None:
    inspected = inspect(threshold=THRESHOLD)
    call = keeps_the_lock(0.3)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.01)
        loop.call_soon(call)
        await asyncio.sleep(0)
        while not inspected.stalls() and time.monotonic() < patience:
            pass

    patience = time.monotonic() + 30
    whorl.run(main())
    stall = inspected.stalls()[0]
    assert (stall.reason, stall.callbacks) == ("gil held", 0)
    assert stall.length_ns >= 2 * THRESHOLD * 1e9


@pytest.mark.gil("the watchdog sees whole batches without it")
def test_callback_in_c_has_its_own_name_in_a_stall_of_many(inspect: Inspect) -> None:
    inspected = inspect(threshold=THRESHOLD)
    update = hashlib.sha256().update  # It gives up the lock meanwhile.
    slow = functools.partial(update, bytes(1_000_000))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = time.thread_time()
        slow()
        for _ in range(int(0.3 / (time.thread_time() - began)) + 10):
            loop.call_soon(slow)
        await asyncio.sleep(0)

    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    stall = inspected.stalls()[-1]
    assert (stall.reason, stall.call, stall.place) == ("many callbacks", update.__qualname__, "")
    assert "Runner.run" not in stall.summary()


@pytest.mark.gil("other threads may look at the frames of a thread")
@needs_stacks
def test_callback_in_c_has_its_own_name_in_a_stall(inspect: Inspect) -> None:
    inspected = inspect(threshold=THRESHOLD)

    async def main() -> None:
        asyncio.get_running_loop().call_soon(time.sleep, 0.4)
        await asyncio.sleep(0)

    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    [stall] = inspected.stalls()
    assert (stall.call, stall.place, stall.ended) == ("sleep", "", True)
    assert stall.summary().startswith("sleep blocked the loop")


@pytest.mark.gil("the watchdog sees whole batches without it")
def test_long_callback_among_short_ones_is_one_stall(inspect: Inspect) -> None:
    inspected = inspect(threshold=2 * THRESHOLD)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(20):
            loop.call_soon(busy_for, 0.001)
        loop.call_soon(time.sleep, 0.4)
        for _ in range(20):
            loop.call_soon(busy_for, 0.001)
        await asyncio.sleep(0)

    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    assert [stall.reason for stall in inspected.stalls()] == ["asleep"]


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, Python runs handlers inside of the sleep")
@pytest.mark.gil("other threads may look at the frames of a thread")
@pytest.mark.parametrize("make_loop", [whorl.EventLoop, whorl.server_loop])
def test_signal_handler_that_ends_a_sleep_is_a_stall_as_any_callback(
    inspect: Inspect, make_loop: Callable[[], Any]
) -> None:
    inspected = inspect(threshold=THRESHOLD)
    loop = make_loop()

    def handle(number: int, frame: object) -> None:
        time.sleep(4 * THRESHOLD)
        loop.call_soon_threadsafe(loop.stop)

    former = signal.signal(signal.SIGALRM, functools.partial(handle))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        loop.run_forever()
    finally:
        signal.signal(signal.SIGALRM, former)
        loop.close()
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    [stall] = inspected.stalls()
    assert (stall.ended, stall.reason, stall.handler) == (True, "asleep", True)
    assert (stall.call or "").endswith("handle")
    assert stall.length_ns >= 3 * THRESHOLD * 1e9


@pytest.mark.gil("other threads may look at the frames of a thread")
def test_signal_handler_that_blocks_inside_of_the_poll_is_a_stall(inspect: Inspect) -> None:
    inspected = inspect(threshold=THRESHOLD)
    watchdog = inspected.watchdog
    assert watchdog is not None
    began = time.monotonic()

    def wait_long(number: int, frame: object) -> None:
        for _ in range(12):  # The watchdog looks seldom at a loop that sleeps.
            watchdog._end_pause()
            time.sleep(0.05)
        loop.call_soon_threadsafe(loop.stop)

    loop: Any = whorl.EventLoop()
    former = signal.signal(signal.SIGUSR1, wait_long)
    timer = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    timer.start()
    try:
        loop.run_forever()
    finally:
        signal.signal(signal.SIGUSR1, former)
        timer.join()
        loop.close()
    watchdog.look_now()
    [stall] = inspected.stalls()
    assert (stall.ended, stall.reason) == (True, "asleep")
    assert (stall.call or "").endswith("wait_long")
    assert "time.sleep(0.05)" in lines_of(stall)
    assert stall.handler
    assert " in a signal handler blocked the loop" in stall.summary()
    assert 400_000_000 < stall.length_ns < (time.monotonic() - began - 0.2) * 1e9


def test_frame_that_runs_a_loop_outlives_the_run(inspect: Inspect) -> None:
    """The identity of one that has ended may be that of a handler's frame."""
    watchdog = inspect(threshold=1).watchdog
    assert watchdog is not None
    callers = []

    async def main() -> None:
        [watched] = watchdog._watched.values()
        frame: Any = sys._getframe()
        while frame is not None:
            callers.append(id(frame))
            frame = frame.f_back
        assert watched.caller in callers

    whorl.run(main())


@pytest.mark.gil("other threads may look at the frames of a thread")
def test_loop_that_sleeps_runs_no_signal_handler(inspect: Inspect) -> None:
    inspected = inspect(threshold=THRESHOLD)
    watchdog = inspected.watchdog
    assert watchdog is not None
    for run in (lambda: whorl.run(asyncio.sleep(0.3)), run_with_selectors):
        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            watchdog._end_pause()
            thread.join(0.02)
    watchdog.look_now()
    assert inspected.stalls() == []


def run_with_selectors() -> None:
    """Let a loop sleep in Python code."""
    loop: Any = whorl.EventLoop(poller=selectors.DefaultSelector())
    loop.run_until_complete(asyncio.sleep(0.3))
    loop.close()


def test_a_busy_loop_that_polls_often_is_no_stall(inspect: Inspect) -> None:
    inspected = inspect(threshold=2 * THRESHOLD)

    async def main() -> None:
        for _ in range(4):
            await asyncio.sleep(0)
            busy_for(0.02)  # so long that the native thread wakes the Python thread
            for _ in range(250):  # Each poll gives up the interpreter's lock, which is taken again at once.
                await asyncio.sleep(0)
                busy_for(0.001)

    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    assert inspected.stalls() == []


@needs_stacks
def test_a_loop_that_a_host_drives_is_watched_in_its_steps_only(inspect: Inspect) -> None:
    inspected = inspect(threshold=THRESHOLD)
    assert inspected.watchdog is not None
    loop = whorl.new_event_loop()
    with whorl.Driver(loop) as driver:
        busy_for(0.15)
        driver.step()
        loop.call_soon(busy_for, 0.15)
        driver.step()
    loop.close()
    inspected.watchdog.look_now()
    assert len(inspected.stalls()) == 1


@pytest.mark.skipif(not os.access("/proc/self/schedstat", os.R_OK), reason="the system keeps no account")
def test_time_without_a_processor_is_no_stall(inspect: Inspect) -> None:
    """Two threads of the idle class share a processor with one that never sleeps."""
    processor = min(os.sched_getaffinity(0))
    hog = (
        f"import os; os.sched_setaffinity(0, {{{processor}}}); parent = os.getppid()\nprint(flush=True)\n"
        "while os.getppid() == parent: pass"
    )
    with contextlib.ExitStack() as end:
        process = end.enter_context(subprocess.Popen([sys.executable, "-c", hog], stdout=subprocess.PIPE))
        end.callback(process.kill)
        assert process.stdout is not None
        process.stdout.readline()
        inspected = inspect(threshold=THRESHOLD)

        async def main() -> None:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            while not inspected.starved() and time.monotonic() < patience:
                await asyncio.sleep(0)
                busy_for(0.002)

        def run() -> None:
            os.sched_setaffinity(0, {processor})
            whorl.run(main())

        patience = time.monotonic() + 60
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert inspected.starved()
    assert inspected.stalls() == []


@needs_stacks
def test_a_stall_is_logged_once(inspect: Inspect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "whorl.inspector")
    stalls_of(inspect(threshold=0.02), lambda: time.sleep(0.3))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "time.sleep(0.3)" in record.getMessage()


@needs_stacks
def test_more_stalls_of_one_second_are_only_counted(
    inspect: Inspect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "whorl.inspector")
    inspected = inspect(threshold=0.02)
    watchdog = inspected.watchdog
    assert watchdog is not None
    for _ in range(3):
        stalls_of(inspected, lambda: time.sleep(0.3))
        watchdog.reports._logged_ns += 10**10  # as if all came at once
    assert len(inspected.stalls()) == 3
    watchdog.reports._logged_ns -= 10**11
    watchdog.look_now()
    first, last = (record.getMessage() for record in caplog.records)
    assert "more stall" not in first
    assert "in the task (run_step) blocked" in last or "in run_step blocked" in last
    assert last.endswith("(and 1 more stall)")


def test_of_many_stalls_one_is_logged_in_each_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop: Any = whorl.new_event_loop()
    reports = Reports(at_once)
    watched = WatchedLoop(loop, None, lambda _: None)
    for tenth in range(40):
        monkeypatch.setattr(time, "monotonic_ns", lambda now=10**12 + tenth * 10**8: now)
        if tenth in (0, 7, 8, 15):
            reports.log(reports.begin(watched, 0))
        reports.log_the_rest()
    monkeypatch.undo()
    first, third, fourth = (record.getMessage() for record in caplog.records)
    assert all(text.startswith("a callback") for text in (first, third, fourth))
    assert third.endswith("(and 1 more stall)")
    assert "more stall" not in first + fourth
    watched.close()
    loop.close()


@needs_stacks
@pytest.mark.skipif(not HAS_NAMES, reason="without the GIL, 3.13 has no lock for names of tasks")
def test_a_name_of_the_program_is_escaped(inspect: Inspect) -> None:
    async def main() -> None:
        await asyncio.create_task(run_step(lambda: time.sleep(0.3)), name="\x1b]0;x\x07<script>" + "y" * 999)

    inspected = inspect(threshold=0.02)
    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    task = inspected.stalls()[0].task
    assert task is not None
    assert task.startswith(r"\x1b]0;x\x07<script>yyy")
    assert len(task.encode()) <= 256


def test_a_subscriber_that_raises_is_called_no_more(
    inspect: Inspect, caplog: pytest.LogCaptureFixture
) -> None:
    inspected = inspect(threshold=0.02)
    calls = []

    def fail(stall: Stall) -> None:
        calls.append(stall)
        raise ValueError("no")

    inspected.subscribe(fail)
    assert len(stalls_of(inspected, lambda: time.sleep(0.3))) == 1
    assert len(calls) == 1
    assert "is told of no more stalls" in caplog.text


def test_a_subscriber_may_stop_the_inspector(inspect: Inspect) -> None:
    inspected = inspect(threshold=0.02)
    inspected.subscribe(lambda stall: inspected.stop())
    stalls_of(inspected, lambda: time.sleep(0.3))
    assert current() is None
    for thread in threading.enumerate():
        if thread.name in ("whorl-watchdog", "whorl-stalls"):
            thread.join(10)  # It has called the subscriber, and without the GIL waits for the loop.


class Slow(Probe):
    """An observer of a loop that blocks it once."""

    has_blocked = False

    def callback_ran(self, *args: object) -> None:
        if not self.has_blocked:
            self.has_blocked = True
            time.sleep(0.3)


def test_watchdog_sees_the_stalls_of_other_loops_while_the_log_blocks(
    inspect: Inspect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's handler waits for a lock that the stuck loop has."""
    inspected = inspect(threshold=THRESHOLD)
    blocks, goes_on = threading.Event(), threading.Event()

    def emit(*_: object) -> None:
        blocks.set()
        assert goes_on.wait(60)

    async def main() -> None:
        for _ in range(3):
            time.sleep(0.2)
            await asyncio.sleep(0)
        assert blocks.wait(60)

    monkeypatch.setattr(logging.getLogger("whorl.inspector"), "warning", emit)
    try:
        whorl.run(main())
        watchdog = inspected.watchdog
        assert watchdog is not None
        watchdog.look_now()
        assert sum(stall.ended for stall in inspected.stalls()) >= 3
    finally:
        goes_on.set()


def test_a_subscriber_that_blocks_keeps_no_loop_waiting(inspect: Inspect) -> None:
    inspected = inspect(threshold=0.02)
    called, goes_on = threading.Event(), threading.Event()

    def block(stall: Stall) -> None:
        called.set()
        assert goes_on.wait(30)

    async def main() -> int:
        time.sleep(0.3)
        ran: list[int] = []
        for number in range(1000):
            asyncio.get_running_loop().call_soon(ran.append, number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert called.wait(30)
        return len(ran)

    inspected.subscribe(block)
    assert whorl.run(main()) == 1000
    goes_on.set()


@pytest.mark.parametrize("what", ["stop", "close"])
def test_a_subscriber_that_stops_or_closes_the_loop_loses_no_callback(inspect: Inspect, what: str) -> None:
    inspected = inspect(threshold=0.02)
    loop, ran, called = whorl.new_event_loop(), [], threading.Event()

    def end(stall: Stall) -> None:
        if called.is_set():  # The wait for this is a stall, too. The loop may end before it is reported.
            return
        with contextlib.suppress(RuntimeError):  # A loop that runs refuses to be closed.
            loop.stop() if what == "stop" else loop.close()
        called.set()

    inspected.subscribe(end)
    loop.call_soon(time.sleep, 0.3)
    loop.call_soon(called.wait, 30)
    for number in range(1000):
        loop.call_soon(ran.append, number)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert called.is_set()
    assert ran == list(range(1000))
    loop.close()


@needs_stacks
def test_an_observer_that_blocks_the_loop_is_a_stall(inspect: Inspect) -> None:
    inspected = inspect(threshold=0.02)
    loop, ran = whorl.new_event_loop(), []
    loop.set_probe(Slow())
    for number in range(1000):
        loop.call_soon(ran.append, number)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    loop.close()
    assert ran == list(range(1000))
    assert "callback_ran" in inspected.stalls()[0].text()


@pytest.mark.parametrize("what", ["stop", "close"])
def test_an_observer_that_stops_or_closes_the_loop_loses_no_callback(inspect: Inspect, what: str) -> None:
    class Ending(Probe):
        def callback_ran(self, *args: object) -> None:
            with contextlib.suppress(RuntimeError):  # as above
                loop.stop() if what == "stop" else loop.close()

    inspect(threshold=1)
    loop, ran = whorl.new_event_loop(), []
    loop.set_probe(Ending())
    for number in range(1000):
        loop.call_soon(ran.append, number)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert ran == list(range(1000))
    loop.close()


def test_watchdog_goes_on_without_memory_and_without_a_log(
    inspect: Inspect, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspected = inspect(threshold=0.02)
    whorl.run(asyncio.sleep(0))
    assert inspected.watchdog is not None
    failed = threading.Semaphore(0)

    def fail(*_: object) -> None:
        failed.release()
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(inspected.watchdog, "_take_notes", fail)
        patch.setattr(logging.getLogger("whorl.inspector"), "exception", fail)
        for _ in range(6):
            assert failed.acquire(timeout=30)
    assert len(stalls_of(inspected, lambda: time.sleep(0.3))) == 1


def test_a_closed_loop_has_no_open_file(inspect: Inspect) -> None:
    times = f"/task/{threading.get_native_id()}/schedstat"
    loop = whorl.new_event_loop()
    inspected = inspect(threshold=0.02)
    loop.run_until_complete(asyncio.sleep(0))
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    if not files_open(times):
        pytest.skip("the system does not tell the times of threads")
    loop.close()
    inspected.watchdog.look_now()
    assert files_open(times) == 0


def files_open(end: str) -> int:
    """Return how many open files have paths with this end."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").endswith(end)
    return found


def test_one_loop_alone_is_watched(inspect: Inspect) -> None:
    loop, other = whorl.new_event_loop(), whorl.new_event_loop()
    inspected = inspect(loop=loop, threshold=0.02)
    for each in (loop, other):
        each.run_until_complete(run_step(lambda: time.sleep(0.3)))
    other.close()
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    assert len(inspected.stalls()) == 1
    assert inspected.loops() == [loop]
    loop.close()
    assert inspected.loops() == []


def test_a_loop_that_runs_already_is_watched(inspect: Inspect) -> None:
    async def main() -> Inspector:
        inspected = inspect(threshold=0.02)
        time.sleep(0.3)
        await asyncio.sleep(0)
        return inspected

    inspected = whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()  # outside of the loop, which may wait for long here
    assert len(inspected.stalls()) == 1


def test_loops_of_several_threads_are_watched(inspect: Inspect) -> None:
    inspected = inspect(threshold=0.02)
    runs = [threading.Thread(target=lambda: whorl.run(run_step(lambda: time.sleep(0.3)))) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    assert len({stall.thread for stall in inspected.stalls()}) == 4


def test_a_watched_loop_ends_where_it_would_unwatched(inspect: Inspect) -> None:
    inspect(threshold=0.02)
    loop = whorl.new_event_loop()
    loop.run_until_complete(run_step(lambda: time.sleep(0.05)))
    loop.close()
    reference = weakref.ref(loop)
    del loop
    deadline = time.monotonic() + 10
    while reference() is not None and time.monotonic() < deadline:
        gc.collect()
    assert reference() is None


@pytest.mark.gil("a world needs it")
def test_a_simulated_world_has_no_watchdog(inspect: Inspect) -> None:
    threads = threading.active_count()
    with sim.open_world(patches=sim.Patches(0)) as world:
        assert inspect(loop=world.main.loop).watchdog is None
        assert current() is not None
        assert threading.active_count() == threads


def test_the_inspector_starts_no_thread_before_a_loop_runs(inspect: Inspect) -> None:
    threads = threading.active_count()
    inspect()
    assert threading.active_count() == threads


@pytest.mark.skipif(not looks.HAS_NATIVE, reason="uncompiled, the Python thread looks")
def test_watchdog_sleeps_while_the_loop_goes_on(inspect: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdogs, "LONGEST_REST_NS", 10**12)
    watchdog = inspect(threshold=THRESHOLD).watchdog
    assert watchdog is not None

    async def main() -> bool:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            before = watchdog._looks
            busy_until = time.monotonic() + 4 * THRESHOLD
            while time.monotonic() < busy_until:
                await asyncio.sleep(0)
            if watchdog._looks == before:
                return True  # On a busy machine the loop itself may have missed its processor before.
        return False

    assert whorl.run(main())


@pytest.mark.skipif(not looks.HAS_NATIVE, reason="uncompiled, the Python thread looks")
def test_watchdog_looks_four_times_in_a_threshold_at_a_loop_that_goes_on(inspect: Inspect) -> None:
    inspect(threshold=THRESHOLD)

    def waits() -> dict[str, int]:
        """Return how often each thread but this one has waited so far."""
        found = {}
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # It may have ended meanwhile.
                status = (task / "status").read_text()
                found[task.name] = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        del found[str(os.getpid())]
        return found

    async def main() -> bool:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            before, began = waits(), time.monotonic()
            while time.monotonic() < began + 4 * THRESHOLD:
                await asyncio.sleep(0)
            most = max(count - before.get(task, count) for task, count in waits().items())
            if 0 < most <= 4 * (time.monotonic() - began) / THRESHOLD + 2:
                return True  # On a busy machine the loop may have stood still between.
        return False

    assert whorl.run(main())


def test_stall_leaves_out_what_the_loop_did_before(inspect: Inspect) -> None:
    async def main() -> None:
        for _ in range(300):
            await asyncio.sleep(0)
            busy_for(0.001)
        await asyncio.create_task(run_step(lambda: time.sleep(0.25)))

    inspected = inspect(threshold=0.1)
    whorl.run(main())
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    stall = inspected.stalls()[-1]
    assert stall.reason == "asleep"
    assert stall.running_ns is not None
    assert stall.running_ns < 100_000_000


def test_files_of_loops_that_are_gone_are_closed_soon(
    inspect: Inspect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdogs, "LONGEST_REST_NS", 10**12)
    watchdog = inspect(threshold=1).watchdog
    assert watchdog is not None
    for _ in range(2 * watchdogs.MOST_GONE):
        whorl.run(asyncio.sleep(0))
    gc.collect()
    with watchdog._look_ended:
        assert watchdog._look_ended.wait_for(lambda: len(watchdog._gone) < watchdogs.MOST_GONE, 30)


def test_the_file_of_a_thread_stays_open_while_somebody_may_read_it() -> None:
    loop = whorl.EventLoop()
    watched = WatchedLoop(loop, threading.get_native_id(), lambda _: None)
    times = watched.times
    assert times is not None
    watched.close()
    ran, _ = times.read()
    assert ran is not None
    fd = times.fd
    os.fstat(fd)
    del times
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    loop.close()


async def name_of_the_running_task() -> str | None:
    return stacks.task_of(asyncio.get_running_loop())[0]


def test_stack_that_could_not_be_read_is_read_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = Frame("app.py", 1, "main", "work()")
    answers = [(), (), (frame,), (frame,)]

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        watched = WatchedLoop(loop, threading.get_native_id(), lambda _: None)
        looker.look_at(watched, loop, 0)
        busy_for(2 * THRESHOLD)
        for _ in range(4):  # The last one is too early for another stack.
            looker.look_at(watched, loop, 0)
        assert watched.stall is not None
        assert [stack.frames for stack in watched.stall.stacks] == [(frame,)]
        watched.close()

    monkeypatch.setattr(stacks, "has_gil", lambda: False)
    monkeypatch.setattr(stacks, "read_stack", lambda _: answers.pop(0))
    reports = Reports(at_once)
    looker = Looker(reports, CollectionTimes(), lambda: None)
    looker.threshold_ns = round(THRESHOLD * 1e9)
    whorl.run(main())
    assert answers == [(frame,)]


@pytest.mark.gil("other threads may take the stack of a thread")
def test_stall_that_ends_while_the_watchdog_reads_files_has_its_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    blocks = threading.Semaphore(0)
    loop: Any = whorl.new_event_loop()

    def block() -> None:
        blocks.release()
        os.read(reader, 1)

    async def main() -> None:
        await run_step(block)
        await run_step(block)

    def end_the_stall(place: WatchedLoop) -> Usage:
        os.write(writer, b"x")
        assert blocks.acquire(timeout=30)  # in the second step
        return read_usage(place)

    looker = Looker(Reports(at_once), CollectionTimes(), lambda: None)
    looker.threshold_ns = 10**9
    read_usage = looker.usage
    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert blocks.acquire(timeout=30)
        watched = WatchedLoop(loop, thread.native_id, lambda _: None)
        looker.look_at(watched, loop, 0)
        watched.began_ns -= 2 * 10**9  # as if it blocked for two seconds
        monkeypatch.setattr(looker, "usage", end_the_stall)
        monkeypatch.setattr(threads, "is_runnable", lambda thread: False)
        looker.look_at(watched, loop, 0)
        watched.close()
    finally:
        os.write(writer, b"xx")
        thread.join()
        loop.close()
        os.close(reader)
        os.close(writer)
    [stall] = looker.reports.stalls()
    assert (stall.ended, stall.reason) == (True, "asleep")
    assert (stall.call or "").endswith("main")
    assert "os.read(reader, 1)" in lines_of(stall)


@pytest.mark.skipif(not looks.HAS_NATIVE, reason="the native thread is compiled")
def test_native_thread_notes_a_callback_when_it_reaches_each_age() -> None:
    reader, writer = os.pipe()
    loop: Any = whorl.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run_step(lambda: os.read(reader, 1))))
    thread.start()
    notes: list[Any] = []
    assert thread.native_id is not None
    assert looks.start_native(200_000_000, 10**9, False)  # Two looks in a second are too few.
    try:
        place = looks.watch(loop, thread.native_id, -1)
        looks.beat(True)  # From now on, this thread seems to wait for the lock.
        deadline = time.monotonic() + 30
        while len(notes) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
            notes += looks.captures()
        looks.unwatch(place)
    finally:
        looks.stop_native()
        os.write(writer, b"x")
        thread.join()
        loop.close()
        os.close(reader)
        os.close(writer)
    (_, at_once, *_), (_, at_twice_the_age, *_) = notes
    assert 190_000_000 < at_twice_the_age - at_once < 400_000_000


def test_watchdog_looks_when_a_callback_reaches_the_threshold() -> None:
    watchdog = watchdogs.Watchdog(None, 0.1)
    loop: Any = whorl.new_event_loop()
    for began, key in ((970, (1, 1, 0, 0, 0)), (950, None), (900, (1, 1, 0, 0, 0))):
        watched = WatchedLoop(loop, None, lambda _: None)
        watched.began_ns, watched.next_ns, watched.key = began, 100, key
        watchdog._watched[began] = watched
    assert watchdog._next_look(1000, 50) == 1050
    assert watchdog._next_look(1000, 90) == 1070
    loop.close()


def test_times_at_a_moment_between_two_looks_are_as_near_to_the_later_as_the_clock_allows() -> None:
    earlier, later = Usage(1000, 500, 30, 0), Usage(2000, 520, 30, 400)
    assert usage_at(earlier, later, 100) == Usage(1900, 500, 30, 300)
    assert usage_at(earlier, later, 5000) == earlier
    assert usage_at(Usage(None, None, 0, 0), later, 100) == later
    assert usage_at(Usage(1000, None, 0, 0), later, 100).starved_ns is None


@pytest.mark.parametrize(
    ("has_lock", "name"),
    [(True, "the task (name_of_the_running_task)"), (False, "name_of_the_running_task")],
)
def test_without_the_gil_a_task_has_its_name_only_if_that_has_a_lock(
    monkeypatch: pytest.MonkeyPatch, has_lock: bool, name: str
) -> None:
    async def main() -> str | None:
        return await asyncio.create_task(name_of_the_running_task(), name="the task")

    monkeypatch.setattr(stacks, "has_gil", lambda: False)
    monkeypatch.setattr(stacks, "_NAMES_HAVE_LOCK", has_lock)
    assert whorl.run(main(), tasks="cpython") == name


@pytest.mark.parametrize("without_gil", [False, True])
def test_a_task_of_whorls_own_has_its_name_for_other_threads(
    monkeypatch: pytest.MonkeyPatch, without_gil: bool
) -> None:
    if without_gil:
        monkeypatch.setattr(stacks, "has_gil", lambda: False)

    async def ask() -> tuple[str | None, object]:
        found: list[tuple[str | None, object]] = []
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=lambda: found.append(stacks.task_of(loop)))
        thread.start()
        thread.join()
        return found[0]

    async def main() -> list[tuple[str | None, object]]:
        named = asyncio.create_task(ask(), name="the task")
        numbered = asyncio.create_task(ask())
        return [await named, await numbered]

    (name, code), (number, _) = whorl.run(main(), tasks="compiled")
    function = re.escape(ask.__qualname__)
    assert code is ask.__code__
    assert re.fullmatch(rf"the task \({function}\)", name or "")
    assert re.fullmatch(rf"Task-\d+ \({function}\)", number or "")


def test_loop_that_is_gone_is_left_by_the_native_thread_without_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(place: int) -> None:
        raise MemoryError

    left: list[int] = []
    monkeypatch.setattr(looks, "before", fail)
    monkeypatch.setattr(looks, "unwatch", left.append)
    loop: Any = whorl.new_event_loop()
    watched = WatchedLoop(loop, None, lambda _: None)
    watched.place = 7
    with pytest.raises(MemoryError):
        watched.leave_place()
    assert (left, watched.place) == ([7], -1)
    loop.close()


@pytest.mark.gil("C code that runs holds no lock")
def test_a_forked_child_begins_anew(inspect: Inspect) -> None:
    inspected = inspect(threshold=THRESHOLD)
    assert len(stalls_of(inspected, lambda: time.sleep(0.3))) == 1

    def act() -> None:
        assert inspected.stalls() == []
        assert len(os.listdir("/proc/self/task")) == 1
        [stall] = stalls_of(inspected, lambda: sum(range(60_000_000)))
        assert stall.late is not looks.HAS_NATIVE
        assert len(stalls_of(inspected, lambda: time.sleep(0.3))) == 2
        inspected.stop()
        assert threading.active_count() == 1

    assert in_child(act) == 0
    assert len(inspected.stalls()) == 1
    assert len(stalls_of(inspected, lambda: sum(range(60_000_000)))) == 2
    assert inspected.stalls()[1].late is not looks.HAS_NATIVE


def test_a_child_of_multiprocessing_is_watched(inspect: Inspect) -> None:
    inspect(threshold=0.02)
    context: Any = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=lambda: writer.send(len(stalls_in_child())))
    process.start()
    assert reader.recv() == 1
    process.join()
    reader.close()
    writer.close()
    process.close()


def stalls_in_child() -> list[Stall]:
    inspected = current()
    assert inspected is not None
    return stalls_of(inspected, lambda: time.sleep(0.3))


PROGRAM = """
import asyncio, os, sys, threading, time
import whorl, whorl.inspector

inspected = whorl.inspector.start(threshold=0.02)
async def main():
    time.sleep(0.3)
{end}
"""


@pytest.mark.parametrize(
    "end",
    [
        "whorl.run(main())",
        "threading.Thread(target=lambda: whorl.run(asyncio.sleep(99)), daemon=True).start(); time.sleep(0.3)",
        "whorl.run(main()); os.execv(sys.executable, [sys.executable, '-c', 'print(end=chr(0)[:0])'])",
        "whorl.run(main()); import gc; gc.collect(); del inspected",
    ],
    ids=["end", "a running loop in a daemon thread", "exec", "dropped"],
)
def test_a_program_ends_as_it_would_unwatched(end: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", PROGRAM.format(end=end)],
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    assert "Traceback" not in answer.stderr
