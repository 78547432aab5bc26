"""Traps that event loops have fallen into, each with a test.

Others stand beside their subject. test_transports: bytes that reach another connection, an interrupt out of
one of many ready connections, a descriptor closed underneath a transport. test_flow: reading that only looks
paused, `writelines` that ignores the watermarks. test_readers: a socket object or a closed descriptor given
to `add_reader`. test_many_connections: idle connections that cost turns, descriptors that run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import weakref
from typing import Any
from unittest import mock

import pytest

import whorl
from build_tools.sources import ROOT
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import Recorder, receive_all, socket_pair, turns
from tests.aio.tls_contexts import client_context, server_context
from tests.core.conftest import open_descriptors


class Echo(Recorder):
    """Sends everything back."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        super().data_received(data)


async def test_small_writes_do_not_wait_for_acknowledgements(loop: whorl.EventLoop) -> None:
    # Without TCP_NODELAY a second small write waits for the peer's delayed acknowledgement of the
    # first: 40 ms each time.
    rounds = 25

    class Answer(Recorder):
        """Answers each eight bytes in two small writes."""

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.received) % 8 == 0:
                self.transport.write(b"head")
                self.transport.write(b"body")

    server = await loop.create_server(Answer, "127.0.0.1", 0)
    protocol = Recorder()
    transport, _ = await loop.create_connection(lambda: protocol, *server.sockets[0].getsockname())
    began = time.monotonic()
    for number in range(rounds):
        transport.write(b"head")
        transport.write(b"body")
        await protocol.until_received(8 * (number + 1))
    assert time.monotonic() - began < rounds * 0.04 / 2
    transport.close()
    server.close()
    await server.wait_closed()


async def test_ssl_is_never_ignored_by_a_server(
    loop: whorl.EventLoop, reported: list[dict[str, Any]]
) -> None:
    made: list[Echo] = []

    def factory() -> Echo:
        made.append(Echo())
        return made[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=server_context())
    address = server.sockets[0].getsockname()
    plain = socket.create_connection(address)
    plain.setblocking(False)
    plain.send(b"in the clear\r\n\r\n")
    answer = await receive_all(plain)
    assert b"clear" not in answer
    assert [bytes(protocol.received) for protocol in made] == [b""]
    assert isinstance(reported.pop()["exception"], ssl.SSLError)
    protocol = Recorder()
    transport, _ = await loop.create_connection(
        lambda: protocol, *address, ssl=client_context(), server_hostname="localhost"
    )
    assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)
    transport.write(b"secret")
    assert await protocol.until_received(6) == b"secret"
    transport.close()
    await protocol.until_lost()
    plain.close()
    server.close()
    await server.wait_closed()


async def test_ssl_is_never_ignored_by_a_client(loop: whorl.EventLoop) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await loop.create_connection(
            Recorder, *server.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
        )
    server.close()
    await server.wait_closed()


def seconds_to_cancel(count: int) -> float:
    """Return the time to cancel this many timers, the last one first, among as many others."""
    loop = whorl.EventLoop()
    kept = [loop.call_later(1000 + index, print) for index in range(count)]
    timers = [loop.call_later(2000 + index, print) for index in range(count)]
    began = time.process_time()
    for timer in reversed(timers):
        timer.cancel()
    took = time.process_time() - began
    assert loop.metrics().timers >= len(kept)
    loop.close()
    return took


def test_cancelling_timers_costs_the_same_however_many_there_are() -> None:
    few, many = 1000, 16_000
    ratio = min(min(seconds_to_cancel(many) for _ in range(2)) / seconds_to_cancel(few) for _ in range(3))
    assert ratio < 8 * many / few, "cancelling takes longer the more timers there are"


async def test_cancelled_timers_do_not_pile_up(loop: whorl.EventLoop) -> None:
    # A timeout per request that never falls due: the usual case.
    for _ in range(20):
        for _ in range(500):
            loop.call_later(3600, print).cancel()
        await asyncio.sleep(0)
    assert loop.metrics().timers < 1000


def test_a_closed_loop_leaves_nothing_behind() -> None:
    gc.collect()
    before = open_descriptors()
    references = []
    for _ in range(20):
        loop = whorl.EventLoop()
        loop.add_signal_handler(signal.SIGUSR1, print)
        loop.call_later(1000, print)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        references.append(weakref.ref(loop))
    del loop
    gc.collect()
    gc.collect()  # what had a finalizer may be left to a second pass (3.15)
    assert open_descriptors() == before
    assert [reference() for reference in references] == [None] * 20


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, asyncio.InvalidStateError])
def test_an_error_out_of_a_callback_hangs_nothing(
    error: type[BaseException], loop: whorl.EventLoop, reported: list[dict[str, Any]]
) -> None:
    def fail(*args: object) -> None:
        raise error

    future = loop.create_future()
    loop.call_soon(fail)
    loop.call_later(0, fail)
    loop.call_soon_threadsafe(fail)
    future.add_done_callback(fail)
    loop.call_soon(future.set_result, "done")
    loop.call_soon(fail)
    assert loop.run_until_complete(future) == "done"
    loop.run_until_complete(turns(3))
    assert [type(context["exception"]) for context in reported] == [error] * 5
    reported.clear()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_exit_from_a_callback_does_not_hang_the_loop(
    error: type[BaseException], loop: whorl.EventLoop
) -> None:
    def fail(*args: object) -> None:
        raise error

    future = loop.create_future()
    future.add_done_callback(fail)
    loop.call_soon(future.set_result, "done")
    with pytest.raises(error):
        loop.run_until_complete(future)
    assert not loop.is_running()
    assert loop.run_until_complete(future) == "done"


def test_a_real_ctrl_c_in_one_of_many_connections_costs_the_others_nothing(
    loop: whorl.EventLoop, kind: str
) -> None:
    class Pressed(Recorder):
        """A protocol that is interrupted by Ctrl-C in its call."""

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            signal.raise_signal(signal.SIGINT)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    pairs = [socket_pair(kind) for _ in range(10)]
    protocols = [Pressed() if index == 2 else Recorder() for index in range(10)]
    for (ours, _), protocol in zip(pairs, protocols, strict=True):
        loop.run_until_complete(loop.connect_accepted_socket(lambda p=protocol: p, ours))
    for _, peer in pairs:
        peer.send(b"for all")
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(protocols[9].until_received(1000))
    for protocol in protocols:
        assert loop.run_until_complete(protocol.until_received(7)) == b"for all"
        protocol.transport.abort()
    loop.run_until_complete(turns(2))
    for _, peer in pairs:
        peer.close()
    signal.signal(signal.SIGINT, former)


STORM = """
import signal, sys, time
import whorl

loop = whorl.EventLoop()
posted, arrived = [], []      # by the signal handler
sent = run = bursts = 0       # by the loop's own thread
end = time.monotonic() + float(sys.argv[1])

def on_signal(number, frame):
    if time.monotonic() < end:
        posted.append(len(posted))
        loop.call_soon_threadsafe(arrive, posted[-1])
    else:
        signal.setitimer(signal.ITIMER_REAL, 0)
        loop.call_soon_threadsafe(loop.call_soon, loop.stop)

def arrive(number):
    # Between two bursts the loop sleeps without a deadline: only the signal handler ends that.
    global bursts
    arrived.append(number)
    if run == sent:
        bursts += 1
        for _ in range(10):
            send(20)

def send(more):
    global sent
    sent += 1
    loop.call_soon_threadsafe(receive, more)

def receive(more):
    global run
    run += 1
    if more:
        send(more - 1)

signal.signal(signal.SIGALRM, on_signal)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
loop.run_forever()
for _ in range(30):  # A burst may not be over, which takes a turn for each of its calls.
    loop.stop()
    loop.run_forever()
assert sorted(arrived) == sorted(posted), (len(arrived), len(posted))
assert run == sent, (run, sent)
loop.close()
print(len(posted), bursts)
"""


@pytest.mark.slow
def test_a_signal_handler_and_the_loops_own_thread_post_at_the_same_time() -> None:
    command = [sys.executable, "-W", "error", "-c", STORM, "5"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=25)
    assert answer.returncode == 0, answer.stderr
    posts, bursts = map(int, answer.stdout.split())
    assert posts > 500
    assert bursts > 50


async def test_a_wakeup_is_not_lost_between_two_sleeps(loop: whorl.EventLoop) -> None:
    # A thread posts exactly when the loop is about to sleep, or has just woken.
    done = loop.create_future()
    rounds = 3000
    count = 0

    def answer() -> None:
        nonlocal count
        count += 1
        if count == rounds:
            done.set_result(None)
        else:
            os.write(ask, b"x")

    heard, ask = os.pipe()

    def post() -> None:
        while os.read(heard, 1):
            loop.call_soon_threadsafe(answer)

    posting = loop.run_in_executor(None, post)
    os.write(ask, b"x")
    await done
    os.close(ask)
    await posting
    os.close(heard)
    assert count == rounds


async def test_a_protocol_that_is_gone_gets_nothing(connect: Connect, kind: str) -> None:
    # Both connections are ready in the same turn; the first one ends the second.
    class Killer(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            other = second if self is first else first
            other.transport.abort()

    first, second = Killer(), Killer()
    (_, one), (_, two) = await connect(kind, first), await connect(kind, second)
    one.send(b"x")
    two.send(b"x")
    await asyncio.wait(
        [asyncio.ensure_future(item.until_lost()) for item in (first, second)],
        return_when=asyncio.FIRST_COMPLETED,
    )
    await turns(3)
    assert sorted([bytes(first.received), bytes(second.received)]) == [b"", b"x"]
    for item in (first, second):
        item.transport.abort()
    await first.until_lost()
    await second.until_lost()
    await turns(2)


def test_patched_asyncio_functions_are_not_called_by_the_loop() -> None:
    """They count the sleeps of what they test: asyncio's own loop calls nothing that `asyncio` exports."""

    async def scenario(loop: Any) -> Any:
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        client, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        child, _ = await loop.subprocess_exec(asyncio.SubprocessProtocol, "true")
        for one in (server, client, child):
            one.close()
        loop.add_signal_handler(signal.SIGUSR1, int)
        loop.remove_signal_handler(signal.SIGUSR1)
        await loop.run_in_executor(None, int)
        await loop.shutdown_default_executor()
        await loop.shutdown_asyncgens()

    names = ("ensure_future", "gather", "iscoroutine", "isfuture", "sleep", "timeout", "wait_for")
    with contextlib.ExitStack() as stack:
        patches = (mock.patch.object(asyncio, name, side_effect=AssertionError(name)) for name in names)
        replaced = {one.attribute: stack.enter_context(one) for one in patches}
        assert is_as_in_asyncio(scenario) is None
        assert [name for name, one in replaced.items() if one.called] == []
