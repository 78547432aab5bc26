"""Names and addresses."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import socket
import threading
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from whorl.aio.connections.resolver import numeric_address
from whorl.core import Host
from whorl.core.process import host as host_module

pytestmark = pytest.mark.usefixtures("no_leak")

TCP, UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


def test_a_name_is_resolved_as_asyncio_does() -> None:
    async def resolve(loop: Any) -> Any:
        return await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)

    assert is_as_in_asyncio(resolve)


def test_an_address_has_the_names_asyncio_finds() -> None:
    async def resolve(loop: Any) -> Any:
        return await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)

    assert is_as_in_asyncio(resolve) == ("127.0.0.1", "80")


@pytest.mark.parametrize("host", ["nul\0byte", "x" * 70, 1])
def test_a_wrong_host_is_refused_as_in_asyncio(host: Any) -> None:
    async def resolve(loop: Any) -> Any:
        return await loop.getaddrinfo(host, 80)

    error_as_in_asyncio(resolve)


@pytest.mark.parametrize(
    "question", [("localhost\0.other", 80), (b"localhost\0", 80), ("localhost", "80\0x")]
)
async def test_a_name_with_a_zero_byte_is_not_known(loop: whorl.EventLoop, question: Any) -> None:
    """Python's own function looks up what stands before the byte."""
    with pytest.raises(socket.gaierror) as raised:
        await loop.getaddrinfo(*question)
    assert raised.value.errno == socket.EAI_NONAME


async def test_resolution_goes_through_the_socket_module(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def answer(*question: Any) -> list[Any]:
        threads.append(threading.get_ident())
        return [question]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    found = await loop.getaddrinfo("example.com", 80, family=1, type=2, proto=3, flags=4)
    assert found == [("example.com", 80, 1, 2, 3, 4)]
    assert threads != [threading.get_ident()]


async def test_reverse_resolution_goes_through_the_socket_module(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getnameinfo", lambda *question: question)
    assert await loop.getnameinfo(("127.0.0.1", 80), 5) == (("127.0.0.1", 80), 5)


def test_a_host_of_the_users_resolves() -> None:
    class OwnHost(Host):
        def getaddrinfo(self, host: Any, *question: Any, **options: Any) -> list[Any]:
            return [host]

    loop = whorl.EventLoop(host=OwnHost())
    assert loop.run_until_complete(loop.getaddrinfo("example.com", 80)) == ["example.com"]
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def test_debug_mode_logs_the_answer(loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    with caplog.at_level("DEBUG", logger="asyncio"):
        await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    texts = [text for text in caplog.messages if "address info" in text]
    assert texts[0] == f"Get address info 127.0.0.1:80, type={socket.SOCK_STREAM!r}"
    assert texts[1].startswith(f"Getting address info 127.0.0.1:80, type={socket.SOCK_STREAM!r} took ")


# The answers of getaddrinfo itself, for all that needs no network.

HOSTS: list[Any] = [
    "127.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "::1",
    "::",
    "0:0:0:0:0:0:0:1",
    "::FFFF:1.2.3.4",
    "2001:DB8::00ab",
    b"127.0.0.1",
    "127.1",
    "0x7f.1",
    "0177.0.0.1",
    "127.0.0.01",
    "127.0.0.1.",
    "127.0.0.1 ",
    "[::1]",
    "fe80::1%lo",
    "::1%1",
    "",
    None,
    "\u0661.2.3.4",
    "x" * 70,
    1,
]
PORTS: list[Any] = [0, 80, 65535, 65536, -1, 1 << 40, None, "80", b"80", "", "http", "no such", True, 80.0]
FLAGS = [0, socket.AI_PASSIVE, socket.AI_NUMERICHOST | socket.AI_NUMERICSERV, socket.AI_CANONNAME]


def answer(question: Any) -> Any:
    """Return the answer of getaddrinfo with the types of its values."""
    try:
        rows = socket.getaddrinfo(*question)
    except Exception as error:
        return type(error), str(error)
    return [(repr(row), [type(item) for item in row]) for row in rows]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("executor", [True, False], ids=["executor", "no executor"])
def test_every_question_is_answered_as_by_the_socket_module(host: Any, flags: int, executor: bool) -> None:
    loop = whorl.EventLoop()
    flags |= 0 if host is None or host == "" else socket.AI_NUMERICHOST  # Nobody is asked for names.

    async def ask(*question: Any) -> Any:
        host, port, family, kind, protocol, flags = question
        try:
            rows = await loop.getaddrinfo(host, port, family=family, type=kind, proto=protocol, flags=flags)
        except Exception as error:
            return type(error), str(error)
        return [(repr(row), [type(item) for item in row]) for row in rows]

    async def ask_all() -> None:
        families = (0, socket.AF_INET, socket.AF_INET6, 99)
        questions = [
            *itertools.product(PORTS, families, [STREAM], [0]),
            *itertools.product([80], families, [0, 1, DATAGRAM, socket.SOCK_RAW, 99], [0, 6, UDP, 99]),
        ]
        for question in questions:
            assert await ask(host, *question, flags) == answer((host, *question, flags)), question

    if executor:
        loop.set_default_executor(AtOnce())
    loop.run_until_complete(ask_all())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


class AtOnce(concurrent.futures.ThreadPoolExecutor):
    """Threads that are none."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Any:
        future: Any = concurrent.futures.Future()
        try:
            future.set_result(function(*arguments, **options))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.7"])
@pytest.mark.parametrize("port", [80, 0, None])
async def test_numbers_need_no_thread(loop: whorl.EventLoop, host: str, port: int | None) -> None:
    before = loop.metrics().turns
    question = {"type": STREAM, "proto": TCP, "flags": socket.AI_NUMERICHOST}
    assert await loop.getaddrinfo(host, port, **question) == socket.getaddrinfo(host, port, **question)
    assert loop.metrics().turns == before
    assert loop._default_executor is None


async def test_a_replaced_function_is_asked_for_numbers_too(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *question: [threading.get_ident()])
    answered: list[Any] = await loop.getaddrinfo("127.0.0.1", 80, type=STREAM)
    assert answered != [threading.get_ident()]


async def test_a_c_library_that_names_numbers_is_asked_for_them(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canonical name of a number is empty in glibc, and the number itself in musl."""
    monkeypatch.setattr(host_module, "_IS_GLIBC", False)
    before = loop.metrics().turns
    answered = await loop.getaddrinfo("127.0.0.1", 80, type=STREAM)
    assert answered == socket.getaddrinfo("127.0.0.1", 80, type=STREAM)
    assert loop.metrics().turns > before


# Names without resolution.


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "255.255.255.255", b"10.0.0.1"])
@pytest.mark.parametrize("port", [0, 80, "80", b"80", None, "", b""])
@pytest.mark.parametrize("family", [socket.AF_UNSPEC, socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize(("kind", "protocol"), [(STREAM, 0), (STREAM, TCP), (DATAGRAM, 0), (DATAGRAM, UDP)])
def test_a_numeric_address_is_answered_as_asyncio_does(
    host: Any, port: Any, family: int, kind: int, protocol: int
) -> None:
    expected = asyncio.base_events._ipaddr_info(host, port, family, kind, protocol)  # type: ignore[attr-defined]
    assert numeric_address(host, port, family, kind, protocol) == expected


@pytest.mark.parametrize(
    ("host", "port", "kind", "protocol"),
    [
        ("localhost", 80, STREAM, 0),
        (None, 80, STREAM, 0),
        ("127.0.0.1", "http", STREAM, 0),
        ("::1%lo", 80, STREAM, 0),
        ("127.0.0.1", 80, 0, 0),
        ("127.0.0.1", 80, socket.SOCK_RAW, 0),
        ("127.0.0.1", 80, STREAM, socket.IPPROTO_ICMP),
        ("127.1", 80, STREAM, 0),
        ("1" * 30, 80, STREAM, 0),
    ],
)
def test_numeric_address_is_none_if_getaddrinfo_is_needed(
    host: Any, port: Any, kind: int, protocol: int
) -> None:
    assert numeric_address(host, port, socket.AF_UNSPEC, kind, protocol) is None


def test_a_scope_is_kept() -> None:
    known = numeric_address("fe80::1", 80, socket.AF_UNSPEC, STREAM, 0, 7, 3)
    assert known is not None
    assert known[4] == ("fe80::1", 80, 7, 3)


async def test_a_numeric_host_costs_no_thread(loop: whorl.EventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
        transport.close()
        await asyncio.sleep(0)
    assert loop._default_executor is None
