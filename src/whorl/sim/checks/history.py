"""Histories: the operations that clients began and ended, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

#: The end of an operation that was never answered.
NEVER = 1 << 62


class Op:
    """One operation of a client: what it asked, what it was answered, and between which moments."""

    __slots__ = ("_clock", "args", "began", "ended", "is_known", "name", "process", "result")

    def __init__(self, clock: Callable[[], int], process: Hashable, name: str, args: Any) -> None:
        self._clock = clock
        self.process: Hashable = process
        self.name: str = name
        self.args: Any = args
        self.began: int = clock()
        self.ended: int = NEVER
        self.result: Any = None
        self.is_known: bool = False  #: whether there is an answer; else it may have happened or not

    def done(self, result: Any = None) -> Any:
        """Note the answer, and return it."""
        self.result, self.ended, self.is_known = result, self._clock(), True
        return result

    def failed(self) -> None:
        """Note that the operation has not happened, and never will."""
        self.ended = -1

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.args)) if isinstance(self.args, tuple) else repr(self.args)
        answer = repr(self.result) if self.is_known else "?"
        until = f"{self.ended / 1e6:.3f}" if self.ended < NEVER else "…"
        return f"{self.process}: {self.name}({shown}) -> {answer} [{self.began / 1e6:.3f} to {until} ms]"


class History:
    """The operations of a run, in the order in which they began."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.ops: list[Op] = []

    def begin(self, process: Hashable, name: str, args: Any) -> Op:
        """Note that a client begins an operation."""
        op = Op(self._clock, process, name, args)
        self.ops.append(op)
        return op

    def relevant(self) -> list[Op]:
        """Return all operations that may have happened."""
        return [op for op in self.ops if op.ended >= 0]
