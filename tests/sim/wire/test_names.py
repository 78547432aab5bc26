"""Names of a simulated world, as `getaddrinfo` answers."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from whorl.sim.wire.names import Names


@pytest.fixture
def names() -> Names:
    """Return names with one of both families."""
    known = Names()
    known.set("both.test", "10.0.0.7", "fd00::7")
    return known


def addresses(answers: list[tuple[Any, ...]]) -> list[str]:
    return [answer[4][0] for answer in answers]


def test_name_has_all_its_addresses_for_each_kind_of_socket(names: Names) -> None:
    answers = names.getaddrinfo("both.test", 80)
    assert addresses(answers) == ["10.0.0.7"] * 3 + ["fd00::7"] * 3
    kinds = [(socket.SOCK_STREAM, 6), (socket.SOCK_DGRAM, 17), (socket.SOCK_RAW, 0)]
    assert [answer[1:3] for answer in answers] == kinds * 2


def test_service_has_the_kinds_of_sockets_that_it_is_used_with(names: Names) -> None:
    kinds = [[answer[1] for answer in names.getaddrinfo("10.0.0.7", name)] for name in ("http", "domain")]
    assert kinds == [[socket.SOCK_STREAM], [socket.SOCK_STREAM, socket.SOCK_DGRAM]]


def test_family_and_kind_choose_answers(names: Names) -> None:
    answers = names.getaddrinfo("both.test", "http", socket.AF_INET6, socket.SOCK_STREAM)
    assert answers == [
        (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("fd00::7", 80, 0, 0)),
    ]


def test_names_ignore_case_and_a_last_dot(names: Names) -> None:
    assert names.addresses("BOTH.test.") == ["10.0.0.7", "fd00::7"]


@pytest.mark.parametrize(
    ("host", "port", "options", "code"),
    [
        ("nobody.test", 80, {}, socket.EAI_NONAME),
        (None, None, {}, socket.EAI_NONAME),
        ("both.test", 80, {"flags": socket.AI_NUMERICHOST}, socket.EAI_NONAME),
        ("both.test", "no-such-service", {}, socket.EAI_SERVICE),
        ("10.0.0.7", 80, {"kind": socket.SOCK_RAW}, socket.EAI_SERVICE),
        ("10.0.0.7", 80, {"family": socket.AF_INET6}, socket.EAI_ADDRFAMILY),
    ],
)
def test_wrong_question_gets_the_error_of_the_system(
    names: Names, host: Any, port: Any, options: dict[str, int], code: int
) -> None:
    with pytest.raises(socket.gaierror) as caught:
        names.getaddrinfo(host, port, **options)
    assert caught.value.errno == code


def test_no_name_means_all_addresses_for_a_server_and_this_host_for_a_client(names: Names) -> None:
    passive = names.getaddrinfo(None, 80, kind=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    assert addresses(passive) == ["0.0.0.0", "::"]
    assert addresses(names.getaddrinfo(None, 80, kind=socket.SOCK_STREAM)) == ["::1", "127.0.0.1"]


def test_address_leads_back_to_its_name(names: Names) -> None:
    assert names.getnameinfo(("10.0.0.7", 80)) == ("both.test", "http")
    assert names.getnameinfo(("10.0.0.7", 7007)) == ("both.test", "7007")
    assert names.getnameinfo(("10.0.0.7", 80), socket.NI_NUMERICHOST) == ("10.0.0.7", "http")
    assert names.getnameinfo(("10.0.0.7", 80), socket.NI_NUMERICSERV) == ("both.test", "80")
    assert names.getnameinfo(("10.0.0.7", 80), socket.NI_DGRAM) == ("both.test", "80")
