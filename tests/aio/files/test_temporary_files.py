"""New files and directories: their names are those of `tempfile`, and a cancelled call leaves nothing."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import settled_descriptors
from tests.core.conftest import open_descriptors
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


async def test_temporary_names_are_for_their_owner_only(tmp_path: Path) -> None:
    fd, path = await fs.mkstemp(dir=tmp_path)
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
    assert not os.get_inheritable(fd)
    os.close(fd)
    os.remove(path)
    folder = await fs.mkdtemp(dir=tmp_path)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    os.rmdir(folder)


async def test_cancelled_mkstemp_and_mkdtemp_leave_nothing(tmp_path: Path, loop: whorl.EventLoop) -> None:
    def remove_file(made: tuple[int, str]) -> None:
        os.close(made[0])
        os.remove(made[1])

    async def make_and_remove(make: Any, remove: Any) -> None:
        remove(await make(dir=tmp_path))

    before = await settled_descriptors()
    for steps in range(4):
        for make, remove in ((fs.mkstemp, remove_file), (fs.mkdtemp, os.rmdir)):
            task = asyncio.create_task(make_and_remove(make, remove))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
    while loop.metrics().active_requests:
        await asyncio.sleep(0)
    assert os.listdir(tmp_path) == []
    assert open_descriptors() == before


async def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for make in (fs.mkstemp, fs.mkdtemp):
        with pytest.raises(FileNotFoundError):
            await make(dir=tmp_path / "nowhere")
