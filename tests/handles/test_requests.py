"""Requests of streams: users keep theirs unchanged, and only those without a reference are used again."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import pytest

from tests.handles.pairs import Kind, Reader
from whorl.core import Loop, RunMode
from whorl.handles import UDP, Write

SMALL = b"x" * 10
MANY = 10_000


def test_a_write_that_is_kept_stays_what_it_was(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    kept = client.write(SMALL)
    kept.data = "first"
    loop.run()
    others = [client.write(SMALL) for _ in range(3)]
    assert (kept.data, kept.handle, kept.loop, kept.is_pending()) == ("first", client, loop, False)
    assert kept not in others
    loop.run()


def test_a_write_that_was_found_by_the_collector_is_nobody_elses(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    for _ in range(4):
        client.write(SMALL)
    loop.run()
    found = [each for each in gc.get_objects() if type(each) is Write]
    for each in found:
        assert isinstance(repr(each), str)
        assert each.is_pending() is each.cancel() is False
    written = [client.write(SMALL) for _ in range(4)]
    assert not {id(each) for each in found} & {id(each) for each in written}
    loop.run()


def test_a_write_that_only_its_callback_keeps_stays_what_it_was(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    kept: list[Write] = []
    client.write(SMALL, lambda request, error: kept.append(request)).data = "first"
    loop.run()
    client.write(SMALL)
    loop.run()
    assert [(request.data, request.handle) for request in kept] == [("first", client)]


def test_a_new_write_has_nothing_of_those_before_it(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    seen: list[str] = []
    for _ in range(5):
        client.write(SMALL, lambda request, error: seen.append("old")).data = "old"
    loop.run()
    assert seen == ["old"] * 5
    new = [client.write(SMALL) for _ in range(10)]
    assert [(request.data, request.is_pending()) for request in new] == [(None, True)] * 10
    loop.run()
    assert seen == ["old"] * 5


def test_a_write_that_is_over_keeps_nothing_alive(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)

    class Thing:
        pass

    thing, weak = Thing(), weakref.ref(client)
    gone = weakref.ref(thing)
    client.write(SMALL).data = thing
    loop.run()
    del thing
    assert gone() is None
    for stream in (client, server):
        stream.close()
    loop.run()
    del client, stream
    assert weak() is None


def test_a_weak_reference_to_a_write_never_leads_to_another(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    weak = weakref.ref(client.write(SMALL))
    loop.run()
    assert weak() is None
    again = client.write(SMALL)
    assert weak() is None
    loop.run()
    assert not again.is_pending()


def test_data_of_a_request_may_write_in_its_destructor(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    reader = Reader()
    server.read_start(reader)

    class Last:
        def __del__(self) -> None:
            client.write(b"last", lambda request, error: client.close())

    client.write(b"first ").data = Last()
    loop.run()
    assert b"".join(reader.chunks) == b"first last"


def test_a_write_with_a_wrong_callback_sends_nothing(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    reader = Reader()
    server.read_start(reader)
    with pytest.raises(TypeError, match="callable"):
        client.write(b"never", 3)  # type: ignore[arg-type]
    client.write(b"well", lambda request, error: client.close())
    loop.run()
    assert reader.chunks == [b"well"]


def test_a_datagram_with_a_wrong_callback_is_not_sent(loop: Loop) -> None:
    receiver, sender = UDP(loop), UDP(loop)
    receiver.bind(("127.0.0.1", 0))
    received: list[bytes] = []

    def on_datagram(handle: UDP, data: bytes, address: Any, error: OSError | None) -> None:
        received.append(data)
        receiver.close()

    receiver.recv_start(on_datagram)
    with pytest.raises(TypeError, match="callable"):
        sender.send(b"never", receiver.getsockname(), 3)  # type: ignore[arg-type]
    assert (sender.send_queue_count, sender.send_queue_size) == (0, 0)
    sender.send(b"well", receiver.getsockname(), lambda request, error: sender.close())
    loop.run()
    assert received == [b"well"]


def test_many_writes_in_flight_end_in_order(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    ended: list[int] = []
    client.write(bytes(32 << 20))
    for number in range(MANY):
        client.write(SMALL, lambda request, error, number=number: ended.append(number if error else -1))
    loop.run(RunMode.NOWAIT)
    assert not ended
    client.close()
    loop.run(RunMode.NOWAIT)
    assert ended == list(range(MANY))


DROP_A_LOOP = """
import gc, socket, whorl
from whorl.handles import Pipe
loop, (own, other) = whorl.Loop(), socket.socketpair()
pipe = Pipe(loop)
pipe.open(own.detach())
for _ in range(100_000):
    pipe.write(bytes(1000))
assert pipe.write_queue_size
del loop, pipe
gc.collect()
print("freed", other.recv(1_000_000) != b"")
"""


@pytest.mark.slow
def test_a_loop_dropped_with_many_writes_in_flight_is_freed() -> None:
    command = [sys.executable, "-W", "ignore", "-c", DROP_A_LOOP]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "freed True\n", "")
