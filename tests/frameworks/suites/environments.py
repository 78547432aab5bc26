"""Fetches a source distribution, unpacks it, and makes an environment in which its tests can run."""

import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from definitions import Suite

BUILD = Path(__file__).parents[3] / "build" / "suites" / f"cp{sys.version_info.major}{sys.version_info.minor}"


class CannotBeRun(Exception):
    """A suite could not be fetched or its environment not be made; the message says why."""


@dataclass(frozen=True)
class Environment:
    """The folder with the sources of a suite, and the interpreter with their requirements."""

    suite: Suite
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def source(self) -> Path:
        return next((self.folder / "source").iterdir())

    @property
    def version(self) -> str:
        return self.source.name.rpartition("-")[2].removesuffix(".orig")


def prepare(suite: Suite) -> Environment:
    """Make the missing parts: it is made again when the suite's requirements change."""
    environment = Environment(suite, BUILD / suite.name)
    stamp = environment.folder / "made-for"
    needs = repr((suite.archive or suite.package, suite.extras, suite.install, sys.version))
    if stamp.exists() and stamp.read_text() == needs:
        return environment
    shutil.rmtree(environment.folder, ignore_errors=True)
    environment.folder.mkdir(parents=True)
    # Sources without a configuration of pytest's shall not find ours.
    (environment.folder / "pytest.ini").write_text("[pytest]\n")
    _call(getattr(sys, "_base_executable", sys.executable), "-m", "venv", environment.folder / "venv")
    _fetch(environment)
    _install(environment)
    stamp.write_text(needs)
    return environment


def _fetch(environment: Environment) -> None:
    suite, folder = environment.suite, environment.folder / "sdist"
    if suite.archive:
        folder.mkdir()
        _download(suite.archive, folder / suite.archive.rpartition("/")[2])
    else:
        name = suite.package.partition("=")[0]
        _pip(environment, "download", "--no-deps", "--no-binary", name, "--dest", folder, suite.package)
    (archive,) = folder.iterdir()
    with tarfile.open(archive) as tar:
        tar.extractall(environment.folder / "source", filter="data")


def _download(address: str, target: Path) -> None:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            target.write_bytes(answer.read())
    except OSError as problem:
        raise CannotBeRun(f"{address}: {problem}") from problem


def _install(environment: Environment) -> None:
    suite = environment.suite
    extras = f"[{','.join(suite.extras)}]" if suite.extras else ""
    project = ["--editable", f"{environment.source}{extras}"] if suite.installed else []
    _pip(environment, "install", "--prefer-binary", "pytest>=8.2", *suite.install, *project)
    if "uvloop" not in suite.install:
        _pip(environment, "uninstall", "--yes", "uvloop")  # Frameworks that require it would use it.


def _pip(environment: Environment, verb: str, *arguments: object) -> None:
    options = ("--quiet", "--disable-pip-version-check", "--retries", "2", "--timeout", "30")
    _call(environment.python, "-m", "pip", verb, *options, *arguments)


def _call(*command: object) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["GIT_CEILING_DIRECTORIES"] = str(BUILD)  # Tools that ask git for a version shall not find ours.
    words = [str(word) for word in command]
    answer = subprocess.run(words, env=clean, capture_output=True, text=True)
    if answer.returncode:
        raise CannotBeRun(f"{' '.join(words)}\n{(answer.stdout + answer.stderr)[-4000:]}")
