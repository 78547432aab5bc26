"""A stack that is read from outside is right if the thread stands still, and does the thread nothing."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import whorl
from tests.core.loop_fakes import in_child, refuse_system_call
from tests.inspector.watching.busy_thread import run_until
from whorl.inspector import Inspector
from whorl.inspector.inspector import current
from whorl.inspector.watching import looks, stacks

pytestmark = pytest.mark.skipif(not whorl.compiled, reason="uncompiled, no stack is read from outside")

Call = tuple[str, int, str]  # the file, the line, the function
STACKS = int(os.environ.get("WHORL_STORM_STACKS", "10000"))
PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}


def read(thread: int) -> list[Call]:
    """Return the calls of a thread, the innermost first."""
    frames = next(stacks.parse_dumps(looks.stack(thread, 1)), ())
    return [frame[:3] for frame in reversed(frames)]


def known(frame: Any) -> list[Call]:
    """Return a frame and what called it, as Python says."""
    calls = []
    while frame is not None:
        calls.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_qualname))
        frame = frame.f_back
    return calls


def here() -> tuple[list[Call], list[Call]]:
    """Return the calls that led here, as they were read and as Python says."""
    return read(threading.get_native_id())[2:], known(sys._getframe(1))


class Calls:
    """Callers of several kinds."""

    def __init__(self) -> None:
        self.made = here()

    @staticmethod
    def called(_: object) -> Any:
        return here()

    @property
    def by_property(self) -> Any:
        [answer] = [here() for _ in range(1)]
        return answer

    def __lt__(self, other: object) -> Any:
        return here()

    class Inner:
        made = here()


def by_generator() -> Any:
    def numbers() -> Iterator[Any]:
        yield from (here() for _ in range(1))

    return next(numbers())


async def numbers_of_coroutine() -> AsyncIterator[Any]:
    yield here()


async def by_coroutine() -> Any:
    [answer] = [
        number
        async for number in numbers_of_coroutine()
    ]  # fmt: skip
    return answer


def by_exception() -> Any:
    try:
        raise ValueError
    except ValueError:
        return (
            here()
        )  # fmt: skip


def by_code(file: str, lines: int, name: str = "făcut") -> Any:
    """Call code whose last line calls, in a function of so many lines."""
    body = "\n".join(f" a = {number} if 1 else (2,\n  3)" for number in range(lines // 2))
    names: dict[str, Any] = {"here": here}
    exec(compile(f"def {name}():\n{body}\n return here()\nanswer = {name}()", file, "exec"), names)
    return names["answer"]


def recursive(depth: int) -> Any:
    return recursive(depth - 1) if depth else here()


@pytest.mark.parametrize(
    "call",
    [
        here,
        lambda: Calls().made,
        lambda: Calls().by_property,
        lambda: Calls() < 1,
        lambda: Calls.Inner.made,
        lambda: max(map(Calls.called, [1])),
        lambda: sorted([1], key=lambda _: answers.append(here())) and answers.pop(),
        by_generator,
        lambda: asyncio.run(by_coroutine()),
        lambda: whorl.run(by_coroutine()),
        by_exception,
        lambda: by_code("ordinary.py", 10),
        lambda: by_code("ünïcode €.py", 10, "\U00020000"),
        lambda: by_code("long.py", 40_000),
        lambda: by_code("twice.py", 2, "f" * 900),
    ],
)
def test_stack_that_is_read_is_what_python_says(call: Callable[[], tuple[list[Call], list[Call]]]) -> None:
    calls, expected = call()
    assert len(calls) > 5
    assert calls == expected[: len(calls)]


answers: list[Any] = []


def test_deep_stack_has_its_innermost_calls() -> None:
    calls, expected = recursive(500)
    assert 80 <= len(calls) <= 120
    assert calls == expected[: len(calls)]


def test_names_end_no_line_of_a_stack() -> None:
    calls, _ = by_code("a\nb\udc80\x1b.py", 2)
    assert calls[0][0] == r"a\x0ab\udc80\x1b.py"


@pytest.mark.parametrize("delta", [1 << 28, -(1 << 28)])
def test_line_that_no_integer_holds_is_none(delta: int) -> None:
    """Such a table is made by `code.replace`. Python's own answer is undefined."""

    def function() -> list[Call]:
        return read(threading.get_native_id())

    number, table = (delta << 1) if delta > 0 else (-delta << 1) | 1, bytearray()
    parts = [number >> shift & 63 for shift in range(0, 30, 6)]
    for _ in range(0, len(function.__code__.co_code), 2):  # One instruction each, without columns.
        table += bytes([0x80 | 13 << 3, *(part | 64 for part in parts[:-1]), parts[-1]])
    function.__code__ = function.__code__.replace(co_linetable=bytes(table))
    lines = [line for _, line, name in function() if name.endswith("function")]
    assert lines == [0]


def name_of(character: str) -> str:
    """Return the name of a file that was read, of which this is a part."""
    calls, _ = by_code(f"a{character}b.py", 2)
    return calls[0][0]


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u3000", '"', " in "])
def test_character_of_a_name_ends_no_line_of_a_stack(character: str) -> None:
    assert name_of(character) == f"a{character}b.py"


@pytest.mark.parametrize("name", ["\udcff", "a\nb", "\t\x1b\x7f\x85", "\u2028", "folder/" * 200])
def test_stacks_are_read_rightly_below_any_name(name: str) -> None:
    names: dict[str, Any] = {"is_right": stacks.are_read_rightly.__wrapped__}
    exec(compile("def called():\n return is_right()\nanswer = called()", f"/{name}/a.py", "exec"), names)
    assert names["answer"]


def test_thread_that_sleeps_is_read_by_another() -> None:
    ends, begun = threading.Event(), threading.Event()

    def sleep() -> None:
        begun.set()
        ends.wait()

    thread = threading.Thread(target=sleep)
    thread.start()
    begun.wait()
    try:
        number, ident = thread.native_id or 0, thread.ident or 0
        while not (calls := read(number)) or calls != known(sys._current_frames()[ident]):
            time.sleep(0)  # It is about to sleep.
        assert [name for _, _, name in calls if name.endswith("sleep")]
    finally:
        ends.set()
        thread.join()
    assert read(number) == []  # It has ended.


def test_stack_is_read_in_a_forked_child() -> None:
    def act() -> None:
        calls, expected = here()
        assert calls
        assert calls == expected[: len(calls)]

    assert in_child(act) == 0


def test_fork_while_the_native_mutex_is_held_leaves_it_free_in_the_child() -> None:
    """No inspector runs, so none of Python's hooks sees to it."""
    assert current() is None
    thread = threading.Thread(target=looks.stack, args=(threading.get_native_id(), 20_000))

    def act() -> None:
        signal.alarm(20)
        looks.stack(threading.get_native_id(), 1)

    thread.start()
    statuses = []
    while thread.is_alive():  # It has the mutex nearly all of the time.
        statuses.append(in_child(act))
        if len(statuses) == 10:
            break
    thread.join()
    assert statuses == [0] * len(statuses)


def test_system_that_refuses_to_read_leaves_no_stack() -> None:
    def act() -> None:
        if refuse_system_call(PROCESS_VM_READV[platform.machine()], 1):
            assert here()[0] == []
            stacks.are_read_rightly.cache_clear()
            assert not stacks.are_read_rightly()
            assert stacks.read_stack(threading.get_native_id()) == ()

    assert in_child(act) == 0


def survive(times: int) -> None:
    """Read the stack of this thread so often, by another one, while this one makes and frees frames."""
    thread, over = threading.get_native_id(), threading.Event()

    def read_again_and_again() -> None:
        for _ in range(times // 100):
            looks.stack(thread, 100)
        over.set()

    sys.setswitchinterval(1e-4)
    reader = threading.Thread(target=read_again_and_again)
    reader.start()
    run_until(over.is_set)
    reader.join()


def test_thread_survives_that_its_stack_is_read_all_the_time() -> None:
    assert in_child(lambda: survive(2_000)) == 0


@pytest.mark.slow
def test_thread_survives_that_its_stack_is_read_many_times() -> None:
    assert in_child(lambda: survive(STACKS)) == 0


library = ctypes.PyDLL(None, use_errno=True)  # Its calls keep the interpreter's lock.


def sleep_with_the_lock() -> int:
    return int(library.usleep(300_000))


def poll_with_the_lock() -> int:
    return int(library.poll(None, 0, 300))


def receive_with_the_lock() -> int:
    """Receive from a socket that nobody sends to; expect EAGAIN when its time is over."""
    here_, there = socket.socketpair()
    with here_, there:
        here_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300_000))
        result = library.recv(here_.fileno(), ctypes.create_string_buffer(1), 1, 0)
    return 0 if (result, ctypes.get_errno()) == (-1, 11) else -1


@pytest.mark.parametrize("call", [sleep_with_the_lock, poll_with_the_lock, receive_with_the_lock])
def test_call_of_c_code_with_the_lock_is_not_disturbed_and_its_line_is_known(
    call: Callable[[], int], inspect: Callable[..., Inspector]
) -> None:
    async def main() -> tuple[int, float]:
        await asyncio.sleep(0)
        began = time.monotonic()
        return call(), time.monotonic() - began

    inspected = inspect(threshold=0.05)
    result, took = whorl.run(main())
    assert result == 0
    assert took >= 0.3
    assert inspected.watchdog is not None
    inspected.watchdog.look_now()
    [stall] = inspected.stalls()
    stack = stall.stacks[0]
    first = call.__code__.co_firstlineno
    assert [frame.function for frame in stack.frames[-2:]] == [f"{main.__qualname__}", call.__name__]
    assert "library." in stack.frames[-1].source
    assert first < stack.frames[-1].line < first + 10
    assert not stack.late
