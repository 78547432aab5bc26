"""Objects that were never initialized, as a subclass with a wrong `__init__` makes them, do not crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_trees import all_sources

WITHOUT_CLASSES = {
    "whorl.core.shared_objects",
    "whorl.aio.sockets.add_reader",
    "whorl.aio.sockets.connect_plain",
    "whorl.aio.futures.task_factory",
    "whorl.aio.interop.stock",
    "whorl.aio.sockets.interest",
    "whorl.aio.loop.nested_turns",
    "whorl.aio.loop.tasks",
    "whorl.core.lists",
    "whorl.core.threads",
    "whorl.aio.streams.adoption",
    "whorl.inspector.watching.looks",
    "whorl.sim.patches.guard",
    "whorl.sim.patches.random_state",
}

#: The compiled modules, and the plain ones whose classes derive from theirs.
MODULES = sorted(
    {source.name for source in all_sources() if source.is_compiled and source.name not in WITHOUT_CLASSES}
    | {"whorl.aio.loop.event_loop", "whorl.aio.connections.pipes", "whorl.aio.transports.public"}
)

#: Reads the names of modules, and for each says how a child of its ended, and how many calls that had made.
CALL_EVERYTHING = """
import importlib, logging, mmap, os, signal, sys
import whorl
logging.disable()
sys.unraisablehook = lambda unraisable: None
NO_SUCH_FD = 999_999
ARGUMENTS = [(), (NO_SUCH_FD,), (None,), (b"x",), (NO_SUCH_FD, 1), (None, None), (NO_SUCH_FD, b"x", 0)]

def call_everything(module):
    called = 0
    for cls in list(vars(module).values()):
        if not isinstance(cls, type) or cls.__module__ != module.__name__ or issubclass(cls, BaseException):
            continue
        try:
            thing = cls.__new__(cls)
        except TypeError:
            continue  # an abstract class, or one whose __new__ wants arguments
        for name in dir(cls):
            if name.startswith("__") and name not in ("__repr__", "__lt__", "__len__"):
                continue
            if name in ("_run_turns", "run_forever"):
                continue  # these go on for ever
            for arguments in ARGUMENTS:
                try:
                    getattr(thing, name)(*arguments)
                except BaseException:
                    pass
                called += 1
        del thing
    return called

answers, counted = os.fdopen(os.dup(1), "w"), mmap.mmap(-1, 8)
os.dup2(2, 1)  # what is called may print
for name in sys.stdin:
    counted[:] = bytes(8)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            counted[:] = call_everything(importlib.import_module(name.strip())).to_bytes(8)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status, int.from_bytes(counted), file=answers, flush=True)
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file with the callers' standard error."""
    return tmp_path_factory.mktemp("uninitialized") / "errors"


@pytest.fixture(scope="module")
def caller(errors: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that imports Whorl once. Each of its children calls everything in one module."""
    with (
        errors.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CALL_EVERYTHING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        ) as process,
    ):
        yield process
        process.stdin.close()


@pytest.mark.parametrize("module", MODULES)
def test_methods_of_uninitialized_objects_raise(
    module: str, caller: subprocess.Popen[str], errors: Path
) -> None:
    print(module, file=caller.stdin, flush=True)
    answer = caller.stdout.readline().split()
    assert answer[:1] == ["0"], errors.read_text()
    assert int(answer[1]) > 0
