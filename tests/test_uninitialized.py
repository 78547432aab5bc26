"""Objects that were never initialized, as a subclass with a wrong `__init__` makes them, do not crash."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.source_trees import all_sources

WITHOUT_CLASSES = {"whorl.aio.readers", "whorl.aio.tasks"}

#: The compiled modules, and the plain ones whose classes derive from theirs.
MODULES = sorted(
    {source.name for source in all_sources() if source.is_compiled and source.name not in WITHOUT_CLASSES}
    | {"whorl.aio.loop", "whorl.aio.pipes", "whorl.aio.transports"}
)

CALL_EVERYTHING = """
import importlib, os, sys, logging
logging.disable()
sys.unraisablehook = lambda unraisable: None
NO_SUCH_FD = 999_999
ARGUMENTS = [(), (NO_SUCH_FD,), (None,), (b"x",), (NO_SUCH_FD, 1), (None, None), (NO_SUCH_FD, b"x", 0)]
module = importlib.import_module(sys.argv[1])
called = 0
for cls in vars(module).values():
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
print(called)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("module", MODULES)
def test_methods_of_uninitialized_objects_raise(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALL_EVERYTHING, module],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) > 0
