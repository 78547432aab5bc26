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
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

OPERATIONS = ("stat", "read", "open-read-close", "lines")
LIBRARIES = ("aiofiles", "anyio", "fs-aiofiles", "fs-anyio")
REPEATS = 500
CONTENT = b"a line of some thirty characters\n" * 31  # about a KiB

Act = Callable[[str], Awaitable[Any]]


def register(case: Callable[[str, int], Callable[[Any], Any]]) -> None:
    """Add every case to the micro cases."""
    for operation in OPERATIONS:
        for library in LIBRARIES:
            case(f"files/{operation}/{library}", REPEATS)(partial(batch, operation, library))


async def batch(operation: str, library: str) -> None:
    """Run one operation many times."""
    is_ours = type(asyncio.get_running_loop()).__module__.startswith("whorl")
    module = "whorl.fs" if library.startswith("fs-") and is_ours else library.removeprefix("fs-")
    act = ACTS[operation, module]
    folder = os.path.join(tempfile.gettempdir(), f"whorl-bench-{os.getuid()}")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "small")
    if not os.path.exists(path):
        Path(path).write_bytes(CONTENT)
    for _ in range(REPEATS):
        await act(path)


@functools.cache
def _library(name: str) -> Any:
    return importlib.import_module(name)


async def _whorl_stat(path: str) -> None:
    await _library("whorl.fs").stat(path)


async def _whorl_read(path: str) -> None:
    assert len(await _library("whorl.fs").read_bytes(path)) == len(CONTENT)


async def _aiofiles_stat(path: str) -> None:
    await _library("aiofiles.os").stat(path)


async def _anyio_stat(path: str) -> None:
    await _library("anyio").Path(path).stat()


async def _anyio_read(path: str) -> None:
    assert len(await _library("anyio").Path(path).read_bytes()) == len(CONTENT)


async def _open_read(name: str, path: str) -> None:
    async with _library(name).open(path, "rb") as file:
        assert len(await file.read()) == len(CONTENT)


async def _anyio_open_read(path: str) -> None:
    async with await _library("anyio").open_file(path, "rb") as file:
        assert len(await file.read()) == len(CONTENT)


async def _lines(name: str, path: str) -> None:
    count = 0
    async with _library(name).open(path) as file:
        async for _ in file:
            count += 1
    assert count == 31


async def _anyio_lines(path: str) -> None:
    count = 0
    async with await _library("anyio").open_file(path) as file:
        async for _ in file:
            count += 1
    assert count == 31


ACTS: dict[tuple[str, str], Callable[[str], Coroutine[Any, Any, None]]] = {
    ("stat", "whorl.fs"): _whorl_stat,
    ("stat", "aiofiles"): _aiofiles_stat,
    ("stat", "anyio"): _anyio_stat,
    ("read", "whorl.fs"): _whorl_read,
    ("read", "aiofiles"): partial(_open_read, "aiofiles"),
    ("read", "anyio"): _anyio_read,
    ("open-read-close", "whorl.fs"): partial(_open_read, "whorl.fs"),
    ("open-read-close", "aiofiles"): partial(_open_read, "aiofiles"),
    ("open-read-close", "anyio"): _anyio_open_read,
    ("lines", "whorl.fs"): partial(_lines, "whorl.fs"),
    ("lines", "aiofiles"): partial(_lines, "aiofiles"),
    ("lines", "anyio"): _anyio_lines,
}
