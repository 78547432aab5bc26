"""The life of a request to the file system: order, cancelling, loops that are closed, storms."""

from __future__ import annotations

import collections
import errno
import gc
import hashlib
import os
import random
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.core.conftest import open_descriptors
from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from tests.core.loop_fakes import in_child, refuse_system_call
from whorl.core import Host, Kernel, Loop, RunMode
from whorl.handles import FsRequest, ThreadPool, Work, fs

#: Nothing is answered from memory: every request goes to a thread.
FORGETFUL = FaultRates(short=0, again=1, interrupted=0, no_buffers=0, exhausted=0, aborted=0)


class OneThread(Host):
    """A process whose pool has one thread, which waits at a gate."""

    def __init__(self) -> None:
        self.pool = ThreadPool(1)
        self.entered = threading.Event()
        self.opened = threading.Event()

    def thread_pool(self) -> ThreadPool:
        return self.pool

    def wait(self) -> None:
        self.entered.set()
        self.opened.wait()


@pytest.fixture
def host() -> Iterator[OneThread]:
    host = OneThread()
    yield host
    host.opened.set()


def new_loop(host: Host, make: Callable[..., Loop] = Loop) -> Loop:
    return make(kernel=FaultKernel(1, FORGETFUL), host=host)


@pytest.fixture
def blocked(host: OneThread, no_leak: None) -> Iterator[Loop]:
    """Yield a loop whose only thread is at work, so that every request waits."""
    loop = new_loop(host)
    Work(loop, host.wait)
    host.entered.wait()
    yield loop
    host.opened.set()
    loop.run()
    loop.close()


def test_a_request_that_no_thread_has_begun_is_cancelled(
    blocked: Loop, host: OneThread, tmp_path: Path
) -> None:
    seen: list[Any] = []
    buffer = bytearray(10)
    requests = [
        fs.mkdir(blocked, tmp_path / "dir", callback=lambda *answer: seen.append(answer)),
        fs.write(blocked, 987, buffer, callback=lambda *answer: seen.append(answer)),
    ]
    assert all(request.cancel() for request in requests)
    assert not any(request.cancel() for request in requests)
    assert seen == []
    blocked.run(RunMode.ONCE)
    assert [request for request, _, _ in seen] == requests
    assert {(result, error.errno) for _, result, error in seen} == {(None, errno.ECANCELED)}
    buffer.clear()
    host.opened.set()
    blocked.run()
    assert not (tmp_path / "dir").exists()


def test_a_request_under_way_cannot_be_cancelled(loop: Loop) -> None:
    reading, writing = os.pipe()
    begun = threading.Event()
    seen: list[Any] = []

    class Slow(Kernel):
        def read_file(self, fd: int, size: int, offset: int) -> bytes | int:
            begun.set()
            return super().read_file(fd, size, offset)

    loop = Loop(kernel=Slow())
    request = fs.read(loop, reading, 10, callback=lambda *answer: seen.append(answer[1:]))
    begun.wait()
    assert not request.cancel()
    os.write(writing, b"late")
    loop.run()
    assert seen == [(b"late", None)]
    assert not request.cancel()
    loop.close()
    os.close(reading)
    os.close(writing)


def test_answer_from_memory_comes_in_the_pending_phase(loop: Loop, tmp_path: Path) -> None:
    seen: list[Any] = []
    fs.stat(loop, tmp_path, lambda request, status, error: seen.append("learned"))
    loop.run()
    request = fs.stat(loop, tmp_path, lambda request, status, error: seen.append(status.st_ino))
    assert seen == ["learned"]
    if whorl.compiled:
        assert not request.cancel()  # It has its answer.
        loop.run(RunMode.ONCE)
        assert seen[1:] == [tmp_path.stat().st_ino]
    loop.run()
    assert len(seen) == 2


def test_answer_from_memory_needs_no_thread(tmp_path: Path) -> None:
    if not whorl.compiled:
        pytest.skip("uncompiled, opening and looking are left to threads")
    kernel = Kernel()
    (tmp_path / "file").write_bytes(b"content")
    kernel.learn_mount(os.fsencode(tmp_path))
    (mount,) = kernel.known_mounts().values()
    if not mount or isinstance(kernel.status_now(str(tmp_path), True), int):
        pytest.skip("this file system, or this Linux, answers nothing from memory")
    assert kernel.status_now(str(tmp_path / "file"), True) == os.stat(tmp_path / "file")
    assert kernel.content_now(str(tmp_path / "file"), 100) == b"content"
    assert kernel.content_now(str(tmp_path / "file"), 6) == -errno.EAGAIN
    fd = kernel.open_now(os.fsencode(tmp_path / "file"))
    assert fd >= 0
    assert kernel.read_now(fd, 100, 3) == b"tent"
    os.close(fd)


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, opening and looking are left to threads")
def test_memory_is_asked_for_regular_files_on_local_disks_only(tmp_path: Path) -> None:
    kernel = Kernel()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("nowhere")
    assert kernel.status_now(str(tmp_path), True) in (-errno.EXDEV, -errno.EAGAIN)
    for path in (str(tmp_path), "/proc/self", "/dev/null"):
        kernel.learn_mount(path)
    assert kernel.status_now("/proc/self/status", True) == -errno.EAGAIN
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "link", "/dev/null", "/proc/self/status", "a\0b"):
        assert kernel.open_now(str(path)) == -errno.EAGAIN, path
        assert kernel.content_now(str(path), 100) == -errno.EAGAIN, path
    assert kernel.status_now("a\0b", True) == -errno.EAGAIN
    with pytest.raises(TypeError):
        kernel.status_now(3, True)


def test_learning_a_mount_without_ctypes_leaves_no_descriptor_and_trusts_no_file_system(
    tmp_path: Path, no_leak: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "whorl.core.kernel.libc", None)
    monkeypatch.delattr("whorl.core.kernel.libc", raising=False)
    kernel = Kernel()
    kernel.learn_mount(os.fsencode(tmp_path))
    assert set(kernel.known_mounts().values()) == ({False} if whorl.compiled else set())
    status = kernel.status_now(str(tmp_path), True)
    assert status == -errno.EAGAIN


@pytest.mark.parametrize("fd", [-1, 987_654])
def test_memory_knows_no_descriptor_that_is_none(fd: int) -> None:
    assert Kernel().read_now(fd, 10, 0) == -errno.EAGAIN
    assert Kernel().read_now(fd, -1, 0) == -errno.EAGAIN
    assert Kernel().read_now(fd, 10, -1) == -errno.EAGAIN


@pytest.mark.parametrize("number", [437, 327], ids=["openat2", "preadv2"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_linux_that_knows_no_such_call_is_asked_once(tmp_path: Path, number: int) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86_64")
    path = tmp_path / "file"
    path.write_bytes(b"content")

    def act() -> None:
        if not refuse_system_call(number, errno.ENOSYS):
            return
        loop = Loop()
        seen: list[Any] = []
        for _ in range(3):
            fd = fs.open(loop, path, os.O_RDONLY)
            fs.stat(loop, path, lambda request, status, error: seen.append(status.st_size))
            fs.read(loop, fd, 100, 0, callback=lambda request, data, error: seen.append(data))
            loop.run()
            fs.close(loop, fd)
        assert sorted(map(str, seen)) == ["7"] * 3 + ["b'content'"] * 3

    assert in_child(act) == 0


# Nothing leaks.


@pytest.mark.parametrize("stage", ["queued", "under way", "done"])
def test_a_loop_that_is_closed_leaks_no_descriptor(host: OneThread, tmp_path: Path, stage: str) -> None:
    """asyncio's loop may be closed with requests in flight."""
    (tmp_path / "file").touch()
    before = open_descriptors().items()
    loop = new_loop(host, whorl.EventLoop)
    if stage != "done":
        Work(loop, host.wait)
        host.entered.wait()

    def never(*answer: object) -> None:
        raise AssertionError("the loop is closed")

    fs.open(loop, tmp_path / "file", os.O_RDONLY, callback=never)
    fs.opendir(loop, tmp_path, never)
    fs.mkstemp(loop, tmp_path / "XXXXXX", never)
    if stage == "done":
        finish(host)
    loop.close()
    host.opened.set()
    finish(host)
    assert not open_descriptors().items() - before
    assert os.listdir(tmp_path) == ["file"]


def finish(host: OneThread) -> None:
    """Wait until the only thread has done everything."""
    done = threading.Event()
    loop = Loop(host=host)
    Work(loop, done.set)
    done.wait()
    loop.run()
    loop.close()


def test_a_loop_with_requests_in_flight_is_not_closed(blocked: Loop, host: OneThread, tmp_path: Path) -> None:
    fs.stat(blocked, tmp_path, lambda *answer: None)
    with pytest.raises(OSError, match="requests in flight"):
        blocked.close()


def test_a_finished_request_keeps_nothing_alive(loop: Loop, tmp_path: Path) -> None:
    class Callback:
        def __call__(self, *answer: object) -> None:
            self.called = True

    callback = Callback()
    fs.mkdir(loop, tmp_path / "dir", callback=callback)
    loop.run()
    del callback
    gc.collect()
    assert not any(type(thing) is Callback for thing in gc.get_objects())


def test_an_error_of_a_callback_ends_the_run_and_costs_no_other_request(loop: Loop, tmp_path: Path) -> None:
    seen: list[str] = []

    def fail(*answer: object) -> None:
        raise ZeroDivisionError

    fs.mkdir(loop, tmp_path / "one", callback=fail)
    fs.mkdir(loop, tmp_path / "two", callback=lambda *answer: seen.append("two"))
    with pytest.raises(ZeroDivisionError):
        loop.run()
    loop.run()
    assert seen == ["two"]


def test_contexts_are_those_of_who_asked(loop: Loop, tmp_path: Path) -> None:
    import contextvars

    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")
    seen: list[str] = []
    contextvars.copy_context().run(
        lambda: (variable.set("inside"), fs.stat(loop, tmp_path, lambda *answer: seen.append(variable.get())))
    )
    loop.run()
    assert seen == ["inside"]


# Faults and storms.


@pytest.mark.parametrize("seed", range(5))
def test_short_and_interrupted_calls_lose_nothing(tmp_path: Path, seed: int) -> None:
    kernel = FaultKernel(seed, FaultRates(short=0.5, again=0.5, interrupted=0.3, unopened=0))
    loop = Loop(kernel=kernel)
    content = os.urandom(200_000)
    fd = fs.open(loop, tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert fs.write(loop, fd, [content[:1000], content[1000:150_000], content[150_000:]]) == len(content)
    found = bytearray()
    while len(found) < len(content):
        try:
            piece = fs.read(loop, fd, 100_000, len(found))
        except InterruptedError:
            continue
        found += piece
    assert found == content
    fs.copyfile(loop, tmp_path / "file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    fs.close(loop, fd)
    loop.close()
    assert kernel.injected


def test_requests_report_exhausted_descriptors(tmp_path: Path) -> None:
    loop = Loop(kernel=FaultKernel(1, FaultRates(unopened=1.0, again=1, interrupted=0)))
    seen: list[Any] = []
    for function, args in [
        (fs.open, (os.O_RDONLY,)),
        (fs.scandir, ()),
        (fs.opendir, ()),
        (fs.copyfile, (tmp_path / "new",)),
    ]:
        function(loop, tmp_path, *args, callback=lambda request, result, error: seen.append(error.errno))  # type: ignore[operator]
    loop.run()
    loop.close()
    assert len(seen) == 4
    assert set(seen) <= {errno.EMFILE, errno.ENFILE}


class Storm:
    """Files that are made, written, read, renamed, copied and removed at random, and what must be in them."""

    def __init__(self, loop: Loop, folder: Path, operations: int, seed: int) -> None:
        self.loop = loop
        self.folder = folder
        self.left = operations
        self.random = random.Random(seed)
        self.done: collections.Counter[str] = collections.Counter()
        self.written = hashlib.sha256()
        self.failures: list[BaseException] = []

    def start(self, chains: int) -> None:
        for number in range(chains):
            self.create(str(self.folder / f"chain-{number}"))

    def then(self, step: Callable[..., object], *args: Any) -> Callable[..., None]:
        def callback(request: FsRequest, result: Any, error: BaseException | None) -> None:
            self.done[step.__name__] += 1
            self.left -= 1
            if error is not None:
                self.failures.append(error)
            elif self.left > 0 or step.__name__ != "create":
                step(*args, result)

        return callback

    def create(self, path: str, _: Any = None) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        fs.open(self.loop, path, flags, callback=self.then(self.write, path))

    def write(self, path: str, fd: int) -> None:
        data = self.random.randbytes(self.random.randrange(1, 3000))
        pieces = [data[: len(data) // 2], bytearray(data[len(data) // 2 :])]
        fs.write(self.loop, fd, pieces, 0, callback=self.then(self.read, path, fd, data))

    def read(self, path: str, fd: int, data: bytes, size: int) -> None:
        assert size == len(data)
        fs.read(self.loop, fd, 5000, 0, callback=self.then(self.compare, path, fd, data))

    def compare(self, path: str, fd: int, data: bytes, found: bytes) -> None:
        assert found == data
        fs.close(self.loop, fd, self.then(self.copy, path, data))

    def copy(self, path: str, data: bytes, _: int) -> None:
        fs.copyfile(self.loop, path, path + ".copy", callback=self.then(self.rename, path, data))

    def rename(self, path: str, data: bytes, _: int) -> None:
        fs.rename(self.loop, path + ".copy", path + ".new", self.then(self.look, path, data))

    def look(self, path: str, data: bytes, _: int) -> None:
        fs.stat(self.loop, path + ".new", self.then(self.remove, path, data))

    def remove(self, path: str, data: bytes, status: os.stat_result) -> None:
        assert status.st_size == len(data)
        assert stat.S_ISREG(status.st_mode)
        fs.unlink(self.loop, path + ".new", self.then(self.create, path))


@pytest.mark.parametrize("faults", [False, True], ids=["in peace", "with faults"])
def test_a_storm_of_operations_is_accounted_for(tmp_path: Path, faults: bool) -> None:
    kernel = FaultKernel(7, FaultRates(short=0, again=0.3, interrupted=0.0)) if faults else Kernel()
    loop = Loop(kernel=kernel)
    storm = Storm(loop, tmp_path, 3000, seed=3)
    storm.start(20)
    loop.run()
    loop.close()
    assert storm.failures == []
    assert sum(storm.done.values()) >= 3000
    rounds = storm.done["create"]
    assert [storm.done[step] for step in ("copy", "rename", "look", "remove")] == [rounds] * 4
    assert sorted(os.listdir(tmp_path)) == sorted(f"chain-{number}" for number in range(20))
