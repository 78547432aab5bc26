"""Sockets of families that we know through Python only, and machines with one IP family or none."""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.programs import ends_as_on_asyncio
from tests.aio.sockets_for_tests import Recorder, turns

Pair = tuple[socket.socket, socket.socket]

LOCAL = 1  # the address of this machine in AF_VSOCK (VMADDR_CID_LOCAL)


def opened(family: str, kind: int) -> socket.socket:
    """Return a non-blocking socket of a rare family; without that family, skip the test."""
    try:
        sock = socket.socket(getattr(socket, family), kind)
    except (AttributeError, OSError) as error:
        pytest.skip(f"no sockets of {family} here: {error}")
    sock.setblocking(False)
    return sock


@pytest.fixture
def vsock() -> Any:
    """Return a socket that listens for virtual machines, on this machine."""
    sock = opened("AF_VSOCK", socket.SOCK_STREAM)
    with sock:
        try:
            sock.bind((LOCAL, socket.VMADDR_PORT_ANY))
            sock.listen(10)
            with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as probe:
                probe.connect(sock.getsockname())
            sock.accept()[0].close()
        except OSError as error:
            pytest.skip(f"AF_VSOCK has no loopback here: {error}")
        yield sock


def test_connections_of_a_rare_family_by_hand(vsock: socket.socket) -> None:
    async def talk(loop: Any) -> Any:
        with opened("AF_VSOCK", socket.SOCK_STREAM) as one:
            (other, address), _ = await asyncio.gather(
                loop.sock_accept(vsock), loop.sock_connect(one, vsock.getsockname())
            )
            with other:
                await loop.sock_sendall(one, b"between machines")
                return address[0], await loop.sock_recv(other, 100)

    assert is_as_in_asyncio(talk) == (LOCAL, b"between machines")


def test_servers_and_connections_of_a_rare_family(vsock: socket.socket) -> None:
    async def talk(loop: Any) -> Any:
        accepted: list[Recorder] = []

        def factory() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        server = await loop.create_server(factory, sock=vsock.dup())
        one = opened("AF_VSOCK", socket.SOCK_STREAM)
        await loop.sock_connect(one, vsock.getsockname())
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        transport.write(b"between machines")
        while not accepted:
            await asyncio.sleep(0)
        received = await accepted[0].until_received(16)
        names = [transport.get_extra_info(name)[0] for name in ("sockname", "peername")]
        for side in (protocol, accepted[0]):
            side.transport.abort()
            await side.until_lost()
        server.close()
        return bytes(received), names

    assert is_as_in_asyncio(talk) == (b"between machines", [LOCAL, LOCAL])


def test_the_kernel_answers_over_netlink() -> None:
    async def ask(loop: Any) -> Any:
        with opened("AF_NETLINK", socket.SOCK_RAW) as sock:
            sock.bind((0, 0))
            # A request for all addresses (RTM_GETADDR, a dump), sent to process 0: the kernel.
            request = struct.pack("=IHHII", 17, 22, 0x301, 1, 0) + b"\0"
            assert await loop.sock_sendto(sock, request, (0, 0)) == 17
            data, sender = await loop.sock_recvfrom(sock, 65536)
            return struct.unpack_from("=IHH", data)[1], sender

    assert is_as_in_asyncio(ask) == (20, (0, 0))  # RTM_NEWADDR


def test_frames_are_read_off_the_wire() -> None:
    async def listen(loop: Any) -> Any:
        if not hasattr(socket, "AF_PACKET"):
            pytest.skip("no AF_PACKET here")
        try:
            wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        except PermissionError:
            pytest.skip("this process may not listen to the wire")
        with wire, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            wire.bind(("lo", 0x0800))
            wire.setblocking(False)
            sock.bind(("127.0.0.1", 0))
            sock.sendto(b"on the wire", sock.getsockname())
            while True:
                data, sender = await loop.sock_recvfrom(wire, 65536)
                if data.endswith(b"on the wire"):
                    return sender[0], len(sender)

    assert is_as_in_asyncio(listen) == ("lo", 5)


def test_packets_that_are_no_stream_pass_one_by_one() -> None:
    async def talk(loop: Any) -> Any:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with one, other:
            one.setblocking(False)
            other.setblocking(False)
            await loop.sock_sendall(one, b"first")
            await loop.sock_sendall(one, b"second")
            return [await loop.sock_recv(other, 100), await loop.sock_recv(other, 3)]

    assert is_as_in_asyncio(talk) == [b"first", b"sec"]


@pytest.fixture
def single_messages() -> Iterator[Pair]:
    """Yield a socket of SCTP that receives single messages, and its peer; in truth both are UNIX ones."""
    one, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with (
        peer,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP, fileno=one.detach()) as sock,
    ):
        sock.setblocking(False)
        yield sock, peer


async def test_a_transport_receives_all_messages_of_a_stream_that_keeps_their_bounds(
    loop: whorl.EventLoop, single_messages: Pair
) -> None:
    ours, peer = single_messages
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    for text in (b"one", b"two", b"three"):
        peer.send(text)
    assert await protocol.until_received(11) == b"onetwothree"
    transport.close()
    await protocol.until_lost()


async def test_sock_recv_receives_all_messages_of_a_stream_that_keeps_their_bounds(
    loop: whorl.EventLoop, single_messages: Pair
) -> None:
    ours, peer = single_messages
    for _ in range(2):
        receiving = loop.create_task(loop.sock_recv(ours, 100))
        await turns(3)
        for text in (b"one", b"two", b"three"):
            peer.send(text)
        assert [await receiving, *[await loop.sock_recv(ours, 100) for _ in range(2)]] == [
            b"one",
            b"two",
            b"three",
        ]


def test_addresses_of_ipv6_keep_all_four_parts() -> None:
    async def connect(loop: Any) -> Any:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
            port = listener.getsockname()[1]
            with socket.socket(socket.AF_INET6) as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, ("::1", port, 0, 0))
                first = sock.getpeername() == ("::1", port, 0, 0)
            transport, protocol = await loop.create_connection(Recorder, "::1", port)
            sizes = [len(transport.get_extra_info(name)) for name in ("sockname", "peername")]
            transport.abort()
            await protocol.until_lost()
            return first, sizes

    assert is_as_in_asyncio(connect) == (True, [4, 4])


# Machines with one IP family: a network of the program's own.

NETWORK = """
import asyncio, fcntl, socket, struct
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
    fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS: up
"""
WITHOUT = {
    "IPv6": 'open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w").write("1")\n',
    "IPv4": """
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:  # SIOCSIFADDR: none
    fcntl.ioctl(sock, 0x8916, struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, bytes(4)))
""",
}
SERVE = """
async def main(host):
    loop = asyncio.get_running_loop()
    class Echo(asyncio.Protocol):
        def connection_made(self, transport):
            transport.write(b"served")
            transport.close()
    server = await loop.create_server(Echo, host, 0)
    print(sorted(sock.family.name for sock in server.sockets))
    for sock in sorted(server.sockets, key=lambda sock: sock.family):
        try:
            name = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
            reader, writer = await asyncio.open_connection(name, sock.getsockname()[1])
        except OSError as error:
            print(sock.family.name, type(error), error.errno)
        else:
            print(sock.family.name, await reader.read())
            writer.close()
    server.close()
for host in (None, ""):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(host))
"""


@cache
def network() -> tuple[str, ...]:
    """Return the command that starts a program in a network of its own."""
    command = shutil.which("unshare")
    if command is None or subprocess.run([command, "--net", "true"], capture_output=True).returncode:
        return ()
    return (command, "--net")


@pytest.mark.parametrize("family", sorted(WITHOUT))
def test_a_server_on_all_addresses_of_a_machine_without(family: str) -> None:
    if not network():
        pytest.skip("this system does not let us make a network (unshare --net)")
    code, printed, complaint = ends_as_on_asyncio(NETWORK + WITHOUT[family] + SERVE, before=network())
    assert code == 0, complaint
    other = {"IPv6": "AF_INET ", "IPv4": "AF_INET6 "}[family]
    assert printed.count(f"{other}b'served'") == 2, printed


def test_loop_works_without_any_network() -> None:
    if not network():
        pytest.skip("this system does not let us make a network (unshare --net)")
    program = """
import asyncio, socket
async def main():
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    one.setblocking(False)
    await loop.sock_sendall(one, b"still")
    print(other.recv(100))
    try:
        await loop.create_connection(asyncio.Protocol, "127.0.0.1", 9)
    except OSError as error:
        print(error.errno)
asyncio.Runner(loop_factory=new_loop).run(main())
"""
    code, printed, complaint = ends_as_on_asyncio(program, before=network())
    assert (code, printed.split()[0]) == (0, "b'still'"), complaint


# Bounds of the process.

FEW_DESCRIPTORS = """
import asyncio, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
async def main():
    loop = asyncio.get_running_loop()
    problems = []
    loop.set_exception_handler(lambda loop, context: problems.append(context["message"]))
    async def serve(reader, writer):
        writer.write(await reader.readexactly(1))
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async def ask():
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        answer = await reader.read()
        writer.close()
        return answer
    for _ in range(3):
        print(set(await asyncio.gather(*[ask() for _ in range(100)])))
    child = await asyncio.create_subprocess_exec("/bin/true")
    print(await child.wait(), await asyncio.to_thread(int), problems)
    kept = []
    try:
        while True:
            kept.append(socket.socket())
    except OSError as error:
        print(error.errno)
    try:
        await ask()
    except OSError as error:
        print("refused", error.errno)
    for sock in kept:
        sock.close()
    print(await ask())
    server.close()
asyncio.Runner(loop_factory=new_loop).run(main())
"""


def test_a_program_with_256_descriptors() -> None:
    code, printed, complaint = ends_as_on_asyncio(FEW_DESCRIPTORS)
    assert code == 0, complaint
    assert printed.splitlines()[-1] == "b'x'"


async def test_sockets_that_block_may_be_handed_over(loop: whorl.EventLoop, tmp_path: Path) -> None:
    one, other = socket.socketpair()
    with other:
        assert one.getblocking()
        transport, protocol = await loop.connect_accepted_socket(Recorder, one)
        assert not one.getblocking()
        other.send(b"x")
        assert await protocol.until_received(1) == b"x"
        transport.abort()
        await protocol.until_lost()
