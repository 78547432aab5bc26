"""TLS over a kernel that refuses and cuts short, once per seed: every byte is accounted for.

The seeds are those of `test_faults`.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.aio.faults.test_streams import Scenario, replay, run, seeds
from tests.aio.scenarios import (
    BufferedEcho,
    BufferedListener,
    Conduct,
    Echo,
    Listener,
    World,
    abort_in_the_middle,
    another_protocol_in_mid_stream,
    both_directions_at_once,
    close_with_data_still_queued,
    connections_that_break,
    digest,
    echo_of_a_buffered_protocol,
    echo_of_a_protocol,
    end,
    random_listener,
    say,
    writelines_of_all_kinds,
)
from tests.aio.tls_contexts import client_context, server_context
from tests.core.kernel.fault_injection import FaultRates

pytestmark = pytest.mark.faults


class TLSWorld(World):
    """A world in which both ends speak TLS, or will."""

    def __init__(self, kind: str, seed: int, folder: Any = "") -> None:
        super().__init__(kind, seed, folder)
        self.client_tls = client_context()
        self.server_tls = server_context()
        if seed % 3 == 0:
            self.client_tls.maximum_version = ssl.TLSVersion.TLSv1_2
        self.at_once = True  # whether connections begin with TLS

    async def serve(self, factory: Any) -> asyncio.Server:
        def arrive() -> asyncio.BaseProtocol:
            self.peers.append(factory())
            self._arrived.set()
            return self.peers[-1]

        loop = asyncio.get_running_loop()
        options: Any = {"ssl": self.server_tls} if self.at_once else {}
        if self.kind == "unix":
            return await loop.create_unix_server(arrive, self.path, **options)
        server = await loop.create_server(arrive, "127.0.0.1", 0, **options)
        self.address = server.sockets[0].getsockname()
        return server

    async def connect(self, factory: Any) -> tuple[Any, Any]:
        loop = asyncio.get_running_loop()
        options: Any = {"ssl": self.client_tls, "server_hostname": "localhost"} if self.at_once else {}
        if self.kind == "unix":
            return await loop.create_unix_connection(factory, self.path, **options)
        return await loop.create_connection(factory, *self.address, **options)

    async def upgrade(self, client: Any, peer: Any) -> None:
        """Talk TLS from now on, at both ends; over TLS, if both ends talk TLS already."""
        loop = asyncio.get_running_loop()
        client.transport, peer.transport = await asyncio.gather(
            loop.start_tls(client.transport, client, self.client_tls, server_hostname="localhost"),
            loop.start_tls(peer.transport, peer, self.server_tls, server_side=True),
        )


async def until_heard(protocol: Any, size: int) -> None:
    await protocol.until(lambda: len(protocol.received) >= size)


async def upgrades(world: Any) -> None:
    """Talk in the clear, then in TLS, then in TLS over TLS: nothing is lost in between."""
    world.at_once = False
    server = await world.serve(random_listener(world))
    _, client = await world.connect(random_listener(world))
    peer = await world.peer()
    said = bytearray()
    answered = bytearray()
    for _ in range(3):
        words, answer = world.noise(world.size(100_000)), world.noise(world.size(100_000))
        said += words
        answered += answer
        await asyncio.gather(say(world, client, words), say(world, peer, answer))
        await until_heard(client, len(answered))
        await until_heard(peer, len(said))
        await world.upgrade(client, peer)
    assert digest(client.received) == digest(answered)
    assert digest(peer.received) == digest(said)
    await end(server, client, peer)
    assert (client.error, peer.error) == (None, None)


async def slow_readers(world: Any) -> None:
    """Pause on both sides with small watermarks: nothing is lost, and nothing arrives in a pause."""

    class Slow(Listener):
        def data_received(self, data: bytes) -> None:
            assert not self.rests, "a paused reader was given data"
            super().data_received(data)
            if world.random.random() < 0.5:
                self.transport.pause_reading()
                self.rests = True
                loop.call_later(world.random.choice((0, 0.0001, 0.001)), self.go_on)

        rests = False

        def go_on(self) -> None:
            self.rests = False
            self.transport.resume_reading()

    loop = asyncio.get_running_loop()
    server = await world.serve(Slow)
    _, client = await world.connect(Slow)
    peer = await world.peer()
    said, answered = world.noise(world.size(400_000)), world.noise(world.size(400_000))
    for protocol in (client, peer):
        protocol.transport.set_write_buffer_limits(high=world.size(100_000))
        protocol.transport.set_read_buffer_limits(high=world.size(100_000))
    await asyncio.gather(say(world, client, said), say(world, peer, answered))
    await client.until(lambda: len(client.received) >= len(answered))
    await peer.until(lambda: len(peer.received) >= len(said))
    assert digest(client.received) == digest(answered)
    assert digest(peer.received) == digest(said)
    await end(server, client, peer)


async def several_connections(world: Any) -> None:
    """Check that bytes of one connection never reach another, although they share a buffer."""

    def echo() -> Conduct:
        return Echo() if world.random.random() < 0.5 else BufferedEcho(world)

    async def talk(data: bytes) -> None:
        listen: Any = Listener if world.random.random() < 0.5 else lambda: BufferedListener(world)
        _, client = await world.connect(listen)
        await say(world, client, data)
        await client.until(lambda: len(client.received) >= len(data))
        assert digest(client.received) == digest(data)
        client.transport.close()
        await client.until_lost()
        assert client.error is None

    server = await world.serve(echo)
    texts = [world.noise(world.size(50_000)) for _ in range(6)]
    await asyncio.gather(*map(talk, texts))
    await end(server, *world.peers)
    assert sorted(digest(echo.received) for echo in world.peers) == sorted(map(digest, texts))


SCENARIOS = (
    echo_of_a_protocol,
    echo_of_a_buffered_protocol,
    both_directions_at_once,
    writelines_of_all_kinds,
    abort_in_the_middle,
    another_protocol_in_mid_stream,
    close_with_data_still_queued,
    upgrades,
    slow_readers,
    several_connections,
)


def kind_of(seed: int) -> str:
    """Return the kind of connection of a seed. Its last bit already decides the dice of the kernel."""
    return "unix" if seed // 2 % 2 else "tcp"


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_byte_arrives_in_tls(scenario: Scenario, seed: int, tmp_path: Path) -> None:
    replay(scenario.__name__, "in_tls", seed)
    run(scenario, kind_of(seed), seed, FaultRates(), tmp_path, TLSWorld)


@pytest.mark.parametrize("seed", seeds())
def test_connections_in_tls_break_cleanly(seed: int, tmp_path: Path) -> None:
    replay("break_cleanly", "in_tls", seed)
    rates = FaultRates(reset=0.03, unopened=0.1)
    run(connections_that_break, kind_of(seed), seed, rates, tmp_path, TLSWorld)
