"""Refused memory leaves no crash and no open descriptor behind, and a loop and an inspector that work."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whorl
from whorl.aio.futures.future import Future, new_future
from whorl.aio.futures.task import create_task

_testcapi: Any = pytest.importorskip("_testcapi", reason="its set_nomemory refuses memory")

#: Every how many allocations one is refused, and up to which.
STEP = int(os.environ.get("WHORL_REFUSAL_STEP", "3"))
LAST = int(os.environ.get("WHORL_REFUSAL_LAST", "150"))
pytestmark = pytest.mark.gil("CPython 3.13t frees items of an earlier list when a new one gets no memory")
#: Uncompiled, the loop's own turns make objects all the time, and an error there is as in any Python program.
COMPILED = pytest.mark.skipif(not whorl.compiled, reason="about what is compiled")


NAMES = ["accept", "connect", "write", "receive", "timer", "executor", "udp", "tls", "failure", "socket"]


def run(name: str, step: int) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "tests.aio.refused_memory", name, "0", str(LAST), str(step)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = answer.stdout.splitlines()
    assert answer.returncode == 0, f"{lines[-1:]}\n{answer.stderr[-3000:]}"
    assert lines[-1] == "done"


@pytest.mark.slow
@COMPILED
@pytest.mark.parametrize("name", NAMES)
def test_refused_memory_costs_no_more_than_the_operation(name: str) -> None:
    run(name, STEP)


@pytest.mark.slow
@COMPILED
@pytest.mark.parametrize("name", NAMES)
def test_inspector_survives_refused_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(tmp_path / "inspected"))
    monkeypatch.setenv("WHORL_INSPECT", "threshold=20ms,ring=64KiB,all=1")
    run(name, 5 * STEP)


async def wait() -> None:
    await asyncio.sleep(0)


@COMPILED
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda loop, coro: Future(loop=loop), id="Future"),
        pytest.param(lambda loop, coro: new_future(loop), id="new_future"),
        pytest.param(lambda loop, coro: create_task(loop, coro), id="create_task"),
    ],
)
def test_future_that_got_no_memory_has_no_exception_to_report(make: Callable[[Any, Any], Any]) -> None:
    contexts: list[Any] = []
    loop: Any = whorl.new_event_loop()
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    coro = wait()
    made: Any = None
    refused = 0
    kept: list[Any] = []
    while made is None:
        kept.extend({} for _ in range(200))  # CPython has none left that it would use again
        try:
            _testcapi.set_nomemory(refused, refused + 1)
            made = make(loop, coro)
        except MemoryError:
            refused += 1
        finally:
            try:
                _testcapi.remove_mem_hooks()
            except MemoryError:  # The one that is refused may be this call's.
                _testcapi.remove_mem_hooks()
    assert 2 <= refused < 50
    if isinstance(made, asyncio.Task):
        loop.run_until_complete(made)
    coro.close()
    loop.close()
    assert not any("exception" in context for context in contexts)
