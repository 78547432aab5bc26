"""The host and the world, as a simulated process sees them: an interface, so that it lies below both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from whorl.sim.files.sockets import NetMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.chance.faults import Faults
    from whorl.sim.files.file import DescriptorTable
    from whorl.sim.files.sockets import SocketFile
    from whorl.sim.files.udp import DatagramFile
    from whorl.sim.wire.names import Names
    from whorl.sim.wire.timeline import Timeline


class Surroundings(Protocol):
    """The world, as a process sees it."""

    timeline: Timeline
    faults: Faults
    names: Names
    programs: dict[str, Any]

    def sleep_in(self, host: Any, timeout_ns: int) -> None: ...


class KernelOfSockets(Protocol):
    """The kernel, as a socket object sees it."""

    host: ProcessHost
    table: DescriptorTable

    def is_alive(self) -> bool: ...
    def note(self, call: str, *details: Any) -> None: ...
    def accept_fault(self) -> int: ...
    def socket_for(self, file: SocketFile) -> Any: ...
    def recv(self, fd: int, limit: int) -> bytes | int: ...
    def send(self, fd: int, data: Any, offset: int) -> int: ...
    def send_more(self, fd: int, data: Any, offset: int) -> int: ...
    def push(self, fd: int) -> int: ...
    def close(self, fd: int) -> int: ...
    def receive_datagram(self, fd: int, file: DatagramFile, peeks: bool = False) -> tuple[bytes, Any] | int:
        """Return a datagram and its sender's address, or a negative error number."""

    def send_datagram_to(self, fd: int, file: DatagramFile, data: bytes, address: Any) -> int:
        """Return how many bytes were sent, or a negative error number."""


class Jobs(Protocol):
    """The threads of a host."""

    def start(self, function: Callable[..., object], *args: Any) -> Any: ...


class ProcessHost(NetMachine, Protocol):
    """A host, as its process sees it."""

    process_id: int
    is_driven: bool
    spent: int
    look_ns: int
    runs_job: bool
    job_began: int
    is_dead: bool
    pending_signals: list[int]
    made_at: dict[int, str]  # the lines of the program that made sockets, by descriptor

    @property
    def world(self) -> Surroundings: ...
    @property
    def kernel(self) -> Any: ...
    @property
    def process(self) -> Any: ...
    @property
    def loop(self) -> Any: ...
    @property
    def threads(self) -> Jobs: ...

    def clock(self) -> int: ...
    def look(self) -> int: ...
    def _look_ns(self) -> int: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def interrupt(self) -> None: ...
    def in_thread(self, function: Callable[..., object], *args: Any) -> None: ...
    def random_bytes(self, size: int) -> bytes: ...
    def number_of(self, name: str, family: int) -> str: ...
    def look_up(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]: ...
    def lost_socket(self, sock: Any) -> None: ...
    def unhandled(self, context: dict[str, Any]) -> None: ...
