"""A certificate for localhost, which is its own authority, the contexts of both sides, and a peer by hand."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.aio.sockets_for_tests import Recorder, socket_pair, turns

CERTIFICATE = Path(__file__).parent / "certificates" / "localhost.pem"


def server_context() -> ssl.SSLContext:
    """Return a server's context, with its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def client_context() -> ssl.SSLContext:
    """Return a client's context, which trusts only that server."""
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def distrustful_context() -> ssl.SSLContext:
    """Return the context of a client that trusts no server."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Side(NamedTuple):
    """One end of a connection."""

    transport: Any
    protocol: Any


@asynccontextmanager
async def tls_pair(
    loop: Any,
    kind: str = "tcp",
    client: Callable[[], Any] = Recorder,
    server: Callable[[], Any] = Recorder,
    small: bool = False,
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
) -> AsyncIterator[tuple[Side, Side]]:
    """Yield a client and a server after their handshake."""
    client_tls, server_tls = contexts or (client_context(), server_context())
    ours, theirs = socket_pair(kind, small=small)
    sides = await asyncio.gather(
        loop.create_connection(client, sock=ours, ssl=client_tls, server_hostname="localhost"),
        loop.connect_accepted_socket(server, theirs, ssl=server_tls),
    )
    try:
        yield Side(*sides[0]), Side(*sides[1])
    finally:
        for transport, _ in sides:
            transport.abort()
        await turns(5)


class ManualPeer:
    """The other end of a connection, driven step by step: an SSLObject and a socket that does not block."""

    def __init__(self, sock: Any, server_side: bool = True, context: ssl.SSLContext | None = None) -> None:
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = context or (server_context() if server_side else client_context())
        self.tls = context.wrap_bio(
            self.incoming,
            self.outgoing,
            server_side=server_side,
            server_hostname=None if server_side else "localhost",
        )

    async def flush(self) -> None:
        """Send the encrypted data."""
        if self.outgoing.pending:
            await asyncio.get_running_loop().sock_sendall(self.sock, self.outgoing.read())

    async def step(self, operation: Callable[..., Any], *args: Any) -> Any:
        """Do one operation of the SSLObject, with its I/O; EOFError at the end of the socket."""
        while True:
            try:
                result = operation(*args)
            except ssl.SSLWantReadError:
                await self.flush()
                data = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
                if not data:
                    raise EOFError("the socket ended") from None
                self.incoming.write(data)
            else:
                await self.flush()
                return result

    async def handshake(self) -> None:
        """Shake hands."""
        await self.step(self.tls.do_handshake)

    async def send(self, data: bytes) -> None:
        """Encrypt and send."""
        self.tls.write(data)
        await self.flush()

    async def receive(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        received = bytearray()
        while len(received) < size:
            data = await self.step(self.tls.read, size - len(received))
            assert data, f"close_notify after {len(received)} of {size} bytes"
            received += data
        return bytes(received)

    async def receive_all(self) -> bytes:
        """Return all data before close_notify; EOFError if the socket ends without one."""
        received = bytearray()
        try:
            while data := await self.step(self.tls.read, 65536):
                received += data
        except ssl.SSLZeroReturnError:
            pass
        return bytes(received)

    async def say_close_notify(self) -> None:
        """Send close_notify, and wait for nothing."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        await self.flush()


@asynccontextmanager
async def manual_connection(
    loop: Any,
    protocol: Any,
    kind: str = "tcp",
    server_side: bool = False,
    small: bool = False,
    **options: Any,
) -> AsyncIterator[tuple[Any, ManualPeer]]:
    """Yield a transport of the loop's and, at its other end, a peer that the test drives by hand."""
    ours, theirs = socket_pair(kind, small=small)
    with theirs:
        peer = ManualPeer(theirs, server_side=not server_side, context=options.pop("peer_context", None))
        if server_side:
            connecting = loop.connect_accepted_socket(
                lambda: protocol, ours, ssl=options.pop("context", None) or server_context(), **options
            )
        else:
            connecting = loop.create_connection(
                lambda: protocol,
                sock=ours,
                ssl=options.pop("context", None) or client_context(),
                server_hostname="localhost",
                **options,
            )
        (transport, _), _ = await asyncio.gather(connecting, peer.handshake())
        try:
            yield transport, peer
        finally:
            transport.abort()
            await turns(5)
