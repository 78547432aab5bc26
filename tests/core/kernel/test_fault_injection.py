"""The kernel that fails on purpose: its injected faults, and the promises it keeps all the same."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from typing import Any

import pytest

from tests.core.kernel.fault_injection import FaultKernel, FaultRates
from tests.core.loop_fakes import SECOND, Watcher, run_turns
from whorl.core import Event, Kernel, Loop
from whorl.core.kernel.sockets import ACCEPTS_DESCRIPTORS

NONE = FaultRates(*[0.0] * len(FaultRates._fields))
ALWAYS = 1.0


def talk(kernel: Kernel, rounds: int) -> list[object]:
    """Return the answers of the data path's calls, one after another."""
    ours, theirs = socket.socketpair()
    answers: list[object] = []
    with ours, theirs:
        ours.setblocking(False)
        for _ in range(rounds):
            theirs.setblocking(True)
            answers.append(kernel.send(ours.fileno(), bytes(1000), 3))
            answers.append(kernel.send_many(ours.fileno(), [bytes(100)] * 10, 2, 50))
            answers.append(kernel.write(ours.fileno(), bytearray(100), 0))
            answers.append(kernel.write_many(ours.fileno(), [b"abc", b"def"], 0, 0))
            theirs.sendall(bytes(5000))
            answers.append(len_or_code(kernel.recv(ours.fileno(), 1000)))
            answers.append(len_or_code(kernel.read(ours.fileno(), 1000)))
            answers.append(kernel.recv_into(ours.fileno(), bytearray(1000)))
            answers.append(kernel.read_into(ours.fileno(), memoryview(bytearray(1000))))
            theirs.setblocking(False)
            for sock in (ours, theirs):
                while sock.recv(100_000) == bytes(100_000):
                    pass
    return answers


def len_or_code(data: bytes | int) -> int:
    return data if isinstance(data, int) else len(data)


def test_fault_kernel_without_faults_is_the_real_kernel() -> None:
    kernel = FaultKernel(1, NONE)
    assert talk(kernel, 3) == talk(Kernel(), 3)
    assert kernel.injected == Counter()


def test_the_same_seed_gives_the_same_faults() -> None:
    first, second, other = FaultKernel(7), FaultKernel(7), FaultKernel(8)
    assert talk(first, 50) == talk(second, 50)
    assert first.injected == second.injected
    assert talk(other, 50) != talk(FaultKernel(7), 50)


def test_every_fault_of_the_data_path_is_injected_and_counted() -> None:
    kernel = FaultKernel(1, FaultRates(reset=0.02))
    answers = talk(kernel, 300)
    for call in ("recv", "read", "recv_into", "read_into", "send", "write", "send_many", "write_many"):
        for fault in ("EAGAIN", "EINTR", "ECONNRESET", "short"):
            assert kernel.injected[f"{call} {fault}"] > 0
    assert kernel.injected["send ENOBUFS"] > 0
    assert kernel.injected["write ENOBUFS"] == 0
    refused = sum(1 for answer in answers if isinstance(answer, int) and answer < 0)
    assert refused == sum(count for name, count in kernel.injected.items() if " E" in name)


def test_short_sends_and_receives_can_be_continued() -> None:
    kernel = FaultKernel(3, NONE._replace(short=ALWAYS))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        data = bytes(range(256)) * 40
        chunks = [data[start : start + 100] for start in range(0, len(data), 100)]
        sent = 0
        while sent < len(data):
            first, offset = divmod(sent, 100)
            sent += kernel.send_many(ours.fileno(), chunks, first, offset)
        received = b""
        target = bytearray(100)
        while len(received) < len(data):
            part = kernel.recv(theirs.fileno(), 1000)
            assert isinstance(part, bytes)
            size = kernel.recv_into(theirs.fileno(), target) if len(received + part) < len(data) else 0
            received += part + target[:size]
        assert received == data


@pytest.mark.parametrize("call", ["recv", "send", "send_many"])
@pytest.mark.parametrize("fault", ["again", "short"])
def test_an_edge_comes_again_after_a_fault(call: str, fault: str) -> None:
    kernel = FaultKernel(5, NONE)
    loop = Loop(kernel=kernel)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watcher = Watcher(loop, ours.fileno(), Event.READABLE | Event.WRITABLE, edge=True)
        theirs.send(bytes(100_000))
        run_turns(loop, 2)
        assert len(watcher.seen) == 1  # the edge has passed
        kernel.rates = NONE._replace(**{fault: ALWAYS})
        if call == "recv":
            kernel.recv(ours.fileno(), 50_000)
        elif call == "send":
            kernel.send(ours.fileno(), bytes(100_000), 0)
        else:
            kernel.send_many(ours.fileno(), [bytes(100_000)], 0, 0)
        kernel.rates = NONE
        run_turns(loop, 2)
        assert len(watcher.seen) == 2
        watcher.close()
        loop.run()
    loop.close()


def test_the_wakeup_is_spared() -> None:
    kernel = FaultKernel(5, FaultRates(*[ALWAYS] * len(FaultRates._fields)))
    eventfd = kernel.eventfd()
    assert kernel.write(eventfd, (1).to_bytes(8, "little"), 0) == 8
    assert kernel.read(eventfd, 8) == (1).to_bytes(8, "little")
    kernel.close(eventfd)
    ours, theirs = kernel.socket_pair()
    assert kernel.write(ours.fileno(), b"12345678", 0) == 8
    assert kernel.read(theirs.fileno(), 8) == b"12345678"
    kernel.close_socket(ours)
    kernel.close_socket(theirs)
    assert kernel.injected == Counter()


@pytest.mark.parametrize("with_objects", [True, False])
def test_opening_accepting_and_connecting_fail_as_they_may(with_objects: bool) -> None:
    if not with_objects and not ACCEPTS_DESCRIPTORS:
        return  # Uncompiled, connections are objects.
    kernel = FaultKernel(5, FaultRates(unopened=0.2, interrupted=0.3, exhausted=0.3))
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    listener.setblocking(False)
    accepted = 0
    for _ in range(100):
        client = kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
        if isinstance(client, int):
            assert client in (-errno.EMFILE, -errno.ENFILE, -errno.ENOBUFS)
            continue
        assert kernel.connect(client, listener.getsockname()) in (0, -errno.EINPROGRESS, -errno.EINTR)
        connection: Any = -errno.EAGAIN
        while isinstance(connection, int):  # whatever was refused: the connection waits
            if with_objects:
                connection = kernel.accept(listener)
            else:
                connection = kernel.accept_descriptor(listener.fileno())
        accepted += 1
        if with_objects:
            kernel.close_socket(connection[0])
        else:
            kernel.close(connection[0])
        kernel.close_socket(client)
    listener.close()
    assert accepted > 50
    for name in ("EAGAIN", "EINTR", "ECONNABORTED", "EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"):
        assert kernel.injected[f"accept {name}"] > 0
    assert kernel.injected["connect EINTR"] > 0
    assert kernel.injected["open_socket EMFILE"] > 0


class InVirtualTime(FaultKernel):
    """A kernel whose sleeps take no time."""

    clock = 1000 * SECOND

    def now(self) -> int:
        return self.clock

    def epoll_wait(self, epfd: int, timeout_ns: int, events: object) -> int:
        found = super().epoll_wait(epfd, 0, events)
        if found == 0 and timeout_ns > 0:
            self.clock += timeout_ns
        return found


def test_an_interrupted_sleep_is_injected() -> None:
    kernel = InVirtualTime(5, NONE._replace(interrupted=0.5))
    loop = Loop(kernel=kernel)
    ran: list[int] = []
    for number in range(20):
        loop.call_later(number, ran.append, number)
    loop.run()
    assert ran == list(range(20))
    assert kernel.injected["epoll_wait EINTR"] > 0
    assert kernel.clock == (1000 + 19) * SECOND
    loop.close()
