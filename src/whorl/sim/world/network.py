"""The network of a world: who has which address, the lines between hosts, and what cuts them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from whorl.sim.files.half_open import probe_later
from whorl.sim.wire.line import Line, LinkProfile
from whorl.sim.wire.net import Net
from whorl.sim.wire.ports import is_ipv6
from whorl.sim.wire.timeline import MICROSECOND, SECOND

if TYPE_CHECKING:
    from whorl.sim.chance.decisions import Decisions
    from whorl.sim.chance.faults import Faults
    from whorl.sim.files.packets import Packets
    from whorl.sim.files.sockets import NetMachine, StreamSocket
    from whorl.sim.wire.timeline import Timeline

#: Packets of a host to itself.
LOOPBACK = LinkProfile(shortest=20 * MICROSECOND, longest=200 * MICROSECOND, varies=0.1)


@cache
def _loopback(varies: float) -> LinkProfile:
    return replace(LOOPBACK, varies=varies)


#: When a connection is reset that the seed has chosen for it, at the latest.
_RESET_WITHIN = SECOND


class Hold:
    """A pause of the lines between hosts: what is sent meanwhile comes after it, in order."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        for line in lines:
            if line.held is None:
                line.held = []

    def release(self) -> None:
        """Let everything go on its way."""
        for line in self._lines:
            line.release()
        self._lines = []


class Partition:
    """A cut between groups of hosts."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        for line in lines:
            line.blocked += 1

    def heal(self) -> None:
        """Let packets pass again; those of TCP come with the next attempt."""
        for line in self._lines:
            line.blocked -= 1
        self._lines = []


class Network:
    """The lines between all hosts."""

    def __init__(self, decisions: Decisions, timeline: Timeline, faults: Faults, net: Net) -> None:
        self._decisions = decisions
        self._timeline = timeline
        self._faults = faults
        self._machines: dict[str, NetMachine] = {}  # by name
        self.changes: int = 0  # how often a host or a process was added: what is known of ways may be old
        self._addresses: dict[str, NetMachine] = {}
        self._lines: dict[tuple[str, str], Line] = {}
        self._partitions: list[Partition] = []
        self._connections: list[tuple[StreamSocket, StreamSocket]] = []
        self.quality: LinkProfile = net.quality(faults)
        self._resets = decisions.stream("network/reset")
        self.packets: Packets | None = None  # what all lines carried, if a trace is to show it

    # For the world and its sockets.

    def add(self, machine: NetMachine) -> None:
        """Connect a host, or the next process of a host that was restarted."""
        self._machines[machine.name] = machine
        self.changes += 1
        for address in machine.addresses:
            self._addresses[address] = machine

    def machine_at(self, ip: str, asked_by: NetMachine) -> NetMachine | None:
        """Return the host with an address, as another one sees it; None if there is none."""
        if ip == "::1" or (ip.startswith("127.") and not is_ipv6(ip)):
            return asked_by
        return self._addresses.get(ip)

    def all_machines(self) -> list[NetMachine]:
        """Return all hosts."""
        return list(self._machines.values())

    def line(self, source: NetMachine, target: NetMachine) -> Line:
        """Return the line from one host to another."""
        found = self._lines.get((source.name, target.name))
        return found if found is not None else self._line(source.name, target.name)

    def _line(self, source: str, target: str) -> Line:
        found = self._lines.get((source, target))
        if found is None:
            quality = _loopback(self._faults.latency / 3) if source == target else self.quality
            found = self._lines[source, target] = Line(self._decisions, f"{source}>{target}", quality)
            found.packets = self.packets
        return found

    def established(self, client: StreamSocket, server: StreamSocket) -> None:
        """Note a connection. The seed may have it reset."""
        if len(self._connections) > 64:
            self._connections = [each for each in self._connections if self._lives(each)]
        self._connections.append((client, server))
        if self._faults.reset and (part := self._resets.decide(100, self._faults.reset)):
            self._timeline.after(_RESET_WITHIN * part // 100, self._reset_one, (client, server))

    def _lives(self, pair: tuple[StreamSocket, StreamSocket]) -> bool:
        return not all(end.was_reset or end.outgoing is None or end.outgoing.sender is None for end in pair)

    def _reset_one(self, pair: tuple[StreamSocket, StreamSocket]) -> None:
        for end in pair:
            if end.outgoing is not None and end.outgoing.sender is not None:
                end.reset()

    def close(self) -> None:
        """Forget all hosts: the world has ended."""
        self._machines.clear()
        self._addresses.clear()
        self._connections.clear()

    # For programs.

    def link(
        self,
        a: Any,
        b: Any,
        *,
        latency: float | tuple[float, float] | None = None,
        loss: float | None = None,
        reorder: float | None = None,
        duplicate: float | None = None,
        bandwidth: float | None = None,
        mtu: int | None = None,
        oneway: bool = False,
    ) -> None:
        """Set what the line between two hosts does to packets; what is None stays as it is.

        `latency` is a number of seconds, or the shortest and the longest. `bandwidth` is in bytes a second.
        A datagram that is larger than `mtu` with its headers is refused if its socket forbids fragments.
        """
        changes: dict[str, Any] = {}
        if latency is not None:
            bounds = latency if isinstance(latency, tuple) else (latency, latency)
            changes["shortest"], changes["longest"] = (round(seconds * SECOND) for seconds in bounds)
        if bandwidth is not None:
            changes["bandwidth"] = round(bandwidth)
        given = {"loss": loss, "reorder": reorder, "duplicate": duplicate, "mtu": mtu}
        changes.update((name, value) for name, value in given.items() if value is not None)
        for line in self._between([a], [b], oneway):
            line.quality = replace(line.quality, **changes)

    def _between(self, some: Any, others: Any, oneway: bool) -> list[Line]:
        pairs = [(_name(a), _name(b)) for a in some for b in others if _name(a) != _name(b)]
        lines = [self._line(a, b) for a, b in pairs]
        return lines if oneway else lines + [self._line(b, a) for a, b in pairs]

    def partition(self, *groups: Any, oneway: bool = False) -> Partition:
        """Cut the lines between groups of hosts; one group is cut from all others.

        Each group is a host, or several in a list. If `oneway`, only packets from an earlier group to a later
        one are lost.
        """
        parts = [list(group) if isinstance(group, (list, tuple, set)) else [group] for group in groups]
        if len(parts) == 1:
            names = {_name(each) for each in parts[0]}
            parts.append([name for name in self._machines if name not in names])
        lines: list[Line] = []
        for number, part in enumerate(parts):
            for other in parts[number + 1 :]:
                lines += self._between(part, other, oneway)
        cut = Partition(lines)
        for pair in self._connections:
            for end in pair:
                if end.outgoing is not None and end.outgoing.line in lines:
                    probe_later(end)
        self._partitions.append(cut)
        return cut

    def hold(self, a: Any, b: Any, *, oneway: bool = False) -> Hold:
        """Hold back what two hosts send each other, until `release`.

        Requests for new connections are lost, and come again. If `oneway`, only packets from `a` to `b` wait.
        """
        return Hold(self._between([a], [b], oneway))

    def nat(self, inside: Any, outside: Any, *, idle: float = 300.0) -> None:
        """Put a box between two hosts that forgets a connection after so many idle seconds, silently."""
        for line in self._between([inside], [outside], False):
            line.quality = replace(line.quality, idle=round(idle * SECOND))

    def heal(self) -> None:
        """End all partitions."""
        for cut in self._partitions:
            cut.heal()
        self._partitions.clear()

    def reset(self, a: Any, b: Any) -> int:
        """Reset all connections between two hosts, on both sides; return how many."""
        found = self._pairs(a, b)
        for pair in found:
            self._reset_one(pair)
        return len(found)

    def forget(self, a: Any, b: Any) -> int:
        """Let host `a` forget its connections with `b`, which hears nothing of it; return how many.

        `b` is left with half-open connections, as after a power cut of `a` or a NAT that timed out.
        """
        found = self._pairs(a, b)
        for client, server in found:
            ours, theirs = (client, server) if client.machine.name == _name(a) else (server, client)
            for channel in (ours.outgoing, ours.incoming):
                if channel is not None:
                    channel.line = Line(self._decisions, f"{_name(a)}-{_name(b)}/gone", LinkProfile())
                    channel.line.blocked = 1
            ours.fail(104)
            probe_later(theirs)
        return len(found)

    def _pairs(self, a: Any, b: Any) -> list[tuple[StreamSocket, StreamSocket]]:
        names = {_name(a), _name(b)}
        return [
            pair
            for pair in self._connections
            if {pair[0].machine.name, pair[1].machine.name} == names and self._lives(pair)
        ]

    def connections(self) -> list[tuple[str, Any, str, Any]]:
        """Return the open connections: the client's host and name, the server's host and name."""
        return [
            (one.machine.name, one.name, other.machine.name, other.name)
            for one, other in self._connections
            if self._lives((one, other))
        ]


def _name(host: Any) -> str:
    return host if isinstance(host, str) else host.name
