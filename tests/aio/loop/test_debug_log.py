"""The log of debug mode, word for word: Whorl's loop writes what asyncio's writes."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.aio.compare_with_asyncio import Scenario, is_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, socket_pair, turns
from tests.aio.tls_contexts import client_context, server_context

#: The parts that differ from run to run.
VARIES = (
    (r"0x[0-9a-f]+", "0x"),
    (r"\bfd=\d+", "fd="),
    (r"\bpid[= ]\d+", "pid"),
    (r"\b(Read|Write) pipe \d+", r"\1 pipe"),
    (r"<Process \d+>", "<Process>"),
    (r"\b[1-6]\d{4}\b", "port"),
    (r"took [\d.]+ ?\w+", "took"),
    # Where in asyncio's own files a transport began to wait.
    (r"\nhandle_traceback: .*(\n  .*)*", ""),
    (r"<(_UnixSelectorEventLoop|EventLoop) ", "<loop "),
    # Whether a program's end or that of its pipes is noticed first is left to chance.
    (r"<_UnixSubprocessTransport .*> exited", "exited"),
    # Of a TLS transport ours tells more.
    (r"(_SSLProtocolTransport object at 0x) \w+ over <[^<>]*(<[^<>]*>)?>", r"\1"),
)


class Notes(logging.Handler):
    """A handler that keeps the log."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("Using selector") or re.match(r"process \d+ exited", text):
            return  # what only asyncio has: a selector, and in Python 3.11 threads that wait for programs
        for pattern, shown in VARIES:
            text = re.sub(pattern, shown, text)
        error = record.exc_info[1] if record.exc_info else None
        self.notes.append(f"{record.levelname} {text} {error!r}")


def logs_as_in_asyncio(scenario: Scenario, ordered: bool = True) -> list[str]:
    """Check that a coroutine logs the same on both loops in debug mode; what it logs."""

    def logged(loop: Any) -> Any:
        loop.set_debug(True)
        loop.slow_callback_duration = 60.0  # A busy machine makes any callback slow.
        notes = Notes()
        logger = logging.getLogger("asyncio")
        level, logger.propagate = logger.level, False
        logger.setLevel(logging.DEBUG)
        logger.addHandler(notes)
        try:
            loop.run_until_complete(scenario(loop))
        finally:
            logger.removeHandler(notes)
            logger.setLevel(level)
            logger.propagate = True
        return notes.notes if ordered else sorted(notes.notes)

    found: list[str] = is_as_in_asyncio(logged)
    return found


async def connect(loop: Any, tls: bool, **options: Any) -> None:
    """Run a server and a client that pauses, writes and leaves."""
    inner: list[Recorder] = []

    def factory() -> Recorder:
        inner.append(Recorder())
        return inner[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=server_context() if tls else None)
    try:
        transport, protocol = await loop.create_connection(
            Recorder, *server.sockets[0].getsockname(), ssl=client_context() if tls else None, **options
        )
        transport.pause_reading()
        transport.resume_reading()
        transport.write(b"x")
        while not inner:
            await turns(1)
        await inner[0].until_received(1)
        transport.close()
        await protocol.until_lost()
        await inner[0].until_lost()
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_connections_and_servers(tls: bool) -> None:
    notes = logs_as_in_asyncio(
        lambda loop: connect(loop, tls, server_hostname="localhost" if tls else None), ordered=not tls
    )
    assert any("got a new connection" in note for note in notes)
    assert any("is serving" in note for note in notes)


@pytest.mark.parametrize("ending", ["closed", "kept open", "failing"])
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_end_of_a_connection(kind: str, ending: str) -> None:
    """The transport is shown to be read until the protocol has been told."""

    class Peer(Recorder):
        def eof_received(self) -> bool:
            super().eof_received()
            if ending == "failing":
                raise ValueError("read=polling" in repr(self.transport))
            return ending == "kept open"

    async def end(loop: Any) -> None:
        ours, peer = socket_pair(kind)
        with peer:
            transport, protocol = await loop.connect_accepted_socket(Peer, ours)
            peer.shutdown(socket.SHUT_WR)
            await protocol.until(lambda: "eof_received" in protocol.calls)
            logging.getLogger("asyncio").debug("then %r", transport)
            transport.close()
            await protocol.until_lost()

    assert any("read=polling" in note and "received EOF" in note for note in logs_as_in_asyncio(end))


def test_a_certificate_that_is_not_trusted() -> None:
    async def refuse(loop: Any) -> None:
        async def serve(reader: Any, writer: Any) -> None:
            pass

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context())
        ours, peer = socket.socketpair()
        peer.send(b"no TLS at all")
        with ours, peer, pytest.raises(ssl.SSLError):
            await loop.create_connection(Recorder, sock=ours, ssl=client_context(), server_hostname="x")
        server.close()
        await server.wait_closed()

    assert any("SSL handshake failed" in note for note in logs_as_in_asyncio(refuse))


def test_addresses_that_are_not_there() -> None:
    async def fail(loop: Any) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match="Connect call failed"):
                await loop.create_connection(Recorder, *taken.getsockname())
        server = await loop.create_server(Recorder, ["127.0.0.1", "198.51.100.7"], 0)
        server.close()
        await server.wait_closed()

    if sys.version_info < (3, 13):
        pytest.skip("earlier Pythons raise this error")
    assert any("error while attempting to bind" in note for note in logs_as_in_asyncio(fail))


def test_datagrams_and_unix_sockets(tmp_path: Path) -> None:
    async def make(loop: Any) -> None:
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        other, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=transport.get_extra_info("sockname")
        )
        transport.close()
        other.close()
        path = tmp_path / "socket"
        path.unlink(missing_ok=True)
        server = await loop.create_unix_server(asyncio.Protocol, path)
        client, _ = await loop.create_unix_connection(Recorder, path)
        await turns(3)
        client.close()
        await turns(3)
        server.close()
        await server.wait_closed()

    notes = logs_as_in_asyncio(make)
    assert any("Datagram endpoint" in note for note in notes)


def test_programs_and_their_pipes() -> None:
    async def run(loop: Any) -> None:
        process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        await process.communicate(b"x")
        process = await asyncio.create_subprocess_shell("cat >/dev/null; exit 3", stdin=-1, stderr=-1)
        await process.communicate(b"x")

    notes = logs_as_in_asyncio(run, ordered=False)
    assert any("exited with return code 3" in note for note in notes)
    assert any("ReadSubprocessPipeProto" in note for note in notes)
