"""Tapes as files and as words."""

from __future__ import annotations

from pathlib import Path

import pytest

from whorl import sim
from whorl.sim.chance.tape import tape_of

DECISIONS = {("main/cpu", 14): 1, ("a>b/latency", 2): 7, ("choice/odd name, 1=2:3.4~", 0): 3}


@pytest.mark.parametrize("faults", ["swarm", sim.Faults(loss=0.25, cpu=0.0)], ids=["name", "rates"])
@pytest.mark.parametrize("hashes", [None, 0, 77])
def test_a_tape_is_read_from_its_word(faults: sim.Faults | str, hashes: int | None) -> None:
    tape = sim.Tape(5, DECISIONS, faults, hash_seed=hashes)
    assert sim.Tape.parse(tape.token()) == tape
    assert " " not in tape.token()


def test_a_tape_is_read_from_its_file(tmp_path: Path) -> None:
    tape = sim.Tape(5, DECISIONS, sim.Faults.rough(), "digest", 7)
    tape.write(tmp_path / "it.tape", program="x.py")
    assert tape_of(str(tmp_path / "it.tape")) == tape


def test_a_number_is_a_seed() -> None:
    assert tape_of("12") == 12


def test_rates_of_a_profile_have_its_name() -> None:
    assert sim.Tape(0, {}, sim.Faults.rough()).token() == "0:rough::"


@pytest.mark.parametrize("word", ["x:calm::", "1:calm::main/cpu", "1:calm:x:", "1:%7B1::", "1:calm::a.0=b"])
def test_a_word_that_is_no_tape_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="is no tape"):
        tape_of(word)


@pytest.mark.parametrize("older", [1, 2, 3])
def test_a_tape_of_an_older_format_is_read_without_its_digest(older: int, tmp_path: Path) -> None:
    tape = sim.Tape(5, DECISIONS, "calm", "digest")
    tape.write(tmp_path / "it.tape")
    text = (tmp_path / "it.tape").read_text(encoding="utf-8")
    text = text.replace('"whorl-tape": 4', f'"whorl-tape": {older}')
    (tmp_path / "it.tape").write_text(text, encoding="utf-8")
    assert sim.Tape.read(tmp_path / "it.tape") == sim.Tape(5, DECISIONS, "calm")


def test_a_tape_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "it.tape").write_text('{"whorl-tape": 5, "seed": 1, "faults": "calm"}', encoding="utf-8")
    with pytest.raises(ValueError, match="another version"):
        sim.Tape.read(tmp_path / "it.tape")
