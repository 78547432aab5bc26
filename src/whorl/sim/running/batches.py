"""Many seeds: in this process, or in batches of seeds, each in a forked process."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from whorl.sim.running.run import Main, run_with
from whorl.sim.running.verify import Difference, verify
from whorl.sim.world.options import RunOptions

#: One seed in so many is run twice.
VERIFIED = 50

#: The most seeds in a batch, and the batches for each process at least.
LARGEST_BATCH = 250
BATCHES_EACH = 4


@dataclass
class Outcome:
    """The outcome of one seed's run, as processes tell it to each other."""

    seed: int
    keys: list[tuple[str, str]] = field(default_factory=list)  #: of the findings, the gravest first
    texts: list[str] = field(default_factory=list)  #: of the same findings
    reached: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)
    digest: str = ""
    turns: int = 0
    verified: bool = False  #: it was run twice
    difference: Difference | None = None


def outcome(main: Main[Any], seed: int, verified: bool, options: RunOptions) -> Outcome:
    """Run one seed."""
    result = run_with(main, seed, options)
    return Outcome(
        seed,
        [finding.key for finding in result.findings],
        [str(finding) for finding in result.findings],
        result.reached,
        result.remarks,
        result.digest,
        result.turns,
        verified,
        verify(main, seed, options) if verified else None,
    )


def outcomes(
    main: Main[Any], seeds: Sequence[int], jobs: int, verifies: bool, options: RunOptions
) -> Iterator[Outcome]:
    """Yield the outcome of each seed, in the order of the seeds."""
    tasks = [(seed, verifies and not number % VERIFIED) for number, seed in enumerate(seeds)]
    if jobs <= 1:
        for seed, verified in tasks:
            yield outcome(main, seed, verified, options)
        return
    size = max(1, min(LARGEST_BATCH, len(tasks) // (jobs * BATCHES_EACH)))
    batches = iter([tasks[start : start + size] for start in range(0, len(tasks), size)])
    running: list[_Worker] = []
    try:
        while True:
            while len(running) < jobs and (batch := next(batches, None)) is not None:
                running.append(_Worker(main, batch, options))
            if not running:
                return
            yield from running[0].outcomes()
            running.pop(0)
    finally:
        for worker in running:
            worker.stop()


class _Worker:
    """A forked process that runs one batch."""

    def __init__(self, main: Main[Any], batch: list[tuple[int, bool]], options: RunOptions) -> None:
        context = multiprocessing.get_context("fork")
        self._batch = batch
        self._pipe, theirs = context.Pipe(duplex=False)
        work: Callable[..., None] = _work
        self._process = context.Process(target=work, args=(theirs, main, batch, options), daemon=True)
        with warnings.catch_warnings():
            # Python warns where another thread runs, such as pytest-xdist's. The child uses no lock of it.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes as they come. A seed that ends the process has a finding of the kind "died"."""
        for seed, _ in self._batch:
            try:
                received = self._pipe.recv()
            except EOFError:
                self._process.join()
                text = f"the process died of it (exit code {self._process.exitcode})"
                yield Outcome(seed, [("died", text)], [f"died: {text}"])
                self.stop()
                return
            if isinstance(received, Exception):
                self.stop()
                raise received
            yield received
        self.stop()

    def stop(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.terminate()
        self._process.join()


def _work(pipe: Any, main: Main[Any], batch: list[tuple[int, bool]], options: RunOptions) -> None:
    for seed, verified in batch:
        try:
            pipe.send(outcome(main, seed, verified, options))
        except OSError:
            return  # Nobody waits for more.
        except Exception as error:
            pipe.send(RuntimeError(f"seed {seed}: {type(error).__name__}: {error}"))
            return
