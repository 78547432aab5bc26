"""Files for coroutines: like Python's own, also when calls are cancelled, refused or cut short."""

from __future__ import annotations

import array
import asyncio
import codecs
import contextlib
import errno
import gc
import io
import os
import random
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import settled_descriptors
from tests.core.conftest import open_descriptors
from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from whorl import fs
from whorl.core import Host, Kernel
from whorl.handles import ThreadPool, Work

pytestmark = pytest.mark.usefixtures("kernel")

TEXT = "first line\nsecond: Ünïcödé ✓ 𝄞\n\nno end of line"


@pytest.fixture(params=["from memory", "in threads", "with faults"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Return the real kernel, one without files in memory, or one that shortens calls and is interrupted."""
    if request.param == "from memory":
        return Kernel()
    if request.param == "in threads":
        return FaultKernel(1, FaultRates(short=0, again=1, interrupted=0))
    return FaultKernel(1, FaultRates(short=0.3, again=0.3, interrupted=0.2, no_buffers=0))


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text(TEXT, encoding="utf-8")
    return path


# Opening and closing.


async def test_a_file_is_opened_by_await_and_by_async_with(text_file: Path) -> None:
    file = await fs.open(text_file, encoding="utf-8")
    assert await file.read() == TEXT
    await file.close()
    async with fs.open(text_file, "rb") as binary:
        assert await binary.read() == TEXT.encode()
    async with await fs.open(text_file, encoding="utf-8") as file:
        assert await file.read() == TEXT
    assert file.closed
    assert binary.closed


async def test_an_open_file_tells_what_it_is(text_file: Path, tmp_path: Path) -> None:
    async with fs.open(text_file, encoding="utf-8") as file:
        assert (file.name, file.mode, file.encoding, file.errors) == (text_file, "r", "utf-8", "strict")
        assert (file.readable(), file.writable(), file.seekable(), file.isatty()) == (
            True,
            False,
            True,
            False,
        )
        assert os.fstat(file.fileno()).st_ino == text_file.stat().st_ino
        assert not os.get_inheritable(file.fileno())
        assert os.get_blocking(file.fileno())
    async with fs.open(tmp_path / "new", "wb+") as binary:
        assert (binary.readable(), binary.writable(), binary.seekable()) == (True, True, True)
        assert (binary.encoding, binary.errors, binary.newlines) == (None, None, None)


async def test_a_closed_file_is_closed(text_file: Path) -> None:
    file = await fs.open(text_file, encoding="utf-8")
    await file.close()
    await file.close()
    for operation in (file.read, file.readline, file.tell, file.flush, file.readlines, file.truncate):
        with pytest.raises(ValueError, match="closed file"):
            await operation()
    with pytest.raises(ValueError, match="closed file"):
        file.fileno()
    with pytest.raises(ValueError, match="closed file"):
        async with file:
            pass


@pytest.mark.parametrize("mode", ["", "rw", "rr", "z", "rbt", "w+r", "b", "U", "r++"])
async def test_a_mode_that_is_none_is_refused(text_file: Path, mode: str) -> None:
    with pytest.raises(ValueError, match="mode"):
        fs.open(text_file, mode)


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "rb", "encoding": "utf-8"},
        {"mode": "rb", "errors": "strict"},
        {"mode": "rb", "newline": ""},
        {"mode": "r", "buffering": 0},
        {"mode": "r", "newline": "x"},
        {"mode": "r", "encoding": "no such codec"},
        {"mode": 3},
        {"mode": "r", "encoding": 3},
    ],
)
async def test_fs_open_refuses_arguments_with_the_error_of_open(text_file: Path, arguments: Any) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        open(text_file, **arguments)
    with pytest.raises(expected.type):
        fs.open(text_file, **arguments)


async def test_errors_of_opening_name_the_path(tmp_path: Path) -> None:
    for path, mode, code in [
        (tmp_path / "nowhere", "r", errno.ENOENT),
        (tmp_path / "nowhere", "rb+", errno.ENOENT),
        (tmp_path, "r", errno.EISDIR),
        (tmp_path, "w", errno.EISDIR),
        (tmp_path / "nowhere" / "file", "w", errno.ENOENT),
    ]:
        with pytest.raises(OSError, match=rf"^\[Errno {code}\] ") as caught:
            await fs.open(path, mode)
        assert caught.value.filename == str(path)
    with pytest.raises(ValueError, match="null"):
        await fs.open("a\0b")
    with pytest.raises(TypeError):
        await fs.open(1.5)  # type: ignore[call-overload]


async def test_fs_open_mode_x_creates_only_a_new_file(tmp_path: Path) -> None:
    async with fs.open(tmp_path / "file", "x") as file:
        await file.write("mine")
    with pytest.raises(FileExistsError):
        await fs.open(tmp_path / "file", "x")
    assert (tmp_path / "file").read_text() == "mine"


async def test_a_descriptor_becomes_the_files(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    async with fs.open(writing, "wb") as file:
        await file.write(b"through a pipe")
    async with fs.open(reading, "rb", 0) as file:
        assert await file.read(100) == b"through a pipe"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


def test_on_another_loop_that_is_said(text_file: Path) -> None:
    async def main() -> None:
        for operation in (fs.open(text_file), fs.stat(text_file), fs.read_bytes(text_file), fs.exists("x")):
            with pytest.raises(RuntimeError, match=r"whorl\.fs needs a running loop of Whorl's"):
                await operation

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main())


# Reading and writing, compared with Python's own files.

CONTENTS = {
    "nothing": b"",
    "lines": b"one\ntwo\r\nthree\rfour\n\n\nend",
    "utf-8": TEXT.encode() * 50,
    "no text": bytes(range(256)) * 4,
    "one long line": b"x" * 100_000,
    "longer than a buffer": b"".join(b"line %d\n" % number for number in range(20_000)),
    "cut character": "✓".encode()[:2],
}
MODES: list[dict[str, Any]] = [
    {"mode": "rb"},
    {"mode": "rb", "buffering": 0},
    {"mode": "rb", "buffering": 5},
    {"mode": "rb+"},
    {"mode": "r", "encoding": "utf-8"},
    {"mode": "r", "encoding": "utf-8", "errors": "replace"},
    {"mode": "r", "encoding": "latin-1", "newline": ""},
    {"mode": "r", "encoding": "latin-1", "newline": "\r"},
    {"mode": "r", "encoding": "latin-1", "newline": "\r\n"},
    {"mode": "r+", "encoding": "latin-1"},
    {"mode": "r", "encoding": "utf-16", "errors": "replace"},
    {"mode": "r", "encoding": "utf-8-sig", "errors": "ignore"},
]
READS: list[tuple[str, tuple[Any, ...]]] = [
    ("read", ()),
    ("read", (-1,)),
    ("read", (None,)),
    ("read", (0,)),
    ("read", (1,)),
    ("read", (10,)),
    ("read", (70_000,)),
    ("readline", ()),
    ("readline", (3,)),
    ("readlines", ()),
    ("readlines", (20,)),
    ("seek", (0,)),
    ("seek", (0, 2)),
    ("tell", ()),
    ("back", ()),
]


async def outcome(function: Any, *args: Any) -> Any:
    """Return a result, or the type of the error."""
    try:
        result = function(*args)
        return await result if asyncio.iscoroutine(result) else result
    except (OSError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("arguments", MODES, ids=lambda arguments: "-".join(map(repr, arguments.values())))
@pytest.mark.parametrize("name", CONTENTS)
async def test_reading_is_like_pythons(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENTS[name])
    choices = random.Random(name + str(arguments))
    for _ in range(2):
        async with fs.open(path, **arguments) as ours:
            with open(path, **arguments) as theirs:
                told = ours_told = 0  # In text, numbers that only their file understands.
                for _ in range(8):
                    method, args = choices.choice(READS)
                    if method == "back":
                        if "\r" in CONTENTS[name].decode("latin-1") and arguments.get("newline") is not None:
                            continue  # Python itself loses its way there.
                        theirs.seek(told)
                        await ours.seek(ours_told)
                        continue
                    expected = await outcome(getattr(theirs, method), *args)
                    if method == "read" and arguments.get("buffering") == 0 and args != ():
                        # Unbuffered, a call may give less than is asked for.
                        found = await ours.read(*args)
                        assert expected.startswith(found)
                        theirs.seek(await ours.tell())
                        continue
                    found = await outcome(getattr(ours, method), *args)
                    assert found == expected or (method == "tell" and "b" not in ours.mode), (method, args)
                    if isinstance(expected, type):
                        break  # After an error in the text nobody knows where he is.
                    theirs.flush()  # After some lines of text were read it would not tell.
                    told, ours_told = theirs.tell(), await ours.tell()
                    assert told == ours_told or "b" not in ours.mode


@pytest.mark.slow
async def test_lines_are_iterated_and_the_reader_may_turn_to_something_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    lines = [f"line {number} {'.' * (number % 60)}\n" for number in range(10_000)]  # several buffers full
    path.write_text("".join(lines))
    for mode in ("r", "rb", "r+"):
        expected: list[Any] = [line.encode() for line in lines] if "b" in mode else lines
        async with fs.open(path, mode) as file:
            assert [line async for line in file] == expected
            assert not await file.readline()
            await file.seek(0)
            async for line in file:
                if line == expected[3333]:
                    break
            assert await file.readline() == expected[3334]
            position = await file.tell()
            assert await file.read(6) == expected[3335][:6]
            await file.seek(position)
            assert await file.readlines() == expected[3335:]


async def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    for mode in ("r", "rb"):
        path.write_text("one\n")
        async with fs.open(path, mode) as file:
            assert len([line async for line in file]) == 1
            with path.open("a") as writer:
                writer.write("two\n")
            assert await file.readline() in ("two\n", b"two\n")
            assert await file.readline() in ("", b"")
            with path.open("a") as writer:
                writer.write("three\n")
            assert [line async for line in file] in (["three\n"], [b"three\n"])


async def test_an_error_in_the_text_comes_after_the_lines_before_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"good\n" * 10_000 + b"\xff\n" + b"good\n")
    seen = 0
    async with fs.open(path, encoding="ascii") as file:
        with pytest.raises(UnicodeDecodeError):  # noqa: PT012
            while await file.readline():
                seen += 1
    with path.open(encoding="ascii") as theirs, contextlib.suppress(UnicodeDecodeError):
        for _ in theirs:
            seen -= 1
    assert abs(seen) * 5 <= 128 * 1024  # Which lines come before it depends on how much is read at once.


@pytest.mark.parametrize("mode", ["w", "wb", "x", "a", "ab", "w+", "wb+", "a+", "r+"])
async def test_writing_is_like_pythons(tmp_path: Path, mode: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    if "x" not in mode:
        ours.write_bytes(b"former content\n")
        theirs.write_bytes(b"former content\n")
    choices = random.Random(mode)
    encoding = None if "b" in mode else "utf-8"
    with open(theirs, mode, encoding=encoding) as expected:
        async with fs.open(ours, mode, encoding=encoding) as file:
            for _ in range(60):
                text = choices.choice(["x", "line\n", "Ünïcödé✓", "long " * 5000])
                data: Any = text.encode() if "b" in mode else text
                assert await file.write(data) == expected.write(data)
                what = choices.randrange(8)
                if what == 0 and mode == "ab":  # CPython 3.14 loses count of what it appends
                    expected.flush()
                    assert await file.tell() == theirs.stat().st_size
                elif what == 0:
                    assert await file.tell() == expected.tell()
                elif what == 1:
                    await file.flush()
                    expected.flush()
                    assert ours.read_bytes() == theirs.read_bytes()
                elif what == 2:
                    await file.writelines([data, data])
                    expected.writelines([data, data])
                elif what == 3:
                    position = choices.randrange(20)
                    assert await file.seek(position) == expected.seek(position)
                elif what == 4:
                    assert await file.truncate() == expected.truncate()
    assert ours.read_bytes() == theirs.read_bytes()


async def test_newlines_and_encodings_are_written(tmp_path: Path) -> None:
    for encoding, newline in [("utf-16", "\r\n"), ("utf-8", "\r\n"), ("latin-1", "\r"), ("utf-8-sig", None)]:
        path = tmp_path / "file"
        async with fs.open(path, "w", encoding=encoding, newline=newline) as file:
            for _ in range(1000):
                await file.write("a line\n")
        with path.open(encoding=encoding, newline="") as theirs:
            assert theirs.read() == ("a line" + (newline or "\n")) * 1000


async def test_many_small_writes_are_one_trip_to_a_thread(tmp_path: Path) -> None:
    async with fs.open(tmp_path / "file", "wb") as file:
        await file.write(b"0")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, whorl.EventLoop)
        for number in range(1, 1000):
            coroutine = file.write(b"%d" % (number % 10))
            with pytest.raises(StopIteration):
                coroutine.send(None)
    assert (tmp_path / "file").read_bytes() == b"0123456789" * 100


async def test_file_write_locks_a_mutable_buffer_until_it_is_done(tmp_path: Path) -> None:
    data = bytearray(b"x" * 200_000)
    async with fs.open(tmp_path / "file", "wb") as file:
        writing = asyncio.ensure_future(file.write(data))
        await asyncio.sleep(0)
        if not writing.done():
            with pytest.raises(BufferError):
                data.clear()
        assert await writing == 200_000
        data.clear()
        assert await file.write(memoryview(array.array("H", [1, 2, 3]))) == 6
    assert (tmp_path / "file").stat().st_size == 200_006


async def test_a_buffer_is_read_into(text_file: Path) -> None:
    buffer = bytearray(5)
    async with fs.open(text_file, "rb") as file:
        assert await file.readinto(buffer) == 5
        assert (buffer, await file.tell()) == (b"first", 5)
        assert await file.read1(3)
        with pytest.raises(TypeError):
            await file.readinto(b"read only")
    buffer.clear()
    async with fs.open(text_file) as text:
        with pytest.raises(AttributeError):
            await text.readinto(bytearray(1))


async def test_wrong_types_and_directions_are_refused(text_file: Path, tmp_path: Path) -> None:
    async with fs.open(text_file) as text, fs.open(tmp_path / "new", "wb") as binary:
        with pytest.raises(io.UnsupportedOperation):
            await text.write("x")
        with pytest.raises(TypeError):
            await text.write(b"x")
        with pytest.raises(TypeError):
            await binary.write("x")
        with pytest.raises(io.UnsupportedOperation):
            await binary.read()
        with pytest.raises(io.UnsupportedOperation):
            await binary.readline()
        with pytest.raises(io.UnsupportedOperation):
            await anext(binary)


async def test_an_error_of_writing_comes_at_the_flush_or_at_the_end() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    file = await fs.open("/dev/full", "wb")
    with pytest.raises(OSError, match="No space left") as caught:
        await file.write(b"x")
    assert "in _act" in "".join(str(entry) for entry in caught.traceback)
    with pytest.raises(OSError, match="No space left"):
        await file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file._fd)
    await asyncio.sleep(0)


async def test_operations_of_several_tasks_come_in_order(tmp_path: Path) -> None:
    async with fs.open(tmp_path / "file", "w+") as file:
        await asyncio.gather(*(file.write(f"{number:04}\n") for number in range(500)))
        await file.seek(0)
        found = await asyncio.gather(*(file.readline() for _ in range(500)))
    assert found == [f"{number:04}\n" for number in range(500)]
    async with fs.open(tmp_path / "file") as file:
        found = await asyncio.gather(*(file.readline() for _ in range(500)))
    assert found == [f"{number:04}\n" for number in range(500)]


# Cancelling.


class Gate(Kernel):
    """A kernel whose reads wait at a gate, and that never answers from memory."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        self.opened.set()

    def open_now(self, path: str | bytes) -> int:
        return -errno.EAGAIN

    def read_now(self, fd: int, size: int, offset: int) -> Any:
        return -errno.EAGAIN

    def open_file(self, path: str | bytes, flags: int, mode: int) -> int:
        self.wait()
        return super().open_file(path, flags, mode)

    def read_file_into(self, fd: int, views: list[memoryview], offset: int) -> int:
        self.wait()
        return super().read_file_into(fd, views, offset)

    def write_file(self, fd: int, views: list[memoryview], offset: int) -> int:
        self.wait()
        return super().write_file(fd, views, offset)

    def wait(self) -> None:
        if not self.opened.is_set():
            self.entered.release()
            self.opened.wait()


async def cancel_under_way(gate: Gate, coroutine: Any) -> None:
    """Cancel an operation while a thread is at it."""
    gate.opened.clear()
    task = asyncio.ensure_future(coroutine)
    assert await asyncio.get_running_loop().run_in_executor(None, gate.entered.acquire, True, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.opened.set()


class TestCancelling:
    @pytest.fixture
    def kernel(self) -> Gate:
        return Gate()

    async def test_an_open_that_is_cancelled_leaves_no_descriptor(
        self, loop: whorl.EventLoop, kernel: Gate, text_file: Path
    ) -> None:
        before = await settled_descriptors()
        opening = fs.open(text_file)
        await cancel_under_way(kernel, opening._open())
        while loop.metrics().active_requests:
            await asyncio.sleep(0)
        assert open_descriptors() == before

    async def test_an_open_whose_result_was_on_its_way_leaves_no_descriptor(
        self, loop: whorl.EventLoop, text_file: Path
    ) -> None:
        before = await settled_descriptors()
        for turns in range(8):
            task = asyncio.ensure_future(fs.open(text_file)._open())
            for _ in range(turns):
                await asyncio.sleep(0.001 if turns > 4 else 0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).close()
        while loop.metrics().active_requests:
            await asyncio.sleep(0)
        assert open_descriptors() == before

    @pytest.mark.parametrize("mode", ["r", "rb", "r+", "rb+"])
    async def test_a_read_that_is_cancelled_moves_no_position(
        self, kernel: Gate, text_file: Path, mode: str
    ) -> None:
        whole: Any = TEXT.encode() if "b" in mode else TEXT
        async with fs.open(text_file, mode, encoding=None if "b" in mode else "utf-8") as file:
            await cancel_under_way(kernel, file.read(4))
            assert await file.tell() == 0
            assert await file.read() == whole
        async with fs.open(text_file, mode, encoding=None if "b" in mode else "utf-8") as file:
            await cancel_under_way(kernel, anext(file))
            assert await file.readline() == whole[:11]
            assert await file.read() == whole[11:]

    async def test_a_position_in_the_middle_is_kept_too(self, kernel: Gate, text_file: Path) -> None:
        async with fs.open(text_file, "rb", 0) as file:
            await file.seek(6)
            await cancel_under_way(kernel, file.read(4))
            assert await file.tell() == 6
            assert await file.readline() == b"line\n"

    async def test_a_write_that_is_cancelled_is_written_once(self, kernel: Gate, tmp_path: Path) -> None:
        async with fs.open(tmp_path / "file", "wb") as file:
            await cancel_under_way(kernel, file.write(b"cancelled "))
            await file.write(b"and on")
        assert (tmp_path / "file").read_bytes() == b"cancelled and on"

    async def test_a_file_is_closed_even_if_who_closes_it_is_cancelled(
        self, loop: whorl.EventLoop, kernel: Gate, tmp_path: Path
    ) -> None:
        before = await settled_descriptors()
        file = await fs.open(tmp_path / "file", "wb", 100_000)
        await file.write(b"1")
        file._buffer_free = 100  # so that this waits in the buffer
        await file.write(b"2")
        await cancel_under_way(kernel, file.close())
        await file.close()
        assert (tmp_path / "file").read_bytes() == b"12"
        assert open_descriptors() == before

    async def test_a_file_is_closed_after_what_is_under_way(
        self, loop: whorl.EventLoop, kernel: Gate, text_file: Path
    ) -> None:
        before = await settled_descriptors()
        file = await fs.open(text_file, "rb")
        kernel.opened.clear()
        reading = asyncio.ensure_future(file.read())
        await loop.run_in_executor(None, kernel.entered.acquire)
        waiting = asyncio.ensure_future(file.read())
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(file.close())
        await asyncio.sleep(0)
        assert file.closed
        assert not closing.done()
        kernel.opened.set()
        assert await reading == TEXT.encode()
        await closing
        with pytest.raises(ValueError, match="closed file"):
            await waiting
        while loop.metrics().active_requests:
            await asyncio.sleep(0)
        assert open_descriptors().items() <= before.items()


async def test_cancelled_request_that_waits_for_a_thread_is_withdrawn(tmp_path: Path) -> None:
    entered, opened = threading.Event(), threading.Event()

    class OneThread(Host):
        pool = ThreadPool(1)

        def thread_pool(self) -> ThreadPool:
            return self.pool

    async def main() -> None:
        loop = asyncio.get_running_loop()
        Work(loop, lambda: (entered.set(), opened.wait()))  # type: ignore[arg-type]
        entered.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await fs.mkdir(tmp_path / "never")
        opened.set()
        await fs.mkdir(tmp_path / "dir")

    thread = threading.Thread(target=lambda: whorl.run(main(), host=OneThread()))
    thread.start()
    await asyncio.get_running_loop().run_in_executor(None, thread.join)
    assert os.listdir(tmp_path) == ["dir"]


# Whole files, and names.


async def test_whole_files_are_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 65_536, 65_537, 300_000):
        data = os.urandom(size)
        assert await fs.write_bytes(path, bytearray(data)) == size
        assert await fs.read_bytes(path) == data == path.read_bytes()
    assert await fs.write_text(path, "Ünïcödé\n", "utf-16", newline="\r\n") == 8
    assert await fs.read_text(path, "utf-16") == "Ünïcödé\n"
    assert path.read_bytes().startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    with pytest.raises(UnicodeDecodeError):
        await fs.read_text(path, "utf-8")
    with pytest.raises(TypeError):
        await fs.write_text(path, b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await fs.write_bytes(path, "x")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError) as caught:
        await fs.read_bytes(tmp_path / "nowhere")
    assert caught.value.filename == str(tmp_path / "nowhere")
    assert b"Name:" in await fs.read_bytes("/proc/self/status")


async def test_names_are_handled_as_by_os(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    await fs.makedirs(deep)
    with pytest.raises(FileExistsError):
        await fs.makedirs(deep)
    await fs.makedirs(str(deep) + "/", exist_ok=True)
    await fs.mkdir(deep / "dir", 0o700)
    await fs.write_bytes(deep / "file", b"12345")
    await fs.symlink("file", deep / "link")
    await fs.link(deep / "file", deep / "hard")
    assert await fs.readlink(deep / "link") == "file"
    assert await fs.realpath(deep / "link") == str((deep / "file").resolve())
    assert await fs.listdir(deep) == ["dir", "file", "hard", "link"]
    entries = await fs.scandir(deep)
    assert [(e.name, e.is_dir(), e.is_file(), e.is_symlink()) for e in entries] == [
        ("dir", True, False, False),
        ("file", False, True, False),
        ("hard", False, True, False),
        ("link", False, False, True),
    ]
    assert os.fspath(entries[0]) == str(deep / "dir")
    for path in (deep, deep / "file", deep / "link", deep / "nowhere", "a\0b"):
        known = os.path.exists(path), os.path.isfile(path), os.path.isdir(path), os.path.islink(path)
        assert known == (
            await fs.exists(path), await fs.is_file(path), await fs.is_dir(path), await fs.is_symlink(path)
        )  # fmt: skip
    assert (await fs.stat(deep / "link")).st_size == 5
    assert await fs.lstat(deep / "link") == os.lstat(deep / "link")
    await fs.unlink(deep / "hard")
    await fs.write_bytes(deep / "hard", b"12345")
    await fs.rename(deep / "hard", deep / "other")
    await fs.replace(deep / "other", deep / "file")
    await fs.chmod(deep / "file", 0o600)
    await fs.chown(deep / "link", -1, -1, follow_symlinks=False)
    await fs.utime(deep / "file", (1, 2.5))
    assert (deep / "file").stat().st_mtime_ns == 2_500_000_000
    await fs.utime(deep / "file", ns=(3, 4))
    assert (deep / "file").stat().st_mtime_ns == 4
    await fs.utime(deep / "file")
    assert (deep / "file").stat().st_mtime > 1e9
    assert await fs.access(deep / "file", os.R_OK)
    assert not await fs.access(deep / "nowhere", os.R_OK)
    await fs.copyfile(deep / "file", deep / "copy")
    assert (await fs.statfs(deep)).bsize > 0
    await fs.remove(deep / "copy")
    await fs.unlink(deep / "link")
    await fs.rmdir(deep / "dir")
    assert await fs.listdir(deep) == ["file"]


async def test_a_tree_is_walked(tmp_path: Path) -> None:
    for name in ("a/b", "a/c", "d"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    found = [(top, sorted(directories), files) async for top, directories, files in fs.walk(tmp_path)]
    expected = [(top, sorted(directories), sorted(files)) for top, directories, files in os.walk(tmp_path)]
    assert sorted(found) == sorted(expected)
    assert [row async for row in fs.walk(tmp_path / "nowhere")] == []


async def test_a_path_is_a_pure_path_whose_questions_are_awaited(tmp_path: Path) -> None:
    path = fs.Path(tmp_path) / "folder" / "file.txt"
    assert (path.name, path.suffix, path.parent.name) == ("file.txt", ".txt", "folder")
    assert os.fspath(path) == str(tmp_path / "folder" / "file.txt")
    await path.parent.mkdir()
    await path.parent.mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        await path.parent.mkdir()
    assert await path.write_text("text\n") == 5
    assert (await path.read_text(), await path.read_bytes()) == ("text\n", b"text\n")
    async with path.open() as file:
        assert [line async for line in file] == ["text\n"]
    link = path.with_name("link")
    await link.symlink_to("file.txt")
    assert await link.readlink() == fs.Path("file.txt")
    assert await link.resolve() == fs.Path(os.path.realpath(tmp_path)) / "folder" / "file.txt"
    await path.with_name("hard").hardlink_to(path)
    assert [entry.name async for entry in path.parent.iterdir()] == ["file.txt", "hard", "link"]
    assert (await path.exists(), await path.is_file(), await path.is_dir()) == (True, True, False)
    assert await link.is_symlink()
    assert (await link.lstat()).st_ino != (await link.stat()).st_ino
    await path.chmod(0o600)
    other = await path.rename(path.with_suffix(".md"))
    await (await other.replace(path)).unlink()
    await path.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        await path.unlink()
    await path.touch()
    assert (await path.stat()).st_size == 0
    with pytest.raises(FileExistsError):
        await path.touch(exist_ok=False)
    await (path / "..").parent.with_name("deep").joinpath("er").mkdir(parents=True)
    await path.parent.joinpath("deep", "er").rmdir()
    assert await path.write_bytes(b"x") == 1


# Errors.


async def test_an_error_has_a_short_traceback(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        await fs.mkdir(tmp_path / "nowhere" / "dir")
    assert [entry.name for entry in caught.traceback][1:] == ["mkdir", "await_call", "await_request"]
    assert caught.value.__context__ is None


async def test_a_file_that_nobody_closed_complains_and_is_closed(text_file: Path, tmp_path: Path) -> None:
    before = await settled_descriptors()
    for mode, path in (("rb", text_file), ("w", tmp_path / "new")):
        file = await fs.open(path, mode)
        holder = [file]
        del file
        with pytest.warns(ResourceWarning, match="unclosed file"):
            holder.clear()
    assert open_descriptors() == before


def test_a_loop_that_ends_with_files_open_leaks_nothing(text_file: Path) -> None:
    before = open_descriptors()

    async def main() -> None:
        for _ in range(10):
            asyncio.ensure_future(fs.open(text_file)._open())  # noqa: RUF006
        await asyncio.sleep(0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(20):
            whorl.run(main())
        gc.collect()
    while not open_descriptors().items() <= before.items():  # what a thread opens for nobody it closes
        loop = whorl.Loop()
        Work(loop, lambda: None)
        loop.run()
        loop.close()
