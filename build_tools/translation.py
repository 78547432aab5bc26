"""From `.py` and `.pxd` to C, by Cython: one process reads all declarations, and forks for each module.

Most of the time of a translation goes into the `.pxd` files that the module names. So this takes a fourth of
the time of one `cython` for each module. The C code is the same but for the order of declarations.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from Cython.Compiler import Errors, Main, Options

cython: Any = Main
errors: Any = Errors
read_directive: Any = Options.parse_directive_value


def main() -> int:
    """Translate the modules that standard input asks for; return 1 if one has an error."""
    asked = json.load(sys.stdin)
    directives = {name: read_directive(name, text) for name, text in asked["directives"].items()}
    options = {**cython.default_options, "compiler_directives": directives, "include_path": asked["folders"]}
    gc.disable()
    context = cython.Context.from_options(cython.CompilationOptions(options))
    errors.open_listing_file(
        None
    )  # They go to standard error, and are counted. No child would see them again.
    for name in asked["modules"]:
        context.find_module(name)
    if errors.get_errors_count():
        return 1
    waiting = sorted(asked["wanted"].items())
    running: dict[int, str] = {}
    failed = False
    while waiting or running:
        if waiting and len(running) < (os.cpu_count() or 1):
            name, (source, target) = waiting.pop()
            pid = os.fork()
            if not pid:
                _translate(context, name, source, cython.CompilationOptions(options, output_file=target))
            running[pid] = name
        else:
            pid, status = os.wait()
            name = running.pop(pid)
            if status:
                print(f"{name}: exit code {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)
                failed = True
    return int(failed)


def _translate(context: Any, name: str, source: str, options: Any) -> None:
    """Translate a module, in a process of its own, and end this process."""
    status = 2
    try:
        # Cython takes the inline functions of everything that was read.
        needed = {each.qualified_name for each in _reached(context.find_module(name, need_pxd=False), set())}
        context.pxds = {each: read for each, read in context.pxds.items() if each in needed}
        result = cython.run_pipeline(source, options, full_module_name=name, context=context)
        status = int(result.num_errors != 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _reached(module: Any, seen: set[Any]) -> Iterator[Any]:
    """Yield a module and all that it names, also through others."""
    if module not in seen:
        seen.add(module)
        yield module
        for each in module.cimported_modules:
            yield from _reached(each, seen)


if __name__ == "__main__":
    sys.exit(main())
