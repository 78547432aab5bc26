"""Random programs of asyncio find the same in a world as on the machine's kernel."""

from __future__ import annotations

import shutil

import pytest

from tests.sim.asyncio_programs import KINDS, difference


def differences(kind: str, seeds: range) -> str:
    """Return the programs that find a difference, the shortest first."""
    if kind == "subprocesses" and shutil.which("sh", path="/bin") is None:
        pytest.skip("there is no shell")
    found = filter(None, (difference(kind, seed) for seed in seeds))
    return "\n\n".join(sorted(found, key=len))


@pytest.mark.parametrize("kind", KINDS)
def test_random_programs_end_as_on_the_kernel(kind: str) -> None:
    assert differences(kind, range(10)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_programs_end_as_on_the_kernel(kind: str) -> None:
    assert differences(kind, range(10, 110)) == ""
