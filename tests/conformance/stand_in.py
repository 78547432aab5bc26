"""The suite's own test loops, with the same helper methods, on top of the loop under test."""

import asyncio
import collections
import contextlib
from collections.abc import Callable, Generator
from typing import Any

Steps = Generator[float, float, None]


class RecordingMixin:
    """A loop that registers no file descriptor, but keeps the callback of each for tests to look at."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.readers: dict[int, asyncio.Handle] = {}
        self.writers: dict[int, asyncio.Handle] = {}
        self.reset_counters()

    def _step(self, may_sleep: bool) -> None:
        super()._step(False)  # The suite's own selector finds nothing, and does not wait for it.

    def reset_counters(self) -> None:
        self.remove_reader_count: dict[int, int] = collections.defaultdict(int)
        self.remove_writer_count: dict[int, int] = collections.defaultdict(int)

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any, context: Any = None) -> None:
        self.readers[fd] = asyncio.Handle(callback, args, self, context)

    def add_writer(self, fd: int, callback: Callable[..., object], *args: Any, context: Any = None) -> None:
        self.writers[fd] = asyncio.Handle(callback, args, self, context)

    def remove_reader(self, fd: int) -> bool:
        self.remove_reader_count[fd] += 1
        return self.readers.pop(fd, None) is not None

    def remove_writer(self, fd: int) -> bool:
        self.remove_writer_count[fd] += 1
        return self.writers.pop(fd, None) is not None

    # asyncio's own pipe transports, which some tests drive by hand, call these.
    _add_reader = add_reader
    _add_writer = add_writer
    _remove_reader = remove_reader
    _remove_writer = remove_writer

    def assert_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        _check_handle(self.readers, fd, callback, args)

    def assert_writer(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        _check_handle(self.writers, fd, callback, args)

    def assert_no_reader(self, fd: int) -> None:
        assert fd not in self.readers, f"fd {fd} is registered"


def _check_handle(handles: dict[int, asyncio.Handle], fd: int, callback: Any, args: Any) -> None:
    assert fd in handles, f"fd {fd} is not registered"
    assert handles[fd]._callback == callback
    assert handles[fd]._args == args


class TimedMixin:
    """A loop whose time moves only as the test says.

    After each turn the test's generator gets the deadline of every timer that the turn scheduled, one by one.
    It yields by how much to move the time forward. An idle handle asks it. While it is started, the loop does
    not sleep until a deadline that only the generator can bring nearer.
    """

    def __init__(self, make_generator: Callable[[], Steps]) -> None:
        self.test_clock = TestClock(make_generator())
        super().__init__()
        self.test_idle = self.start_idle(self._between_turns)

    def time(self) -> float:
        return self.test_clock.now

    def advance_time(self, seconds: float) -> None:
        self.test_clock.now += seconds or 0

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self.test_clock.new_deadlines.append(when)
        return super().call_at(when, callback, *args, context=context)

    def run_forever(self) -> None:
        self.test_clock.in_first_turn = True
        super().run_forever()
        self.test_clock.advance()
        if self.test_clock.error is not None:
            raise self.test_clock.error

    def close(self) -> None:
        self.test_idle.close()
        super().close()
        self.test_clock.finish()

    def _between_turns(self, idle: Any) -> None:
        self.test_clock.between_turns()
        if self.test_clock.error is not None:
            self.stop()


class TestClock:
    """The time of one timed loop, and the generator that moves it."""

    def __init__(self, steps: Steps) -> None:
        next(steps)
        self._steps = steps
        self.now = 0.0
        self.new_deadlines: list[float] = []
        self.in_first_turn = True
        self.error: BaseException | None = None

    def between_turns(self) -> None:
        if not self.in_first_turn:
            self.advance()
        self.in_first_turn = False

    def advance(self) -> None:
        """Send the generator the timers that were scheduled since the last turn."""
        deadlines, self.new_deadlines = self.new_deadlines, []
        try:
            for deadline in deadlines:
                self.now += self._steps.send(deadline) or 0
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        with contextlib.suppress(StopIteration):
            self._steps.send(0)
            raise AssertionError("the test's generator expects more timers")


def make_test_loops(loop_class: type[asyncio.AbstractEventLoop]) -> tuple[Any, Any]:
    """Make the plain test loop, and the one with a clock; None where a loop's time cannot be replaced."""
    plain = type("PlainTestLoop", (RecordingMixin, loop_class), {})
    if not hasattr(loop_class, "start_idle"):
        return plain, None
    return plain, type("TimedTestLoop", (TimedMixin, plain), {})


class Closing:
    """The attributes that the suite's clean-up reads, for a loop without asyncio's private names."""

    _default_executor = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close = loop.close
