"""The one source of chance: named streams of decisions, drawn from a seed or read from a tape.

A decision is a number from 0 to n-1. 0 is always what a calm world does. Each stream counts its own
decisions. So a tape can leave one out, and all others stay where they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

#: A decision's place: the name of its stream, and its number there.
Place = tuple[str, int]

#: When a decision was made, in nanoseconds; and among how many values, or which of several things it picked.
Moment = tuple[int, Any]

_ALL = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # the odd number nearest to 2**64 divided by the golden ratio

#: How often a pick of a scheduler differs from the calm one.
PICKS = 0.3


def mixed(base: int, count: int) -> int:
    """Return 64 bits that depend on all bits of a base and a count."""
    return split(base & _ALL, count & _ALL)


if not cython.compiled:

    def split(base: int, count: int) -> int:
        """Return what `mixed` returns (the finalizer of splitmix64)."""
        bits = (base + count * _STEP) & _ALL
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _ALL
        return bits ^ (bits >> 31)

    def drawn(base: int, number: int, p: float, n: int) -> int:
        """Return a number from 1 to n-1 with probability `p`, else 0."""
        bits = split(base, number)
        if (bits & 0xFFFFFFFF) >= p * 0x100000000:
            return 0
        return 1 + (bits >> 32) % (n - 1)


class Stream:
    """The decisions of one name, in their order."""

    def __init__(self, decisions: Decisions, name: str) -> None:
        self._decisions = decisions
        self.name: str = name
        self.count: int = 0  # how many decisions were made
        self._base = 0
        self._has_base = False  # the base is made for the first draw: most streams of a run draw nothing

    def draw(self, number: int, p: float, n: int) -> int:
        """Return what chance decides for a number of this stream, whatever a tape says."""
        if not self._has_base:
            self._base = self._decisions.drawn_base(self.name)
            self._has_base = True
        return drawn(self._base, number, p, n)

    def decide(self, n: int, p: float = 1.0) -> int:
        """Return a number below `n`: with probability `p` one of 1 to n-1, else 0."""
        if n <= 1:
            return 0
        number = self.count
        self.count = number + 1
        decisions = self._decisions
        if decisions.asked is not None:
            decisions.asked.append((self.name, number, n))
        if decisions.tape is not None:
            value = decisions.tape.get((self.name, number), 0)
            if value >= n:
                value = n - 1
        else:
            value = self.draw(number, p, n)
            if value and decisions.thinned and not decisions.keeps(self.name, number):
                return 0
        if value:
            decisions.take(self.name, number, value, n)
        return value

    def explain(self, detail: Any) -> None:
        """Note what the last decision came to, for those who read of it."""
        decisions = self._decisions
        decisions.moments[self.name, self.count - 1] = (decisions.clock.now, detail)

    def force(self, value: int, n: int) -> int:
        """Return the next decision, which a strategy has made; a tape still comes first."""
        decisions = self._decisions
        if decisions.tape is not None:
            return self.decide(n)
        number = self.count
        self.count = number + 1
        if value:
            decisions.take(self.name, number, value, n)
        return value

    def happens(self, p: float) -> bool:
        """Return whether something of probability `p` happens; the calm answer is no."""
        return p > 0 and self.decide(2, p) == 1

    def uniform(self, n: int) -> int:
        """Return a number below `n`, each as likely as the others."""
        return self.decide(n, (n - 1) / n) if n > 1 else 0


class Decisions:
    """All streams of one run. `taken` is what was decided, without the zeros: the tape of the run."""

    def __init__(
        self,
        seed: int,
        tape: Mapping[Place, int] | None = None,
        *,
        thinned: float = 0.0,
        variant: int = 0,
    ) -> None:
        """Draw from `seed`, or read from a tape. `thinned` is the part of all decisions that become 0.

        Each `variant` draws other decisions. The program's random numbers are those of the seed.
        """
        self.seed: int = seed
        self.variant: int = variant
        self.tape: Mapping[Place, int] | None = tape
        self.thinned: float = thinned
        self.taken: dict[Place, int] = {}
        self.moments: dict[Place, Moment] = {}  # of the same places
        self.asked: list[tuple[str, int, int]] | None = (
            None  # each decision: stream, number, n; None: not kept
        )
        self.clock: Any = None  # the world's, once there is a world
        self._streams: dict[str, Stream] = {}
        self.schedule: Scheduler = Scheduler()

    def take(self, name: str, number: int, value: int, among: Any) -> None:
        """Note a decision that is not 0, and when it was made."""
        place = name, number
        self.taken[place] = value
        self.moments[place] = (0 if self.clock is None else self.clock.now, among)

    def base_of(self, name: str) -> int:
        """Return a number that depends on the seed and a name."""
        return int.from_bytes(blake2b(f"{self.seed}:{name}".encode(), digest_size=8).digest(), "little")

    def drawn_base(self, name: str) -> int:
        """Return what `base_of` does, for a name of decisions: each variant has others."""
        return self.base_of(f"{self.variant}:{name}" if self.variant else name)

    def keeps(self, name: str, number: int) -> bool:
        """Return whether a decision survives the thinning; this depends on the seed and its place only."""
        bits = mixed(self.drawn_base(f"thin/{name}"), number)
        return (bits & 0xFFFFFFFF) >= self.thinned * 0x100000000

    def stream(self, name: str) -> Stream:
        """Return the stream of a name."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = Stream(self, name)
        return found

    def pick(self, name: str, keys: list[Any]) -> int:
        """Return which of several things comes first, as a place in `keys`; each key names one of them."""
        size = len(keys)
        if size <= 1:
            return 0
        stream = self.stream(name)
        if self.tape is not None:
            number, value = stream.count, stream.decide(size)
            if value:
                self.moments[name, number] = (self.clock.now, _name_of(keys[value]))
            return value
        number = stream.count
        stream.count = number + 1
        if self.asked is not None:
            self.asked.append((name, number, size))
        value = self.schedule.pick(self, stream, number, keys)
        if value and self.thinned and not self.keeps(name, number):
            value = 0
        if value:
            self.take(name, number, value, _name_of(keys[value]))
        return value

    def order(self, name: str, keys: Sequence[Any]) -> list[int]:
        """Return the order in which several things come, as places in `keys`."""
        rest = list(range(len(keys)))
        ordered = []
        while len(rest) > 1:
            ordered.append(rest.pop(self.pick(name, [keys[place] for place in rest])))
        return ordered + rest

    def forget_streams(self) -> None:
        """Let go of the streams, as the world has ended: they and this hold each other."""
        self._streams.clear()

    def rng(self, name: str) -> random.Random:
        """Return a generator of Python's for a name; what it draws is not on the tape."""
        return random.Random(self.base_of(f"rng/{name}"))


def _name_of(key: Any) -> Any:
    """Return the name of a thing that came first, or itself: moments outlive the hosts of their world."""
    return getattr(key, "name", key)


class Scheduler:
    """Picks at random what comes first among things that may come in any order."""

    def __init__(self, p: float = PICKS) -> None:
        self.p: float = p
        self.cpu_model: int | None = None  #: how the turns' time is drawn; None: as each seed says

    def pick(self, decisions: Decisions, stream: Stream, number: int, keys: Sequence[Any]) -> int:
        """Return a place in `keys`; 0 is the calm one."""
        return stream.draw(number, self.p, len(keys))


#: Makes the scheduler for one seed.
Strategy = Callable[[int], Scheduler]
