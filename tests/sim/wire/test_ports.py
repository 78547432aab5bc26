"""The ports of one host: who may have which, and who gets what arrives."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

import pytest

from whorl.sim.wire.ports import FIRST_PORT, LAST_PORT, TIME_WAIT, PortTable, plain


@dataclass(eq=False)
class Sock:
    """A socket, as the table sees it."""

    address: bool = False
    port: bool = False
    listening: bool = False
    v6only: bool = False
    name: Any = None

    def reuses_address(self) -> bool:
        return self.address

    def reuses_port(self) -> bool:
        return self.port

    def is_listening(self) -> bool:
        return self.listening

    def only_ipv6(self) -> bool:
        return self.v6only


def anyone(sock: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("first", "first_ip", "second", "second_ip", "fits"),
    [
        (Sock(), "10.0.0.1", Sock(), "10.0.0.1", False),
        (Sock(), "10.0.0.1", Sock(), "127.0.0.1", True),
        (Sock(), "0.0.0.0", Sock(), "127.0.0.1", False),
        (Sock(), "::", Sock(), "0.0.0.0", False),
        (Sock(v6only=True), "::", Sock(), "0.0.0.0", True),
        (Sock(port=True), "0.0.0.0", Sock(port=True), "0.0.0.0", True),
        (Sock(port=True), "0.0.0.0", Sock(), "0.0.0.0", False),
        (Sock(address=True), "0.0.0.0", Sock(address=True), "0.0.0.0", True),
        (Sock(address=True, listening=True), "0.0.0.0", Sock(address=True), "0.0.0.0", False),
    ],
)
def test_port_is_shared_as_linux_shares_it(
    first: Sock, first_ip: str, second: Sock, second_ip: str, fits: bool
) -> None:
    table = PortTable(FIRST_PORT)
    assert table.bind(first, first_ip, 80, 0) == 80
    assert table.bind(second, second_ip, 80, 0) == (80 if fits else -errno.EADDRINUSE)


def test_ports_are_given_in_order_and_begin_anew() -> None:
    table = PortTable(LAST_PORT)
    assert [table.bind(Sock(), "10.0.0.1", 0, 0) for _ in range(3)] == [LAST_PORT, FIRST_PORT, FIRST_PORT + 1]


def test_host_has_a_limited_number_of_ports() -> None:
    table = PortTable(FIRST_PORT)
    for _ in range(LAST_PORT - FIRST_PORT + 1):
        assert table.bind(Sock(), "10.0.0.1", 0, 0) > 0
    assert table.bind(Sock(), "10.0.0.1", 0, 0) == -errno.EADDRINUSE


def test_port_of_a_connection_that_was_closed_first_waits_a_minute() -> None:
    table, sock = PortTable(FIRST_PORT), Sock()
    table.bind(sock, "10.0.0.1", 80, 0)
    table.unbind(sock, 80, TIME_WAIT)
    assert table.bind(Sock(), "10.0.0.1", 80, TIME_WAIT - 1) == -errno.EADDRINUSE
    assert table.bind(Sock(address=True), "10.0.0.1", 80, TIME_WAIT - 1) == 80


def test_exact_address_comes_before_all_addresses() -> None:
    table, wide, exact = PortTable(FIRST_PORT), Sock(address=True), Sock(address=True)
    table.bind(wide, "0.0.0.0", 80, 0)
    table.bind(exact, "10.0.0.1", 80, 0)
    assert table.find("10.0.0.1", 80, anyone) == [exact]
    assert table.find("127.0.0.1", 80, anyone) == [wide]
    assert table.find("10.0.0.1", 81, anyone) == []


@pytest.mark.parametrize(
    ("given", "shown"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fd00:0::1", "fd00::1"), ("::", "::")],
)
def test_addresses_have_one_form(given: str, shown: str) -> None:
    assert plain(given) == shown
