"""Small programs, each in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.children import bare_environment

FACTORIES = {
    "asyncio": "from asyncio import SelectorEventLoop as new_loop\n",
    "whorl": "from whorl import EventLoop as new_loop\n",
}


def run_program(
    program: str, *options: str, loop: str = "whorl", before: tuple[str, ...] = (), **settings: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; in it, `new_loop()` makes a loop. `before` is what starts the interpreter."""
    return subprocess.run(
        [*before, sys.executable, *options, "-c", FACTORIES[loop] + program],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=20,
        **settings,
    )


def end_of(program: str, *options: str, loop: str = "whorl", **settings: Any) -> tuple[int, str, str]:
    """Return a program's exit code, its output, and the last line of its standard error."""
    answer = run_program(program, *options, loop=loop, **settings)
    complaints = answer.stderr.strip().splitlines()
    return answer.returncode, answer.stdout, complaints[-1] if complaints else ""


def ends_as_on_asyncio(program: str, *options: str, **settings: Any) -> tuple[int, str, str]:
    """Check that a program ends in the same way on both loops; how it does."""
    expected = end_of(program, *options, loop="asyncio", **settings)
    ours = end_of(program, *options, **settings)
    assert ours == expected, f"{ours!r} is not asyncio's {expected!r}"
    return ours
