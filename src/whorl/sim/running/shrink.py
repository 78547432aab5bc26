"""Shrinking: from a run that fails to the one with the fewest decisions that fails in the same way.

A run without any decision is tried first. Cutting decisions out of a run one by one gets stuck early: each
one that is left holds up the others. So other decisions are drawn next, most of them made calm. Then passes
over the smallest failures go on until nothing changes. The random numbers that the program draws are always
those of the failing seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whorl.sim.chance.decisions import Place
from whorl.sim.chance.tape import Tape
from whorl.sim.running.result import Result
from whorl.sim.running.run import Main, run_with
from whorl.sim.world.options import RunOptions
from whorl.sim.world.world import Finding

#: The parts of the decisions that a sparse search makes calm, in turns.
THINNED = (0.5, 0.7, 0.8, 0.9)

#: The most variants that the sparse search tries, and its part of the time.
SPARSE_RUNS = 4000
SPARSE_PART = 0.6

#: So few decisions are readable: then the sparse search ends. So many of its failures go through the passes.
FEW = 2
KEPT = 4

#: Of so many decisions at most, others are asked to do the work of each.
MERGED = 8

Decided = Mapping[Place, int]

_real_clock = time.perf_counter  # bound before any world replaces it


@dataclass
class Failure:
    """A run that failed."""

    seed: int
    finding: Finding
    tape: Tape
    options: RunOptions = field(default_factory=RunOptions, repr=False)  #: a mapping of them will do
    moments: Mapping[Place, Any] = field(default_factory=dict, repr=False)
    story: list[str] = field(default_factory=list, repr=False)
    log: list[str] = field(default_factory=list, repr=False)
    runs: int = 0  #: how many runs shrinking took
    random_words: int = 0  #: as `Result` has them
    random_calls: int = 0

    def __post_init__(self) -> None:
        options: Any = self.options
        self.options = options if isinstance(options, RunOptions) else RunOptions(**options)

    @staticmethod
    def of(result: Result[Any], options: RunOptions | Mapping[str, Any], key: Any = None) -> Failure:
        """Return the failure of a result: the first finding, or the one with this key."""
        finding = next((each for each in result.findings if key in (None, each.key)), result.findings[0])
        return Failure(
            result.tape.seed,
            finding,
            result.tape,
            options if isinstance(options, RunOptions) else RunOptions(**options),
            result.moments,
            result.story,
            log=result.log,
            random_words=result.random_words,
            random_calls=result.random_calls,
        )


class _Search:
    """The state of one shrinking: its budget, and what is known to fail."""

    def __init__(
        self,
        main: Main[Any],
        failure: Failure,
        budget_s: float,
        runs: int,
        passes: Sequence[Pass] | None = None,
    ) -> None:
        self.main = main
        self.passes: Sequence[Pass] = PASSES if passes is None else passes
        self.failure = failure
        self.options = replace(failure.options, strategy=None, keeps_log=True)
        self.runs = 0
        self._most = runs
        self.ends = _real_clock() + budget_s
        self._tried: set[tuple[int, tuple[tuple[Place, int], ...]]] = set()

    def is_over(self, at: float | None = None) -> bool:
        return self.runs >= self._most or _real_clock() >= (self.ends if at is None else at)

    def fails(self, tape: Tape | int, **options: Any) -> Result[Any] | None:
        """Return the result of a run if it fails as the first one did."""
        if isinstance(tape, Tape):
            known = tape.seed, tuple(sorted(tape.decisions.items()))
            if known in self._tried:
                return None
            self._tried.add(known)
        self.runs += 1
        result = run_with(self.main, tape, replace(self.options, **options))
        key = self.failure.finding.key
        return result if any(finding.key == key for finding in result.findings) else None


def shrink(
    main: Main[Any],
    failure: Failure,
    *,
    budget_s: float = 30.0,
    runs: int = 100_000,
    passes: Sequence[Pass] | None = None,
) -> Failure:
    """Return a failure of the same kind with as few decisions, and as small ones, as the budget allows.

    `passes` are functions that take a tape's decisions and yield smaller ones; None: those of Whorl.
    """
    search = _Search(main, failure, budget_s, runs, passes)
    began = _real_clock()
    calm = search.fails(replace(failure.tape, decisions={}, digest=""))
    if calm is not None:
        return replace(Failure.of(calm, failure.options, failure.finding.key), runs=search.runs)
    found = [failure]
    for result in _sparse(search, began + SPARSE_PART * budget_s):
        found.append(Failure.of(result, failure.options, failure.finding.key))
    found.sort(key=lambda each: each.tape.size)
    best = found[0]
    for number, candidate in enumerate(found[:KEPT]):
        now = _real_clock()
        share = now + (search.ends - now) / (min(KEPT, len(found)) - number)
        small = _reduced(search, candidate, share)
        if small.tape.size < best.tape.size:
            best = small
        if len(best.tape.decisions) <= 1:
            break
    return replace(best, runs=search.runs)


def _sparse(search: _Search, ends: float) -> Iterator[Result[Any]]:
    """Yield failing runs of the seed's variants with few decisions, until one is small."""
    failure = search.failure
    least = len(failure.tape.decisions)
    for number in range(SPARSE_RUNS):
        if least <= FEW or search.is_over(ends):
            return
        thinned = THINNED[number % len(THINNED)]
        result = search.fails(
            failure.seed,
            variant=number + 1,
            thinned=thinned,
            faults=failure.tape.faults,
            strategy=failure.options.strategy,
        )
        if result is not None and len(result.tape.decisions) <= least:
            least = min(least, len(result.tape.decisions))
            yield result


def _reduced(search: _Search, failure: Failure, ends: float) -> Failure:
    """Return the failure after passes, until no pass changes it."""
    best = failure
    changes = True
    while changes and best.tape.decisions and not search.is_over(ends):
        changes = False
        for make_pass in search.passes:
            smaller = _after_pass(search, best, make_pass, ends)
            changes = changes or smaller is not best
            best = smaller
    return best


def _after_pass(search: _Search, best: Failure, make_pass: Pass, ends: float) -> Failure:
    """Return what a pass makes of a failure. A pass begins anew with each candidate that fails."""
    while not search.is_over(ends):
        for decisions in make_pass(best.tape.decisions):
            if search.is_over(ends):
                return best
            result = search.fails(replace(best.tape, decisions=decisions, digest=""))
            if result is not None and result.tape.size < best.tape.size:
                best = Failure.of(result, search.failure.options, search.failure.finding.key)
                break
        else:
            return best
    return best


def _without(decided: Decided, places: set[Place]) -> Decided:
    return {place: value for place, value in decided.items() if place not in places}


def drop_groups(decided: Decided) -> Iterator[Decided]:
    """Drop all decisions of a kind, then of an owner, then of a stream."""
    seen: set[frozenset[Place]] = set()
    groupings: tuple[Callable[[str], str], ...] = (
        lambda name: name.rpartition("/")[2],
        lambda name: name.rpartition("/")[0],
        lambda name: name,
    )
    for group_of in groupings:
        for group in dict.fromkeys(group_of(name) for name, _ in decided):
            places = {place for place in decided if group_of(place[0]) == group}
            if frozenset(places) not in seen:
                seen.add(frozenset(places))
                yield _without(decided, places)


def drop_parts(decided: Decided) -> Iterator[Decided]:
    """Drop the tail, then the first half, then quarters, eighths and so on, in the order of time."""
    places = list(decided)
    size = len(places)
    while size > 2:
        size = (size + 1) // 2
        for start in range(len(places) - len(places) % size, -1, -size):
            if part := set(places[start : start + size]):
                yield _without(decided, part)


def drop_one(decided: Decided) -> Iterator[Decided]:
    """Drop each decision, the last one first."""
    for place in reversed(list(decided)):
        yield _without(decided, {place})


def lower_values(decided: Decided) -> Iterator[Decided]:
    """Make each value 1, then half, then one less."""
    for place, value in decided.items():
        for lower in dict.fromkeys((1, value // 2, value - 1)):
            if 0 < lower < value:
                yield {**decided, place: lower}


def let_others_do(decided: Decided) -> Iterator[Decided]:
    """Drop each of a few decisions, and let another one do its work: by a little more or less, or by both.

    Two delays may do only together what a longer one does alone.
    """
    if len(decided) > MERGED:
        return
    for dropped, lost in reversed(list(decided.items())):
        rest = _without(decided, {dropped})
        for place, value in rest.items():
            for other in dict.fromkeys((value + lost, value + 1, value - 1, value + 2, 2 * value)):
                if 0 < other != value:
                    yield {**rest, place: other}


#: Proposes smaller sets of decisions.
Pass = Callable[[Decided], Iterator[Decided]]

PASSES: tuple[Pass, ...] = (drop_groups, drop_parts, drop_one, lower_values, let_others_do)
