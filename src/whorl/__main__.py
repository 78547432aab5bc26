"""The command line, as `whorl` and as `python -m whorl`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; report how to install Click if it is missing."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.exit("The command line of Whorl needs Click: pip install click")
    from whorl import launcher
    from whorl.cli import commands

    try:
        commands(prog_name="whorl")
    except launcher.Launch as error:  # which leaves the command line first, so that it has no part in the run
        program = error.with_traceback(None)
    launcher.launch(program.start, program.loop_factory)


if __name__ == "__main__":
    main()
