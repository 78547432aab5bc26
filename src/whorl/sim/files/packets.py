"""Packets that the lines of a network carried, for a trace. No digest takes them, so they may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.files.file import File


class Packet:
    """One packet on its way between two hosts."""

    __slots__ = (
        "descriptors",
        "due",
        "is_lost",
        "kind",
        "names",
        "sent",
        "size",
        "source",
        "target",
        "task",
    )

    def __init__(self, kind: str, source: str, target: str, size: int, sent: int, due: int) -> None:
        self.kind: str = kind  #: "syn", "syn-ack", "data", "again", "fin", "rst", "datagram", "unreachable"
        self.source: str = source  #: the host that sent it
        self.target: str = target
        self.size: int = size
        self.sent: int = sent  #: when, in virtual nanoseconds
        self.due: int = due  #: when it arrives
        self.is_lost: bool = False
        self.task: str = ""  #: the one that sent it; empty: a callback, or the system
        self.names: tuple[Any, Any] = (None, None)  #: of the sockets
        self.descriptors: tuple[int, int] = (-1, -1)  #: of the sockets; -1: it has none yet, or no longer


class Packets(list[Packet]):
    """All packets of a run, in the order in which they were sent."""

    def __init__(self, task_name: Callable[[], str]) -> None:
        super().__init__()
        self._task_name = task_name

    def add(
        self,
        line: str,
        kind: str,
        sender: File | None,
        receiver: File | None,
        size: int,
        sent: int,
        took: int,
        address: Any,
    ) -> Packet:
        """Note a packet and return it. `line` is named "source>target"; `took` is negative if it is lost."""
        first, _, last = line.partition(">")
        target = receiver.machine.name if receiver is not None else last
        source = sender.machine.name if sender is not None else first if target == last else last
        packet = Packet(kind, source, target, size, sent, sent + max(took, 0))
        packet.is_lost = took < 0
        packet.task = self._task_name()
        packet.names = _name(sender, receiver), address or _name(receiver, sender)
        packet.descriptors = _descriptor(sender), _descriptor(receiver)
        self.append(packet)
        return packet


def _name(file: Any, other: Any) -> Any:
    """Return a socket's name, also if only the other end is left to ask."""
    return getattr(other, "peer_name", None) if file is None else getattr(file, "name", None)


def _descriptor(file: Any) -> int:
    return file.machine.descriptor_of(file) if file is not None else -1
