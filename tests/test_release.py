"""The release: its configuration fits the project, and its own checks notice what is wrong."""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
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


@pytest.mark.text
def test_names_of_good_wheels_are_accepted(tmp_path: Path) -> None:
    wheels._check_names(
        made_wheel(tmp_path, "whorl_loop-0.1.0-cp313-cp313-manylinux_2_28_x86_64.whl", SHARED)
    )
    free = SHARED.replace("313", "313t")
    wheels._check_names(made_wheel(tmp_path, "whorl_loop-0.1.0-cp313-cp313t-manylinux_2_28_x86_64.whl", free))
    wheels._check_names(made_wheel(tmp_path, "whorl_loop-0.1.0-py3-none-any.whl", "whorl/__init__.py"))


@pytest.mark.text
@pytest.mark.parametrize(
    ("name", "member", "content"),
    [
        ("whorl_loop-0.1.0-cp313-cp313-linux_x86_64.whl", SHARED, b""),
        ("whorl_loop-0.1.0-cp312-cp312-manylinux_2_28_x86_64.whl", SHARED, b""),
        ("whorl_loop-0.1.0-cp313-abi3-manylinux_2_28_x86_64.whl", SHARED, b""),
        ("whorl_loop-0.1.0-cp313-cp313t-manylinux_2_28_x86_64.whl", SHARED, b""),
        ("whorl_loop-0.1.0-py3-none-any.whl", SHARED, b""),
        ("whorl_loop-0.1.0-cp313-cp313-manylinux_2_28_x86_64.whl", "whorl/__init__.py", b""),
        ("whorl_loop-0.1.0-cp313-cp313-manylinux_2_28_x86_64.whl", SHARED, b"\0.symtab\0"),
        ("whorl_loop-0.1.0-cp313-cp313-manylinux_2_28_x86_64.whl", SHARED, b"x" * 6_000_000),
    ],
)
def test_wheel_with_wrong_names_or_content_is_refused(
    tmp_path: Path, name: str, member: str, content: bytes
) -> None:
    with pytest.raises(wheels.Failed):
        wheels._check_names(made_wheel(tmp_path, name, member, content=content))


@pytest.mark.text
def test_source_distributions_of_different_times_become_the_same(tmp_path: Path) -> None:
    made = []
    for number in (1, 2):
        path = tmp_path / f"{number}.tar.gz"
        names = ["whorl/b", "whorl/a"] if number == 1 else ["whorl/a", "whorl/b"]
        with gzip.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            for name in names:
                item = tarfile.TarInfo(name)
                item.size, item.mtime, item.uid, item.uname = 4, number, number, f"user{number}"
                archive.addfile(item, io.BytesIO(b"text"))
        made.append(wheels._with_times(path, 1_000_000_000).read_bytes())
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


def test_two_names_of_one_python_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    monkeypatch.setattr(wheels, "_sdist", lambda scratch, environment: tmp_path / "whorl.tar.gz")
    monkeypatch.setattr(wheels, "_unpacked", lambda sdist, folder: folder)
    monkeypatch.setattr(wheels, "_builder", lambda python: python)
    monkeypatch.setattr(wheels, "_profile", lambda builder, environment: tmp_path)
    monkeypatch.setattr(wheels, "_twice", lambda builder, build, *rest: tmp_path / f"{build}.whl")
    options = argparse.Namespace(python=["python3", "/usr/bin/python3"], fresh=False, demo=False)
    with pytest.raises(wheels.Failed, match=r"^/usr/bin/python3: another of these Pythons has made compiled"):
        wheels._release(tmp_path, options)


def test_import_times_are_told_in_milliseconds_for_each_module() -> None:
    command = [sys.executable, "-c", wheels.IMPORT_TIMES, "asyncio", "sys"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["asyncio", "sys"]
    assert all(re.fullmatch(r"\w+ -?\d+\.\d", line) for line in lines)
