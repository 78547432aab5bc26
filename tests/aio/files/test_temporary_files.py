"""Temporary files and directories: as those of `tempfile`, and gone whatever happens."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from whorl import fs
from whorl.core import Kernel

pytestmark = pytest.mark.usefixtures("kernel", "nothing_left")


@pytest.fixture(params=["real", "with faults"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Return the real kernel, or one that shortens calls and is interrupted."""
    if request.param == "real":
        return Kernel()
    return FaultKernel(1, FaultRates(short=0.3, again=0.3, interrupted=0.2, no_buffers=0))


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Fail if a test leaves a file in its folder."""
    yield
    assert os.listdir(tmp_path) == []


async def test_a_temporary_file_has_no_name(tmp_path: Path) -> None:
    async with fs.TemporaryFile(dir=tmp_path) as file:
        assert os.listdir(tmp_path) == []
        assert file.name == file.fileno()
        assert await file.write(b"abc") == 3
        await file.seek(0)
        assert await file.read() == b"abc"
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
        assert not os.get_inheritable(file.fileno())
    assert file.closed


async def test_a_temporary_file_may_be_awaited_and_be_text(tmp_path: Path) -> None:
    file = await fs.TemporaryFile("w+", encoding="latin-1", newline="\r\n", dir=tmp_path, errors="replace")
    await file.write("\xe4\u2713\n")
    await file.flush()
    assert os.pread(file.fileno(), 10, 0) == b"\xe4?\r\n"
    await file.close()


async def test_a_named_file_is_removed_when_it_is_closed(tmp_path: Path) -> None:
    file = await fs.NamedTemporaryFile(suffix=".end", prefix="begin-", dir=tmp_path)
    (name,) = os.listdir(tmp_path)
    assert file.name == str(tmp_path / name)
    assert name.startswith("begin-")
    assert name.endswith(".end")
    await file.write(b"content")
    await file.flush()
    assert (tmp_path / name).read_bytes() == b"content"
    await file.close()
    assert os.listdir(tmp_path) == []
    await file.close()


async def test_a_named_file_stays_without_delete(tmp_path: Path) -> None:
    async with fs.NamedTemporaryFile("w", dir=tmp_path, delete=False) as file:
        await file.write("stays")
    assert Path(file.name).read_text() == "stays"
    os.remove(file.name)


async def test_temporary_file_without_delete_on_close_is_removed_by_async_with(tmp_path: Path) -> None:
    async with fs.NamedTemporaryFile(dir=tmp_path, delete_on_close=False) as file:
        await file.write(b"read by others")
        await file.close()
        assert Path(file.name).read_bytes() == b"read by others"
    assert os.listdir(tmp_path) == []
    async with await fs.NamedTemporaryFile(dir=tmp_path, delete_on_close=False) as file:
        await file.close()
        assert os.listdir(tmp_path)


async def test_a_named_file_that_was_moved_away_is_no_error(tmp_path: Path) -> None:
    async with fs.NamedTemporaryFile(dir=tmp_path) as file:
        os.rename(file.name, tmp_path / "moved")
    os.remove(tmp_path / "moved")


async def test_a_named_file_that_nobody_closed_is_removed(tmp_path: Path) -> None:
    holder: list[Any] = [await fs.NamedTemporaryFile(dir=tmp_path)]
    with pytest.warns(ResourceWarning, match="unclosed file"):
        holder.clear()


async def test_temporary_files_and_directories_are_removed_on_cancellation(tmp_path: Path) -> None:
    async def write() -> None:
        async with fs.NamedTemporaryFile(dir=tmp_path) as file:
            await file.write(b"x")
            inside.set()
            await asyncio.sleep(3600)

    async def tidy() -> None:
        async with fs.TemporaryDirectory(dir=tmp_path) as folder:
            Path(folder, "file").touch()
            inside.set()
            await asyncio.sleep(3600)

    for work in (write, tidy):
        for again in (False, True):
            inside = asyncio.Event()
            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            if again:
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])
            while os.listdir(tmp_path):
                await asyncio.sleep(0.001)


async def test_an_opening_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async def enter(manager: Any) -> None:
        async with manager:
            await asyncio.sleep(3600)

    for steps in range(4):
        for make in (fs.TemporaryFile, fs.NamedTemporaryFile, fs.TemporaryDirectory):
            task = asyncio.create_task(enter(make(dir=tmp_path)))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
    while os.listdir(tmp_path):
        await asyncio.sleep(0.001)


async def test_a_temporary_directory_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    async with fs.TemporaryDirectory(suffix=".d", prefix="x", dir=tmp_path) as folder:
        assert os.path.basename(folder).startswith("x")
        assert folder.endswith(".d")
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        os.makedirs(os.path.join(folder, "a", "b"))
        Path(folder, "a", "file").write_text("x")
    assert not os.path.exists(folder)


async def test_a_temporary_directory_may_be_awaited_and_kept(tmp_path: Path) -> None:
    directory = await fs.TemporaryDirectory(dir=tmp_path)
    assert os.path.isdir(directory.name)
    with pytest.raises(RuntimeError):
        await directory
    await directory.cleanup()
    await directory.cleanup()
    async with fs.TemporaryDirectory(dir=tmp_path, delete=False) as folder:
        pass
    os.rmdir(folder)


async def test_errors_of_removing_are_raised_or_ignored(tmp_path: Path) -> None:
    async with fs.TemporaryDirectory(dir=tmp_path, ignore_cleanup_errors=True) as folder:
        os.rename(folder, tmp_path / "elsewhere")
        Path(folder).touch()
    os.remove(folder)
    os.rmdir(tmp_path / "elsewhere")


async def test_names_are_those_of_tempfile(tmp_path: Path) -> None:
    fd, path = await fs.mkstemp(".s", "p", tmp_path)
    assert os.path.basename(path).startswith("p")
    assert path.endswith(".s")
    os.write(fd, b"x")
    os.close(fd)
    os.remove(path)
    encoded = await fs.mkdtemp(b".s", None, os.fsencode(tmp_path))
    assert encoded.startswith(os.fsencode(tmp_path) + b"/tmp")
    os.rmdir(encoded)
    other = await fs.mkdtemp()
    assert os.path.dirname(other) == await fs.gettempdir() == tempfile.gettempdir()
    await fs.rmdir(other)
    with pytest.raises(TypeError, match="mix bytes"):
        await fs.mkdtemp(b"x", "y")


async def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(FileNotFoundError):
        await fs.TemporaryFile(dir=nowhere)
    with pytest.raises(FileNotFoundError):
        await fs.mkdtemp(dir=nowhere)
    with pytest.raises(FileNotFoundError):
        await fs.TemporaryDirectory(dir=nowhere)
    with pytest.raises(ValueError, match="mode"):
        fs.NamedTemporaryFile("q")
