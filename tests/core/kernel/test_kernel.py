"""The real kernel: what its calls return, and that no argument makes it crash."""

from __future__ import annotations

import array
import errno
import itertools
import os
import resource
import select
import socket
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whorl
from tests.core.loop_fakes import SECOND, refuse_system_call
from whorl.core import Kernel
from whorl.core.kernel.kernel import EventBatch
from whorl.core.limits import (
    LONG_READ,
    MOST_KEPT,
    READ_SIZE,
    RELEASE_GIL_SIZE,
    SHORTEST_REUSED,
    WRITE_VECTORS,
)

ADD, DEL, MOD = 1, 2, 3
LIMITS = [-(2**31) - 1, -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -(2**63)]


@pytest.fixture
def kernel(no_leak: None) -> Kernel:
    return Kernel()


@pytest.fixture
def pair(kernel: Kernel) -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = kernel.socket_pair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def pipe(kernel: Kernel) -> Iterator[tuple[int, int]]:
    ends = kernel.pipe()
    yield ends
    for fd in ends:
        kernel.close(fd)


def waiting(kernel: Kernel, epfd: int, timeout_ns: int = 0) -> int:
    """Return the number of events."""
    return kernel.epoll_wait(epfd, timeout_ns, EventBatch())


# Time.


def test_now_is_the_monotonic_clock(kernel: Kernel) -> None:
    before = time.monotonic_ns()
    now = kernel.now()
    assert before <= now <= time.monotonic_ns()
    assert now / 1e9 <= kernel.seconds() <= time.monotonic()
    assert isinstance(now, int)


# Data.


def test_bytes_go_through_a_socket(kernel: Kernel, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert kernel.recv(ours.fileno(), 100) == -errno.EAGAIN
    assert kernel.send(theirs.fileno(), b"hello", 0) == 5
    assert kernel.recv(ours.fileno(), 2) == b"he"
    assert kernel.recv(ours.fileno(), 100) == b"llo"
    kernel.shutdown(theirs, socket.SHUT_WR)
    assert kernel.recv(ours.fileno(), 100) == b""


def test_a_file_is_sent_from_an_offset(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = pair
    with (tmp_path / "file").open("wb+") as file:
        file.write(b"hello")
        file.flush()
        assert kernel.file_size(file.fileno()) == 5
        assert kernel.sendfile(ours.fileno(), file.fileno(), 1, 3) == 3
        assert kernel.recv(theirs.fileno(), 100) == b"ell"
        assert kernel.sendfile(ours.fileno(), file.fileno(), 5, 3) == 0
        assert kernel.sendfile(ours.fileno(), file.fileno(), 1 << 40, 1 << 40) == 0
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 5  # The offset of the call is all that counts.
        assert kernel.set_file_position(file.fileno(), 2) == 0
        assert kernel.read(file.fileno(), 100) == b"llo"


MESSAGE_SIZES = st.sampled_from(
    [1, SHORTEST_REUSED - 1, SHORTEST_REUSED, 700, 1000, 1399, 1400, 1401, 5000, LONG_READ - 1, LONG_READ]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(MESSAGE_SIZES, st.booleans()), max_size=40))
def test_a_message_that_somebody_keeps_stays_as_it_is(
    steps: list[tuple[int, bool]], kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    kept: list[tuple[Any, bytes, int]] = []
    for number, (size, is_kept) in enumerate(steps):
        sent = bytes([number]) * size
        theirs.send(sent)
        message = kernel.recv(ours.fileno(), READ_SIZE)
        assert message == sent
        assert hash(message) == hash(sent)
        if is_kept:
            kept.append((memoryview(message) if number % 2 else message, sent, hash(message)))
        del message
    assert all(message == sent and hash(message) == digest for message, sent, digest in kept)


@pytest.mark.gil("no memory of messages is used again")
@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, Python's own calls make each message")
def test_a_message_takes_the_memory_of_the_one_before(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    places = []
    others = []
    for size in (1000, 1000, 900, 501):
        theirs.send(bytes(size))
        message = kernel.recv(ours.fileno(), READ_SIZE)
        places.append(id(message))
        del message
        others.append(bytes(size))  # would have taken the memory if it had been given back
    assert len(set(places)) == 1


@pytest.mark.gil("no memory of messages is used again")
@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, Python's own calls make each message")
def test_messages_take_the_memory_of_those_that_were_dropped_together(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair

    def receive_some(count: int) -> list[int]:
        kept = []
        for number in range(count):
            sent = bytes([number]) * 1000
            theirs.send(sent)
            kept.append((kernel.recv(ours.fileno(), READ_SIZE), sent))
        assert all(message == sent for message, sent in kept)
        return sorted(id(message) for message, _ in kept)

    places = receive_some(20)
    others = [bytes(1000) for _ in range(20)]  # would have taken the memory if it had been given back
    assert receive_some(20) == places
    assert set(receive_some(5)) <= set(places)
    assert len(others) == len(set(places)) == 20


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, Python's own calls make each message")
def test_recv_keeps_no_more_memory_of_messages_than_is_allowed(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for size in (SHORTEST_REUSED, LONG_READ - 1, 1000):
            kept = []
            for _ in range(400):
                theirs.send(bytes(size))
                kept.append(kernel.recv(ours.fileno(), READ_SIZE))
            assert {len(message) for message in kept} == {size}
            kept.clear()
            after, _ = tracemalloc.get_traced_memory()
            assert after - before < MOST_KEPT + LONG_READ
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 1000, LONG_READ, 3 * LONG_READ])
def test_recv_short_receives_the_expected_size(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], size: int
) -> None:
    ours, theirs = pair
    sent = os.urandom(size)
    theirs.send(sent)
    theirs.send(b"more")
    assert kernel.recv_short(ours.fileno(), size) == sent
    assert kernel.recv_short(ours.fileno(), READ_SIZE) == b"more"
    assert kernel.recv_short(ours.fileno(), LONG_READ) == -errno.EAGAIN


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, Python's own calls make each message")
def test_a_short_message_does_not_hold_the_memory_of_a_long_one(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    tracemalloc.start()
    try:
        theirs.send(bytes(LONG_READ - 1))
        assert len(kernel.recv(ours.fileno(), READ_SIZE)) == LONG_READ - 1
        before, _ = tracemalloc.get_traced_memory()
        theirs.send(bytes(SHORTEST_REUSED))
        message = kernel.recv(ours.fileno(), READ_SIZE)
        after, _ = tracemalloc.get_traced_memory()
        assert len(message) == SHORTEST_REUSED
        assert before - after > LONG_READ // 2
    finally:
        tracemalloc.stop()


def test_sendfile_returns_errors_for_invalid_arguments(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, _ = pair
    with open(__file__, "rb") as file:
        fd = file.fileno()
        assert kernel.sendfile(ours.fileno(), fd, -1, 1) == -errno.EINVAL
        assert kernel.sendfile(ours.fileno(), fd, 0, -1) == -errno.EINVAL
        assert kernel.sendfile(-1, fd, 0, 1) == -errno.EBADF
        for number in (-(1 << 63) - 1, 1 << 63):
            with pytest.raises(OverflowError):
                kernel.sendfile(ours.fileno(), fd, number, 1)
    assert kernel.sendfile(ours.fileno(), ours.fileno(), 0, 1) in (-errno.EINVAL, -errno.ESPIPE)
    assert kernel.file_size(-1) == -errno.EBADF
    assert kernel.set_file_position(ours.fileno(), 0) == -errno.ESPIPE


def test_a_full_socket_takes_no_more_of_a_file(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, _ = pair
    with (tmp_path / "file").open("wb+") as file:
        file.truncate(1 << 32)
        sent = 0
        while (result := kernel.sendfile(ours.fileno(), file.fileno(), sent, 1 << 32)) > 0:
            sent += result
        assert result == -errno.EAGAIN
        assert 0 < sent < 1 << 26


def test_bytes_go_through_a_pipe(kernel: Kernel, pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    assert kernel.read(read_end, 100) == -errno.EAGAIN
    assert kernel.write(write_end, b"hello", 0) == 5
    assert kernel.read(read_end, 2) == b"he"
    assert kernel.write_many(write_end, [b"ab", b"cd"], 0, 1) == 3
    assert kernel.read(read_end, 100) == b"llobcd"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [0, 1, 1000, RELEASE_GIL_SIZE - 1, RELEASE_GIL_SIZE, RELEASE_GIL_SIZE + 1])
def test_send_accepts_any_buffer_and_an_offset(
    kernel: Kernel,
    pair: tuple[socket.socket, socket.socket],
    kind: Callable[[bytes], bytes | bytearray | memoryview],
    size: int,
) -> None:
    ours, theirs = pair
    data = os.urandom(size)
    for offset in sorted({0, size // 2, size}):
        sent = kernel.send(theirs.fileno(), kind(data), offset)
        assert sent == size - offset
        received = b""
        while len(received) < sent:
            received += kernel.recv(ours.fileno(), READ_SIZE)
        assert received == data[offset:]


def test_a_buffer_is_released_after_the_call(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], pipe: tuple[int, int]
) -> None:
    data = bytearray(RELEASE_GIL_SIZE)
    kernel.send(pair[0].fileno(), data, 1)
    kernel.recv_into(pair[1].fileno(), data)
    kernel.write(pipe[1], data, 1)
    kernel.read_into(pipe[0], data)
    kernel.send(-1, data, 0)
    kernel.recv_into(-1, data)
    data.append(1)  # raises while the buffer is exported


@pytest.mark.parametrize("make", [bytearray, lambda size: array.array("i", bytes(size))])
def test_receiving_into_a_buffer(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], make: Callable[[int], bytearray]
) -> None:
    ours, theirs = pair
    target = make(16)
    assert kernel.recv_into(ours.fileno(), target) == -errno.EAGAIN
    theirs.send(b"12345678")
    assert kernel.recv_into(ours.fileno(), target) == 8
    assert bytes(memoryview(target).cast("B"))[:9] == b"12345678\0"
    theirs.shutdown(socket.SHUT_WR)
    assert kernel.recv_into(ours.fileno(), target) == 0


def test_many_chunks_go_in_one_call(kernel: Kernel, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    chunks = [b"%d " % number for number in range(3 * WRITE_VECTORS)]
    sent = kernel.send_many(theirs.fileno(), chunks, 2, 1)
    expected = b"".join(chunks[2 : 2 + WRITE_VECTORS])[1:]
    assert sent == len(expected)
    assert kernel.recv(ours.fileno(), READ_SIZE) == expected
    assert kernel.send_many(theirs.fileno(), [b"", b"", b"x"], 0, 0) == 1


def test_a_read_is_bounded(kernel: Kernel, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    for sock in pair:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 4 * READ_SIZE)
    while kernel.send(theirs.fileno(), bytes(65536), 0) > 0:
        pass
    received = kernel.recv(ours.fileno(), 2**62)
    assert isinstance(received, bytes)
    assert 0 < len(received) <= READ_SIZE


@pytest.mark.parametrize("limit", [LONG_READ, LONG_READ + 1, READ_SIZE // 2, READ_SIZE - 1])
@pytest.mark.parametrize("way", ["recv", "read"])
def test_a_long_read_gives_what_came_and_nothing_else(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], limit: int, way: str
) -> None:
    ours, theirs = pair
    take = getattr(kernel, way)
    assert take(ours.fileno(), limit) == -errno.EAGAIN
    assert take(-1, limit) == -errno.EBADF
    for size in (1, 600, limit // 3, LONG_READ):
        content = bytes(byte % 251 for byte in range(size))
        assert kernel.send(theirs.fileno(), content, 0) == size
        received = take(ours.fileno(), limit)
        assert received == content
        assert hash(received) == hash(content)
        assert received + b"!" == content + b"!"
    assert kernel.send(theirs.fileno(), bytes(LONG_READ + 5), 0) == LONG_READ + 5
    assert take(ours.fileno(), LONG_READ) == bytes(LONG_READ)
    assert take(ours.fileno(), LONG_READ) == bytes(5)
    kernel.shutdown(theirs, socket.SHUT_WR)
    assert take(ours.fileno(), limit) == b""


def test_a_write_to_nobody_is_an_error_and_no_signal(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], pipe: tuple[int, int]
) -> None:
    ours, theirs = pair
    theirs.close()
    assert kernel.send(ours.fileno(), b"x", 0) == -errno.EPIPE
    assert kernel.send_many(ours.fileno(), [b"x"], 0, 0) == -errno.EPIPE
    broken = os.pipe()
    os.close(broken[0])
    assert kernel.write(broken[1], b"x", 0) == -errno.EPIPE
    assert kernel.write_many(broken[1], [b"x"], 0, 0) == -errno.EPIPE
    os.close(broken[1])


@pytest.mark.parametrize("fd", [-1, 2**31 - 1])
def test_every_call_on_a_closed_descriptor_says_so(kernel: Kernel, fd: int) -> None:
    assert kernel.recv(fd, 1) == -errno.EBADF
    assert kernel.recv_into(fd, bytearray(1)) == -errno.EBADF
    assert kernel.send(fd, b"x", 0) == -errno.EBADF
    assert kernel.send_many(fd, [b"x"], 0, 0) == -errno.EBADF
    assert kernel.read(fd, 1) == -errno.EBADF
    assert kernel.read_into(fd, bytearray(1)) == -errno.EBADF
    assert kernel.write(fd, b"x", 0) == -errno.EBADF
    assert kernel.write_many(fd, [b"x"], 0, 0) == -errno.EBADF
    assert kernel.close(fd) == -errno.EBADF
    assert kernel.set_blocking(fd, False) == -errno.EBADF
    if fd >= 0:
        assert kernel.duplicate(fd) == -errno.EBADF
    assert kernel.file_mode(fd) == -errno.EBADF
    if fd >= 0:  # Python itself refuses negative ones here
        assert kernel.file_flags(fd) == -errno.EBADF
        assert kernel.adopt_socket(fd) == -errno.EBADF


# Misuse.


def test_an_offset_outside_the_data_is_refused(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], pipe: tuple[int, int]
) -> None:
    for data in (b"abc", bytearray(b"abc"), bytes(2 * RELEASE_GIL_SIZE)):
        for offset in (-1, -(2**63), len(data) + 1, 2**63 - 1):
            assert kernel.send(pair[0].fileno(), data, offset) == -errno.EINVAL
            assert kernel.write(pipe[1], data, offset) == -errno.EINVAL
    for first, offset in ((-1, 0), (1, 0), (2**62, 0), (0, -1), (0, 4), (-(2**63), -(2**63))):
        assert kernel.send_many(pair[0].fileno(), [b"abc"], first, offset) == -errno.EINVAL
        assert kernel.write_many(pipe[1], [b"abc"], first, offset) == -errno.EINVAL
    assert kernel.send_many(pair[0].fileno(), [], 0, 0) == -errno.EINVAL
    assert kernel.recv(pair[1].fileno(), 100) == -errno.EAGAIN


def test_a_negative_limit_is_refused(kernel: Kernel, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].send(b"x" * 1000)
    for limit in (-1, -(2**63)):
        assert kernel.recv(pair[0].fileno(), limit) == -errno.EINVAL
        assert kernel.read(pair[0].fileno(), limit) == -errno.EINVAL
    assert kernel.recv(pair[0].fileno(), 0) == b""
    assert len(kernel.recv(pair[0].fileno(), 1000)) == 1000


def test_send_and_recv_into_refuse_other_types_than_buffers(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    fd = pair[0].fileno()
    for wrong in (None, 1, "text", [b"x"]):
        with pytest.raises(TypeError):
            kernel.send(fd, wrong, 0)
        with pytest.raises(TypeError):
            kernel.recv_into(fd, wrong)
    for wrong in (b"read only", memoryview(b"read only")):
        with pytest.raises((TypeError, BufferError)):
            kernel.recv_into(fd, wrong)
    for chunk in ("text", 1):
        with pytest.raises(TypeError):
            kernel.send_many(fd, [b"x", chunk], 0, 0)


@given(
    fd=st.sampled_from([-1, *LIMITS]),
    number=st.sampled_from(LIMITS),
    other=st.sampled_from(LIMITS),
    name=st.sampled_from(["recv", "send", "send_many", "read", "write", "write_many", "close", "epoll_ctl"]),
)
@settings(max_examples=300, deadline=None)
def test_system_calls_do_not_crash_with_any_integer(fd: int, number: int, other: int, name: str) -> None:
    if fd in (0, 1):
        fd = -7  # not the descriptors of the test run
    arguments = {
        "recv": (fd, number),
        "read": (fd, number),
        "send": (fd, b"data", number),
        "write": (fd, bytearray(b"data"), number),
        "send_many": (fd, [b"data"], number, other),
        "write_many": (fd, [b"data"], number, other),
        "close": (fd,),
        "epoll_ctl": (fd, number, other, other, number),
    }[name]
    try:
        result = getattr(Kernel(), name)(*arguments)
    except (OverflowError, ValueError, KeyError):
        return
    assert isinstance(result, int)
    assert result < 0


# Readiness.


def test_an_event_carries_what_its_watch_was_given(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    epfd = kernel.epoll_create()
    assert kernel.epoll_ctl(epfd, ADD, ours.fileno(), select.EPOLLIN, 7) == 0
    assert waiting(kernel, epfd) == 0
    assert kernel.epoll_ctl(epfd, ADD, ours.fileno(), select.EPOLLIN, 8) == -errno.EEXIST
    theirs.send(b"x")
    assert waiting(kernel, epfd) == 1
    assert kernel.epoll_ctl(epfd, MOD, ours.fileno(), 0, 7) == 0
    assert waiting(kernel, epfd) == 0
    assert kernel.epoll_ctl(epfd, DEL, ours.fileno(), 0, 0) == 0
    assert kernel.epoll_ctl(epfd, DEL, ours.fileno(), 0, 0) == -errno.ENOENT
    assert kernel.epoll_ctl(epfd, MOD, ours.fileno(), select.EPOLLIN, 0) == -errno.ENOENT
    assert kernel.close(epfd) == 0


@pytest.mark.parametrize("timeout_ns", [0, 1, 999, 1_000_001, 20_000_000])
def test_a_sleep_is_never_shorter_than_asked_for(kernel: Kernel, timeout_ns: int) -> None:
    epfd = kernel.epoll_create()
    began = time.monotonic_ns()
    assert waiting(kernel, epfd, timeout_ns) == 0
    took = time.monotonic_ns() - began
    kernel.close(epfd)
    assert timeout_ns <= took


def test_a_sleep_ends_with_the_first_event(kernel: Kernel) -> None:
    epfd, eventfd = kernel.epoll_create(), kernel.eventfd()
    kernel.epoll_ctl(epfd, ADD, eventfd, select.EPOLLIN, 1)
    one = (1).to_bytes(8, "little")
    thread = threading.Thread(target=kernel.write, args=(eventfd, one, 0))
    thread.start()
    assert waiting(kernel, epfd, -1) == 1
    thread.join()
    assert kernel.read(eventfd, 8) == one
    assert waiting(kernel, epfd) == 0
    kernel.close(epfd)
    kernel.close(eventfd)


def test_a_kernel_without_fine_sleep_sleeps_in_milliseconds() -> None:
    epoll_pwait2 = 441
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _sleeps_without(epoll_pwait2) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _sleeps_without(number: int) -> bool:
    """Return whether a sleep is right where the kernel refuses the system call with this number."""
    if not refuse_system_call(number, errno.ENOSYS):
        return True  # this machine allows no filters
    kernel = Kernel()
    epfd = kernel.epoll_create()
    for timeout_ns in (1, 1_500_000, 3_000_000):
        began = time.monotonic_ns()
        if waiting(kernel, epfd, timeout_ns) != 0 or time.monotonic_ns() - began < timeout_ns:
            return False
    return True


def test_a_batch_takes_a_bounded_number_of_events() -> None:
    batch = EventBatch()
    for fd in range(1024):
        batch.put(fd, select.EPOLLIN, fd)
    with pytest.raises(IndexError):
        batch.put(1, 1, 1)
    batch.clear()
    batch.put(1, 1, 1)


@pytest.mark.parametrize("numbers", [(2**31, 1, 1), (1, 2**32, 1), (1, 1, 2**32), (1, -1, 1), ("1", 1, 1)])
def test_a_batch_takes_only_what_fits(numbers: tuple[int, int, int]) -> None:
    try:
        EventBatch().put(*numbers)
    except (OverflowError, TypeError):
        return


# Descriptors and sockets.


def test_new_descriptors_are_not_inherited_and_do_not_block(kernel: Kernel) -> None:
    ours, theirs = kernel.socket_pair()
    read_end, write_end = kernel.pipe()
    eventfd, epfd = kernel.eventfd(), kernel.epoll_create()
    sock = kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    for fd in (ours.fileno(), theirs.fileno(), read_end, write_end, eventfd, epfd, sock.fileno()):
        assert not os.get_inheritable(fd)
        if fd != epfd:
            assert not os.get_blocking(fd)
    for made in (ours, theirs, sock):
        assert kernel.close_socket(made) == 0
    for fd in (read_end, write_end, eventfd, epfd):
        assert kernel.close(fd) == 0


def test_a_connection(kernel: Kernel) -> None:
    listener = kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    assert kernel.bind(listener, ("127.0.0.1", 0)) == 0
    assert kernel.accept(listener) == -errno.EINVAL
    assert kernel.listen(listener, 1) == 0
    assert kernel.accept(listener) == -errno.EAGAIN
    address = kernel.socket_name(listener)
    client = kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    assert kernel.peer_name(client) == -errno.ENOTCONN
    assert kernel.connect(client, address) in (0, -errno.EINPROGRESS)
    select.select([listener], [], [])
    connection, peer = kernel.accept(listener)
    assert kernel.peer_name(client) == address
    assert peer == kernel.socket_name(client)
    assert not connection.getblocking()
    assert kernel.socket_error(client) == 0
    assert kernel.set_option(client, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) == 0
    assert kernel.get_option(client, socket.IPPROTO_TCP, socket.TCP_NODELAY) > 0
    assert kernel.set_option(client, socket.IPPROTO_TCP, 12345, 1) == -errno.ENOPROTOOPT
    assert kernel.get_option(client, socket.IPPROTO_TCP, 12345) == -errno.ENOPROTOOPT
    assert kernel.bind(client, address) == -errno.EINVAL
    assert kernel.shutdown(client, socket.SHUT_RDWR) == 0
    for sock in (listener, client, connection):
        assert kernel.close_socket(sock) == 0
        assert sock.fileno() == -1


def test_a_refused_connection_is_a_pending_error(kernel: Kernel) -> None:
    listener = kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    kernel.bind(listener, ("127.0.0.1", 0))  # bound, but not listening
    client = kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    result = kernel.connect(client, kernel.socket_name(listener))
    if result == -errno.EINPROGRESS:
        select.select([], [client], [])
        result = -kernel.socket_error(client)
    assert result == -errno.ECONNREFUSED
    assert kernel.socket_error(client) == 0  # it was taken
    assert kernel.shutdown(client, socket.SHUT_WR) == -errno.ENOTCONN
    kernel.close_socket(client)
    kernel.close_socket(listener)


def test_refusals_to_make_things_are_answers(kernel: Kernel) -> None:
    assert kernel.open_socket(socket.AF_INET, 12345, 0) == -errno.EINVAL
    assert kernel.open_socket(12345, socket.SOCK_STREAM, 0) == -errno.EAFNOSUPPORT
    read_end, write_end = os.pipe()
    assert kernel.adopt_socket(read_end) == -errno.ENOTSOCK
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (write_end + 1, hard))
    try:
        answers = [kernel.socket_pair(), kernel.pipe(), kernel.eventfd(), kernel.epoll_create()]
        answers.append(kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.close(read_end)
    os.close(write_end)
    assert answers == [-errno.EMFILE] * 5


def test_an_address_that_cannot_be_converted_raises(kernel: Kernel) -> None:
    sock = kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    for address in (None, "127.0.0.1", ("127.0.0.1", "80"), ("127.0.0.1",)):
        with pytest.raises(TypeError):
            kernel.connect(sock, address)
    for port in (-1, 65536, 2**64):
        with pytest.raises(OverflowError):
            kernel.connect(sock, ("127.0.0.1", port))
    with pytest.raises((ValueError, TypeError, UnicodeError)):
        kernel.connect(sock, ("nul\0nul", 80))
    kernel.close_socket(sock)


def test_modes_and_flags_of_descriptors(kernel: Kernel, pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    assert stat.S_ISFIFO(kernel.file_mode(read_end))
    assert kernel.file_flags(read_end) & os.O_ACCMODE == os.O_RDONLY
    assert kernel.file_flags(write_end) & os.O_ACCMODE == os.O_WRONLY
    assert kernel.set_blocking(read_end, True) == 0
    assert os.get_blocking(read_end)


def test_a_duplicate_is_the_same_file_and_not_inherited(kernel: Kernel, pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    twin = kernel.duplicate(read_end)
    assert twin not in pipe
    assert not os.get_inheritable(twin)
    kernel.write(write_end, b"x", 0)
    assert kernel.read(twin, 10) == b"x"
    assert kernel.close(twin) == 0
    high = kernel.duplicate(read_end, 200)
    assert high >= 200
    assert kernel.close(high) == 0
    assert kernel.read(read_end, 10) == -errno.EAGAIN


def test_closing_a_file_object_answers_what_went_wrong(kernel: Kernel) -> None:
    read_end, write_end = os.pipe()
    file = open(write_end, "wb", 0)
    os.close(read_end)
    os.close(write_end)
    assert kernel.close_file(file) == -errno.EBADF
    assert kernel.close_file(file) == 0


def test_a_pidfd_is_readable_when_the_child_has_ended(kernel: Kernel) -> None:
    child = subprocess.Popen(["sleep", "60"])
    pidfd = kernel.pidfd_open(child.pid)
    assert not os.get_inheritable(pidfd)
    epfd = kernel.epoll_create()
    kernel.epoll_ctl(epfd, ADD, pidfd, select.EPOLLIN, 1)
    assert waiting(kernel, epfd, 0) == 0
    child.kill()
    assert waiting(kernel, epfd, 30 * SECOND) == 1
    child.wait()
    assert kernel.pidfd_open(child.pid) == -errno.ESRCH
    assert kernel.pidfd_open(0) == -errno.EINVAL
    kernel.close(epfd)
    kernel.close(pidfd)


def test_names_of_files(kernel: Kernel, tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "file")
    assert kernel.path_status(path) == -errno.ENOENT
    assert kernel.unlink(path) == -errno.ENOENT
    assert kernel.change_mode(path, 0o600) == -errno.ENOENT
    with open(path, "wb"):
        pass
    assert kernel.change_mode(path, 0o640) == 0
    mode, inode = kernel.path_status(os.fsencode(path))
    assert stat.S_IMODE(mode) == 0o640
    assert inode == os.stat(path).st_ino
    assert kernel.unlink(path) == 0
    assert not os.path.exists(path)


# A kernel of one's own.


@pytest.mark.parametrize("answer", [-65536, -1, -65537])
def test_a_kernel_in_python_may_answer_what_it_likes(answer: int) -> None:
    class Odd(Kernel):
        def send(self, fd: int, data: bytes, offset: int) -> int:
            return answer

        def recv(self, fd: int, limit: int) -> int:
            return answer

    assert Odd().send(1, b"", 0) == answer
    assert Odd().recv(1, 1) == answer


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(data=st.binary(max_size=3000), cuts=st.lists(st.integers(0, 3000), max_size=5))
def test_send_many_sends_all_pieces(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket], data: bytes, cuts: list[int]
) -> None:
    ours, theirs = pair
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(edges)]
    first = next((index for index, chunk in enumerate(chunks) if chunk), 0)
    sent = kernel.send_many(theirs.fileno(), chunks, first, 0)
    assert sent == len(data)
    if data:
        assert kernel.recv(ours.fileno(), READ_SIZE) == data


def test_sleeping_lets_other_threads_run(kernel: Kernel) -> None:
    epfd = kernel.epoll_create()
    eventfd = kernel.eventfd()
    kernel.epoll_ctl(epfd, ADD, eventfd, select.EPOLLIN, 1)
    count = 0

    def work() -> None:
        nonlocal count
        while count < 10_000:
            count += 1
        kernel.write(eventfd, (1).to_bytes(8, "little"), 0)

    thread = threading.Thread(target=work)
    thread.start()
    assert waiting(kernel, epfd, 30 * SECOND) == 1
    thread.join()
    assert count == 10_000
    kernel.close(epfd)
    kernel.close(eventfd)


# Changes of files.


def test_a_watch_tells_of_changes(kernel: Kernel, tmp_path: Path) -> None:
    fd = kernel.inotify_create()
    assert not os.get_inheritable(fd)
    assert kernel.read(fd, 4096) == -errno.EAGAIN
    watch = kernel.inotify_add(fd, os.fsencode(tmp_path), 0x100)
    assert watch > 0
    assert kernel.inotify_add(fd, os.fsencode(tmp_path) + b"/.", 0x100) == watch
    (tmp_path / "created").touch()
    data = kernel.read(fd, 4096)
    assert isinstance(data, bytes)
    assert b"created\0" in data
    assert kernel.inotify_remove(fd, watch) == 0
    assert kernel.inotify_remove(fd, watch) == -errno.EINVAL
    assert kernel.inotify_add(fd, b"/nowhere/at/all", 0x100) == -errno.ENOENT
    assert kernel.inotify_add(-1, b"/", 0x100) == -errno.EBADF
    with pytest.raises(ValueError, match="null byte"):
        kernel.inotify_add(fd, b"a\0b", 0x100)
    assert kernel.close(fd) == 0


# Descriptors that travel, and terminals.


def test_descriptors_travel_with_data(kernel: Kernel, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert kernel.receive_descriptors(ours, 100) == -errno.EAGAIN
    assert kernel.receive_descriptors_into(ours, bytearray(10)) == -errno.EAGAIN
    assert kernel.send_descriptors(theirs, b"hello", [0, 1]) == 5
    data, fds, some_lost = kernel.receive_descriptors(ours, 3)
    assert (data, len(fds), some_lost) == (b"hel", 2, False)
    buffer = bytearray(10)
    assert kernel.receive_descriptors_into(ours, buffer) == (2, [], False)
    assert buffer[:2] == b"lo"
    for fd in fds:
        assert not os.get_inheritable(fd)
        assert kernel.close(fd) == 0
    assert kernel.send_descriptors(theirs, b"x", [-1]) == -errno.EBADF
    kernel.shutdown(theirs, socket.SHUT_WR)
    assert kernel.receive_descriptors(ours, 3) == (b"", [], False)
    assert kernel.send_descriptors(theirs, b"x", [0]) == -errno.EPIPE


def test_a_socket_is_known_by_its_descriptor(
    kernel: Kernel, pair: tuple[socket.socket, socket.socket]
) -> None:
    assert kernel.socket_kind(pair[0].fileno()) == (socket.AF_UNIX, socket.SOCK_STREAM)
    assert pair[0].getblocking() is False
    assert kernel.socket_kind(0) == -errno.ENOTSOCK
    assert kernel.socket_kind(-1) == -errno.EBADF


def test_terminal_calls_refuse_other_descriptors(kernel: Kernel, pipe: tuple[int, int]) -> None:
    fd = pipe[0]
    assert not kernel.is_terminal(fd)
    assert not kernel.is_terminal_master(fd)
    assert kernel.reopen_terminal(fd, os.O_RDWR) == -errno.ENOTTY
    assert kernel.terminal_settings(fd) == -errno.ENOTTY
    assert kernel.terminal_size(fd) == -errno.ENOTTY
    assert kernel.set_terminal(fd, [0, 0, 0, 0, 0, 0, [0] * 32], drain=True) == -errno.ENOTTY


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, connections are accepted by the socket object")
def test_a_kernel_that_was_never_initialized_accepts_connections_all_the_same() -> None:
    kernel = Kernel.__new__(Kernel)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        fd, peer, own = kernel.accept_descriptor(listener.fileno())
        os.close(fd)
        assert (kernel.name_of(peer), own) == (client.getsockname(), client.getpeername())


def test_a_connection_may_be_accepted_as_a_descriptor(kernel: Kernel) -> None:
    listener = kernel.open_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    if not kernel.accepts_descriptors:
        assert kernel.accept_descriptor(listener.fileno()) == -errno.ENOSYS
        listener.close()
        return
    assert kernel.accept_descriptor(listener.fileno()) == -errno.EAGAIN
    assert not kernel.may_accept(listener.fileno())
    with socket.create_connection(listener.getsockname()) as client:
        assert kernel.may_accept(listener.fileno())
        fd, peer, own = kernel.accept_descriptor(listener.fileno())
        assert (kernel.name_of(peer), own) == (client.getsockname(), client.getpeername())
        sock = kernel.socket_of(fd, socket.AF_INET, listener.proto)
        assert sock.fileno() == fd
        assert sock.gettimeout() == 0
        sock.close()
    assert kernel.accept_descriptor(listener.fileno()) == -errno.EAGAIN
    listener.close()
    assert kernel.may_accept(listener.fileno()) is False
    assert kernel.accept_descriptor(-1) == -errno.EBADF
    gone = kernel.socket_of(-1, socket.AF_INET, 0)
    assert gone.fileno() == -1


@pytest.mark.slow
@pytest.mark.skipif(not whorl.compiled, reason="about what is compiled")
def test_a_call_that_fails_has_no_error_but_its_own_and_missing_memory() -> None:
    pytest.importorskip("_testcapi", reason="its set_nomemory refuses memory")
    command = [sys.executable, "-m", "tests.core.kernel.refused_calls"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = answer.stdout.splitlines()
    assert answer.returncode == 0, f"{lines[-1:]}\n{answer.stderr[-3000:]}"
    assert lines[-1] == "done"
