"""The release: its configuration fits the project, and its own checks notice what is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import whorl
from build_tools import wheels
from build_tools.sources import ROOT
from tests.children import bare_environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOW = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")


@pytest.mark.text
def test_configured_pythons_are_the_declared_ones() -> None:
    declared = re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    built = re.findall(r"cp3(\d+)-", PROJECT["tool"]["cibuildwheel"]["build"])
    assert declared == built == [str(minor) for minor in wheels.MINORS]


@pytest.mark.text
def test_workflow_builds_each_kind_of_wheel() -> None:
    for arch in PROJECT["tool"]["cibuildwheel"]["archs"]:
        for libc in ("manylinux", "musllinux"):
            assert re.search(rf"arch: {arch}, libc: {libc} ", WORKFLOW)


@pytest.mark.text
def test_workflow_publishes_without_a_secret() -> None:
    assert "secrets." not in WORKFLOW
    assert "id-token: write" in WORKFLOW
    assert "attest-build-provenance" in WORKFLOW
    assert re.search(r"^permissions: \{\}$", WORKFLOW, re.MULTILINE)


def made_wheel(folder: Path, name: str, *members: str, content: bytes = b"") -> Path:
    """Write a file that has the name and the members of a wheel."""
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member in members:
            archive.writestr(member, content)
    return folder / name


SHARED = "whorl/_compiled.cpython-313-x86_64-linux-gnu.so"
COMPILED = "whorl_loop-0.1.0-cp313-cp313-manylinux_2_28_x86_64.whl"


@pytest.mark.text
def test_good_wheels_are_accepted(tmp_path: Path) -> None:
    wheels._check_content(made_wheel(tmp_path, COMPILED, SHARED))
    wheels._check_content(made_wheel(tmp_path, "whorl_loop-0.1.0-py3-none-any.whl", "whorl/__init__.py"))


@pytest.mark.text
@pytest.mark.parametrize(
    ("name", "member", "content"),
    [
        ("whorl_loop-0.1.0-cp313-cp313-linux_x86_64.whl", SHARED, b""),
        ("whorl_loop-0.1.0-py3-none-any.whl", SHARED, b""),
        (COMPILED, "whorl/__init__.py", b""),
        (COMPILED, SHARED, b"\0.symtab\0"),
        (COMPILED, SHARED, b"x" * 6_000_000),
    ],
)
def test_wheel_with_a_wrong_tag_or_content_is_refused(
    tmp_path: Path, name: str, member: str, content: bytes
) -> None:
    with pytest.raises(wheels.Failed):
        wheels._check_content(made_wheel(tmp_path, name, member, content=content))


@pytest.mark.text
@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_folders_of_different_times_are_packed_into_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    made = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        (folder / "whorl").mkdir(parents=True)
        for name in ("b", "a") if number == 1 else ("a", "b"):
            (folder / "whorl" / name).write_text("text")
            os.utime(folder / "whorl" / name, (number, number))
        wheels._pack(folder, target := tmp_path / f"{number}.tar{suffix}", 1_000_000_000)
        made.append(target.read_bytes())
    assert made[0] == made[1]


def test_smoke_tests_pass_on_this_build(expected_build: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "build_tools" / "smoke.py", "--expect", expected_build],
        env=bare_environment(PATH=os.defpath, WHORL_FREE_THREADED=os.environ.get("WHORL_FREE_THREADED", "")),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert expected_build in answer.stdout


@pytest.mark.slow
def test_pure_wheel_is_the_same_in_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "DIST", tmp_path)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1000000000"}
    environment.pop("PYTHONPATH", None)
    sdist = wheels._sdist(tmp_path, environment)
    copies = [wheels._unpacked(sdist, tmp_path / name) for name in ("one", "two/three")]
    made = [wheels._wheel([sys.executable], "pure", copy, environment) for copy in copies]
    assert {wheel.name.partition("-")[2] for wheel in made} == {f"{whorl.__version__}-py3-none-any.whl"}
    assert made[0].read_bytes() == made[1].read_bytes()


def test_import_takes_longer_than_the_interpreter_alone() -> None:
    assert wheels._import_ms([sys.executable], "asyncio") > 0
