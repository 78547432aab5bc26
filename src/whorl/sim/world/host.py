"""A host of a simulated world: one process with one loop, its clock, its ports, its end and its next life."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Protocol

from whorl.aio.runners.host_driver import HostDriver
from whorl.sim.errors import HostDied
from whorl.sim.files.disk import Disk
from whorl.sim.files.file import unreferenced
from whorl.sim.files.half_open import lose_power
from whorl.sim.process.disk_stream import open_file
from whorl.sim.process.kernel import SimKernel
from whorl.sim.process.loop import SimLoop
from whorl.sim.process.process import SimProcess, temporary_failure
from whorl.sim.process.tasks import OwnTasksLoop
from whorl.sim.process.threads import SimThreads
from whorl.sim.process.zombies import Zombies
from whorl.sim.wire.clock import LOOK_NS
from whorl.sim.wire.names import family_of
from whorl.sim.wire.ports import FIRST_PORT, LAST_PORT, PortTable, own_address
from whorl.sim.wire.timeline import SECOND
from whorl.sim.world.turns import HostTurns

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager

    from whorl.sim.chance.decisions import Decisions, Stream
    from whorl.sim.chance.faults import CpuModel, Faults
    from whorl.sim.files.epoll import Epoll
    from whorl.sim.process.digest import Digest
    from whorl.sim.wire.names import Names
    from whorl.sim.wire.timeline import Timeline
    from whorl.sim.world.network import Network
    from whorl.sim.world.options import RunOptions


class Surroundings(Protocol):
    """The world, as a host sees it."""

    decisions: Decisions
    net: Network
    timeline: Timeline
    digest: Digest
    faults: Faults
    cpu_model: CpuModel
    names: Names
    hosts: Any
    has_ended: bool
    lost_sockets: list[str]
    random_calls: int
    main: Any
    programs: dict[str, Any]
    options: RunOptions

    def find(self, kind: str, text: str, *, host: str = "") -> None: ...
    def acting_as(self, host: Any) -> AbstractContextManager[None]: ...
    def note(self, text: str, **fields: Any) -> None: ...
    def blocked(self, host: Any, seconds: float) -> None: ...
    def unhandled(self, host: Any, context: dict[str, Any]) -> None: ...
    def sleep_in(self, host: Any, timeout_ns: int) -> None: ...


#: How long a name server is silent that does not answer.
DNS_SILENCE = 5 * SECOND


class Host(HostTurns):
    """One host. `loop` is its event loop; `address` its address in the network."""

    def __init__(
        self,
        world: Surroundings,
        name: str,
        address: str,
        *,
        boot: Callable[[Host], Coroutine[Any, Any, Any]] | None,
        max_files: int,
        skew_s: float,
        drift_ppm: float,
        is_driven: bool,
    ) -> None:
        super().__init__(name, world.timeline, world.cpu_model, round(skew_s * SECOND), drift_ppm / 1e6)
        self.world = world
        self.address = address
        self.addresses: tuple[str, ...] = (address,)
        self.decisions: Decisions = world.decisions
        self.network: Network = world.net
        self._boot = boot
        self._max_files = max_files
        self.is_driven = is_driven
        self._lives = 0
        self.zombies: list[Zombies] = []
        self.disk: Disk = Disk(self.real_time, world.decisions.stream(f"{name}/disk/power"))
        self._waiters: dict[asyncio.Future[Any], None] = {}  # of `run`, on other hosts

    # A life.

    def _begin(self) -> None:
        world = self.world
        self._lives += 1
        self.process_id: int = 1000 * (1 + len(world.hosts)) + self._lives
        self.is_dead: bool = False
        self.spent: int = 0
        self.look_ns = LOOK_NS if world.faults.cpu else 0
        self._looks = 0
        self.busy_until = self.deadline = 0
        self.runs_job: bool = False
        self.job_began: int = 0
        if self.is_off:
            self._power_on()
        self.threads: SimThreads = SimThreads(self)
        self.cpu: Stream = self.decisions.stream(f"{self.name}/cpu")
        self._dns = self.decisions.stream(f"{self.name}/dns")
        self._refuses = self.decisions.stream(f"{self.name}/connect")
        self._random: random.Random | None = None  # of this life, once it is asked for
        self.pending_signals: list[int] = []
        self.own_descriptors: frozenset[int] = frozenset()  # of the loop
        self.made_at: dict[int, str] = {}  # the lines of the program that made sockets, by descriptor
        self.main_task: asyncio.Task[Any] | None = None
        self.kernel: SimKernel = SimKernel(self, self._max_files, world.digest, world.faults)
        self.process: SimProcess = SimProcess(self)
        self.network.add(self)
        self.disk.opener = self._open_file
        with world.acting_as(self):
            self.loop: SimLoop = OwnTasksLoop(self) if world.options.tasks == "compiled" else SimLoop(self)
            self.epoll: Epoll = self.kernel.epoll
            self.driver: Any = HostDriver(self.loop) if self.is_driven else None
            self.loop.keep_clock()
            self.plan()
            self.own_descriptors = frozenset(self.kernel.table.files)
            if self._boot is not None:
                self.main_task = self.spawn(self._boot, self)

    def _power_on(self) -> None:
        """Let the machine work, with a system that knows of nothing."""
        self.is_off: bool = False
        drawn = self.decisions.base_of(f"{self.name}/ports/{self._lives}")
        first = FIRST_PORT + drawn % (LAST_PORT - FIRST_PORT)
        self.tcp_ports: PortTable = PortTable(first)
        self.udp_ports: PortTable = PortTable(first)
        self.unix_names: dict[Any, Any] = {}

    def _end(self, reason: str) -> None:
        """End this life: no code of the host runs any more in this world, and its kernel answers EBADF."""
        self.is_dead = True
        self._say_failed_boot()
        self.is_paused: bool = False
        self.disk.opener = None
        self.pending_signals.clear()
        files = self.kernel.table.take_all()
        tasks = list(asyncio.all_tasks(self.loop))
        self.zombies.append(Zombies(self.loop, tasks, list(files.values()), self.process.children.bury()))
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            _fail(waiter, HostDied(f"host {self.name} {reason}"))
        if self is self.world.main and not self.world.has_ended:
            self.world.find("killed", f"the main host {reason}", host=self.name)

    def _say_failed_boot(self) -> None:
        """Note that `boot` has failed, unless code of the program asked for its error."""
        task = self.main_task
        if task is None or self is self.world.main or not task.done() or task.cancelled():
            return
        is_unheard = getattr(task, "_log_traceback", True)
        error = task.exception()
        if error is None or not is_unheard or (isinstance(error, SystemExit) and not error.code):
            return
        self.unhandled({"message": "boot failed", "exception": error, "task": task})

    def crash(self, *, torn: float = 0.3) -> None:
        """Cut the power: the host is silent from now on, and its peers hear nothing.

        The disk keeps what was synced. `torn` is how likely a part of the rest survives, sector by sector;
        0: the rest is lost. If the host's own code calls it, the rest of that turn runs without effect.
        """
        if self.is_off:
            return
        self.world.note("crash", host=self.name)
        files = list(self.kernel.table.files.values())
        if not self.is_dead:
            self._end("has lost its power")
        self.is_off = True
        for file in files:
            lose_power(file)
        self.disk.lose_power(torn)

    def kill(self) -> None:
        """End the process (SIGKILL): the system closes its descriptors, and its peers hear of that."""
        if self.is_dead:
            return
        self.world.note("kill", host=self.name)
        files = self.kernel.table.files
        self._end("was killed")
        for fd in sorted(files):
            unreferenced(files[fd])

    def restart(self, after: float = 0.0) -> None:
        """Begin a new life after a time in seconds; `boot` runs again. A living host is killed first."""
        self.kill()
        self.world.timeline.after(round(after * SECOND), self._restarted)

    def _restarted(self) -> None:
        if self.is_dead and not self.world.has_ended:
            self.world.note("restart", host=self.name)
            self._begin()

    def pause(self) -> None:
        """Let the process stand still (SIGSTOP): it gets no turn until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Let the process go on."""
        self.is_paused = False

    def signal(self, number: int) -> None:
        """Send a signal to the process. Its handlers run in the next turn; by default it ends."""
        if not self.is_dead:
            self.world.note("signal", host=self.name, number=int(number))
            self.process.send_signal(int(number))

    def interrupt(self) -> None:
        """End as `asyncio.run` ends for KeyboardInterrupt and SystemExit: cancel the main task, then exit."""
        task = self.main_task
        if task is None or task.done():
            self.kill()
        else:
            task.add_done_callback(lambda _: self.kill())
            task.cancel()

    def jump(self, seconds: float) -> None:
        """Set the host's real-time clock on, or back; its monotonic clock goes on as it did (NTP)."""
        self._skew += round(seconds * SECOND)

    def fill(self, descriptors: int) -> None:
        """Leave the process only so many descriptors."""
        self.kernel.table.limit = len(self.kernel.table.files) + descriptors

    def _open_file(self, path: str, mode: str) -> Any:
        return open_file(self.kernel, path, mode)

    # Work.

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> asyncio.Task[Any]:
        """Start a task on this host; return it. It belongs to this host's loop."""
        with self.world.acting_as(self):
            return self.loop.create_task(function(*args))

    async def run(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        """Run a coroutine function on this host and return its result, from a task of any host."""
        here = asyncio.get_running_loop()
        if here is self.loop:
            return await function(*args)
        if self.is_dead:
            raise HostDied(f"host {self.name} does not run")
        done = here.create_future()
        self._waiters[done] = None
        task = self.spawn(function, *args)
        task.add_done_callback(lambda _: here.call_soon_threadsafe(_copy_result, task, done))
        try:
            return await done
        except asyncio.CancelledError:
            if not self.is_dead:
                self.loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            self._waiters.pop(done, None)

    # Time.

    def sleep(self, seconds: float) -> None:
        """Let time pass in the middle of a turn, as `time.sleep` does."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.spent += round(seconds * SECOND)
        if seconds > 0.1 and not self.runs_job:
            self.world.blocked(self, seconds)

    def in_thread(self, function: Callable[..., object], *args: Any) -> None:
        """Run a job beside the loop: what it takes does not delay the loop."""
        if self.is_dead:
            return
        spent, self.spent = self.spent, 0
        self.runs_job, self.job_began = True, 0
        try:
            with self.world.acting_as(self):
                function(*args)
        finally:
            self.runs_job = False
            self.spent = spent

    # Turns.

    def handle_signals(self) -> bool:
        """Call the handlers of signals that wait; return whether the process goes on."""
        return self.process.handle_signals()

    def exited(self, error: BaseException) -> None:
        """End, as SystemExit and KeyboardInterrupt out of the loop's turn ask for."""
        if self is self.world.main:
            raise error
        self.kill()

    # Names, chance, errors.

    def descriptor_of(self, file: Any) -> int:
        """Return the number of an open file's first descriptor; -1 if the process has none of it."""
        return next((fd for fd, each in self.kernel.table.files.items() if each is file), -1)

    def address_for(self, ip: str) -> str:
        """Return the host's own address on the way to another one."""
        return own_address(self.address, self.addresses, ip)

    def number_of(self, name: str, family: int) -> str:
        """Return the address for a name that was given in the place of one."""
        if family_of(name) == family:
            return name
        answers = self.look_up(name, None, family, socket.SOCK_STREAM)
        return answers[0][4][0]  # type: ignore[no-any-return]

    def look_up(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        """Resolve a name as this host does it; the name server may fail."""
        is_name = isinstance(host, (str, bytes)) and host and family_of(_text(host)) is None
        if is_name and (fault := self._dns.decide(3, self.world.faults.dns)):
            if fault == 2:
                self.sleep_unnoticed(DNS_SILENCE)
            raise temporary_failure()
        return self.world.names.getaddrinfo(host, port, family, kind, protocol, flags)

    def sleep_unnoticed(self, nanoseconds: int) -> None:
        """Let time pass without a finding."""
        self.spent += nanoseconds

    def connect_fault(self) -> int:
        """Return the error by which an attempt to connect fails; 0: none."""
        faults = self.world.faults
        if faults.refused and self._refuses.happens(faults.refused):
            return 111
        if faults.unreachable and self._refuses.happens(faults.unreachable):
            return 101
        return 0

    def random_bytes(self, size: int) -> bytes:
        """Return bytes that the seed decides."""
        self.world.random_calls += 1
        return self.rng.randbytes(size)

    @property
    def rng(self) -> random.Random:
        """The generator behind the `random` module on this host."""
        if self._random is None:
            self._random = self.decisions.rng(f"{self.name}/{self._lives}")
        return self._random

    def unhandled(self, context: dict[str, Any]) -> None:
        """Note an error that no code of this host has handled."""
        self.world.unhandled(self, context)

    def lost_socket(self, sock: Any) -> None:
        """Note a socket that was not closed."""
        line = self.made_at.get(sock.fileno())
        self.world.lost_sockets.append(f"{sock!r}, made at {line}" if line else repr(sock))

    def close(self) -> None:
        """Close the loops of all lives; the world has ended."""
        if not self.is_dead:
            self._end("has ended")
        for zombies in self.zombies:
            zombies.close()
        self.zombies.clear()


def _copy_result(task: asyncio.Task[Any], done: asyncio.Future[Any]) -> None:
    if done.done():
        return
    if task.cancelled():
        done.cancel()
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def _fail(waiter: asyncio.Future[Any], error: Exception) -> None:
    """Let a coroutine of another host know that its work is lost."""

    def fail() -> None:
        if not waiter.done():
            waiter.set_exception(error)

    loop = waiter.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(fail)


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
