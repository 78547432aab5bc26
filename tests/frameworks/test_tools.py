"""Tools that programs are tested and measured with, each in an interpreter of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import whorl
from tests.children import bare_environment

CONFTEST = """
import asyncio
import pytest
import whorl

{fixture}
"""
TESTS = """
import asyncio
import pytest

{mark}

@pytest.fixture
async def number():
    await asyncio.sleep(0)
    yield 42
    await asyncio.sleep(0)

async def test_coroutines_run_on_whorl(number):
    assert type(asyncio.get_running_loop()).__module__ == "whorl.aio.loop.event_loop"
    assert number == 42

@pytest.mark.xfail(strict=True, raises=LookupError)
async def test_an_error_is_an_error():
    await asyncio.sleep(0)
    raise LookupError
"""


def run_pytest(folder: Path, plugin: str, fixture: str, mark: str, *options: str) -> str:
    """Run two tests under a plugin; what pytest says in the end."""
    (folder / "conftest.py").write_text(CONFTEST.format(fixture=fixture))
    (folder / "test_program.py").write_text(TESTS.format(mark=mark))
    (folder / "pytest.ini").write_text("[pytest]\n")
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin, *options, str(folder)],
        cwd=folder,
        env=bare_environment(HOME=str(folder), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout.strip().splitlines()[-1]


@pytest.mark.slow
def test_pytest_asyncio_runs_tests_on_whorl(tmp_path: Path) -> None:
    pytest.importorskip("pytest_asyncio", reason="pytest-asyncio is not installed")
    fixture = """
@pytest.fixture(scope="session")
def event_loop_policy():
    return whorl.EventLoopPolicy()
"""
    if not hasattr(asyncio, "get_event_loop_policy") or sys.version_info >= (3, 14):
        fixture = """
import warnings
@pytest.fixture(scope="session")
def event_loop_policy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return whorl.EventLoopPolicy()
"""
    last = run_pytest(tmp_path, "pytest_asyncio.plugin", fixture, "", "-o", "asyncio_mode=auto")
    assert last.startswith("1 passed, 1 xfailed")


@pytest.mark.slow
def test_anyios_plugin_runs_tests_on_whorl(tmp_path: Path) -> None:
    pytest.importorskip("anyio", reason="anyio is not installed")
    fixture = """
@pytest.fixture
def anyio_backend():
    return "asyncio", {"loop_factory": whorl.new_event_loop}
"""
    last = run_pytest(tmp_path, "anyio.pytest_plugin", fixture, "pytestmark = pytest.mark.anyio")
    assert last.startswith("1 passed, 1 xfailed")


async def test_anyios_task_groups_and_threads_work(loop: whorl.EventLoop) -> None:
    anyio = pytest.importorskip("anyio", reason="anyio is not installed")
    seen: list[str] = []

    async def work(name: str) -> None:
        await anyio.sleep(0)
        seen.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(work, "first")
        group.start_soon(work, "second")
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert await anyio.to_thread.run_sync(lambda: anyio.from_thread.run_sync(seen.pop)) == "second"


PROGRAM = """
import asyncio
import whorl

def callback(done):
    answer = 42
    done.set_result(answer)

async def main():
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(callback, done)
    if await done == 41:
        print("never")
    return "end"

print(whorl.run(main()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("core", ["ctrace", "pytrace", "sysmon"])
def test_coverage_sees_what_runs_in_callbacks_and_tasks(tmp_path: Path, core: str) -> None:
    pytest.importorskip("coverage", reason="coverage is not installed")
    if core == "sysmon" and sys.version_info < (3, 12):
        pytest.skip("sys.monitoring is new in Python 3.12")
    if core == "ctrace":
        pytest.importorskip("coverage.tracer", reason="coverage has no tracer in C for this Python")
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = bare_environment(COVERAGE_CORE=core)
    for command in (["run", "program.py"], ["json", "-q", "--include", "program.py"]):
        answer = subprocess.run(
            [sys.executable, "-m", "coverage", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
    report = json.loads((tmp_path / "coverage.json").read_text())
    never = PROGRAM.splitlines().index('        print("never")') + 1
    assert report["files"]["program.py"]["missing_lines"] == [never]


NESTING = """
import asyncio, importlib, sys, whorl
name, apply, policy = sys.argv[1:]
nest = importlib.import_module(name)
if policy == "policy":
    whorl.install()


async def give(value):
    await asyncio.sleep(0.001)
    return value


async def main():
    if apply == "inside":
        nest.apply()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert isinstance(loop, whorl.EventLoop)
    got = [loop.run_until_complete(give(1)), asyncio.run(give(2)), whorl.run(give(3)), await give(4)]
    assert await asyncio.gather(*(nested(number) for number in range(3))) == [0, 1, 2]
    assert asyncio.get_running_loop() is loop and asyncio.current_task() is task
    return got


async def nested(number):
    return asyncio.get_running_loop().run_until_complete(give(number))


if apply == "before":
    loop = whorl.EventLoop()
    asyncio.set_event_loop(loop)
    nest.apply(loop)
elif apply == "before in general":
    nest.apply(asyncio.SelectorEventLoop())
if policy == "compiled":
    loop = whorl.new_event_loop(tasks="compiled")
    print(loop.run_until_complete(main()))
elif apply != "inside":
    asyncio.set_event_loop(whorl.EventLoop())
    print(asyncio.run(main()))
else:
    print(whorl.run(main()))
print("run_forever" in vars(whorl.EventLoop))
"""


@pytest.mark.parametrize("name", ["nest_asyncio", "nest_asyncio2"])
@pytest.mark.parametrize("apply", ["before", "before in general", "inside"])
@pytest.mark.parametrize("policy", ["policy", "no policy", "compiled"])
def test_nest_asyncio_lets_runs_of_our_loops_nest(name: str, apply: str, policy: str) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    if name == "nest_asyncio" and sys.version_info >= (3, 14):
        pytest.skip("nest_asyncio knows no current task since Python 3.14, on asyncio too")
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NESTING, name, apply, policy],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == ["[1, 2, 3, 4]", "False"]
