"""Random programs of system calls find the same in a world as on the machine's kernel."""

from __future__ import annotations

import os

import pytest

from tests.sim.files.system_calls import LINES, difference

KINDS = [
    pytest.param(
        kind,
        marks=pytest.mark.skipif(
            kind == "pipes" and os.sysconf("SC_PAGE_SIZE") != 4096, reason="a pipe has other pages"
        ),
    )
    for kind in LINES
]


def differences(kind: str, seeds: range) -> str:
    """Return the programs that find a difference, the shortest first."""
    found = filter(None, (difference(kind, seed) for seed in seeds))
    return "\n\n".join(sorted(found, key=len))


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_random_programs_give_what_the_kernel_gives(kind: str) -> None:
    assert differences(kind, range(20)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_many_random_programs_give_what_the_kernel_gives(kind: str) -> None:
    assert differences(kind, range(20, 220)) == ""
