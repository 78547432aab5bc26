"""The table of a loop's handles: what each is, its descriptor and addresses, and what waits in it."""

from __future__ import annotations

import dataclasses
import os
import socket
import types
from collections.abc import Iterator
from typing import Any

from whorl.aio.connections.acceptor import Acceptor
from whorl.aio.sockets.connect_attempt import ConnectAttempt
from whorl.aio.sockets.watch import DescriptorWatch
from whorl.aio.tls.engine import TLSEngine
from whorl.aio.transports.byte_transport import BaseTransport
from whorl.aio.transports.datagram import DatagramEndpoint
from whorl.aio.transports.pipe import ReadPipe, WritePipe
from whorl.aio.transports.stream import StreamTransport
from whorl.aio.transports.tls_stream import TLSStream
from whorl.core.handle import Handle
from whorl.core.kernel.kernel import Kernel
from whorl.core.loop.wakeup import SignalPipe, Wakeup
from whorl.core.pollers.contract import IOHandle
from whorl.core.states import READABLE, WRITABLE
from whorl.handles.datagrams.engine import Datagrams
from whorl.handles.process.exit_watch import ExitWatch
from whorl.handles.streams.engine import Stream
from whorl.inspector.tables.wording import address, function_name, shown, type_name

STATES = ("open", "closing", "lost", "closed")  # in the order of `aio/transports/states`
ATTEMPTS = 10

_TRANSPORTS = (BaseTransport, DatagramEndpoint, TLSStream)
_SocketClass: Any = socket.socket


@dataclasses.dataclass(frozen=True)
class HandleFigures:
    """One handle of a loop. A field that is not known is None."""

    kind: str
    fd: int | None
    state: str
    local: str | None = None  #: the address or path of this side
    peer: str | None = None  #: the address of the other side
    unsent: int | None = None  #: the bytes that wait to be sent
    paused: str = ""  #: which directions are paused: `reading`, `writing`, both or none
    waits_for: str = ""  #: the events that the poller watches for: `r`, `w`
    owner: str | None = None  #: the class of the protocol, or the function that is called
    bytes_in: int | None = None  #: under TLS, bytes on the wire
    bytes_out: int | None = None
    reads: int | None = None
    writes: int | None = None


@dataclasses.dataclass(frozen=True)
class Place:
    """A descriptor as it is named in a sentence."""

    text: str
    fd: int | None = None
    peer: str | None = None
    local: str | None = None


def handles(loop: Any) -> list[HandleFigures]:
    """Return the handles of a loop, those with a descriptor first, in its order; any thread may call this."""
    return arranged(list(rows(loop)))


def rows(loop: Any) -> Iterator[HandleFigures]:
    """Yield the handles of a loop as they come, but for one that the loop's thread is just making."""
    found: dict[int, Any] = {}
    for source in (_transports_of, _watched_by, _open_handles):
        for handle in _copied(source, loop):
            found.setdefault(id(handle), handle)
    left = list(found.values())
    found.clear()
    while left:
        try:
            row = _figures(left.pop())
        except AttributeError:  # It has not all of its parts yet.
            continue
        yield row


def arranged(found: list[HandleFigures]) -> list[HandleFigures]:
    """Return the rows of a table in the order of their descriptors."""
    return sorted(found, key=lambda row: (row.fd is None, row.fd or 0, row.kind))


def _transports_of(loop: Any) -> list[Any]:
    table = getattr(loop, "_transports", None)  # the machine's loop has none
    return [] if table is None else list(table.values())


def _watched_by(loop: Any) -> list[Any]:
    return list(loop._poller.handles())


def _open_handles(loop: Any) -> list[Any]:
    return list(loop.walk())


def _copied(source: Any, loop: Any) -> list[Any]:
    """Return a copy of a table that the loop's thread may change meanwhile."""
    for _ in range(ATTEMPTS):
        try:
            return source(loop)  # type: ignore[no-any-return]
        except RuntimeError:
            continue
    return []


def _figures(handle: Any) -> HandleFigures:
    place = describe(handle)
    own = place.fd is not None and isinstance(handle, IOHandle)
    counts = issubclass(type(handle), (Stream, Datagrams))
    return HandleFigures(
        kind=kind_of(handle),
        fd=place.fd,
        state=_state(handle),
        local=place.local,
        peer=place.peer,
        unsent=_unsent(handle),
        paused=_paused(handle),
        waits_for=_interest(handle) if own else "",
        owner=_owner(handle),
        bytes_in=handle._received_total if counts else None,
        bytes_out=handle._sent_total if counts else None,
        reads=handle._read_calls if counts else None,
        writes=handle._write_calls if counts else None,
    )


_KINDS: tuple[tuple[type, str], ...] = (
    (DatagramEndpoint, "datagram"),
    (ReadPipe, "read pipe"),
    (WritePipe, "write pipe"),
    (Acceptor, "server"),
    (ConnectAttempt, "connecting"),
    (ExitWatch, "child"),
    (Wakeup, "wakeup"),
    (SignalPipe, "signals"),
)
#: Handles that a loop makes for itself: to be woken, for signals, for answers about names.
_KINDS_OF_LOOP = ("wakeup", "signals", "namelookups")


def kind_of(handle: Any) -> str:
    """Return the kind of a handle in a word or two."""
    kind = type(handle)
    if issubclass(kind, StreamTransport):
        name = "unix" if _is_unix(handle) else "tcp"
        return "tls" if issubclass(type(handle._protocol), TLSEngine) else name
    if issubclass(kind, DescriptorWatch):
        waits = handle.receiver is not None or handle.sender is not None
        calls = handle.reader is not None or handle.writer is not None
        return "callbacks" if calls else "sock_ wait" if waits else "idle socket"
    for known, name in _KINDS:
        if issubclass(kind, known):
            return name
    return type_name(handle).lower()


def is_of_loop(row: HandleFigures) -> bool:
    """Return whether a loop has a handle for itself, as any loop may, and not because of the program."""
    return row.kind in _KINDS_OF_LOOP


def _is_unix(transport: Any) -> bool:
    peer, local = transport._addresses()
    return type(peer) is not tuple and type(local) is not tuple


def _state(handle: Any) -> str:
    kind = type(handle)
    if issubclass(kind, (BaseTransport, DatagramEndpoint)):
        return STATES[handle._state] if 0 <= handle._state < len(STATES) else "?"
    if issubclass(kind, ConnectAttempt):
        return "connecting" if handle.is_active() else "connected"
    if issubclass(kind, Acceptor):
        return "closing" if handle.is_closing() else "listening"
    if issubclass(kind, Handle):
        return "closing" if handle.is_closing() else "active" if handle.is_active() else "idle"
    return "?"


def _unsent(handle: Any) -> int | None:
    # Other handles keep what waits in requests of their own.
    unsent = getattr(handle, "_unsent", None) if issubclass(type(handle), IOHandle) else None
    if issubclass(type(handle), StreamTransport):
        engine = handle._protocol
        if issubclass(type(engine), TLSEngine):
            return int(unsent or 0) + int(engine._waiting)
    return unsent if type(unsent) is int else None


def _paused(handle: Any) -> str:
    if not issubclass(type(handle), (BaseTransport, DatagramEndpoint)):
        return ""
    words = ["reading"] if handle._paused else []
    if getattr(handle, "_protocol_paused", False):
        words.append("writing")
    return " and ".join(words)


def _interest(handle: Any) -> str:
    interest = handle._interest
    return ("r" if interest & READABLE else "") + ("w" if interest & WRITABLE else "")


def _owner(handle: Any) -> str | None:
    kind = type(handle)
    if issubclass(kind, (BaseTransport, DatagramEndpoint)):
        protocol = handle._protocol
        if issubclass(type(protocol), TLSEngine):
            protocol = protocol._app_protocol
        return None if protocol is None else type_name(protocol)
    if issubclass(kind, DescriptorWatch):
        calls = [entry._callback for entry in (handle.reader, handle.writer) if entry is not None]
        return ", ".join(function_name(function) for function in calls if function is not None) or None
    if issubclass(kind, ExitWatch):
        return f"process {handle._process.pid}"
    return None


# Places.


def is_transport(thing: object) -> bool:
    """Return whether an object is one of Whorl's transports."""
    return issubclass(type(thing), _TRANSPORTS)


def describe(handle: Any) -> Place:
    """Return how a transport or another handle is named in a sentence."""
    kind = type(handle)
    if issubclass(kind, TLSStream):
        transport = handle._ssl_protocol._transport
        return Place("a closed TLS connection") if transport is None else describe(transport)
    if issubclass(kind, StreamTransport):
        peer, local = handle._addresses()
        return _connection(handle._fd, address(peer), address(local), "UNIX" if _is_unix(handle) else "TCP")
    if issubclass(kind, DatagramEndpoint):
        known = handle._extra
        return _connection(handle._fd, address(known.get("peername")), address(known.get("sockname")), "UDP")
    if issubclass(kind, DescriptorWatch):
        owner = None if handle._owner is None else handle._owner()
        return _watched(handle, owner)
    if issubclass(kind, Acceptor):
        return _watched(handle, handle._sock)
    if issubclass(kind, IOHandle):
        return _watched(handle, getattr(handle, "_sock", None))
    return Place(type_name(handle))


def _watched(handle: Any, owner: Any) -> Place:
    return describe_descriptor(handle.loop, handle._fd, owner)


def describe_descriptor(loop: Any, fd: int, owner: Any = None) -> Place:
    """Return how a descriptor is named, of a socket object or of any file."""
    if fd < 0:
        return Place("a closed descriptor")
    if type(owner) is _SocketClass and owner.fileno() == fd:
        peer = address(_address_by(_SocketClass.getpeername, owner))
        local = address(_address_by(_SocketClass.getsockname, owner))
        return _connection(fd, peer, local, "UNIX" if owner.family == socket.AF_UNIX else "nameless")
    path = _path(loop, fd)
    return Place(f"{path or 'a descriptor'} (fd {fd})", fd=fd, local=path)


def _address_by(method: Any, sock: Any) -> Any:
    try:
        return method(sock)
    except OSError:
        return None


def _connection(fd: int, peer: str | None, local: str | None, what: str) -> Place:
    if fd < 0:
        return Place("a closed connection", peer=peer, local=local)
    return Place(f"{peer or local or f'a {what} socket'} (fd {fd})", fd=fd, peer=peer, local=local)


def _path(loop: Any, fd: int) -> str | None:
    """Return the path of a descriptor; those of a simulated world have none."""
    if loop is None or not isinstance(loop._kernel, Kernel) or _is_simulated(loop._kernel):
        return None
    try:
        return shown(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        return None


def _is_simulated(kernel: Any) -> bool:
    """Return whether a kernel may have descriptors of its own: one with a method to wait by does."""
    methods = (vars(kind).get("epoll_ctl") for kind in type(kernel).__mro__)
    first = next((method for method in methods if method is not None), None)
    return type(first) is types.FunctionType and first is not vars(Kernel).get("epoll_ctl")
