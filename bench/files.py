"""Small files that lie in memory: their status, and reading them.

A case is `files/OPERATION/LIBRARY`. With `aiofiles` and `anyio` every loop runs that library. With
`fs-aiofiles` and `fs-anyio` Whorl runs `whorl.fs` and the other loops run the library: the ratio compares the
functions that a program would use there.
"""

import asyncio
import functools
import importlib
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

LIBRARIES = ("aiofiles", "anyio", "fs-aiofiles", "fs-anyio")
REPEATS = 500
LINES = 31
CONTENT = b"a line of some thirty characters\n" * LINES  # about a KiB


def register(case: Callable[[str, int], Callable[[Any], Any]]) -> None:
    """Add every case to the micro cases."""
    for operation, act in OPERATIONS.items():
        for library in LIBRARIES:
            case(f"files/{operation}/{library}", REPEATS)(partial(batch, act, library))


async def batch(act: Any, library: str) -> None:
    """Run one operation many times."""
    is_ours = type(asyncio.get_running_loop()).__module__.startswith("whorl")
    module = "whorl.fs" if library.startswith("fs-") and is_ours else library.removeprefix("fs-")
    path = os.path.join(tempfile.gettempdir(), "small")
    if not os.path.exists(path):
        Path(path).write_bytes(CONTENT)
    for _ in range(REPEATS):
        await act(module, path)


@functools.cache
def _library(name: str) -> Any:
    return importlib.import_module(name)


async def _open(module: str, *arguments: str) -> Any:
    """Return what `async with` takes: aiofiles and whorl.fs open the file there."""
    if module == "anyio":
        return await _library(module).open_file(*arguments)
    return _library(module).open(*arguments)


async def _stat(module: str, path: str) -> None:
    if module == "anyio":
        await _library(module).Path(path).stat()
    else:
        await _library("aiofiles.os" if module == "aiofiles" else module).stat(path)


async def _read(module: str, path: str) -> None:
    if module == "aiofiles":
        await _open_read_close(module, path)
    elif module == "anyio":
        assert len(await _library(module).Path(path).read_bytes()) == len(CONTENT)
    else:
        assert len(await _library(module).read_bytes(path)) == len(CONTENT)


async def _open_read_close(module: str, path: str) -> None:
    async with await _open(module, path, "rb") as file:
        assert len(await file.read()) == len(CONTENT)


async def _lines(module: str, path: str) -> None:
    count = 0
    async with await _open(module, path) as file:
        async for _ in file:
            count += 1
    assert count == LINES


OPERATIONS = {"stat": _stat, "read": _read, "open-read-close": _open_read_close, "lines": _lines}
