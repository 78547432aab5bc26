"""Run the recipes as their first lines say, on the Whorl and the packages of this interpreter.

usage: python recipes [NAME...]

A recipe's docstring has its command. After `curl ADDRESS` it is a service: it has to answer with the name of
Whorl's loop, and to end by SIGINT. A recipe without its packages or servers is named and left out.
The exit status is 1 if a recipe failed.
"""

from __future__ import annotations

import ast
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER.parent / "bench"))

from measure import Cores  # noqa: E402 - it is in the folder above
from programs import services  # noqa: E402

START_SECONDS = 60  # until the first answer of a service
STOP_SECONDS = 60
PORT = "8000"  # in the recipes; each run takes another
SERVERS = {"REDIS_URL": "redis", "DATABASE_URL": "postgresql"}
ENDED_BY_SIGINT = (0, 130, -signal.SIGINT)


class Failed(Exception):
    """The recipe did not do what it says."""


@dataclass(frozen=True)
class Recipe:
    """A recipe, as its first lines describe it."""

    path: Path
    packages: list[str]
    command: list[str]
    variables: dict[str, str]
    address: str | None

    @classmethod
    def read(cls, path: Path) -> Recipe:
        """Read a recipe."""
        source = path.read_text()
        shown = [line[2:] for line in _docstring(source).splitlines() if line.startswith("$ ")]
        words = shlex.split(shown[0])
        assignments = [word for word in words if "=" in word.partition("/")[0] and not word.startswith("-")]
        asked = [line.removeprefix("curl ") for line in shown[1:] if line.startswith("curl ")]
        return cls(
            path,
            [name for name in _dependencies(source) if name != "whorl-loop"],
            words[len(assignments) :],
            dict(word.split("=", 1) for word in assignments),
            asked[0] if asked else None,
        )

    def lacks(self) -> list[str]:
        """Return the packages that are not installed."""
        return [name for name in self.packages if not _is_installed(name.partition("[")[0])]

    def servers(self) -> dict[str, str]:
        """Return the servers that it needs, by the variables that say where they are."""
        return {name: SERVERS[name] for name in self.variables if name in SERVERS}


def _docstring(source: str) -> str:
    return ast.get_docstring(ast.parse(source)) or ""


def _dependencies(source: str) -> list[str]:
    """Return the packages in the metadata of a script (PEP 723)."""
    inside = source.partition("# /// script\n")[2].partition("# ///\n")[0]
    names: list[str] = tomllib.loads("\n".join(line[2:] for line in inside.splitlines()))["dependencies"]
    return names


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def run(recipe: Recipe, addresses: Mapping[str, str]) -> None:
    """Run a recipe in a folder of its own; raise `Failed` if it fails."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="recipe-") as folder:
        for path in (recipe.path, FOLDER / "pytest.ini"):
            Path(folder, path.name).write_text(path.read_text().replace(PORT, port))
        words = [word.replace(PORT, port) for word in recipe.command]
        command = [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", *words]
        environment = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
        environment.update(recipe.variables)
        environment.update({name: addresses[server] for name, server in recipe.servers().items()})
        output = Path(folder, "output")
        try:
            _follow(recipe, port, command, folder, environment, output)
        except Failed as reason:
            raise Failed(f"{reason}\n{output.read_text()}") from None


def _follow(
    recipe: Recipe, port: str, command: list[str], folder: str, environment: Mapping[str, str], output: Path
) -> None:
    with open(output, "w") as file, _process(command, folder, environment, file) as process:
        allowed: tuple[int, ...] = (0,)
        if recipe.address is not None:
            _check_answer(process, recipe.address.replace(PORT, port))
            process.send_signal(signal.SIGINT)
            allowed = ENDED_BY_SIGINT
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failed(f"it goes on after {STOP_SECONDS} seconds") from None
        if code not in allowed:
            raise Failed(f"it ended with {code}")


@contextlib.contextmanager
def _process(
    command: list[str], folder: str, environment: Mapping[str, str], output: object
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _check_answer(process: subprocess.Popen[bytes], address: str) -> None:
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=5) as response:
                answer = response.read().decode()
        except OSError:
            time.sleep(0.05)
            continue
        if "whorl.aio.loop.event_loop" not in answer:
            raise Failed(f"its loop is another: {answer}")
        return
    raise Failed("it does not answer")


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.py") if path.name != "__main__.py")
    recipes = [Recipe.read(FOLDER / f"{name}.py") for name in names]
    able = [recipe for recipe in recipes if not recipe.lacks()]
    needed = {server for recipe in able for server in recipe.servers().values()}
    failures = 0
    with services.running(needed, Cores.of_this_machine()) as addresses:
        for recipe in recipes:
            began = time.monotonic()
            servers = recipe.servers().values()
            absent = recipe.lacks() or [server for server in servers if server not in addresses]
            try:
                outcome = f"left out: there is no {', '.join(absent)}" if absent else "ok"
                if not absent:
                    run(recipe, addresses)
            except Failed as reason:
                failures += 1
                outcome = f"failed: {reason}"
            print(f"{recipe.path.stem:28}{time.monotonic() - began:6.1f} s  {outcome}", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
