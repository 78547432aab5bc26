"""The digest of a run: equal calls have one digest, in both builds, whatever objects they are made of."""

from __future__ import annotations

import enum
import sys
from typing import Any

import pytest

from whorl.sim.process.digest import Digest


class Number(enum.IntEnum):
    """A number that is no plain one."""

    ONE = 1


def digest_of(*details: tuple[Any, ...]) -> str:
    """Return the digest of calls of one host at one time."""
    digest = Digest()
    host = digest.number("main")
    for each in details:
        digest.add(5, host, "send", each)
    return digest.value()


def test_digest_of_some_calls_is_the_same_everywhere() -> None:
    digest = Digest()
    digest.add(5, digest.number("main"), "send", (7, b"it\x00's", 1 << 70))
    numbers = (-1, -(1 << 40), 1 << 31)
    digest.add(6, digest.number("ü"), "recv", ([(1028, 5)], None, True, 0.5, *numbers, "ü"))
    assert digest.value() == "b41762870d43de2aca69e9f4"


def test_digest_of_many_calls_is_the_same_everywhere() -> None:
    digest = Digest()
    for number in range(600):
        digest.add(number, digest.number("main"), "send", (number << 40, bytes(120) * number))
    assert digest.value() == "d5f3827ec6969e40924cb090"


def test_shared_objects_and_interned_names_change_nothing() -> None:
    name, data = "".join(["ma", "in"]), bytes(bytearray(b"12"))
    shared = (1, name, data, name, data, [(name, data)])
    apart = (1, sys.intern("main"), b"12", "".join(["mai", "n"]), bytes(bytearray(b"12")), [("main", b"12")])
    assert digest_of(shared, shared) == digest_of(apart, (*apart,))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), (1, "1"), (b"1", "1"), (1, True), (1, 1.0), ([1], (1,)), (None, ()), (1, Number.ONE)],
    ids=repr,
)
def test_calls_that_differ_have_different_digests(one: Any, other: Any) -> None:
    assert digest_of((1, one)) != digest_of((1, other))


def test_parts_that_are_no_plain_objects_are_known_by_their_repr() -> None:
    assert digest_of((7,), (Number.ONE,), ("a",)) == "007056910b8bc85391e67b8a"


def test_objects_that_hold_themselves_are_known_by_their_repr() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    assert digest_of((7, circle), (8, (circle,))) == "c2256baae618a07aeca6c7fa"


def test_error_of_a_repr_is_passed_on() -> None:
    class Refuses:
        def __repr__(self) -> str:
            raise ZeroDivisionError

    digest = Digest()
    with pytest.raises(ZeroDivisionError):
        digest.add(5, digest.number("main"), "send", ([Refuses()],))


def test_calls_that_are_kept_have_names_in_the_place_of_numbers() -> None:
    digest = Digest(True)
    for host, call in (("main", "send"), ("other", "send"), ("main", "recv")):
        digest.add(5, digest.number(host), call, (7, b"data"))
    assert digest.kept == [
        (5, "main", "send", 7, b"data"),
        (5, "other", "send", 7, b"data"),
        (5, "main", "recv", 7, b"data"),
    ]


def test_other_names_are_another_digest() -> None:
    def named(name: str) -> str:
        digest = Digest()
        digest.add(5, digest.number(name), "send", (7,))
        return digest.value()

    assert named("main") == named("main") != named("server")
