"""Files that stay in memory until they are large, compared with `tempfile`'s."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from whorl import fs
from whorl.core import Kernel

pytestmark = pytest.mark.usefixtures("kernel", "nothing_left")

LINES = ["one\n", "two\n", "drei \u00e4\n", "x" * 50 + "\n"]


class NoSpace(Kernel):
    """A disk that is full once a test says so."""

    is_full = False

    def write_file(self, fd: int, buffers: Any, offset: int) -> int:
        return -errno.ENOSPC if self.is_full else super().write_file(fd, buffers, offset)


@pytest.fixture(params=["real", "with faults"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Return the real kernel, or one that shortens calls and is interrupted."""
    if request.param == "real":
        return NoSpace()
    return FaultKernel(1, FaultRates(short=0.3, again=0, interrupted=0.2, no_buffers=0))


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Fail if a test leaves a file in its folder."""
    yield
    assert os.listdir(tmp_path) == []


async def outcome(file: Any, method: str, arguments: tuple[Any, ...]) -> Any:
    """Return the result of a call, or the kind of its error."""
    try:
        result = getattr(file, method)(*arguments)
        return await result if asyncio.iscoroutine(result) else result
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("seed", range(12))
async def test_random_programs_see_what_they_see_on_tempfile(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    is_text = seed % 2 == 1
    options: dict[str, Any] = {"dir": tmp_path, "max_size": rng.choice([0, 20, 100])}
    options |= {"mode": "w+", "encoding": "utf-8", "newline": ""} if is_text else {"mode": "w+b"}
    ours = fs.SpooledTemporaryFile(**options)
    theirs = tempfile.SpooledTemporaryFile(**options)
    positions = [0]
    for _ in range(60):
        data: Any = rng.choice(LINES) if is_text else rng.choice(LINES).encode()
        method, arguments = rng.choice(
            [
                ("write", (data,)),
                ("write", (data,)),
                ("writelines", ([data, data],)),
                ("read", (rng.choice([-1, 3]),)),
                ("readline", ()),
                ("readlines", ()),
                ("seek", (rng.choice(positions),)),
                ("seek", (0, os.SEEK_END)),
                ("tell", ()),
                ("flush", ()),
                ("truncate", (rng.choice([0, 10, 50]),)),
                ("write", (7,)),
            ]
        )
        if is_text and method != "tell":  # Text that is read and written in turn needs to be told where.
            where = (rng.choice(positions),) if method.startswith("read") else (0, os.SEEK_END)
            for file in (theirs, ours):
                await outcome(file, "seek", where)
        expected = await outcome(theirs, method, arguments)
        found = await outcome(ours, method, arguments)
        assert found == expected or method == "seek", (method, arguments)  # theirs tells nothing
        assert (ours.name is not None) == theirs._rolled, (method, arguments)
        if method == "tell" and isinstance(found, int):
            positions.append(found)
    await ours.seek(0)
    theirs.seek(0)
    assert await ours.read() == theirs.read()
    theirs.close()
    await ours.close()


async def test_spooled_file_moves_to_the_disk_beyond_max_size(tmp_path: Path) -> None:
    async with fs.SpooledTemporaryFile(max_size=10, dir=tmp_path) as file:
        assert await file.write(b"x" * 10) == 10
        assert file.name is None
        assert await file.write(b"y") == 1
        assert file.name == file.fileno()
        assert not os.get_inheritable(file.fileno())
        assert await file.tell() == 11
        await file.seek(8)
        assert await file.read() == b"xxy"
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.fileno()


async def test_asking_for_its_descriptor_puts_it_on_the_disk(tmp_path: Path) -> None:
    file = await fs.SpooledTemporaryFile(mode="w+", encoding="utf-16", dir=tmp_path)
    await file.write("\u00e4bc\n")
    await file.seek(0)
    assert os.fstat(file.fileno()).st_size == len("\u00e4bc\n".encode("utf-16"))
    assert [line async for line in file] == ["\u00e4bc\n"]
    await file.close()
    await file.close()


async def test_a_rollover_that_fails_leaves_the_file_in_memory(tmp_path: Path, kernel: Kernel) -> None:
    if not isinstance(kernel, NoSpace):
        pytest.skip("this kernel has room")
    file = fs.SpooledTemporaryFile(max_size=3, dir=tmp_path)
    kernel.is_full = True
    await fs.gettempdir()  # by now the loop has what it needs to hear of threads
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="No space"):
        await file.write(b"abcd")
    with pytest.raises(OSError, match="No space"):
        file.fileno()
    assert os.listdir("/proc/self/fd") == before
    kernel.is_full = False
    await file.rollover()
    await file.seek(0)
    assert await file.read() == b"abcd"
    await file.close()


async def test_a_cancelled_rollover_loses_nothing(tmp_path: Path) -> None:
    file = fs.SpooledTemporaryFile(dir=tmp_path)
    await file.write(b"abcd")
    await fs.gettempdir()  # by now the loop has what it needs to hear of threads
    before = set(os.listdir("/proc/self/fd"))
    task = asyncio.ensure_future(file.rollover())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await file.seek(0)
    assert await file.read() == b"abcd"
    await file.close()
    left = before
    for _ in range(1000):  # A thread may have begun; what it made is given back in a turn of the loop.
        left = set(os.listdir("/proc/self/fd")) - before
        if not left:
            return
        await asyncio.sleep(0.001)
    pytest.fail(f"descriptors were left: {[os.readlink(f'/proc/self/fd/{fd}') for fd in left]}")


async def test_spooled_file_attributes_survive_rollover(tmp_path: Path) -> None:
    file = fs.SpooledTemporaryFile(100, "w+", encoding="ascii", errors="replace", dir=tmp_path)
    for _ in range(2):
        assert (file.mode, file.encoding, file.errors, file.closed) == ("w+", "ascii", "replace", False)
        assert file.readable()
        assert file.writable()
        assert file.seekable()
        assert not file.isatty()
        await file.rollover()
    await file.close()
    with pytest.raises(ValueError, match="closed"):
        await file.read()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="mode"):
        fs.SpooledTemporaryFile(mode="q")
    with pytest.raises(ValueError, match="binary mode"):
        fs.SpooledTemporaryFile(encoding="utf-8")
    with pytest.raises(TypeError, match="mix"):
        fs.SpooledTemporaryFile(suffix=b"a", prefix="b")


def test_on_another_loop_it_is_refused() -> None:
    async def main() -> None:
        async with fs.SpooledTemporaryFile():
            pass

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner, pytest.raises(RuntimeError):
        runner.run(main())
