"""The tests that fail on stock asyncio as well, on this Python and this machine."""

import json
import threading
from collections.abc import Collection
from pathlib import Path

from runs import Runner

# A test counts as failing on stock asyncio when it fails this many times in a row.
ATTEMPTS = 2


class Baseline:
    """Runs tests on stock asyncio when asked for the first time, and keeps the answers in a file.

    Several threads may ask, each about modules of its own.
    """

    def __init__(self, path: Path, runner: Runner) -> None:
        self._path = path
        self._runner = runner
        self._writing = threading.Lock()
        self._fails: dict[str, bool] = json.loads(path.read_text()) if path.exists() else {}

    def failing(self, module: str, tests: Collection[str]) -> set[str]:
        """Tell which of these tests of one module fail on stock asyncio."""
        unknown = [test for test in tests if test not in self._fails]
        suspects = unknown
        for _ in range(ATTEMPTS):
            if suspects:
                failed = {one.id for one in self._runner.run(module, only=suspects).with_outcome("failed")}
                suspects = [test for test in suspects if test in failed]
        with self._writing:
            self._fails.update((test, test in suspects) for test in unknown)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._fails, indent=1, sort_keys=True))
        return {test for test in tests if self._fails[test]}
