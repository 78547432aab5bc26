"""Pipe with ipc: handles that travel with data, in order, and never get lost or leak."""

from __future__ import annotations

import array
import errno
import os
import resource
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from tests.handles.pairs import Ended
from whorl.core import Event, Loop, RunMode
from whorl.handles import TCP, UDP, HandleKind, Pipe, Process, Stdio, Timer

MUCH = 1024 * 1024


def ipc_pair(loop: Loop) -> tuple[Pipe, Pipe]:
    """Return two connected pipes."""
    ends = Pipe(loop, ipc=True), Pipe(loop, ipc=True)
    for end, sock in zip(ends, socket.socketpair(), strict=True):
        end.open(sock.detach())
    return ends


class Receiver:
    """A receiver that keeps the data of a pipe, and accepts the handles that come with it."""

    def __init__(self, pipe: Pipe, **options: Any) -> None:
        self.pipe = pipe
        self.data = bytearray()
        self.handles: list[Any] = []
        self.at: list[int] = []
        self.error: OSError | None = None
        self.ended = False
        pipe.read_start(self.take, **options)

    def take(self, pipe: Pipe, data: Any, error: OSError | None) -> None:
        if error is not None:
            self.error = error
        elif not data:
            self.ended = True
        while pipe.pending_count():
            kinds = {HandleKind.TCP: TCP, HandleKind.PIPE: Pipe, HandleKind.UDP: UDP}
            handle = kinds[pipe.pending_type()](pipe.loop)
            pipe.accept(handle)
            self.handles.append(handle)
            self.at.append(len(self.data))
        self.data += data


def named(handle: Any) -> Any:
    return handle.getsockname()


def bound_udp(loop: Loop) -> UDP:
    udp = UDP(loop)
    udp.bind(("127.0.0.1", 0))
    return udp


def close_all(*handles: Any) -> None:
    for handle in handles:
        handle.close()


# Sending.


def test_a_handle_goes_with_its_data(loop: Loop, tmp_path: Path) -> None:
    ours, theirs = ipc_pair(loop)
    tcp, udp, pipe = TCP(loop), bound_udp(loop), Pipe(loop)
    tcp.bind(("127.0.0.1", 0))
    pipe.bind(tmp_path / "socket")
    ended = Ended()
    receiver = Receiver(theirs)
    for name, handle in (("tcp", tcp), ("udp", udp), ("pipe", pipe)):
        ours.write2(name.encode(), handle, ended)
    ours.shutdown(lambda request, error: ours.close())
    loop.run()
    assert bytes(receiver.data) == b"tcpudppipe"
    assert ended.results == [("Write", None)] * 3
    assert [type(handle) for handle in receiver.handles] == [TCP, UDP, Pipe]
    assert [named(handle) for handle in receiver.handles] == [named(tcp), named(udp), named(pipe)]
    assert receiver.at == [0, 3, 6]
    close_all(theirs, tcp, udp, pipe, *receiver.handles)


def test_a_received_server_accepts_connections(loop: Loop) -> None:
    ours, theirs = ipc_pair(loop)
    server = TCP(loop)
    server.bind(("127.0.0.1", 0))
    address = server.getsockname()
    answers: list[bytes] = []

    def received(pipe: Pipe, data: bytes, error: OSError | None) -> None:
        copy = TCP(loop)
        pipe.accept(copy)
        copy.listen(1, connected)
        pipe.close()
        client = TCP(loop)
        client.connect(address)
        client.read_start(lambda stream, data, error: (answers.append(data), stream.close()))

    def connected(copy: TCP, error: OSError | None) -> None:
        connection = TCP(loop)
        copy.accept(connection)
        connection.write(b"welcome", lambda request, error: connection.close())
        copy.close()

    theirs.read_start(received)
    ours.write2(b"x", server, lambda request, error: ours.close())
    server.close()  # what was sent does not depend on it
    loop.run()
    assert answers == [b"welcome"]


def test_data_before_and_behind_keeps_its_place(loop: Loop) -> None:
    ours, theirs = ipc_pair(loop)
    udp = bound_udp(loop)
    before, behind = os.urandom(MUCH), os.urandom(MUCH)
    ours.write(before)
    ours.write2(b"with the handle", udp)
    ours.write(behind)
    assert ours.write_queue_size > 0
    udp.close()
    receiver = Receiver(theirs)
    ours.shutdown(lambda request, error: ours.close())
    loop.run()
    assert bytes(receiver.data) == before + b"with the handle" + behind
    assert receiver.at == [len(before)]
    close_all(theirs, *receiver.handles)


def test_many_handles_arrive_in_order(loop: Loop) -> None:
    ours, theirs = ipc_pair(loop)
    handles = [bound_udp(loop) for _ in range(50)]
    names = [named(handle) for handle in handles]
    for number, handle in enumerate(handles):
        ours.write2(bytes([number]) * 5000, handle)
        handle.close()
    receiver = Receiver(theirs)
    ours.shutdown(lambda request, error: ours.close())
    loop.run()
    assert [named(handle) for handle in receiver.handles] == names
    assert receiver.at == list(range(0, 250_000, 5000))
    close_all(theirs, *receiver.handles)


def test_try_write2_sends_at_once_or_not_at_all(loop: Loop) -> None:
    ours, theirs = ipc_pair(loop)
    udp = bound_udp(loop)
    assert ours.try_write2(b"now", udp) == 3
    ours.write(bytes(MUCH))
    with pytest.raises(BlockingIOError):
        ours.try_write2(b"later", udp)
    receiver = Receiver(theirs)
    ours.shutdown(lambda request, error: ours.close())
    loop.run()
    assert bytes(receiver.data) == b"now" + bytes(MUCH)
    assert len(receiver.handles) == 1
    close_all(theirs, udp, *receiver.handles)


@pytest.mark.parametrize("send", [Pipe.write2, Pipe.try_write2])
def test_write2_and_try_write2_refuse_invalid_arguments(loop: Loop, send: Any) -> None:
    ours, _theirs = ipc_pair(loop)
    plain, udp = Pipe(loop), bound_udp(loop)
    one, other = socket.socketpair()
    plain.open(one.detach())
    other.close()
    for pipe, data, handle, code in (
        (plain, b"x", udp, errno.EINVAL),
        (ours, b"", udp, errno.EINVAL),
        (ours, b"x", TCP(loop), errno.EBADF),
        (Pipe(loop, ipc=True), b"x", udp, errno.EBADF),
    ):
        with pytest.raises(OSError, match=r"argument|file") as caught:
            send(pipe, data, handle)
        assert caught.value.errno == code
    for thing in (5, None, Timer(loop)):
        with pytest.raises(TypeError, match="handle"):
            send(ours, b"x", thing)
    udp.close()
    with pytest.raises(OSError, match="Bad file"):
        send(ours, b"x", udp)


def test_unsent_descriptor_is_closed_with_the_pipe(loop: Loop) -> None:
    ours, theirs = ipc_pair(loop)
    udp = bound_udp(loop)
    ended = Ended()
    ours.write(bytes(MUCH), ended)
    ours.write2(b"x", udp, ended)
    ours.close()
    udp.close()
    theirs.close()
    loop.run()
    assert ended.results == [("Write", errno.ECANCELED)] * 2  # and no descriptor is left: see the fixture


def test_write2_closes_the_descriptor_if_the_peer_is_gone(loop: Loop) -> None:
    ours, theirs = ipc_pair(loop)
    theirs.close()
    udp = bound_udp(loop)
    ended = Ended()
    ours.write2(b"x", udp, ended)
    loop.run()
    assert ended.results == [("Write", errno.EPIPE)]


# Receiving.


def test_several_descriptors_in_one_message_wait_their_turn(loop: Loop) -> None:
    pipe = Pipe(loop, ipc=True)
    ours, theirs = socket.socketpair()
    pipe.open(ours.detach())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
        reader, writer = os.pipe()
        socket.send_fds(theirs, [b"four"], [tcp.fileno(), udp.fileno(), reader, 0])
        os.close(reader)
        os.close(writer)
    theirs.close()
    seen: list[Any] = []

    def take(pipe: Pipe, data: bytes, error: OSError | None) -> None:
        seen.append((data, pipe.pending_count(), pipe.pending_type()))
        with pytest.raises(TypeError):
            pipe.accept(Timer(loop))
        tcp = TCP(loop)
        pipe.accept(tcp)
        assert not os.get_inheritable(tcp.fileno())
        seen.append((pipe.pending_count(), pipe.pending_type()))
        with pytest.raises(OSError, match="busy"):
            pipe.accept(tcp)
        assert pipe.pending_count() == 3
        tcp.close()
        pipe.close()
        with pytest.raises(OSError, match="closed"):
            pipe.accept(TCP(loop))

    pipe.read_start(take)
    loop.run()
    assert seen == [(b"four", 4, HandleKind.TCP), (3, HandleKind.UDP)]


def test_unaccepted_descriptor_is_closed_with_the_pipe(loop: Loop) -> None:
    ours, theirs = ipc_pair(loop)
    udp = bound_udp(loop)
    ours.write2(b"x", udp)
    seen: list[int] = []
    theirs.read_start(lambda pipe, data, error: seen.append(pipe.pending_count()))
    loop.run(RunMode.ONCE)
    assert seen == [1]
    with pytest.raises(BlockingIOError):
        ours.accept(UDP(loop))
    assert ours.pending_type() is HandleKind.UNKNOWN


def test_a_plain_pipe_takes_no_descriptors(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    pipe = Pipe(loop)
    pipe.open(ours.detach())
    with theirs:
        socket.send_fds(theirs, [b"x"], [0])
        seen: list[Any] = []
        pipe.read_start(lambda pipe, data, error: (seen.append((data, pipe.pending_count())), pipe.close()))
        loop.run()
    assert seen == [(b"x", 0)]


def test_memory_of_the_callers_is_filled_too(loop: Loop) -> None:
    ours, theirs = ipc_pair(loop)
    udp = bound_udp(loop)
    memory = bytearray(10)
    receiver = Receiver(theirs, get_buffer=lambda pipe, size: memory)
    ours.write2(b"fifteen letters", udp)
    ours.shutdown(lambda request, error: ours.close())
    loop.run()
    assert bytes(receiver.data) == b"fifteen letters"
    assert named(receiver.handles[0]) == named(udp)
    close_all(theirs, udp, *receiver.handles)


def test_descriptors_for_which_there_is_no_room_are_an_error(loop: Loop) -> None:
    pipe = Pipe(loop, ipc=True)
    ours, theirs = socket.socketpair()
    pipe.open(ours.detach())
    rights = array.array("i", [0] * 20)
    theirs.sendmsg([b"data"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    seen: list[Any] = []
    pipe.read_start(lambda pipe, data, error: seen.append((data, error and error.errno)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 5, hard))
    try:
        loop.run()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    theirs.close()
    assert seen == [(b"data", None), (b"", errno.EMFILE)]
    assert 0 < pipe.pending_count() < 20


def test_an_ipc_pipe_does_not_listen(loop: Loop, tmp_path: Path) -> None:
    pipe = Pipe(loop, ipc=True)
    pipe.bind(tmp_path / "socket")
    with pytest.raises(OSError, match="Invalid argument"):
        pipe.listen(1, lambda pipe, error: None)


@pytest.mark.parametrize("seed", range(10))
def test_over_a_kernel_that_refuses_and_cuts_short_nothing_is_lost(seed: int) -> None:
    kernel = FaultKernel(seed, FaultRates(short=0.3, again=0.2, interrupted=0.1))
    loop = Loop(kernel=kernel)
    ours, theirs = ipc_pair(loop)
    handles = [bound_udp(loop) for _ in range(10)]
    names = [named(handle) for handle in handles]
    expected = b""
    for number, handle in enumerate(handles):
        part, more = os.urandom(997 * number + 1), os.urandom(503 * number)
        ours.write2(part, handle)
        ours.write(more)
        expected += part + more
    receiver = Receiver(theirs)
    ours.shutdown(lambda request, error: ours.close())
    loop.run()
    assert bytes(receiver.data) == expected
    assert [named(handle) for handle in receiver.handles] == names
    close_all(theirs, *handles, *receiver.handles)
    loop.run()
    loop.close()


CHILD = """
import socket
channel = socket.socket(fileno=3)
data, fds, _, _ = socket.recv_fds(channel, 100, 10)
with socket.socket(fileno=fds[0]) as given:
    socket.send_fds(channel, [data.upper() + repr(given.getsockname()[1]).encode()], [given.fileno()])
"""


def test_handles_travel_to_a_child_and_back(loop: Loop) -> None:
    channel = Pipe(loop, ipc=True)
    udp = bound_udp(loop)
    stdio = [
        Stdio.ignore(),
        Stdio.ignore(),
        Stdio.inherit_fd(2),
        Stdio.create_pipe(channel, child_writes=True),
    ]
    process = Process(loop)
    process.spawn([sys.executable, "-c", CHILD], lambda process, status, number: process.close(), stdio=stdio)
    channel.write2(b"port ", udp)
    receiver = Receiver(channel)
    loop.run()
    port = named(udp)[1]
    assert bytes(receiver.data) == b"PORT %d" % port
    assert [named(handle)[1] for handle in receiver.handles] == [port]
    close_all(channel, udp, *receiver.handles)


# Other methods of pipes.


def test_chmod_sets_the_mode_of_a_unix_socket(loop: Loop, tmp_path: Path) -> None:
    pipe = Pipe(loop)
    pipe.bind(tmp_path / "socket")
    os.chmod(tmp_path / "socket", 0o600)
    pipe.chmod(Event.READABLE)
    assert stat.S_IMODE(os.stat(tmp_path / "socket").st_mode) == 0o644
    pipe.chmod(Event.READABLE | Event.WRITABLE)
    assert stat.S_IMODE(os.stat(tmp_path / "socket").st_mode) == 0o666
    for wrong in (0, Event.DISCONNECT):
        with pytest.raises(OSError, match="Invalid argument"):
            pipe.chmod(wrong)
    with pytest.raises(OSError, match="Bad file"):
        Pipe(loop).chmod(Event.READABLE)
    abstract = Pipe(loop)
    abstract.bind(b"\0whorl-chmod-%d" % os.getpid())
    with pytest.raises(OSError, match="Bad file"):
        abstract.chmod(Event.READABLE)


def test_the_blocking_mode_can_be_set(loop: Loop) -> None:
    ours, _theirs = ipc_pair(loop)
    assert not os.get_blocking(ours.fileno())
    ours.set_blocking(True)
    assert os.get_blocking(ours.fileno())
    ours.set_blocking(False)
    assert not os.get_blocking(ours.fileno())
    ours.close()
    with pytest.raises(OSError, match="Bad file"):
        ours.set_blocking(True)
