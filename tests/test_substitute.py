"""Whorl in the place of uvloop: what programs that import uvloop by name find, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import whorl
from whorl import substitute

VERSION = "0.23.0"
ASK = "import uvloop; print(uvloop.Loop.__module__.partition('.')[0])"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ASK!r}], check=True)"


def output(*command: str, environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run Python to its end, with warnings as errors; return its output."""
    result = subprocess.run(
        [sys.executable, "-W", "error", *command],
        env={**os.environ, **(environment or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def after(code: str, **environment: str) -> str:
    """Return the output of a program in which Whorl is in the place of uvloop."""
    return output("-c", f"import whorl; whorl.as_uvloop(); {code}", environment=environment)


@pytest.fixture
def real(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which a package that is not Whorl's has the name uvloop."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/uvloop.py").write_text("class Loop: __module__ = 'real.one'")
    paths = [str(tmp_path / "real"), *filter(None, sys.path)]
    return {"PYTHONPATH": os.pathsep.join(paths)}


def test_uvloops_names_are_whorls() -> None:
    code = (
        "import asyncio, uvloop, uvloop.loop, warnings\n"
        "assert uvloop.Loop is uvloop.loop.Loop is whorl.EventLoop\n"
        "async def loop(): return asyncio.get_running_loop()\n"
        "assert isinstance(uvloop.run(loop()), uvloop.Loop)\n"
        "new = uvloop.new_event_loop(); assert isinstance(new, uvloop.Loop); new.close()\n"
        "warnings.simplefilter('ignore')\n"
        "assert not isinstance(asyncio.run(loop()), uvloop.Loop)\n"
        "uvloop.install()\n"
        "assert isinstance(asyncio.get_event_loop_policy(), uvloop.EventLoopPolicy)\n"
        "assert isinstance(asyncio.run(loop()), uvloop.Loop)\n"
        "print(uvloop.__version__)"
    )
    assert after("\n" + code) == f"{VERSION}\n"


def test_classes_that_programs_name_are_those_of_what_the_loop_makes() -> None:
    code = (
        "import asyncio, uvloop\n"
        "from uvloop.loop import Handle, Server, SSLProtocol, TCPTransport, TimerHandle, UDPTransport\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    server = await loop.create_server(asyncio.Protocol, '127.0.0.1', 0)\n"
        "    address = server.sockets[0].getsockname()\n"
        "    stream, _ = await loop.create_connection(asyncio.Protocol, *address)\n"
        "    endpoint, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ('127.0.0.1', 0))\n"
        "    print(isinstance(stream, TCPTransport), isinstance(endpoint, UDPTransport))\n"
        "    print(isinstance(server, Server), issubclass(SSLProtocol, asyncio.BaseProtocol))\n"
        "    soon, later = loop.call_soon(int), loop.call_later(0, int)\n"
        "    print(isinstance(soon, Handle), isinstance(later, TimerHandle))\n"
        "    for one in (stream, endpoint, server): one.close()\n"
        "uvloop.run(main())"
    )
    assert after("\n" + code) == 3 * "True True\n"


def test_run_takes_any_awaitable() -> None:
    code = (
        "import uvloop\n"
        "class Answer:\n"
        "    def __await__(self):\n"
        "        yield\n"
        "        return 'done'\n"
        "print(uvloop.run(Answer()))"
    )
    assert after("\n" + code) == "done\n"


def test_run_refuses_a_loop_of_another_class() -> None:
    code = (
        "import asyncio, uvloop\n"
        "try: uvloop.run(object(), loop_factory=asyncio.SelectorEventLoop)\n"
        "except TypeError as error: print(error)"
    )
    assert after("\n" + code) == "uvloop.run() got a non-uvloop event loop from loop_factory\n"


def test_stand_in_says_what_it_is() -> None:
    assert after("import uvloop; print(uvloop)") == (
        f"<module 'uvloop': Whorl {whorl.__version__} in the place of uvloop {VERSION}>\n"
    )


def test_stand_in_is_found_and_has_a_version_without_an_import() -> None:
    code = (
        "import sys, importlib.metadata, importlib.util;"
        "print(importlib.metadata.version('uvloop'), bool(importlib.util.find_spec('uvloop').origin),"
        "'uvloop' in sys.modules)"
    )
    assert after(code) == f"{VERSION} True False\n"


def test_stand_in_comes_before_the_real_one(real: dict[str, str]) -> None:
    assert output("-c", ASK, environment=real) == "real\n"
    assert after(ASK, **real) == "whorl\n"


def test_stand_in_refuses_if_the_real_one_was_imported(real: dict[str, str]) -> None:
    code = (
        "import uvloop, whorl\n"
        "try: whorl.as_uvloop()\n"
        "except RuntimeError as error: print(uvloop.__file__ in str(error), error)"
    )
    assert output("-c", code, environment=real).startswith("True the real uvloop has been imported already")


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        IN_A_CHILD,
        "import os; os.execv(sys.executable, [sys.executable, '-c', {ask!r}])",
        "import subprocess; subprocess.run([sys.executable, '-c', {child!r}], check=True)",
    ],
    ids=["child", "exec", "grandchild"],
)
def test_stand_in_reaches_children_that_do_not_import_whorl(start: str, real: dict[str, str]) -> None:
    assert after(f"import sys; {start.format(ask=ASK, child=IN_A_CHILD)}", **real) == "whorl\n"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_stand_in_reaches_children_of_multiprocessing(tmp_path: Path, method: str) -> None:
    (tmp_path / "asked.py").write_text(f"def ask():\n    {ASK}")
    (tmp_path / "program.py").write_text(
        "import multiprocessing, whorl, asked\n"
        "if __name__ == '__main__':\n"
        "    whorl.as_uvloop()\n"
        f"    process = multiprocessing.get_context('{method}').Process(target=asked.ask)\n"
        "    process.start(); process.join()\n"
    )
    assert output("program.py", cwd=tmp_path) == "whorl\n"


@pytest.mark.slow
def test_stand_in_gives_way_in_a_child_whose_python_has_no_whorl(real: dict[str, str]) -> None:
    # The folder of the stand-in, and the real one, but nothing else.
    paths = os.pathsep.join([substitute.IMPORT_PATH, real["PYTHONPATH"].partition(os.pathsep)[0]])
    assert output("-S", "-c", ASK, environment={"PYTHONPATH": paths}) == "real\n"
    missing = "try: import uvloop\nexcept ModuleNotFoundError as error: print(error.name)"
    only_ours = {"PYTHONPATH": substitute.IMPORT_PATH}
    assert output("-S", "-c", missing, environment=only_ours) == "uvloop\n"


def test_stand_in_is_put_in_place_once() -> None:
    code = (
        "import os, sys; whorl.as_uvloop();"
        "print(sys.path.count(path := whorl.substitute.IMPORT_PATH), os.environ['PYTHONPATH'].count(path))"
    )
    assert after(code) == "1 1\n"
    assert after(code, PYTHONPATH=os.pathsep.join(filter(None, sys.path))) == "1 1\n"


@pytest.mark.parametrize(("value", "loop"), [("1", "whorl"), ("0", "real"), ("", "real")])
def test_environment_puts_the_stand_in_in_place(value: str, loop: str, real: dict[str, str]) -> None:
    assert output("-c", f"import whorl; {ASK}", environment={**real, "WHORL_AS_UVLOOP": value}) == f"{loop}\n"


@pytest.mark.slow
def test_command_line_puts_the_stand_in_in_place(real: dict[str, str]) -> None:
    pytest.importorskip("click", reason="the command line needs Click")
    run = ["-m", "whorl", "run"]
    assert output(*run, "--as-uvloop", "-c", IN_A_CHILD, environment=real) == "whorl\n"
    assert output(*run, "-c", IN_A_CHILD, environment=real) == "real\n"
    assert output(*run, "-c", IN_A_CHILD, environment={**real, "WHORL_AS_UVLOOP": "1"}) == "whorl\n"
