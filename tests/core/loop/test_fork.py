"""A loop that goes on in a forked child: with its handles, and without touching the parent's."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.core.conftest import MakeLoop, close_all
from tests.core.loop_fakes import Watcher, in_child, quiet_fork, run_forever, run_turns
from whorl.core import Event, FsChange, Loop, RunMode
from whorl.handles import TCP, Async, FsEvent, Idle, Pipe, Signal, Timer, Work

MILLISECOND = 1_000_000


def child_of(loop: Loop, act: Callable[[], object]) -> int:
    """Fork; in the child let the loop go on, and act."""

    def child() -> None:
        signal.alarm(30)
        loop.fork()
        act()

    return in_child(child)


def test_the_handles_of_a_loop_go_on_in_the_child(make_loop: MakeLoop) -> None:
    loop = make_loop()
    ours, theirs = socket.socketpair()
    pipe = Pipe(loop)
    pipe.open(ours.detach())
    seen: list[Any] = []
    pipe.read_start(lambda pipe, data, error: seen.append(data))
    timer = Timer(loop)
    timer.start(lambda timer: seen.append("timer"), MILLISECOND)
    handle = Async(loop, lambda handle: seen.append("async"))

    def child() -> None:
        theirs.send(b"to the child")
        handle.send()
        while len(seen) < 3:
            loop.run(RunMode.ONCE)
        assert sorted(map(str, seen)) == ["async", "b'to the child'", "timer"]

    assert child_of(loop, child) == 0
    assert seen == []
    theirs.send(b"to the parent")
    while len(seen) < 2:
        loop.run(RunMode.ONCE)
    assert sorted(map(str, seen)) == ["b'to the parent'", "timer"]
    theirs.close()


def test_descriptor_closed_in_the_child_stays_watched_in_the_parent(make_loop: MakeLoop) -> None:
    loop = make_loop()
    reader, writer = os.pipe()
    pipe = Pipe(loop)
    pipe.open(reader)
    seen: list[bytes] = []
    pipe.read_start(lambda pipe, data, error: seen.append(data))
    run_turns(loop)

    def child() -> None:
        pipe.read_stop()
        pipe.close()
        close_all(loop)

    assert child_of(loop, child) == 0
    os.write(writer, b"still here")
    loop.run(RunMode.ONCE)
    assert seen == [b"still here"]
    os.close(writer)


def test_the_child_wakes_itself_and_not_the_parent(loop: Loop) -> None:
    def child() -> None:
        handle = Async(loop, lambda handle: handle.close())
        handle.send()
        loop.run()

    run_turns(loop)
    before = loop.metrics().events
    assert child_of(loop, child) == 0
    run_turns(loop)
    assert loop.metrics().events == before


def test_a_server_accepts_in_the_child(loop: Loop) -> None:
    server = TCP(loop)
    server.bind(("127.0.0.1", 0))
    accepted: list[TCP] = []

    def arrived(server: TCP, error: OSError | None) -> None:
        accepted.append(TCP(loop))
        server.accept(accepted[0])
        accepted[0].write(bytes([65]) * 3, lambda request, error: accepted[0].close())

    server.listen(8, arrived)

    def child() -> None:
        while not accepted or not accepted[0].is_closing():
            loop.run(RunMode.ONCE)

    with socket.create_connection(server.getsockname()) as client:
        assert child_of(loop, child) == 0
        assert client.recv(10) == b"AAA"


def test_signals_are_told_in_the_process_that_gets_them(loop: Loop) -> None:
    handle = Signal(loop)
    seen: list[int] = []
    handle.start(signal.SIGUSR1, lambda handle, number: seen.append(number))

    def child() -> None:
        loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
        while not seen:
            loop.run(RunMode.ONCE)

    assert child_of(loop, child) == 0
    run_turns(loop, 2)
    assert seen == []


def test_watched_paths_are_watched_by_each_process_for_itself(loop: Loop, tmp_path: Path) -> None:
    seen: list[Any] = []
    handles = [FsEvent(loop), FsEvent(loop)]
    folders = [tmp_path / "stays", tmp_path / "goes"]
    for handle, folder in zip(handles, folders, strict=True):
        folder.mkdir()
        handle.start(
            folder,
            lambda handle, name, changes, error: seen.append((name, int(changes), error and error.errno)),
        )

    def child() -> None:
        (folders[0] / "made").mkdir()
        while len(seen) < 2:
            loop.run(RunMode.ONCE)
        assert seen == [("", 0, 2), ("made", FsChange.RENAME, None)]

    run_turns(loop)
    fd = quiet_fork()
    if fd == 0:
        status = 1
        try:
            folders[1].rmdir()
            loop.fork()
            child()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(fd, 0)[1]) == 0
    run_turns(loop, 2)
    assert seen == [("goes", FsChange.RENAME, None), ("made", FsChange.RENAME, None)]


def test_work_is_done_in_the_child_by_threads_of_its_own(loop: Loop) -> None:
    results: list[Any] = []

    def work() -> None:
        Work(loop, os.getpid, lambda work, result, error: results.append(result))
        loop.run()

    work()

    def child() -> None:
        work()
        assert results[1] == os.getpid() != results[0]

    assert child_of(loop, child) == 0


def test_loop_forked_inside_a_callback_goes_on(loop: Loop) -> None:
    turns: list[int] = []
    idle = Idle(loop)

    def callback(idle: Idle) -> None:
        turns.append(os.getpid())
        if len(turns) == 1:
            pid = quiet_fork()
            if pid == 0:
                signal.alarm(30)
                loop.fork()
            else:
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        elif len(turns) == 3:
            idle.close()

    parent = os.getpid()
    idle.start(callback)
    try:
        loop.run()
        assert len(turns) == 3
    finally:
        if os.getpid() != parent:
            os._exit(0 if turns == [parent, os.getpid(), os.getpid()] else 1)
    assert turns == [parent] * 3


# A child that does not call `Loop.fork`.


def test_a_child_that_goes_on_in_the_running_loop_gets_an_error_and_no_event_of_its_parent(
    make_loop: MakeLoop,
) -> None:
    loop = make_loop()
    ours, peer = socket.socketpair()
    watcher = Watcher(loop, ours.fileno(), edge=loop._poller.edge_triggered)
    statuses: list[int] = []
    run_turns(loop)

    def callback() -> None:
        peer.send(b"x")
        pid = quiet_fork()
        if pid:
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        else:
            signal.alarm(30)
        loop.call_soon(loop.stop)

    parent = os.getpid()
    loop.call_soon(callback)
    error = ""
    try:
        run_forever(loop)
    except RuntimeError as raised:
        error = str(raised)
    finally:
        if os.getpid() != parent:
            os._exit(0 if "before a fork" in error else 1)
    assert statuses == [0]
    assert watcher.seen == [Event.READABLE]
    ours.close()
    peer.close()


def test_a_child_can_watch_nothing_in_the_loop_of_its_parent(make_loop: MakeLoop) -> None:
    loop = make_loop()
    ours, peer = socket.socketpair()
    watcher = Watcher(loop, ours.fileno())

    def child() -> None:
        with pytest.raises(RuntimeError, match="before a fork"):
            Watcher(loop, peer.fileno())
        with pytest.raises(RuntimeError, match="before a fork"):
            watcher.watch_for(Event.WRITABLE)

    assert in_child(child) == 0
    run_turns(loop)
    assert watcher.seen == []
    peer.send(b"x")
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]
    ours.close()
    peer.close()


def test_handle_closed_in_the_child_stays_watched_in_the_parent(make_loop: MakeLoop) -> None:
    loop = make_loop()
    ours, peer = socket.socketpair()
    watcher = Watcher(loop, ours.fileno())
    run_turns(loop)
    assert in_child(watcher.close) == 0
    peer.send(b"x")
    run_turns(loop)
    assert watcher.seen == [Event.READABLE]
    ours.close()
    peer.close()


def test_child_gives_hosts_a_descriptor_of_its_own(loop: Loop) -> None:
    ours, peer = socket.socketpair()
    Watcher(loop, ours.fileno())
    theirs = loop.backend_fd()

    def child() -> None:
        peer.send(b"x")
        assert select.select([loop.backend_fd()], [], [], 30)[0]
        ours.recv(10)
        assert not select.select([loop.backend_fd()], [], [], 0)[0]

    assert child_of(loop, child) == 0
    assert loop.backend_fd() == theirs
    assert not select.select([theirs], [], [], 0)[0]
    peer.send(b"x")
    assert select.select([theirs], [], [], 30)[0]
    ours.close()
    peer.close()


def test_asyncios_loop_goes_on_as_well() -> None:
    loop = whorl.new_event_loop()

    async def main() -> int:
        future = loop.create_future()
        loop.call_later(0.001, future.set_result, 7)
        loop.call_soon_threadsafe(lambda: None)
        return int(await future)

    assert loop.run_until_complete(main()) == 7

    def child() -> None:
        loop.fork()
        assert loop.run_until_complete(main()) == 7
        loop.close()

    assert in_child(child) == 0
    assert loop.run_until_complete(main()) == 7
    loop.close()


def test_a_closed_loop_does_not_go_on() -> None:
    loop = Loop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.fork()
