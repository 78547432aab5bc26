"""Whose turn it is: the loops of all hosts share one thread and one time.

A host takes a turn when its loop is ready and its former turn is over. If several may, the seed picks one. If
none may, time passes up to the next event.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from whorl.aio.runners.host_driver import HostDriver, deadlines
from whorl.sim.chance.decisions import mixed
from whorl.sim.chance.faults import EDGE, GRID, NONE
from whorl.sim.errors import Livelock, OutOfRealTime, OutOfTime
from whorl.sim.wire.clock import HostClock
from whorl.sim.wire.timeline import MICROSECOND, MILLISECOND, NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.chance.decisions import Decisions, Stream
    from whorl.sim.chance.faults import CpuModel
    from whorl.sim.files.epoll import Epoll
    from whorl.sim.wire.timeline import Timeline

#: So many turns are a circle if all the time that passes is theirs.
LIVELOCK_TURNS = 100_000

#: Less than this is no time: looks at the clock take it.
STANDSTILL = 10 * MICROSECOND

#: How long a turn takes at most up to a deadline or an arrival, and among how many of them it chooses.
EDGE_SPAN = 50 * MILLISECOND
EDGES = 5
CPU_STEPS = 16
RANDOM_STEP = 125 * MICROSECOND

#: After so many turns the real time is looked at, and after so many the collector runs. Powers of two.
LOOK_TURNS, COLLECT_TURNS = 1024, 4096

_real_clock = time.perf_counter  # bound before any world replaces it


class HostTurns(HostClock):
    """A host, as it takes turns."""

    def __init__(self, name: str, timeline: Timeline, cpu_model: CpuModel, skew: int, drift: float) -> None:
        """Begin `skew` nanoseconds ahead of the real time, and gain `drift` of all that passes."""
        HostClock.__init__(self, timeline, skew, drift)
        self.name: str = name
        self.model: int = cpu_model.model  # how the time of turns is drawn
        self.rate: float = cpu_model.rate  # how often a turn takes time
        self.cpu: Stream = None  # type: ignore[assignment]  # of the decisions about that
        self.epoll: Epoll = None  # type: ignore[assignment]  # the one of the loop
        self.loop: Any = None
        self.driver: Any = None  # of the loop; None: the loop runs by itself
        self.busy_until: int = 0  # when the turn that was taken last is over
        self.deadline: int = 0  # when the loop wants its next turn, without events
        self.pending_signals: list[int] = []
        self.is_dead: bool = True
        self.is_paused: bool = False

    def next_time(self) -> int:
        """Return when the loop wants a turn, if nothing else happens; it may be now or earlier."""
        if self.is_dead or self.is_paused or self.driver is None:
            return NEVER
        if self.epoll.ready or self.pending_signals or self.deadline <= self.busy_until:
            return self.busy_until
        return self.deadline

    def plan(self) -> None:
        """Note when the loop wants its next turn, and how long this one took."""
        self._plan()

    def _plan(self) -> None:
        if self.is_dead or self.driver is None:
            return
        rest = HostDriver.rest_ns(self.driver)
        over = self.timeline.now + self.spent
        self.deadline = NEVER if rest < 0 else over + rest
        self.busy_until = over + self._cpu_time(over)
        self.spent: int = 0

    def cpu_time(self, over: int) -> int:
        """Return how long the turn that ended at `over` takes longer than its code shows, in nanoseconds."""
        return self._cpu_time(over)

    def _cpu_time(self, over: int) -> int:
        model = self.model
        if model == NONE:
            return 0
        step = self.cpu.decide(CPU_STEPS, self.rate)
        if not step:
            return 0
        if model == GRID:
            return MILLISECOND * (1 + step % 2)
        if model == EDGE:
            return self._up_to_edge(over, step)
        return RANDOM_STEP * step

    def _up_to_edge(self, over: int, step: int) -> int:
        """Return the time up to a deadline or an arrival, or right before it, or right after.

        It is not always the nearest one. So the next poll may find several things at once, such as an answer
        and the end of the time to wait for it.
        """
        edges = self._edges(over)
        ahead = edges[step // 3 % len(edges)] - over + (0, -1, 1)[step % 3] if edges else 0
        self.cpu.explain(ahead)
        return ahead

    def _edges(self, over: int) -> list[int]:
        """Return the first times after `over` at which a timer of the loop is due, or an event happens."""
        found = set(self.timeline.times(over, over + EDGE_SPAN))
        now = self._clock_ns()  # of the host, by which timers are set
        ahead = over - now
        for due in deadlines(self.loop, now, now + EDGE_SPAN):
            found.add(due + ahead)
        return sorted(found)[:EDGES]

    def take_turn(self) -> None:
        """Let the loop take one turn."""
        self.spent = 0
        if self.pending_signals and not self.handle_signals():
            return
        goes_on = False
        try:
            goes_on = HostDriver.step(self.driver)
        except (SystemExit, KeyboardInterrupt) as error:
            self.exited(error)
        if self.is_dead:
            return
        if goes_on:
            self._plan()
        else:
            self.deadline = NEVER  # It was stopped.

    def handle_signals(self) -> bool:
        """Call the handlers of signals that wait; return whether the process goes on."""
        raise NotImplementedError

    def exited(self, error: BaseException) -> None:
        """End, as an error out of the loop's turn asks for."""
        raise NotImplementedError


class Turns:
    """The turns of all hosts."""

    def __init__(
        self, decisions: Decisions, timeline: Timeline, limit: int, turns: int, real_s: float
    ) -> None:
        """Allow a virtual time in nanoseconds, a number of turns, and real seconds."""
        self.decisions: Decisions = decisions
        self.timeline: Timeline = timeline
        self.hosts: dict[str, Any] = {}
        self.run_order: list[Any] = []  # the same hosts
        self.main: Any = None  # the host of the program
        self.current: Any = None  # whose code runs
        self.conditions: list[Callable[[], None]] = []  # checked after each turn
        self.findings: list[Any] = []
        self.turns: int = 0
        self.idle_turns: int = 0
        self.limit: int = limit
        self.look_at: int = NEVER  # when the world looks for tasks that wait too long
        self.turns_limit: int = turns
        self.hash_base: int = 0  # of the hashes of futures and tasks; 0: they count up
        self._identities = 0
        self._tasks = 0
        self.real_limit: float = real_s
        self.until_real: float = _real_clock() + real_s

    def run_until(self, is_done: Callable[[], bool]) -> None:
        """Let the world go on until something is done, or something went wrong.

        Raises Deadlock, Livelock, OutOfTime, OutOfRealTime.
        """
        while not is_done() and self._advance(NEVER):
            pass

    def advance(self, until: int) -> bool:
        """Let one host take a turn, or time pass up to the next event; return whether the run goes on."""
        return self._advance(until)

    def _advance(self, until: int) -> bool:
        timeline = self.timeline
        now = timeline.now
        first, ready, following = None, None, until
        if len(self.run_order) != len(self.hosts):
            self.run_order = list(self.hosts.values())
        for host in self.run_order:
            due = host.next_time()
            if due > now:
                following = min(following, due)
            elif first is None:
                first = host
            elif ready is None:
                ready = [first, host]
            else:
                ready.append(host)
        if first is None:
            self._pass_time(min(following, timeline.next_time()))
        elif ready is None:
            self._turn(first)
        else:
            self._turn(ready[self.decisions.pick("turn", ready)])
        return not self.findings or not self.is_condemned()

    def _pass_time(self, following: int) -> None:
        """Let time pass, and happen what is due then."""
        timeline = self.timeline
        if following >= NEVER:
            self.stand_still()
        following = min(following, self.look_at)
        if following > self.limit:
            timeline.now = self.limit
            raise OutOfTime(f"the run takes more than {self.limit / 1e9:g} virtual seconds (limit_s)")
        if following > timeline.now:
            if following - timeline.now > STANDSTILL and self._is_awaited(following):
                self.idle_turns = 0
            timeline.now = following
            if following == self.look_at:
                self.look_for_stalls()
        timeline.happen()

    def _is_awaited(self, due: int) -> bool:
        """Return whether an event is due by a time, or a loop waits for it; else a turn takes so long."""
        if self.timeline.next_time() <= due:
            return True
        for host in self.run_order:
            if host.deadline == due:
                return True
        return False

    def _turn(self, host: HostTurns) -> None:
        self._count_turn()
        self.current = host
        host.take_turn()
        self.current = self.main
        if self.conditions:
            for condition in tuple(self.conditions):
                condition()
        if not self.turns % COLLECT_TURNS:
            self.collect()

    def next_identity(self) -> int:
        """Return the hash for a new future or task: the order of sets of them is the seed's."""
        self._identities += 1
        if not self.hash_base:
            return self._identities
        return mixed(self.hash_base, self._identities) >> 4

    def next_task(self) -> int:
        """Return the number for the name of a new task."""
        self._tasks += 1
        return self._tasks

    def count_turn(self) -> None:
        """Count a turn of any loop. Raises Livelock, OutOfTime, OutOfRealTime."""
        self._count_turn()

    def _count_turn(self) -> None:
        self.turns += 1
        self.idle_turns += 1
        if self.idle_turns > LIVELOCK_TURNS:
            raise Livelock(f"{LIVELOCK_TURNS} turns, and no time passed but theirs")
        if self.turns > self.turns_limit:
            raise OutOfTime(f"the run takes more than {self.turns_limit} turns (turns)")
        if not self.turns % LOOK_TURNS and _real_clock() > self.until_real:
            raise OutOfRealTime(f"the run takes more than {self.real_limit:g} real seconds (real_s)")

    def is_condemned(self) -> bool:
        """Return whether a condition failed that ends the run."""
        return bool(self.findings) and self.findings[0].kind in ("always", "eventually", "killed", "stall")

    def collect(self) -> None:
        """Run the collector."""
        raise NotImplementedError

    def look_for_stalls(self) -> None:
        """Look for tasks that wait too long, and plan the next look."""
        raise NotImplementedError

    def stand_still(self) -> None:
        """Raise Deadlock: nothing is on its way."""
        raise NotImplementedError
