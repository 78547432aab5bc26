"""TCP in a simulated world: handshakes, ends, and faults of connections, with exact virtual times."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct

import pytest

from tests.sim.conftest import Run
from whorl import sim

LATENCY = 0.01  # seconds, one way


def linked(world: sim.World) -> sim.Host:
    """Return a server's host, a hundredth of a second away."""
    server = world.host("server")
    world.net.link("main", server, latency=LATENCY)
    return server


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
    except ConnectionError:
        pass
    writer.close()


async def serve(port: int = 7) -> None:
    await asyncio.start_server(echo, port=port)


def near(value: float, expected: float) -> bool:
    """Return whether two virtual times agree; looks at the clock take 50 ns each."""
    return abs(value - expected) < 0.0005


def test_connect_takes_one_round_trip(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        await linked(world).run(serve)
        began = world.now()
        _, writer = await asyncio.open_connection("server", 7)
        took = world.now() - began
        writer.close()
        return took

    assert near(exact(main), 2 * LATENCY)


def test_bytes_of_ten_thousand_writes_come_in_order(exact: Run) -> None:
    async def main(world: sim.World) -> None:
        await linked(world).run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        sent = b"".join(b"%d," % number for number in range(10_000))
        for begin in range(0, len(sent), 7):
            writer.write(sent[begin : begin + 7])
        writer.write_eof()
        assert await reader.read() == sent
        writer.close()

    exact(main)


def test_connection_to_a_silent_port_is_refused_after_one_round_trip(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        linked(world)
        began = world.now()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", 9)
        return world.now() - began

    assert near(exact(main), 2 * LATENCY)


def test_connection_to_an_address_that_nobody_has_times_out_after_127_seconds(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        began = world.now()
        with pytest.raises(TimeoutError):
            await asyncio.open_connection("10.9.9.9", 9)
        return world.now() - began

    assert near(exact(main), 127)


def test_connection_comes_with_the_next_request_when_a_partition_heals(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        server = linked(world)
        await server.run(serve)
        cut = world.net.partition(server)
        asyncio.get_running_loop().call_later(2, cut.heal)
        began = world.now()
        _, writer = await asyncio.open_connection("server", 7)
        took = world.now() - began
        writer.close()
        return took

    assert near(exact(main), 3 + 2 * LATENCY)  # requests at 0, 1 and 3 seconds


def test_bytes_wait_for_the_end_of_a_partition(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        server = linked(world)
        await server.run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        cut = world.net.partition(server)
        asyncio.get_running_loop().call_later(1, cut.heal)
        began = world.now()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        took = world.now() - began
        writer.close()
        return took

    assert near(exact(main), 0.2 + 0.4 + 0.8 + 2 * LATENCY)


def test_held_bytes_come_in_order_once_they_are_released(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        server = linked(world)
        await server.run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        hold = world.net.hold("main", server)
        asyncio.get_running_loop().call_later(5, hold.release)
        began = world.now()
        for number in range(10):
            writer.write(b"%d" % number)
        assert await reader.readexactly(10) == b"0123456789"
        took = world.now() - began
        writer.close()
        return took

    assert near(exact(main), 5 + 2 * LATENCY)


def test_partition_of_one_direction_lets_the_other_pass(exact: Run) -> None:
    async def main(world: sim.World) -> bytes:
        server = linked(world)
        await server.run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        writer.write(b"before")
        await asyncio.sleep(LATENCY * 1.5)
        world.net.partition("main", server, oneway=True)
        data = await reader.readexactly(6)
        writer.transport.abort()
        return data

    assert exact(main) == b"before"


def test_unanswered_bytes_end_a_connection_after_a_quarter_of_an_hour(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        server = linked(world)
        await server.run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        world.net.partition(server)
        began = world.now()
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            await reader.read()
        return world.now() - began

    took = exact(main)
    assert 800 < took < 1100  # man 7 tcp: 924 seconds or a little more


def test_third_of_all_packets_may_be_lost_and_no_byte_changes() -> None:
    async def main(world: sim.World) -> None:
        server = linked(world)
        world.net.link("main", server, loss=0.3)
        await server.run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        sent = bytes(range(256)) * 40
        for begin in range(0, len(sent), 100):
            writer.write(sent[begin : begin + 100])
        writer.write_eof()
        assert await reader.read() == sent
        writer.close()

    for seed in range(20):
        sim.run(main, seed=seed).check()


def test_reset_reaches_both_sides(exact: Run) -> None:
    async def main(world: sim.World) -> int:
        server = linked(world)
        await server.run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        writer.write(b"hello")
        await reader.readexactly(5)
        assert world.net.reset("main", "server") == 1
        with pytest.raises(ConnectionResetError):
            await reader.read()
        return len(world.net.connections())

    assert exact(main) == 0


def test_half_open_connection_is_silent_until_it_is_written_to(exact: Run) -> None:
    async def main(world: sim.World) -> bool:
        server = linked(world)
        await server.run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        writer.write(b"hello")
        await reader.readexactly(5)
        assert world.net.forget("server", "main") == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await reader.read()
        writer.write(b"is anybody there?")
        with pytest.raises(OSError) as caught:  # noqa: PT011 -- the number is looked at below
            await reader.read()
        return caught.value.errno in (errno.ETIMEDOUT, errno.ECONNRESET)

    assert exact(main)


def test_box_on_the_way_forgets_an_idle_connection_and_tells_nobody(exact: Run) -> None:
    async def main(world: sim.World) -> list[str]:
        server = linked(world)
        world.net.nat("main", server, idle=300)
        await server.run(serve)
        reader, writer = await asyncio.open_connection("server", 7)
        story = []
        for pause in (299, 299, 301):
            await asyncio.sleep(pause)
            writer.write(b"hello")
            try:
                async with asyncio.timeout(60):
                    story.append((await reader.readexactly(5)).decode())
            except TimeoutError:
                story.append("silence")
        writer.transport.abort()
        return story

    assert exact(main) == ["hello", "hello", "silence"]


def test_slow_reader_pauses_the_writer(exact: Run) -> None:
    async def main(world: sim.World) -> tuple[bool, int]:
        got = bytearray()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(5)
            while data := await reader.read(65536):
                got.extend(data)
            writer.close()

        async def serve_slowly() -> None:
            await asyncio.start_server(slow, port=7)

        await linked(world).run(serve_slowly)
        _, writer = await asyncio.open_connection("server", 7)
        writer.write(bytes(1_000_000))
        began = world.now()
        await writer.drain()
        waited = world.now() - began > 4.9
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(1)
        return waited, len(got)

    assert exact(main) == (True, 1_000_000)


def test_close_with_unread_bytes_resets_the_peer(exact: Run) -> None:
    async def main(world: sim.World) -> None:
        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(1)
            writer.transport.abort()

        async def serve_rudely() -> None:
            await asyncio.start_server(leave, port=7, limit=2)

        await linked(world).run(serve_rudely)
        reader, writer = await asyncio.open_connection("server", 7)
        writer.write(bytes(1_000_000))
        with pytest.raises(ConnectionResetError):
            await reader.read()

    exact(main)


def test_reset_after_the_end_of_the_peer_is_a_broken_pipe(exact: Run) -> None:
    async def main(world: sim.World) -> list[str]:
        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async def serve_no_one() -> None:
            await asyncio.start_server(leave, port=7)

        await linked(world).run(serve_no_one)
        _, writer = await asyncio.open_connection("server", 7)
        await asyncio.sleep(1)
        found = []
        for wait in (writer.drain, writer.drain, writer.wait_closed):
            writer.write(b"x")
            try:
                await wait()
            except OSError as error:
                found.append(type(error).__name__)
            await asyncio.sleep(1)
        return found

    assert exact(main) == ["ConnectionResetError", "BrokenPipeError"]  # the first one is of asyncio


def test_data_for_a_socket_that_shut_both_directions_is_answered_by_a_reset(exact: Run) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        listener, client = socket.socket(), socket.socket()
        listener.bind(("127.0.0.1", 7))
        listener.listen()
        for sock in (listener, client):
            sock.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", 7))
        server, _ = await loop.sock_accept(listener)
        client.shutdown(socket.SHUT_RDWR)
        await asyncio.sleep(1)
        server.send(b"x")
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        code = server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        for sock in (listener, client, server):
            sock.close()
        return code

    assert exact(main) == errno.EPIPE


def test_linger_of_no_seconds_resets_the_peer(exact: Run) -> None:
    async def main(world: sim.World) -> None:
        await linked(world).run(serve)
        loop = asyncio.get_running_loop()
        listener = socket.socket()
        listener.bind(("", 8))
        listener.listen()
        listener.setblocking(False)

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("main", 8)

        reading = world.host("server").spawn(connect)
        sock, _ = await loop.sock_accept(listener)
        await asyncio.sleep(0.1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        listener.close()
        await asyncio.sleep(0.1)
        assert isinstance(reading.result()[0].exception(), ConnectionResetError)

    exact(main)


def test_port_is_in_use_until_its_socket_is_closed(exact: Run) -> None:
    async def main() -> None:
        one, two = socket.socket(), socket.socket()
        one.bind(("", 80))
        with pytest.raises(OSError, match="Address already in use"):
            two.bind(("127.0.0.1", 80))
        one.close()
        two.bind(("127.0.0.1", 80))
        assert two.getsockname() == ("127.0.0.1", 80)
        two.close()

    exact(main)


def test_servers_that_share_a_port_get_all_connections() -> None:
    async def main() -> None:
        counts = [0, 0]

        def count(number: int) -> type[asyncio.Protocol]:
            class Counting(asyncio.Protocol):
                def connection_made(self, transport: asyncio.BaseTransport) -> None:
                    counts[number] += 1
                    transport.close()

            return Counting

        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(count(number), "127.0.0.1", 80, reuse_port=True) for number in (0, 1)
        ]
        for _ in range(40):
            _, writer = await asyncio.open_connection("127.0.0.1", 80)
            writer.close()
        await asyncio.sleep(1)
        for server in servers:
            server.close()
        assert sum(counts) == 40
        assert min(counts) > 5

    sim.run(main, seed=3).check()


def test_requests_beyond_the_backlog_come_again(exact: Run) -> None:
    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        listener = socket.socket()
        listener.bind(("", 80))
        listener.listen(1)
        listener.setblocking(False)
        began = loop.time()
        connecting = [asyncio.ensure_future(asyncio.open_connection("main", 80)) for _ in range(4)]
        accepted = []
        while len(accepted) < 4:
            accepted.append((await loop.sock_accept(listener))[0])
            await asyncio.sleep(0.5)
        took = loop.time() - began
        for _, writer in await asyncio.gather(*connecting):
            writer.close()
        for sock in (*accepted, listener):
            sock.close()
        return len(accepted), took

    accepted, took = exact(main)
    assert accepted == 4
    assert 1.0 < took < 3.5


def test_descriptors_run_out(exact: Run) -> None:
    async def main(world: sim.World) -> int:
        world.main.fill(3)
        socks = []
        with pytest.raises(OSError, match="Too many open files") as caught:  # noqa: PT012
            for _ in range(10):
                socks.append(socket.socket())
        for sock in socks:
            sock.close()
        return caught.value.errno or 0

    assert exact(main) == errno.EMFILE


def test_ipv6_is_unreachable_on_hosts_without_it(exact: Run) -> None:
    async def main() -> None:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        assert sock.connect_ex(("fd00::1", 80)) == errno.ENETUNREACH
        sock.close()

    exact(main)


async def pieces_apart(world: sim.World, flags: int, push_after: float | None) -> tuple[float, bytes]:
    """Send with these flags, perhaps push later; return when the bytes have arrived, and what came."""
    host = linked(world)

    async def receive() -> tuple[float, bytes]:
        loop = asyncio.get_running_loop()
        with socket.create_server(("0.0.0.0", 7)) as listener:
            listener.setblocking(False)
            peer, _ = await loop.sock_accept(listener)
        with peer:
            data = await loop.sock_recv(peer, 100)
            return world.now(), data

    arrived = asyncio.ensure_future(host.run(receive))
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("server", 7))
        began = world.now()
        sock.send(b"one ", flags)
        sock.send(b"two", flags)
        if push_after is not None:
            await asyncio.sleep(push_after)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        when, data = await arrived
    return when - began, data


@pytest.mark.parametrize(
    ("flags", "push_after", "expected", "data"),
    [
        (0, None, LATENCY, b"one two"),
        (socket.MSG_MORE, None, 0.2 + LATENCY, b"one two"),
        (socket.MSG_MORE, 0.05, 0.05 + LATENCY, b"one two"),
    ],
)
def test_bytes_that_wait_for_more_leave_when_pushed_or_after_a_while(
    exact: Run, flags: int, push_after: float | None, expected: float, data: bytes
) -> None:
    async def main(world: sim.World) -> tuple[float, bytes]:
        return await pieces_apart(world, flags, push_after)

    took, received = exact(main)
    assert near(took, expected)
    assert received == data


@pytest.mark.parametrize("end", ["crash", "reset"])
def test_bytes_that_wait_for_more_are_lost_with_the_connection(exact: Run, end: str) -> None:
    async def write(world: sim.World) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("main", 7))
        sock.send(b"left ")
        sock.send(b"held", socket.MSG_MORE)
        if end == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        else:
            await asyncio.Event().wait()

    async def main(world: sim.World) -> bytes:
        host = world.host("writer")
        loop = asyncio.get_running_loop()
        received = b""
        with socket.create_server(("0.0.0.0", 7)) as listener:
            listener.setblocking(False)
            task = asyncio.ensure_future(host.run(write, world))
            peer, _ = await loop.sock_accept(listener)
        with peer:
            await asyncio.sleep(0.05)
            if end == "crash":
                host.crash()
                host.restart(0.01)
            await asyncio.sleep(1)
            try:
                while data := await asyncio.wait_for(loop.sock_recv(peer, 100), 1):
                    received += data
            except (ConnectionResetError, TimeoutError):
                pass
        task.cancel()
        await asyncio.wait([task])
        return received

    assert exact(main) == b"left "
