"""The module that has uvloop's compiled classes; those that programs name are here Whorl's or asyncio's."""

from __future__ import annotations

from asyncio import Handle, TimerHandle

from whorl import EventLoop as Loop
from whorl.aio.connections.datagram_transport import DatagramTransport as UDPTransport
from whorl.aio.connections.server import Server
from whorl.aio.transports.public import SocketTransport as TCPTransport
from whorl.aio.transports.public import SocketTransport as UnixTransport
from whorl.aio.transports.tls import TLSProtocol as SSLProtocol

__all__ = [
    "Handle",
    "Loop",
    "SSLProtocol",
    "Server",
    "TCPTransport",
    "TimerHandle",
    "UDPTransport",
    "UnixTransport",
]
