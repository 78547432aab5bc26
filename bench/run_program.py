"""One program on one loop: the process whose time is measured.

usage: run_program.py PROGRAM LOOP SECONDS ADDRESS

Prints as JSON how many operations were done and the times they took. ADDRESS is its server's, or empty.
After a wrong answer the last line on stderr says what was wrong.
"""

import asyncio
import contextlib
import json
import os
import sys
import traceback

import cases
import loops
import micro
from programs.program import Program


def measure(program: Program, runner: asyncio.Runner, seconds: float, address: str) -> dict[str, float]:
    """Open the program, repeat its batch for `seconds`, close it."""
    stack = contextlib.AsyncExitStack()
    operation = runner.run(stack.enter_async_context(program.opened(address)))
    found = micro.repeat(lambda: runner.run(program.run_batch(operation)), program.done_by_batch, seconds)
    runner.run(stack.aclose())
    return found


def main() -> None:
    name, loop_name, seconds, address = sys.argv[1:]
    loops.die_with_parent()
    (program,) = (case for case in cases.PROGRAMS if case.name == name and isinstance(case, Program))
    with asyncio.Runner(loop_factory=loops.factory(loop_name)) as runner:
        try:
            found = measure(program, runner, float(seconds), address)
        except Exception:
            traceback.print_exc()
            os._exit(1)  # what is open would say more, or never end
    print(json.dumps(found))


if __name__ == "__main__":
    main()
