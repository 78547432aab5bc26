"""FsPoll: a path that is looked at again and again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.core.loop_fakes import run_turns
from whorl.core import Host, Kernel, Loop, RunMode
from whorl.handles import FsPoll

MILLISECOND = 1_000_000
SECOND = 1_000_000_000


class AtOnce(Host):
    """A host whose pool does its work when it is given."""

    class Pool:
        def submit(self, work: Any, *, slow: bool = False) -> None:
            work._execute()

        def withdraw(self, work: Any) -> bool:
            return False

    def __init__(self) -> None:
        self.pool = self.Pool()

    def thread_pool(self) -> Any:
        return self.pool


class World(Kernel):
    """Virtual time, and a file that the test describes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SECOND
        self.looks: list[int] = []
        self.result: Any = None

    def now(self) -> int:
        return self.clock

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        found = super().epoll_wait(epfd, 0, events)
        if not found and timeout_ns > 0:
            self.clock += timeout_ns
        return found

    def status(self, path: str | bytes, follow: bool) -> Any:
        self.looks.append(self.clock)
        return self.result


def status(size: int, modified: int = 0) -> os.stat_result:
    times = {"st_mtime_ns": modified, "st_ctime_ns": modified}
    return os.stat_result((0o100644, 1, 1, 1, 0, 0, size, 0, 0, 0), times)


@pytest.fixture
def world(no_leak: None) -> World:
    return World()


def polling(world: World) -> tuple[Loop, FsPoll, list[Any]]:
    """Return a started handle in virtual time, and its reports."""
    loop = Loop(kernel=world, host=AtOnce())
    handle = FsPoll(loop)
    told: list[Any] = []

    def callback(
        handle: FsPoll, error: OSError | None, previous: os.stat_result | None, current: os.stat_result | None
    ) -> None:
        told.append((error and error.errno, previous and previous.st_size, current and current.st_size))

    handle.start("/some/file", SECOND, callback)
    loop.run(RunMode.NOWAIT)
    return loop, handle, told


def close(loop: Loop, handle: FsPoll) -> None:
    handle.close()
    run_turns(loop, 2)
    loop.close()


def look(loop: Loop, world: World, result: Any) -> None:
    """Have the next look find this."""
    world.result = result
    before = len(world.looks)
    while len(world.looks) == before:
        loop.run(RunMode.ONCE)
    loop.run(RunMode.NOWAIT)


def test_a_change_is_told_with_both_statuses(world: World) -> None:
    world.result = status(1)
    loop, handle, told = polling(world)
    look(loop, world, status(1))
    assert told == []
    look(loop, world, status(2))
    assert told == [(None, 1, 2)]
    look(loop, world, status(2, modified=9))
    assert told[1:] == [(None, 2, 2)]
    close(loop, handle)


def test_looks_are_an_interval_apart(world: World) -> None:
    world.result = status(1)
    loop, handle, _told = polling(world)
    for _ in range(3):
        look(loop, world, status(1))
    assert [when - world.looks[0] for when in world.looks] == [0, SECOND, 2 * SECOND, 3 * SECOND]
    close(loop, handle)


def test_each_new_error_is_told_once_and_the_end_of_errors_is_a_change(world: World) -> None:
    world.result = -errno.ENOENT
    loop, handle, told = polling(world)
    for result in (-errno.ENOENT, -errno.EACCES, status(5), status(5), -errno.ENOENT, status(5)):
        look(loop, world, result)
    assert told == [
        (errno.ENOENT, None, None),
        (errno.EACCES, None, None),
        (None, None, 5),
        (errno.ENOENT, 5, None),
        (None, 5, 5),
    ]
    close(loop, handle)


def test_fs_poll_keeps_the_loop_alive_until_it_is_stopped(world: World) -> None:
    world.result = status(1)
    loop, handle, _told = polling(world)
    assert loop.alive()
    assert loop.walk() == [handle]
    handle.unref()
    assert not loop.alive()
    handle.ref()
    handle.stop()
    run_turns(loop, 2)
    assert not loop.alive()
    handle.start("elsewhere", SECOND, lambda *args: None)
    assert handle.getpath() == "elsewhere"
    close(loop, handle)


def test_the_callback_may_stop_close_and_start_again(world: World) -> None:
    world.result = status(1)
    loop, handle, _told = polling(world)
    handle.stop()
    sizes: list[Any] = []

    def first(handle: FsPoll, error: Any, previous: Any, current: Any) -> None:
        sizes.append(current.st_size)
        handle.stop()
        handle.start("other", SECOND, second)

    def second(handle: FsPoll, error: Any, previous: Any, current: Any) -> None:
        sizes.append(current.st_size)
        handle.close()

    handle.start("one", SECOND, first)
    loop.run(RunMode.NOWAIT)
    look(loop, world, status(2))
    look(loop, world, status(3))
    loop.run()
    assert sizes == [2, 3]
    loop.close()


def test_misuse_is_refused(loop: Loop) -> None:
    handle = FsPoll(loop)
    with pytest.raises(OSError, match="Invalid argument"):
        handle.getpath()
    with pytest.raises(TypeError, match="callable"):
        handle.start("file", SECOND, None)  # type: ignore[arg-type]
    for interval in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            handle.start("file", interval, lambda *args: None)
    with pytest.raises(TypeError):
        handle.start(5, SECOND, lambda *args: None)  # type: ignore[arg-type]
    handle.start("file", SECOND, lambda *args: None)
    with pytest.raises(OSError, match="started"):
        handle.start("file", SECOND, lambda *args: None)
    handle.close()
    with pytest.raises(OSError, match="closed"):
        handle.start("file", SECOND, lambda *args: None)


def test_a_look_that_is_under_way_is_forgotten(loop: Loop, tmp_path: Path) -> None:
    handle = FsPoll(loop)
    handle.start(tmp_path / "missing", MILLISECOND, lambda *args: pytest.fail("it was stopped"))
    handle.close()
    loop.run()


def test_a_real_file_is_looked_at_in_the_pool(loop: Loop, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    sizes: list[tuple[int, int]] = []
    handle = FsPoll(loop)

    def changed(handle: FsPoll, error: OSError | None, previous: Any, current: Any) -> None:
        assert error is None
        sizes.append((previous.st_size, current.st_size))
        handle.close()

    handle.start(file, MILLISECOND, changed)
    assert handle._polling is not None
    while handle._polling._seen is None:
        loop.run(RunMode.ONCE)
    (tmp_path / "other").write_text("three")
    (tmp_path / "other").replace(file)  # at once: a look between two steps would see an empty file
    loop.run()
    assert sizes == [(3, 5)]
