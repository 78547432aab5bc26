"""A loop inside another main loop, by its descriptor and its timeout."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from build_tools.sources import ROOT
from tests.children import bare_environment
from tests.core.loop_fakes import Watcher
from whorl.core import Loop, RunMode
from whorl.handles import Async, Timer

MILLISECOND = 1_000_000


@pytest.fixture
def outer(no_leak: None) -> select.epoll:
    with select.epoll() as outer:
        yield outer


def test_an_event_makes_the_descriptor_readable_and_a_turn_takes_it(loop: Loop, outer: select.epoll) -> None:
    outer.register(loop.backend_fd(), select.EPOLLIN)
    assert outer.poll(0) == []
    reader, writer = os.pipe()
    watcher = Watcher(loop, reader, then=lambda watcher: os.read(reader, 10))
    watcher._activate()
    assert loop.backend_timeout() == -1
    os.write(writer, b"x")
    assert outer.poll(0) == [(loop.backend_fd(), select.EPOLLIN)]
    loop.run(RunMode.NOWAIT)
    assert watcher.seen
    assert outer.poll(0) == []
    watcher.close()
    os.close(reader)
    os.close(writer)


def test_the_timeout_is_that_of_the_next_timer(loop: Loop, outer: select.epoll) -> None:
    outer.register(loop.backend_fd(), select.EPOLLIN)
    fired: list[Timer] = []
    timer = Timer(loop)
    timer.start(fired.append, 5 * MILLISECOND)
    waits = 0
    while not fired:
        outer.poll(loop.backend_timeout() / 1e9)
        loop.run(RunMode.NOWAIT)
        waits += 1
    assert waits <= 3
    assert loop.backend_timeout() == 0  # nothing is left to wait for


def test_a_send_from_outside_a_run_is_seen_by_the_outer_loop(loop: Loop, outer: select.epoll) -> None:
    outer.register(loop.backend_fd(), select.EPOLLIN)
    called: list[Async] = []
    handle = Async(loop, called.append)
    loop.run(RunMode.NOWAIT)
    handle.send()
    assert loop.backend_timeout() == 0 or outer.poll(0)
    loop.run(RunMode.NOWAIT)
    assert called == [handle]


def test_the_example_runs() -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples/embedded_epoll.py")],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "inner loop: read b'tick'" in answer.stdout
    assert answer.stdout.count("outer loop") <= 6
