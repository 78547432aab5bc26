"""Addresses that are kept in both forms: no address is taken for another."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from whorl.core import Kernel
from whorl.core.kernel.datagrams import DatagramSocket

MANY = 400  # more than are kept
FAMILIES = {"ipv4": (socket.AF_INET, "127.0.0.1"), "ipv6": (socket.AF_INET6, "::1")}


@pytest.fixture
def kernel(no_leak: None) -> Kernel:
    return Kernel()


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextlib.contextmanager
def bound(kernel: Kernel, family: str, count: int) -> Iterator[list[DatagramSocket]]:
    number, host = FAMILIES[family]
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            sock = stack.enter_context(socket.socket(number, socket.SOCK_DGRAM))
            sock.setblocking(False)
            sock.bind((host, 0))
            made.append(DatagramSocket(sock))
        yield made


def receive_one(kernel: Kernel, sock: DatagramSocket) -> tuple[bytes, Any]:
    found: list[Any] = []
    assert kernel.recv_datagrams(sock, found, 1) == 1
    data, address = found
    return data, address


def test_sender_has_the_same_address_the_second_time(kernel: Kernel, family: str) -> None:
    with bound(kernel, family, 2) as (ours, theirs):
        addresses = []
        for _ in range(2):
            kernel.send_datagram(theirs, b"x", ours.sock.getsockname())
            addresses.append(receive_one(kernel, ours)[1])
        assert addresses == [theirs.sock.getsockname()] * 2
        assert addresses[0] is addresses[1] or not whorl.compiled


def test_many_senders_are_told_from_each_other(kernel: Kernel, family: str) -> None:
    with bound(kernel, family, 1) as (ours,), bound(kernel, family, MANY) as others:
        for _ in range(2):
            seen = []
            for number, other in enumerate(others):
                kernel.send_datagram(other, b"%d" % number, ours.sock.getsockname())
                seen.append(receive_one(kernel, ours))
            assert seen == [(b"%d" % number, other.sock.getsockname()) for number, other in enumerate(others)]


@pytest.mark.parametrize("is_queued", [False, True])
def test_answers_reach_those_who_asked_however_many_there_are(
    kernel: Kernel, family: str, is_queued: bool
) -> None:
    with bound(kernel, family, 1) as (ours,), bound(kernel, family, MANY) as others:
        asked = []
        for number, other in enumerate(others):
            kernel.send_datagram(other, b"%d" % number, ours.sock.getsockname())
            asked.append(receive_one(kernel, ours))
        done = 0
        while done < MANY:
            if is_queued:
                done += kernel.send_datagrams(ours, asked, done)
            else:
                assert kernel.send_datagram(ours, *asked[done]) > 0
                done += 1
        for number, other in enumerate(others):
            assert receive_one(kernel, other) == (b"%d" % number, ours.sock.getsockname())


def test_an_address_that_only_looks_the_same_reaches_the_same_peer(kernel: Kernel, family: str) -> None:
    with bound(kernel, family, 2) as (ours, theirs):
        kernel.send_datagram(theirs, b"x", ours.sock.getsockname())
        _, address = receive_one(kernel, ours)
        for spelled in ((*address,), address[:2]):
            assert kernel.send_datagram(ours, b"y", spelled) == 1
            assert receive_one(kernel, theirs)[0] == b"y"


def test_an_address_of_another_family_is_refused_as_ever(kernel: Kernel) -> None:
    def outcome(sock: DatagramSocket, address: Any) -> Any:
        try:
            return kernel.send_datagram(sock, b"x", address)
        except (OSError, TypeError) as error:
            return type(error), error.args

    with bound(kernel, "ipv4", 2) as (ours, theirs), bound(kernel, "ipv6", 2) as (ours6, theirs6):
        for receiver, sender, other in ((ours, theirs, ours6), (ours6, theirs6, ours)):
            kernel.send_datagram(sender, b"x", receiver.sock.getsockname())
            _, address = receive_one(kernel, receiver)
            assert outcome(other, address) == outcome(other, (*address,))
            assert kernel.recv_datagrams(sender, [], 1) in (-errno.EAGAIN, 1)
