"""A method that is called with another object in the place of its own raises, and does not crash."""

from __future__ import annotations

import subprocess
import sys

from tests.source_trees import all_sources

CALL_METHODS_OF_OTHERS = """
import asyncio, importlib, logging, os, sys
logging.disable()
sys.unraisablehook = lambda unraisable: None
others = [3, None, "text", object(), [], asyncio.Future.__new__(asyncio.Future)]
called = 0
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for cls in list(vars(module).values()):
        if not isinstance(cls, type) or cls.__module__ != name or issubclass(cls, BaseException):
            continue
        for method in list(vars(cls).values()):
            if not callable(method) or isinstance(method, (staticmethod, type)):
                continue
            for other in others:
                for arguments in ((), (3,), (None, None), (3, b"x", None)):
                    try:
                        method(other, *arguments)
                    except Exception:
                        pass
                    called += 1
print(called)
sys.stdout.flush()
os._exit(0)
"""


def test_no_method_takes_another_object_for_its_own() -> None:
    compiled = [source.name for source in all_sources() if source.is_compiled]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALL_METHODS_OF_OTHERS, *compiled],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) > 1000
