"""Linearizable histories: which answers of a register have an order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from whorl import sim
from whorl.sim.checks.history import NEVER, Op
from whorl.sim.checks.linearizable import find_violation


class Register:
    """A register with `write` and `read`."""

    initial = 0

    def apply(self, state: Any, op: str, args: Any) -> tuple[Any, Any]:
        """Return the next state and the answer."""
        return (args[0], None) if op == "write" else (state, state)


def _op(name: str, began: int, ended: int, *args: Any, result: Any = None) -> Op:
    op = Op(lambda: began, "client", name, args)
    if ended != NEVER:
        op.result, op.ended, op.is_known = result, ended, True
    return op


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [_op("write", 0, 1, 5), _op("read", 2, 3, result=5)],
        [_op("write", 0, 10, 5), _op("read", 1, 2, result=0), _op("read", 3, 4, result=5)],
        [_op("write", 0, NEVER, 5), _op("read", 3, 4, result=5)],
        [_op("write", 0, NEVER, 5), _op("read", 3, 4, result=0)],
        [_op("write", 0, 9, 1), _op("write", 0, 9, 2), _op("read", 10, 11, result=1)],
    ],
    ids=[
        "empty",
        "in order",
        "overlapping",
        "unanswered and done",
        "unanswered and not done",
        "either order",
    ],
)
def test_history_with_an_order_is_accepted(ops: list[Op]) -> None:
    assert find_violation(ops, Register()) is None


@pytest.mark.parametrize(
    "ops",
    [
        [_op("write", 0, 1, 5), _op("read", 2, 3, result=0)],
        [_op("write", 0, 10, 5), _op("read", 1, 2, result=5), _op("read", 3, 4, result=0)],
        [_op("read", 0, 1, result=7)],
        [_op("write", 5, NEVER, 5), _op("read", 3, 4, result=5)],
    ],
    ids=["stale read", "back in time", "out of nothing", "before it began"],
)
def test_history_without_an_order_is_refused(ops: list[Op]) -> None:
    violation = find_violation(ops, Register())
    assert violation is not None
    assert "no order explains" in violation


def test_operations_with_different_keys_are_checked_by_themselves() -> None:
    class Registers:
        initial = 0

        def apply(self, state: Any, op: str, args: Any) -> tuple[Any, Any]:
            return (args[1], None) if op == "write" else (state, state)

        def key(self, op: str, args: Any) -> Any:
            return args[0]

    ops = [_op("write", 0, 1, "a", 1), _op("write", 0, 1, "b", 2), _op("read", 2, 3, "a", result=1)]
    assert find_violation(ops, Registers()) is None
    assert find_violation([*ops, _op("read", 2, 3, "b", result=1)], Registers()) is not None


def test_many_concurrent_operations_are_checked_in_little_time() -> None:
    ops = [_op("write", 0, 1000, number) for number in range(40)]
    ops += [_op("read", 1001, 1002, result=39)]
    assert find_violation(ops, Register()) is None


def test_many_unanswered_operations_are_checked_in_little_time() -> None:
    ops = [_op("write", number, NEVER, number) for number in range(1, 30)]
    ops += [_op("read", 100 + number, 100 + number, result=number) for number in range(20, 0, -1)]
    assert find_violation([*ops, _op("read", 200, 201, result=0)], Register()) is not None


def test_recorded_operations_are_checked_when_the_run_ends() -> None:
    async def main(world: sim.World) -> None:
        world.linearizable(Register())
        world.record("a", "write", (5,)).done()
        await asyncio.sleep(1)
        world.record("b", "read").done(0)

    found = sim.run(main).findings
    assert [each.kind for each in found] == ["linearizable"]
    assert "b: read() -> 0" in found[0].text


def test_operation_that_failed_never_happened() -> None:
    async def main(world: sim.World) -> None:
        world.linearizable(Register())
        world.record("a", "write", (5,)).failed()
        await asyncio.sleep(1)
        world.record("b", "read").done(0)

    sim.run(main).check()
