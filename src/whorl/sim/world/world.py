"""The world: its clock, its hosts, whose turn it is, and what it notices."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from asyncio import events
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whorl.sim.chance.faults import CpuModel, Faults, drawn, with_cpu
from whorl.sim.checks.conditions import Conditions
from whorl.sim.checks.leaks import being_left, open_descriptors, swallowed_cancellations
from whorl.sim.errors import Deadlock, Unsimulated
from whorl.sim.files.packets import Packets
from whorl.sim.process.digest import Digest, task_name
from whorl.sim.wire.names import Names
from whorl.sim.wire.timeline import NEVER, SECOND, Timeline
from whorl.sim.world.host import Host
from whorl.sim.world.isolation import Isolation
from whorl.sim.world.network import Network
from whorl.sim.world.turns import Turns
from whorl.sim.world.waiting import Waits, describe_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from contextlib import AbstractContextManager

    from whorl.sim.chance.decisions import Decisions
    from whorl.sim.process.program import ProgramMain
    from whorl.sim.world.options import RunOptions

#: So many lines of the log of a run are kept.
LOG_LINES = 1000

#: So many cancelled tasks are looked at when a run ends.
MOST_CANCELLED = 1000

#: So many texts of one kind are shown.
_MOST = 5

#: What asyncio tells the exception handler when a process has no descriptors left; then it tries again.
_REFUSED_ACCEPT = "socket.accept() out of system resource"


@contextmanager
def quiet_finalizers() -> Iterator[None]:
    """Let the objects of an ended world be finalized without a word: nothing is left that could be wrong."""
    former = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = former


def _listed(texts: list[str]) -> str:
    more = [f"{len(texts) - _MOST} more"] if len(texts) > _MOST else []
    return "; ".join([*texts[:_MOST], *more])


class _Acting:
    """The time in which the code of a host runs."""

    __slots__ = ("_former", "_host", "_world")

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._host = host

    def __enter__(self) -> None:
        world = self._world
        self._former, world.current = world.current, self._host

    def __exit__(self, *error: object) -> None:
        self._world.current = self._former


@dataclass
class Finding:
    """Something that went wrong in a run."""

    #: "exception", "unhandled", "deadlock", "livelock", "outoftime", "outofrealtime", "limit", "always",
    #: "eventually", "linearizable", "killed", "leak", "stall"
    kind: str
    text: str
    host: str = ""
    time_s: float = 0.0  #: in virtual seconds since the world began
    exception: BaseException | None = field(default=None, repr=False)

    @property
    def is_unhandled(self) -> bool:
        """True if asyncio would only log this, and go on."""
        return self.kind == "unhandled"

    @property
    def key(self) -> tuple[str, str]:
        """The finding's identity in other runs: its kind, and the exception's type or the check."""
        if self.exception is not None:
            return self.kind, type(self.exception).__name__
        return self.kind, self.text.partition(":")[0]

    def __str__(self) -> str:
        where = f", host {self.host}" if self.host else ""
        return f"{self.kind} at {self.time_s * 1000:.3f} ms{where}: {self.text}"


class World(Turns, Conditions):
    """A simulated world. Programs get it as `world`."""

    hosts: dict[str, Host]
    main: Host
    current: Host

    def __init__(self, decisions: Decisions, options: RunOptions, *, drives_main: bool) -> None:
        """Make a world without hosts; `begin` makes the main one."""
        decisions.clock = timeline = Timeline()
        limit = round(options.limit_s * SECOND)
        Turns.__init__(self, decisions, timeline, limit, options.turns, options.real_s)
        self.seed: int = decisions.seed
        self.options: RunOptions = options
        self.faults: Faults = with_cpu(drawn(options.faults, decisions), options.cpu)
        self.digest: Digest = Digest(options.keeps_calls)
        self.digest.takes_lengths = options.tls == "real"
        self.net: Network = Network(decisions, self.timeline, self.faults, options.net)
        if options.keeps_calls:
            self.net.packets = Packets(task_name)
        self.log: deque[str] | None = deque(maxlen=LOG_LINES) if options.keeps_log else None
        self.names: Names = Names()
        self.remarks: list[str] = []
        self.programs: dict[str, ProgramMain] = {}
        self.notes: list[tuple[int, str, dict[str, Any]]] = []
        self.reached: set[str] = set()
        self.has_ended: bool = False
        self.cpu_model: CpuModel = CpuModel(
            decisions, self.faults.cpu, options.cpu.model if options.cpu else None
        )
        self._set_up_conditions()
        self._waits: Waits | None = None
        if options.stall_s is not None:
            self._waits = Waits(round(options.stall_s * SECOND))
            self.look_at: int = self._waits.interval
        self.cancelled: list[asyncio.Task[Any]] = []  # on which `cancel` was called
        self.lost_sockets: list[str] = []  # that were collected before they were closed
        self.random_start: Any = None  # the state of `random` when the run began; None: the program seeded it
        self.random_words: int = 0  # what a run that failed has drawn from `random`, in words of 32 bits
        self.random_calls: int = 0  # how often the program asked for other random numbers
        self.allowed: frozenset[str] = frozenset(options.allow)
        self._isolation: Isolation | None = None
        if decisions.stream("identities").happens(0.5):
            self.hash_base: int = decisions.base_of("identities")
        self._drives_main = drives_main

    def begin(self) -> None:
        """Make the main host, when the world stands in the place of Python's own modules."""
        self.main = self.current = self.host("main", "10.0.0.1")

    # For programs.

    def host(
        self,
        name: str,
        address: str | None = None,
        *,
        boot: Callable[[Host], Coroutine[Any, Any, Any]] | None = None,
        max_files: int = 1024,
        skew_s: float = 0.0,
        drift_ppm: float = 0.0,
    ) -> Host:
        """Return the host of a name; make it, with a loop of its own, when it is first asked for.

        `boot(host)` is a coroutine function that runs there at once and after each restart.
        """
        found = self.hosts.get(name)
        if found is not None:
            return found
        if address is None:
            number = len(self.hosts) + 1
            address = f"10.0.{number // 250}.{number % 250 + (number >= 250)}"
        self.names.set(name, address)
        made = self.hosts[name] = Host(
            self,
            name,
            address,
            boot=boot,
            max_files=max_files,
            skew_s=skew_s,
            drift_ppm=drift_ppm,
            is_driven=self._drives_main or bool(self.hosts),
        )
        made._begin()  # It is known by name while it boots.
        return made

    def now(self) -> float:
        """Return the virtual seconds since the world began."""
        host = self.current
        return (self.timeline.now + (host.spent if host is not None else 0)) / SECOND

    def choose(self, n: int, name: str) -> int:
        """Return a number below `n` that the seed decides; failures shrink to 0, the simplest choice."""
        return self.decisions.stream(f"choice/{name}").uniform(n)

    def rng(self, name: str) -> Any:
        """Return a generator of random numbers of its own for a name (random.Random).

        They follow the seed and do not shrink; use `choose` for what matters.
        """
        self.random_calls += 1
        return self.decisions.rng(f"program/{name}")

    def program(self, name: str, main: ProgramMain) -> None:
        """Let a coroutine function stand in for a program: `main(program)` returns the exit code.

        `name` is a path, or the last part of one.
        """
        self.programs[name] = main

    def isolate(self, *modules: str) -> None:
        """Give each host modules of its own, and those below them; a new life of a host begins with new ones.

        A module is loaded again for a host when its code first uses it. Names that others took out of one
        (`from module import name`) stay shared. Raises ImportError for a module that is not found, and
        ValueError for one without Python source.
        """
        if self._isolation is None:
            self._isolation = Isolation(self)
        for name in modules:
            self._isolation.add(name)

    def note(self, text: str, **fields: Any) -> None:
        """Write a line into the story of this run."""
        self.notes.append((self.timeline.now, text, fields))

    # For hosts.

    def acting_as(self, host: Host) -> AbstractContextManager[None]:
        """Let code run as the code of a host."""
        return _Acting(self, host)

    def was_cancelled(self, task: asyncio.Task[Any]) -> None:
        """Note a task that is asked to end: it is looked at when the run ends."""
        if len(self.cancelled) < MOST_CANCELLED:
            self.cancelled.append(task)

    def sleep_in(self, host: Host, timeout_ns: int) -> None:
        """Let the world go on while a host sleeps that runs its own loop, or its loop in a nested run.

        Raises Deadlock, Livelock, OutOfTime, OutOfRealTime; CancelledError if the host ends meanwhile.
        """
        running, loop, driver = events._get_running_loop(), host.loop, host.driver
        if driver is not None and running is not loop:
            raise Unsimulated("the loop of a simulated host was run from inside the world")
        self.count_turn()
        host.deadline = NEVER
        over = self.timeline.now + host.spent
        woken_at = over + host.cpu_time(over)
        host.deadline = deadline = over + timeout_ns if timeout_ns >= 0 else NEVER
        host.spent = 0
        # Jobs and other hosts run in here: for them no loop runs.
        events._set_running_loop(None)
        host.driver = None  # The turn in which a nested run sleeps is not over.
        try:
            with self.acting_as(host):
                while self.timeline.now < woken_at or not (
                    host.kernel.epoll.ready or self.timeline.now >= deadline
                ):
                    if not self.advance(woken_at if host.kernel.epoll.ready else max(woken_at, deadline)):
                        return
                    if host.is_dead or host.loop is not loop:
                        raise asyncio.CancelledError(f"host {host.name} has ended")  # so end its frames
        finally:
            events._set_running_loop(running)
            if host.loop is loop:
                host.driver = driver

    def find(self, kind: str, text: str, *, host: str = "", exception: BaseException | None = None) -> None:
        """Note that something went wrong. An error that asyncio only logs comes after what ended the run."""
        finding = Finding(kind, text, host, self.timeline.now / SECOND, exception)
        place = sum(kind == "unhandled" or not each.is_unhandled for each in self.findings)
        self.findings.insert(place, finding)

    def remark(self, text: str) -> None:
        """Note something that is worth a look, and no failure."""
        if len(self.remarks) < 100:
            self.remarks.append(text)

    def unhandled(self, host: Host, context: dict[str, Any]) -> None:
        """Note an error that no code has handled."""
        error = context.get("exception")
        if isinstance(error, asyncio.CancelledError):
            # Before 3.13, the callback of asyncio's streams raises it when a server's task is cancelled.
            self.remark(f"{host.name}: {context.get('message')} was cancelled")
            return
        shown = f"{context.get('message', 'error')}"
        if error is not None:
            shown += f" ({type(error).__name__}: {error})"
        if context.get("message") == _REFUSED_ACCEPT:
            self.remark(f"{host.name}: {shown}")
        elif isinstance(error, Unsimulated):
            self.find("limit", str(error), host=host.name, exception=error)
        elif "unhandled" in self.allowed:
            self.remark(f"{host.name}: {shown}")
        else:
            self.find("unhandled", shown, host=host.name, exception=error)

    def blocked(self, host: Host, seconds: float) -> None:
        """Note a turn that blocked its loop."""
        self.remark(f"{host.name}: time.sleep blocked the loop for {seconds} s")

    # Running.

    def look_for_stalls(self) -> None:
        waits, host = self._waits, self.main
        assert waits is not None
        if stalled := waits.stalled(host.loop, self.timeline.now):
            limit = f"longer than {waits.patience / SECOND:g} s"
            self.find("stall", f"{limit}: {_listed(stalled)}", host=host.name)
        self.look_at = self.timeline.now + waits.interval

    def stand_still(self) -> None:
        """Raise Deadlock: nothing is on its way, and no timer is set."""
        waiting = describe_tasks(self.hosts.values())
        raise Deadlock(f"nothing is on its way, and no timer is set. {waiting}")

    def collect(self) -> None:
        """Run the collector; code that hangs on it and looks at the clock takes no time (gc.callbacks)."""
        host = self.current
        spent = host.spent
        gc.collect(0)
        host.spent = spent

    def note_end(self) -> None:
        """Note what the program has done when it ends: the rest is done to it."""
        host = self.main
        left = being_left(host.kernel.table, host.loop.closing_descriptors(), self.timeline.now)
        self._expected = host.own_descriptors | host.loop.signal_descriptors | left
        self._of_program = len(self.cancelled)

    def check_end(self) -> None:
        """Check what is left when the program and the main host's tasks have ended."""
        self.check_histories()
        if self.findings:
            return  # A program that fails cannot tidy.
        host = self.main
        known = self._expected | host.loop.closing_descriptors()
        left = open_descriptors(host.kernel.table, known, host.made_at)
        if leaks := [*self.lost_sockets, *left]:
            text = f"descriptors were not closed: {_listed(leaks)}"
            if "leaks" in self.allowed:
                self.remark(text)
            else:
                self.find("leak", text)
        if swallowed := swallowed_cancellations(self.cancelled[: self._of_program]):
            self.remark(f"cancellations were swallowed: {_listed(swallowed)}")

    def _close_hosts(self) -> None:
        for host in self.hosts.values():
            with self.acting_as(host):
                host.close()

    def end(self) -> None:
        """End the world: nothing happens in it any more."""
        self.has_ended = True
        if self._isolation is not None:
            self._isolation.end()
        self.timeline.clear()
        with quiet_finalizers():
            self._close_hosts()
            self.timeline.clear()
            self.conditions.clear()
            self.cancelled.clear()
            # Break the circles that hold the loops and their tasks: those of later worlds count them.
            self.hosts = {}
            self.run_order.clear()
            self.net.close()
            self.decisions.forget_streams()
            self.main = self.current = None  # type: ignore[assignment]
            gc.collect(1)  # The collector rests while a world runs: all of it is young.
