"""A thread that makes and frees frames and code in all the ways that Python has."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator


def _generated(count: int) -> Iterator[int]:
    for number in range(count):
        yield number + 0
    yield from range(2)


def _generators() -> None:
    assert sum(_generated(5)) == 11
    next(_generated(3))  # freed while it is suspended


def _exceptions() -> None:
    with contextlib.suppress(ValueError):
        _recursive(20, fails=True)


def _recursive(depth: int, fails: bool = False) -> int:
    if depth:
        return 1 + _recursive(depth - 1, fails)
    if fails:
        raise ValueError
    return 0


class _Key:
    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: _Key) -> bool:
        return self.number < other.number

    def __del__(self) -> None:
        self.number = 0

    @property
    def double(self) -> list[int]:
        return [2 * number for number in (self.number, 1)]


def _doubled(key: _Key) -> int:
    return key.double[0]


def _callbacks() -> None:
    keys = sorted((_Key(number) for number in (3, 1, 2)), key=lambda key: key)
    assert list(map(_doubled, keys)) == [2, 4, 6]
    assert re.sub("[ab]", lambda match: match[0].upper(), "abc") == "ABc"


async def _leaf(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def _numbers() -> AsyncIterator[int]:
    for number in range(3):
        yield await _leaf(number)


async def _coroutines() -> None:
    assert sum([number async for number in _numbers()]) == 3
    assert sum(await asyncio.gather(*map(_leaf, range(5)))) == 10
    never = _leaf(1)
    never.close()


def _classes() -> None:
    class Made:
        lines = tuple(number + 0 for number in range(3))

        def __init__(self) -> None:
            self.lines = Made.lines

    assert Made().lines == (0, 1, 2)


def _made_code(round_: int) -> None:
    source = "\n" * (round_ % 50) + f"def made_{round_}(depth):\n return depth and made_{round_}(depth - 1)\n"
    names: dict[str, Callable[[int], int]] = {}
    exec(compile(source, f"<made {round_}>", "exec"), names)
    names[f"made_{round_}"](5)
    names.clear()


def _deep() -> None:
    assert _recursive(400) == 400


def run_until(is_over: Callable[[], bool]) -> None:
    """Do all of it again and again."""
    loop = asyncio.new_event_loop()
    round_ = 0
    while not is_over():
        round_ += 1
        for part in (_generators, _exceptions, _callbacks, _classes):
            part()
        _made_code(round_)
        if round_ % 10 == 0:
            _deep()
            loop.run_until_complete(_coroutines())
    loop.close()
