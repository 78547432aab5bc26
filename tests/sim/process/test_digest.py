"""The digest of a run: the text of its calls is the one that `repr` makes, in both builds."""

from __future__ import annotations

import enum
import random
from hashlib import blake2b
from typing import Any

import pytest

from whorl.sim.process.digest import Digest


class Name(str):
    """A text that shows itself in its own way."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "a name"


class Number(enum.IntEnum):
    """A number that shows itself with its name."""

    ONE = 1


def digest_of(calls: list[tuple[Any, ...]]) -> str:
    digest = Digest()
    for call in calls:
        digest.add(call)
    return digest.value()


@pytest.mark.parametrize(
    "part",
    [
        *(0, -1, 7, 10, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 63, -(1 << 70), True, None, 0.1, Number.ONE),
        *("", "main", "it's", '"', "'\"", "a\\b", "line\n", "\x7f", "ü", "\ud800", "\U0001f600", Name("x")),
        *(b"", b"it's", b'"', b"'\"", b"a\\b", b"\t\r\n\0\x7f\xff", bytes(range(256)), bytearray(b"x")),
        *((), (1,), (1, 2), [], [()], [(1028, 5)], ("10.0.0.1", 80), ("::1", 80, 0, 0), {"a": 1}),
        ((((((((((1,),),),),),),),),),),
    ],
    ids=repr,
)
def test_text_of_a_call_is_that_of_repr(part: Any) -> None:
    calls = [(5, "main", "send", part)]
    assert digest_of(calls) == blake2b(repr(calls).encode(), digest_size=12).hexdigest()


def test_texts_of_random_bytes_are_those_of_repr() -> None:
    chance = random.Random(1)
    calls = [(each, chance.randbytes(chance.randrange(200)), chance.getrandbits(64)) for each in range(300)]
    assert digest_of(calls) == blake2b(repr(calls).encode(), digest_size=12).hexdigest()


def test_error_of_a_repr_is_passed_on() -> None:
    class Refuses:
        def __repr__(self) -> str:
            raise ZeroDivisionError

    digest = Digest()
    digest.add((1, [Refuses()]))
    with pytest.raises(ZeroDivisionError):
        digest.value()
