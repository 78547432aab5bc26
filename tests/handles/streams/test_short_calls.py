"""Streams over a kernel that takes less than it is given and refuses for no reason: nothing is lost."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from tests.handles.pairs import Ended, Kind, Stream
from tests.seeds import seeds_of_run
from whorl.core import Kernel, Loop

CLIENTS = 5
SIZE = 20_000
CUT = 3_000


class Reluctant(Kernel):
    """The real kernel, but every fifth call is refused and most are cut short."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dice = random.Random(seed)
        # No edge announces the rest after a short answer.
        self.keeps_edges = False

    def refusal(self, *codes: int) -> int:
        """Return a negative error number, or 0 for no refusal."""
        return -self.dice.choice(codes) if self.dice.random() < 0.2 else 0

    def recv(self, fd: int, limit: int) -> bytes | int:
        refusal = self.refusal(errno.EAGAIN, errno.EINTR)
        return refusal or super().recv(fd, self.dice.choice([1, 7, 1000, limit]))

    def send(self, fd: int, data: Any, offset: int) -> int:
        refusal = self.refusal(errno.EAGAIN, errno.EINTR, errno.ENOBUFS)
        rest = memoryview(data)[offset:]
        return refusal or super().send(fd, bytes(rest[: self.dice.choice([1, 100, len(rest)])]), 0)

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        return self.send(fd, chunks[first], offset)

    def accept(self, sock: Any) -> Any:
        return self.refusal(errno.EAGAIN, errno.EINTR, errno.ECONNABORTED) or super().accept(sock)


@pytest.mark.faults
@pytest.mark.parametrize("seed", seeds_of_run(3))
def test_every_byte_and_every_callback_is_accounted_for(no_leak: None, kind: Kind, seed: int) -> None:
    loop = Loop(kernel=Reluctant(seed))
    dice = random.Random(seed)
    ended = Ended()
    received = [bytearray() for _ in range(CLIENTS)]

    def take(server: Stream, error: OSError | None) -> None:
        assert error is None
        connection = kind.handle(loop)
        server.accept(connection)
        connection.read_start(echo)
        server.data += 1
        if server.data == CLIENTS:
            server.close()

    def echo(connection: Stream, data: bytes, error: OSError | None) -> None:
        assert error is None
        if data:
            connection.write(data, ended)
        else:
            connection.shutdown(lambda request, error: request.handle.close())

    def collect(client: Stream, data: bytes, error: OSError | None) -> None:
        assert error is None
        received[client.data] += data
        if not data:
            client.close()

    server = kind.server(loop, take)
    server.data = 0
    sent = [dice.randbytes(SIZE) for _ in range(CLIENTS)]
    for number, payload in enumerate(sent):
        client = kind.handle(loop)
        client.data = number
        client.connect(server.getsockname(), ended)
        client.read_start(collect)
        for start in range(0, SIZE, CUT):
            client.write(payload[start : start + CUT], ended)
        client.shutdown(ended)
    assert not loop.run()
    assert received == sent
    assert {code for _, code in ended.results} == {None}
    assert [name for name, _ in ended.results].count("Shutdown") == CLIENTS
    loop.close()
