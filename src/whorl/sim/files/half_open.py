"""Half-open connections: one side has forgotten them, and the other finds out by and by.

While all is well, nobody asks anything. A power cut or a cut line begins the probes of SO_KEEPALIVE.
"""

from __future__ import annotations

import errno
import socket

from whorl.sim.files.file import File
from whorl.sim.files.sockets import StreamSocket
from whorl.sim.wire.timeline import SECOND

#: When a silent peer is asked first, how often then, and how many times (man 7 tcp).
KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT = 7200, 75, 9


def lose_power(file: File) -> None:
    """Let an open file end with its machine: no peer hears of it."""
    file.watches.clear()
    if not isinstance(file, StreamSocket):
        return
    for connection in file.waiting:
        lose_power(connection)
    incoming, outgoing = file.incoming, file.outgoing
    if incoming is None or outgoing is None:
        return
    incoming.receiver_lost = outgoing.sender_lost = True
    outgoing.drop_more()
    peer = incoming.sender
    if isinstance(peer, StreamSocket) and peer.machine is not file.machine:
        probe_later(peer)


def probe_later(sock: StreamSocket) -> None:
    """Ask now and then whether the peer is still there, if SO_KEEPALIVE is set."""
    incoming, outgoing = sock.incoming, sock.outgoing
    if incoming is None or outgoing is None or not sock.is_set(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return
    now, heard = sock.machine.now(), _heard(sock)
    idle = _option(sock, socket.TCP_KEEPIDLE, KEEP_IDLE_S) * SECOND
    sock.machine.after(max(0, heard + idle - now), _probe, sock, heard, 0)


def _option(sock: StreamSocket, option: int, default: int) -> int:
    return sock.options.get((socket.IPPROTO_TCP, option), default)  # type: ignore[no-any-return]


def _heard(sock: StreamSocket) -> int:
    """Return when the peer was heard last, or has heard something last."""
    incoming, outgoing = sock.incoming, sock.outgoing
    assert incoming is not None
    assert outgoing is not None
    return max(incoming.last_heard(), outgoing.last_heard())


def _probe(sock: StreamSocket, heard: int, count: int) -> None:
    incoming, outgoing = sock.incoming, sock.outgoing
    if incoming is None or outgoing is None or outgoing.sender_lost:
        return
    if sock.was_reset or not sock.is_connected or sock.references <= 0:
        return
    is_waiting = outgoing.is_unanswered()  # Then the packet that is sent again asks.
    if _heard(sock) > heard and not is_waiting:
        probe_later(sock)
        return
    peer = incoming.sender
    if outgoing.line.blocked or peer is None or peer.machine.is_off:
        if count < _option(sock, socket.TCP_KEEPCNT, KEEP_COUNT):
            interval = _option(sock, socket.TCP_KEEPINTVL, KEEP_INTERVAL_S) * SECOND
            sock.machine.after(interval, _probe, sock, heard, count + 1)
        elif not is_waiting:
            sock.fail(errno.ETIMEDOUT)
    elif outgoing.receiver_lost:
        sock.machine.after(outgoing.line.shortest, sock.reset)
