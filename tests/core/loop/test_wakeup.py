"""The wakeup and the signal pipe: calls from threads and from signal handlers end the loop's sleep."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tests.core.conftest import MakeLoop, close_all
from tests.core.loop_fakes import run_forever, run_turns
from whorl.core import Host, Kernel, Loop
from whorl.core.limits import CALLBACK_FREELIST_SIZE
from whorl.core.loop.wakeup import Wakeup

#: How long the storm of signals lasts, in seconds; 5 in the full run.
STORM_SECONDS = float(os.environ.get("WHORL_STORM_SECONDS", "0.5"))

NEVER = float("inf")


class Sleepless(Kernel):
    """A kernel that reports when the loop is about to sleep, and counts its wakes."""

    def __init__(self) -> None:
        super().__init__()
        self.before_sleep: Callable[[], object] | None = None
        self.writes = 0

    def epoll_wait(self, epfd: int, timeout_ns: int, events: object) -> int:
        if timeout_ns and self.before_sleep is not None:
            act, self.before_sleep = self.before_sleep, None
            act()
        return super().epoll_wait(epfd, timeout_ns, events)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        self.writes += 1
        return super().write(fd, data, offset)


@pytest.fixture
def handled() -> Iterator[Callable[[Callable[[int, FrameType | None], object]], None]]:
    """Yield a function that installs a handler for SIGUSR1, by `signal.signal`."""
    former = signal.getsignal(signal.SIGUSR1)

    def install(handler: Callable[[int, FrameType | None], object]) -> None:
        signal.signal(signal.SIGUSR1, handler)

    yield install
    signal.signal(signal.SIGUSR1, former)


# Threads.


def test_a_thread_ends_a_sleep_without_a_deadline(make_loop: MakeLoop) -> None:
    for _ in range(20):
        loop = make_loop()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
        loop.call_soon(thread.start)
        run_forever(loop)
        thread.join()
        loop.close()


def test_a_call_that_comes_just_before_the_sleep_ends_it() -> None:
    kernel = Sleepless()
    loop = Loop(kernel=kernel)

    def post() -> None:
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
        thread.start()
        thread.join()

    kernel.before_sleep = post
    run_forever(loop)
    assert kernel.before_sleep is None
    loop.close()


def test_calls_from_many_threads_run_once_each(make_loop: MakeLoop) -> None:
    loop = make_loop()
    threads_count, calls = 8, 500
    seen: dict[int, list[int]] = {number: [] for number in range(threads_count)}
    total = 0

    def take(thread: int, number: int) -> None:
        nonlocal total
        seen[thread].append(number)
        total += 1
        if total == threads_count * calls:
            loop.stop()

    def post(thread: int) -> None:
        for number in range(calls):
            loop.call_soon_threadsafe(take, thread, number)
            if number % 50 == 0:
                time.sleep(0)  # lets the loop go to sleep in between

    threads = [threading.Thread(target=post, args=(number,)) for number in range(threads_count)]
    for thread in threads:
        thread.start()
    run_forever(loop)
    for thread in threads:
        thread.join()
    assert all(numbers == list(range(calls)) for numbers in seen.values())
    run_turns(loop, 3)
    assert total == threads_count * calls


@pytest.mark.parametrize("runs_a_loop", [False, True])
def test_calls_run_in_order_after_their_thread_has_let_the_loop_run(
    make_loop: MakeLoop, runs_a_loop: bool
) -> None:
    loop = make_loop()
    seen: list[int] = []
    calls = 2 * CALLBACK_FREELIST_SIZE + 10

    def post() -> None:
        for number in range(calls):
            loop.call_soon_threadsafe(seen.append, number)
        loop.call_soon_threadsafe(loop.stop)

    def post_from_a_loop() -> None:
        other = make_loop()
        other.call_soon(post)
        run_turns(other)

    thread = threading.Thread(target=post_from_a_loop if runs_a_loop else post)
    thread.start()
    run_forever(loop)
    thread.join()
    assert seen == list(range(calls))


def test_calls_wait_for_a_loop_that_does_not_run(loop: Loop) -> None:
    seen: list[int] = []

    def post() -> None:
        for number in range(CALLBACK_FREELIST_SIZE + 1):
            loop.call_soon_threadsafe(seen.append, number)

    thread = threading.Thread(target=post)
    thread.start()
    thread.join()
    assert seen == []
    run_turns(loop, 2)
    assert seen == list(range(CALLBACK_FREELIST_SIZE + 1))


def test_calls_by_the_own_thread_keep_their_order_with_call_soon(loop: Loop) -> None:
    seen: list[int] = []
    for number in range(10):
        (loop.call_soon_threadsafe if number % 2 else loop.call_soon)(seen.append, number)
    run_turns(loop)
    assert seen == list(range(10))


def test_a_loop_may_be_closed_while_threads_post(make_loop: MakeLoop) -> None:
    # Posted calls run or are dropped, in order and at most once; later calls are refused.
    def post(loop: Loop, seen: list[int]) -> None:
        number = 0
        try:
            while True:
                loop.call_soon_threadsafe(seen.append, number)
                number += 1
                time.sleep(0)  # lets the others go on
        except RuntimeError as error:
            refusals.append(str(error))

    for _ in range(20):
        loop = make_loop()
        refusals: list[str] = []
        seen: list[list[int]] = [[], []]
        threads = [threading.Thread(target=post, args=(loop, numbers)) for numbers in seen]
        for thread in threads:
            thread.start()
        loop.call_later(0.001, loop.stop)
        run_forever(loop)
        loop.close()
        ran = [list(numbers) for numbers in seen]
        for thread in threads:
            thread.join()
        assert refusals == ["Event loop is closed"] * 2
        assert ran == seen
        assert all(numbers == list(range(len(numbers))) for numbers in seen)


def test_a_descriptor_is_closed_by_the_last_thread_that_writes_to_it() -> None:
    # Closed by the loop, its number might be another file's by the time it is written to.
    class Slow(Sleepless):
        def write(self, fd: int, data: bytes, offset: int) -> int:
            writing.append(fd)
            begun.set()
            assert may_go_on.wait(10)
            written_to.append(os.readlink(f"/proc/self/fd/{fd}"))
            return super().write(fd, data, offset)

    def post_from_a_thread() -> None:
        poster.start()
        assert begun.wait(10)

    begun, may_go_on = threading.Event(), threading.Event()
    writing: list[int] = []
    written_to: list[str] = []
    kernel = Slow()
    loop = Loop(kernel=kernel)
    poster = threading.Thread(target=loop.call_soon_threadsafe, args=(int,))
    kernel.before_sleep = post_from_a_thread
    loop.call_later(0.001, loop.stop)
    run_forever(loop)
    loop.close()
    may_go_on.set()
    poster.join()
    assert written_to == ["anon_inode:[eventfd]"]
    assert not os.path.exists(f"/proc/self/fd/{writing[0]}")


def test_one_write_wakes_for_any_number_of_calls() -> None:
    kernel = Sleepless()
    loop = Loop(kernel=kernel)
    seen: list[int] = []

    def post() -> None:
        for number in range(1000):
            loop.call_soon_threadsafe(seen.append, number)
        loop.call_soon_threadsafe(loop.stop)

    def post_from_a_thread() -> None:
        thread = threading.Thread(target=post)
        thread.start()
        thread.join()

    kernel.before_sleep = post_from_a_thread
    run_forever(loop)
    assert seen == list(range(1000))
    assert kernel.writes == 1
    for _ in range(10):
        loop.call_soon_threadsafe(seen.append, 0)
        run_turns(loop)
    assert kernel.writes == 1  # nobody slept
    loop.close()


def test_posting_without_end_does_not_keep_the_loop_from_its_turns(loop: Loop) -> None:
    stopped = threading.Event()
    posted = 0

    def post() -> None:
        nonlocal posted
        while not stopped.is_set():
            loop.call_soon_threadsafe(list)
            posted += 1

    thread = threading.Thread(target=post)
    loop.call_soon(thread.start)
    loop.call_later(0.2, loop.stop)
    run_forever(loop)
    stopped.set()
    thread.join()
    while loop.metrics().ready:
        run_turns(loop)
    metrics = loop.metrics()
    turns = 0 if loop.poller_name() == "epoll" else metrics.events  # those of the wakeup, where it needs them
    assert metrics.callbacks == posted + 2 + turns


def test_a_thread_may_post_until_the_loop_is_closed_and_is_refused_then() -> None:
    loop = Loop()
    refused = threading.Event()

    def post() -> None:
        try:
            while True:
                loop.call_soon_threadsafe(list)
        except RuntimeError:
            refused.set()

    thread = threading.Thread(target=post)
    thread.start()
    run_turns(loop, 10)
    loop.close()
    thread.join()
    assert refused.is_set()


def test_a_loop_without_an_eventfd_is_woken_by_a_pair_of_sockets(make_loop: MakeLoop) -> None:
    class WithoutEventfd(Kernel):
        def eventfd(self) -> int:
            return -errno.ENOSYS

    loop = make_loop(kernel=WithoutEventfd())
    rounds = 0

    def again() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 20:
            loop.stop()
        else:
            threading.Thread(target=loop.call_soon_threadsafe, args=(again,)).start()

    loop.call_soon(again)
    run_forever(loop)
    assert rounds == 20


def test_waking_a_closed_loop_does_nothing() -> None:
    kernel = Sleepless()
    loop = Loop(kernel=kernel)
    wakeup = next(handle for handle in loop._poller.handles() if isinstance(handle, Wakeup))
    loop.close()
    wakeup.wake()
    assert kernel.writes == 0


def test_an_error_out_of_the_sleep_leaves_the_wakeup_working() -> None:
    kernel = Sleepless()
    loop = Loop(kernel=kernel)

    def post_and_fail() -> None:
        loop.call_soon_threadsafe(list)  # the wakeup is written now, and nobody has seen it
        raise KeyboardInterrupt

    kernel.before_sleep = post_and_fail
    loop.call_later(NEVER, list)
    with pytest.raises(KeyboardInterrupt):
        loop.run()

    def post() -> None:
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
        thread.start()
        thread.join()

    kernel.before_sleep = post
    loop.run()
    assert kernel.before_sleep is None
    loop.close()


def test_an_interrupted_call_does_not_keep_the_next_one_from_waking() -> None:
    class Interrupting(Sleepless):
        def write(self, fd: int, data: bytes, offset: int) -> int:
            if not self.writes:
                self.writes += 1
                raise KeyboardInterrupt  # what a signal handler may do at any moment
            return super().write(fd, data, offset)

    kernel = Interrupting()
    loop = Loop(kernel=kernel)
    seen: list[int] = []

    def post_twice() -> None:
        try:
            loop.call_soon_threadsafe(seen.append, 1)
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(loop.stop)

    def post_from_a_thread() -> None:
        thread = threading.Thread(target=post_twice)
        thread.start()
        thread.join()

    kernel.before_sleep = post_from_a_thread
    run_forever(loop)
    assert seen == [1]
    assert kernel.writes == 2
    loop.close()


# Signals.


@pytest.mark.parametrize("order", [run_forever, Loop.run], ids=["asyncio", "machine"])
def test_a_signal_just_before_a_sleep_without_a_deadline(
    handled: Callable[..., None], order: Callable[[Loop], object]
) -> None:
    kernel = Sleepless()
    loop = Loop(kernel=kernel)
    handled(lambda number, frame: loop.call_soon_threadsafe(loop.stop))
    kernel.before_sleep = lambda: os.kill(os.getpid(), signal.SIGUSR1)
    loop.call_later(NEVER, list)
    order(loop)
    assert kernel.before_sleep is None
    loop.close()


def test_a_signal_during_a_sleep_without_a_deadline(
    make_loop: MakeLoop, handled: Callable[..., None]
) -> None:
    loop = make_loop()
    handled(lambda number, frame: loop.call_soon_threadsafe(loop.stop))
    # Another process, so that no thread of this one needs the interpreter's lock meanwhile.
    child = subprocess.Popen(
        [sys.executable, "-c", f"import os, signal; os.kill({os.getpid()}, signal.SIGUSR1)"]
    )
    began = time.monotonic()
    run_forever(loop)
    assert time.monotonic() - began < 30
    assert child.wait() == 0


def test_a_handler_that_only_notes_runs_during_the_sleep(loop: Loop, handled: Callable[..., None]) -> None:
    noted = threading.Event()
    handled(lambda number, frame: noted.set())

    def signal_and_wait() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        if noted.wait(30):  # set by the main thread, which sleeps
            loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=signal_and_wait)
    loop.call_soon(thread.start)
    run_forever(loop)
    thread.join()
    assert noted.is_set()


def test_a_handler_that_raises_ends_the_run(make_loop: MakeLoop, handled: Callable[..., None]) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    def kill() -> None:
        runs.acquire()
        os.kill(os.getpid(), signal.SIGUSR1)

    def await_signal() -> None:
        runs.release()
        while True:  # The handler's error ends this. The kernel may have told another thread of the signal.
            ends.acquire(timeout=0.01)

    loop = make_loop()
    handled(interrupt)
    runs, ends = threading.Lock(), threading.Lock()
    runs.acquire()
    ends.acquire()
    thread = threading.Thread(target=kill)
    thread.start()
    loop.call_soon(await_signal)
    with pytest.raises(Interrupted):
        run_forever(loop)
    thread.join()
    assert not loop.is_running()
    run_turns(loop)


@pytest.mark.slow
def test_a_storm_of_signals_loses_nothing(make_loop: MakeLoop, no_hang: None) -> None:
    loop = make_loop()
    posted = {"signal": 0, "loop": 0, "thread": 0}
    seen: dict[str, list[int]] = {name: [] for name in posted}
    stormy = True

    def post(source: str, then: Callable[[], object]) -> None:
        number = posted[source]
        posted[source] += 1
        loop.call_soon_threadsafe(take, source, number, then)

    def take(source: str, number: int, then: Callable[[], object]) -> None:
        seen[source].append(number)
        then()

    def on_signal(number: int, frame: object) -> None:
        if stormy:
            post("signal", int)

    def post_again() -> None:
        if stormy:
            post("loop", post_again)

    def post_from_thread() -> None:
        while stormy:
            post("thread", int)
            time.sleep(0.0005)

    def calm() -> None:
        nonlocal stormy
        stormy = False
        loop.call_later(0.05, loop.stop)

    watchdog = signal.signal(signal.SIGALRM, on_signal)
    thread = threading.Thread(target=post_from_thread)
    try:
        loop.call_later(STORM_SECONDS, calm)
        post_again()
        thread.start()
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        run_forever(loop)
    finally:
        stormy = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, watchdog)
        thread.join()
    run_turns(loop, 3)
    assert {name: len(numbers) for name, numbers in seen.items()} == posted
    seen["signal"].sort()  # a signal may interrupt the handler of the one before
    assert all(numbers == list(range(len(numbers))) for numbers in seen.values())
    assert min(posted.values()) > 0


def test_a_storm_that_always_finds_the_loop_asleep_loses_nothing(make_loop: MakeLoop) -> None:
    loop = make_loop()
    posted, seen = 0, 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal posted
        posted += 1
        loop.call_soon_threadsafe(take)

    def take() -> None:
        nonlocal seen
        seen += 1
        if seen >= STORM_SECONDS * 400:
            loop.stop()

    watchdog = signal.signal(signal.SIGALRM, on_signal)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        run_forever(loop)  # sleeps without a deadline each time
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, watchdog)
    run_turns(loop, 2)
    assert seen == posted


# The receiver of signals.


def wakeup_fd() -> int:
    """Return the descriptor to which Python writes signals."""
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    return fd


def test_signals_are_written_to_the_loop_from_its_first_sleep_to_the_end_of_the_run(loop: Loop) -> None:
    seen: list[int] = []
    assert wakeup_fd() == -1
    for _ in range(2):
        loop.call_soon(lambda: seen.append(wakeup_fd()))
        loop.call_later(0.001, lambda: seen.append(wakeup_fd()))
        loop.run()
    assert seen[::2] == [-1, -1]
    assert -1 not in seen[1::2]
    assert wakeup_fd() == -1


@pytest.mark.parametrize("handler", ["stop", "call_soon", "call_soon_threadsafe"])
def test_a_signal_that_lands_before_the_first_sleep_ends_it(handler: str) -> None:
    class LateSignal(Host):
        """A process that gets a signal as late as possible before it could be written anywhere."""

        def set_wakeup_fd(self, fd: int) -> int:
            if fd >= 0:
                signal.raise_signal(signal.SIGUSR1)
            return super().set_wakeup_fd(fd)

    loop = Loop(host=LateSignal())

    def arrived(number: int, frame: object) -> None:
        getattr(loop, handler)(*[] if handler == "stop" else [loop.stop])

    former = signal.signal(signal.SIGUSR1, arrived)
    try:
        run_forever(loop)
    finally:
        signal.signal(signal.SIGUSR1, former)
        loop.close()


def test_a_loop_sleeps_also_while_there_are_no_descriptors_for_signals(make_loop: MakeLoop) -> None:
    class Poor(Kernel):
        refusal = errno.EMFILE

        def socket_pair(self) -> Any:
            return -self.refusal if self.refusal else super().socket_pair()

    kernel = Poor()
    loop = make_loop(kernel=kernel)
    seen: list[int] = []

    def grow_rich() -> None:
        seen.append(wakeup_fd())
        kernel.refusal = 0
        loop.call_later(0.05, lambda: seen.append(wakeup_fd()))  # so late that the loop sleeps before it

    loop.call_later(0.05, grow_rich)
    assert loop.run() is False
    assert seen[0] == -1
    assert seen[1] != -1  # The next sleep after the refusals has set it.
    kernel.refusal = errno.EAFNOSUPPORT
    other = make_loop(kernel=kernel)
    other.call_later(10, seen.append, 1)
    with pytest.raises(OSError, match="family"):
        other.run()


def test_a_handler_that_raises_before_the_first_sleep_leaves_no_wakeup_fd_set() -> None:
    class Interrupted(Host):
        def set_wakeup_fd(self, fd: int) -> int:
            former = super().set_wakeup_fd(fd)
            if fd >= 0:
                raise KeyboardInterrupt  # as a handler does that runs when the call is over
            return former

    loop = Loop(host=Interrupted())
    loop.call_later(5, list)
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert wakeup_fd() == -1
    loop.close()


def test_a_wakeup_fd_of_somebody_else_is_left_alone(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        signal.set_wakeup_fd(ours.fileno())
        seen: list[int] = []
        loop.call_later(0.001, lambda: seen.append(wakeup_fd()))
        loop.run()
        assert seen == [ours.fileno()]
        assert signal.set_wakeup_fd(-1) == ours.fileno()


def test_a_wakeup_fd_set_during_the_run_stays(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        loop.call_soon(signal.set_wakeup_fd, ours.fileno())
        loop.run()
        assert signal.set_wakeup_fd(-1) == ours.fileno()


def test_a_loop_in_another_thread_leaves_signals_alone() -> None:
    seen: list[int] = []

    def run() -> None:
        loop = Loop()
        loop.call_soon(list)
        loop.run()
        seen.append(loop._host.is_main_thread())
        close_all(loop)

    before = wakeup_fd()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
    assert wakeup_fd() == before


def test_more_signals_than_the_pipe_holds_do_not_block(loop: Loop, handled: Callable[..., None]) -> None:
    count = 0

    def note(number: int, frame: object) -> None:
        nonlocal count
        count += 1

    handled(note)

    def flood() -> None:
        for _ in range(5000):
            signal.raise_signal(signal.SIGUSR1)

    loop.call_soon(flood)
    loop.call_soon(loop.call_later, 0.001, list)
    loop.run()
    assert count == 5000
