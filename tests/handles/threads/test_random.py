"""Random bytes by request."""

from __future__ import annotations

from typing import Any

import pytest

from whorl.core import Kernel, Loop
from whorl.handles import Random, Work


def test_as_many_bytes_come_as_were_asked_for(loop: Loop) -> None:
    results: list[tuple[bytes, Any]] = []
    for size in (0, 1, 16, 1_000_000):
        Random(loop, size, lambda request, data, error: results.append((data, error)))
    loop.run()
    assert sorted(len(data) for data, _ in results) == [0, 1, 16, 1_000_000]
    assert {error for _, error in results} == {None}
    assert len(set(max(results, key=lambda result: len(result[0]))[0])) == 256


def test_the_kernel_decides_what_is_random() -> None:
    class Foreseen(Kernel):
        def random_bytes(self, size: int) -> bytes:
            return bytes(range(size))

    loop = Loop(kernel=Foreseen())
    results: list[bytes] = []
    Random(loop, 4, lambda request, data, error: results.append(data))
    loop.run()
    loop.close()
    assert results == [b"\0\1\2\3"]


def test_random_request_can_be_cancelled_as_other_work(loop: Loop) -> None:
    assert issubclass(Random, Work)
    errors: list[Any] = []
    requests = [Random(loop, 3_000_000, lambda request, data, error: errors.append(error)) for _ in range(40)]
    cancelled = requests[-1].cancel()
    loop.run()
    assert sum(error is not None for error in errors) == cancelled


def test_random_request_refuses_an_invalid_size(loop: Loop) -> None:
    with pytest.raises(ValueError, match="negative"):
        Random(loop, -1, print)
    with pytest.raises(OverflowError):
        Random(loop, 2**31, print)
    with pytest.raises(TypeError):
        Random(loop, "5", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        Random(loop, 5, None)  # type: ignore[arg-type]
    assert not loop.alive()
