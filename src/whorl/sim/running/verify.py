"""Running a seed twice: a run that depends on nothing outside its world is the same both times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from whorl.sim.running.result import Result
from whorl.sim.running.run import Main, run_with
from whorl.sim.world.options import RunOptions

#: What lies in memory during the second run, so that its objects have other addresses.
BALLAST = 5003


@dataclass(frozen=True)
class Difference:
    """The place where two runs of one seed part."""

    seed: int
    number: int  #: of the first kernel call that differs
    first: str
    second: str
    first_task: str
    second_task: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed} is not deterministic: two runs part at kernel call {self.number}\n"
            f"  first run,  {_by(self.first_task)}: {self.first}\n"
            f"  second run, {_by(self.second_task)}: {self.second}\n"
            "  The program depends on something outside the world: the order of a set of its own objects?"
        )


def _by(task: str) -> str:
    return f"task {task!r}" if task else "no task"


def difference(first: Result[Any], second: Result[Any]) -> Difference | None:
    """Return where two runs part, which kept their calls; None if they are the same."""
    calls, others = first.calls or [], second.calls or []
    for number, (call, other) in enumerate(zip_longest(calls, others)):
        if call != other:
            return Difference(
                first.tape.seed,
                number,
                shown(call),
                shown(other),
                first.tasks[number] if number < len(calls) else "",
                second.tasks[number] if number < len(others) else "",
            )
    return None


def shown(call: tuple[Any, ...] | None) -> str:
    """Return a kernel call in words."""
    if call is None:
        return "the run was over"
    time, host, name, *details = call
    text = f"at {time / 1e6:.6f} ms, host {host}: {name}({', '.join(map(repr, details))})"
    return text if len(text) <= 300 else f"{text[:297]}..."


def verify(main: Main[Any], seed: Any, options: RunOptions) -> Difference | None:
    """Run a seed twice, with other objects in memory; return where the runs part, or None."""
    options = replace(options, keeps_calls=True)
    first = run_with(main, seed, options)
    ballast = [[bytes(17 * number % 509), {number: number}, _Holder()] for number in range(BALLAST)]
    del ballast[::3]
    second = run_with(main, seed, options)
    del ballast
    if first.digest == second.digest:
        return None
    return difference(first, second)


class _Holder:
    """An object such as programs make."""

    def __init__(self) -> None:
        self.content = None
