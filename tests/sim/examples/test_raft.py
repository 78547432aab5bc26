"""The example of a register that agrees by Raft: sound with its syncs, found out without them."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from whorl import sim


@pytest.fixture
def raft() -> Any:
    """Return the module of the example."""
    path = Path(__file__).parents[3] / "examples/raft.py"
    spec = importlib.util.spec_from_file_location("raft_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_hosts_that_sync_their_journals_agree(raft: Any) -> None:
    for seed in range(8):
        sim.run(raft.main, seed=seed).check()


@pytest.mark.slow
def test_hosts_that_do_not_sync_their_journals_are_found_out(raft: Any) -> None:
    program = functools.partial(raft.main, syncs=False)
    runs = (sim.run(program, seed=seed).findings for seed in range(40, 140))  # one in 60 is found out
    found = next(filter(None, runs))
    assert {one.kind for one in found} <= {"linearizable", "always"}
