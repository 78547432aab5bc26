"""Modules of which each host has its own."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from whorl import sim

SOURCE = """
import time
count = 0
began = time.monotonic()

def add():
    global count
    count += 1
    return count
"""


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a module that counts in a global variable, and a package with it."""
    (tmp_path / "counted.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "counting").mkdir()
    (tmp_path / "counting" / "__init__.py").write_text("from counting.inner import add\n", encoding="utf-8")
    (tmp_path / "counting" / "inner.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("counted")
    for name in ("counted", "counting", "counting.inner"):
        sys.modules.pop(name, None)


async def count(name: str = "counted") -> int:
    return importlib.import_module(name).add()  # type: ignore[no-any-return]


def test_hosts_share_a_module_that_is_not_isolated(counter: ModuleType) -> None:
    async def main(world: sim.World) -> list[int]:
        return [await world.host(name).run(count) for name in ("a", "b", "a")]

    assert sim.run(main).check() == [1, 2, 3]


def test_each_host_has_its_own_of_an_isolated_module(counter: ModuleType) -> None:
    async def main(world: sim.World) -> list[int]:
        world.isolate("counted")
        return [await world.host(name).run(count) for name in ("a", "b", "a", "main")]

    assert sim.run(main).check() == [1, 1, 2, 1]
    assert counter.count == 0


def test_a_module_that_was_imported_before_is_isolated_too(counter: ModuleType) -> None:
    async def main(world: sim.World) -> list[int]:
        async def here() -> int:
            return counter.add()  # type: ignore[no-any-return]

        world.isolate("counted")
        return [await world.host(name).run(here) for name in ("a", "b", "b")]

    assert sim.run(main).check() == [1, 1, 2]


def test_a_new_life_of_a_host_begins_with_new_modules(counter: ModuleType) -> None:
    async def main(world: sim.World) -> list[int]:
        world.isolate("counted")
        host = world.host("server")
        counts = [await host.run(count), await host.run(count)]
        host.restart()
        await asyncio.sleep(1)
        return [*counts, await host.run(count)]

    assert sim.run(main).check() == [1, 2, 1]


def test_the_modules_below_a_package_are_isolated_with_it(counter: ModuleType) -> None:
    importlib.import_module("counting")

    async def main(world: sim.World) -> list[int]:
        world.isolate("counting")
        names = [("a", "counting"), ("a", "counting.inner"), ("b", "counting.inner")]
        return [await world.host(host).run(count, module) for host, module in names]

    assert sim.run(main).check() == [1, 2, 1]


def test_an_isolated_module_is_loaded_at_the_virtual_time(counter: ModuleType) -> None:
    async def main(world: sim.World) -> float:
        async def began() -> float:
            return importlib.import_module("counted").began  # type: ignore[no-any-return]

        world.isolate("counted")
        first = await world.host("a").run(began)
        await asyncio.sleep(100)
        return await world.host("b").run(began) - first  # type: ignore[no-any-return]

    assert 100 <= sim.run(main, faults="none").check() < 101


def test_a_module_is_shared_again_when_the_world_has_ended(counter: ModuleType) -> None:
    async def main(world: sim.World) -> None:
        world.isolate("counted")
        await count()

    for _ in range(2):
        sim.run(main).check()
    assert type(counter) is ModuleType
    assert counter.add() == 1


def test_a_name_that_was_set_on_one_host_is_not_set_on_another(counter: ModuleType) -> None:
    async def main(world: sim.World) -> list[Any]:
        async def change() -> None:
            counter.added = 1  # type: ignore[attr-defined]
            del counter.began  # type: ignore[attr-defined]

        async def ask() -> tuple[bool, bool]:
            return hasattr(counter, "added"), "began" in dir(counter)

        world.isolate("counted")
        await world.host("a").run(change)
        return [await world.host(name).run(ask) for name in ("a", "b")]

    assert sim.run(main).check() == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("math", ValueError, "not a module of Python source"),
        ("no_such_module", ImportError, "no_such_module"),
    ],
)
def test_a_module_without_source_is_refused(name: str, error: type[Exception], text: str) -> None:
    async def main(world: sim.World) -> None:
        with pytest.raises(error, match=text):
            world.isolate(name)

    sim.run(main).check()


def test_runs_with_isolated_modules_repeat(counter: ModuleType) -> None:
    async def main(world: sim.World) -> None:
        world.isolate("counted")
        await asyncio.gather(*(world.host(name).run(count) for name in "abc"))

    for seed in range(5):
        assert sim.run(main, seed=seed).digest == sim.run(main, seed=seed).digest
