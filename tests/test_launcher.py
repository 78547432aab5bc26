"""Programs under `whorl run`, beside the same programs under Python itself."""

from __future__ import annotations

import os
import py_compile
import signal
import subprocess
import sys
import zipapp
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("click", reason="the command line needs Click")

FACTS = """
import sys
main = sys.modules["__main__"]
print(sorted(set(vars(main)) - {"sys", "main", "__warningregistry__"}))
print(vars(main) is globals(), __name__, __doc__, repr(__package__), vars(main).get("__file__"))
print(vars(main).get("__cached__"), __spec__ and (__spec__.name, __spec__.origin, __spec__.cached))
print(getattr(__loader__, "__name__", type(__loader__)))
print(sys.argv, repr(sys.path[0]))
"""

ENDS = {
    "nothing": "pass",
    "exit": "import sys; sys.exit()",
    "exit-with-a-number": "raise SystemExit(7)",
    "exit-with-a-large-number": "raise SystemExit(259)",
    "exit-with-a-text": "raise SystemExit('no')",
    "exit-with-an-object": "raise SystemExit((1, 2))",
    "error": "def f():\n    1 / 0\n\nf()",
    "error-with-a-cause": "try:\n    {}[1]\nexcept KeyError as e:\n    raise ValueError(2) from e",
    "error-group": "raise ExceptionGroup('several', [ValueError(1)])",
    "error-with-notes": "e = ValueError()\ne.add_note('x')\nraise e",
    "syntax-error": "print(1)\nx = = 2\n",
    "own-excepthook": "import sys\nsys.excepthook = lambda *a: print('hook', *a[:2])\n1 / 0",
    "exit-in-an-excepthook": "import sys\nsys.excepthook = lambda *a: sys.exit(4)\n1 / 0",
    "interrupt": "raise KeyboardInterrupt",
    "interrupt-in-a-coroutine": (
        "import asyncio, signal\nasync def main():\n    signal.raise_signal(signal.SIGINT)\n"
        "    await asyncio.sleep(9)\ntry: asyncio.run(main())\nexcept KeyboardInterrupt as e:\n"
        "    raise e.with_traceback(None) from None"
    ),
    "atexit-and-threads": (
        "import atexit, threading\natexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: print(threading.main_thread().is_alive())).start()\n"
        "raise LookupError"
    ),
    "output-that-is-not-flushed": "import sys\nsys.stdout.write('out')\nsys.stderr.write('err')\nsys.exit(3)",
    "output-to-nobody": "import os\nr, w = os.pipe()\nos.close(r)\nos.dup2(w, 1)\nprint(1)",
    "names-after-the-end": "import atexit\nvalue = 5\natexit.register(lambda: print(value, __name__))",
    "pickle": "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))) is C)",
    "future-imports-are-its-own": "def f(x: 1): pass\nprint(f.__annotations__)",
}


@dataclass(frozen=True)
class End:
    """The status, output and errors of a process that has ended."""

    status: int
    output: str
    errors: str


def ended(folder: Path, *command: str, stdin: str = "", options: tuple[str, ...] = ()) -> End:
    """Run Python in a folder to its end."""
    result = subprocess.run(
        [sys.executable, *options, *command],
        cwd=folder,
        input=stdin,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return End(result.returncode, result.stdout, result.stderr)


def assert_alike(folder: Path, *command: str, stdin: str = "", options: tuple[str, ...] = ()) -> End:
    """Assert that a program does the same under Whorl as under Python; return that."""
    by_python = ended(folder, *command, stdin=stdin, options=options)
    by_whorl = ended(folder, "-m", "whorl", "run", *command, stdin=stdin, options=options)
    assert by_whorl == by_python
    return by_whorl


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with one program in each form that Python runs."""
    (tmp_path / "app.py").write_text(FACTS)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(FACTS)
    (package / "module.py").write_text(FACTS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/link.py").symlink_to(tmp_path / "app.py")
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "__main__.py").write_text(FACTS)
    zipapp.create_archive(plain, tmp_path / "app.zip")
    py_compile.compile(str(tmp_path / "app.py"), str(tmp_path / "app.pyc"), doraise=True)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("app.py",),
        ("./app.py", "-m", "--help", "-"),
        ("other/link.py", "x"),
        ("app.pyc", "x"),
        ("plain/", "-c"),
        ("app.zip", "x"),
        ("-m", "package", "--version"),
        ("-m", "package.module", "-m", "x"),
        ("-m", "app"),
        ("-m", "missing"),
        ("-m", "package.missing"),
        pytest.param(("-c", FACTS, "-x", "y"), id="-c"),
        ("-c", "import app"),
        ("-c", "    import app"),
        ("-", "-x"),
    ],
    ids=" ".join,
)
def test_program_sees_what_it_sees_under_python(folder: Path, command: tuple[str, ...]) -> None:
    assert_alike(folder, *command, stdin=FACTS)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("app.py",), ("app.zip",), ("-c", FACTS)], ids=["file", "zip", "text"])
def test_program_has_no_folder_on_a_safe_import_path(folder: Path, command: tuple[str, ...]) -> None:
    assert_alike(folder, *command, options=("-P",))


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_script_ends_as_it_does_under_python(tmp_path: Path, end: str) -> None:
    assert_ends_alike(tmp_path, end, "script")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["error", "syntax-error", "interrupt", "exit-with-a-text"])
@pytest.mark.parametrize("form", ["module", "command", "stdin"])
def test_program_of_another_form_ends_as_it_does_under_python(tmp_path: Path, end: str, form: str) -> None:
    assert_ends_alike(tmp_path, end, form)


def assert_ends_alike(tmp_path: Path, end: str, form: str) -> None:
    (tmp_path / "app.py").write_text(ENDS[end])
    commands = {"script": ["app.py"], "module": ["-m", "app"], "command": ["-c", ENDS[end]], "stdin": ["-"]}
    result = assert_alike(tmp_path, *commands[form], stdin=ENDS[end])
    if end.startswith("interrupt"):
        assert result.status == -signal.SIGINT


@pytest.mark.slow
def test_wrong_options_of_the_command_line_are_usage_errors(tmp_path: Path) -> None:
    for wrong in (["-m", "-c", "x"], ["-m"], ["-c"], []):
        result = ended(tmp_path, "-m", "whorl", "run", *wrong)
        assert result.status == 2
        assert "Usage" in result.errors


@pytest.mark.slow
def test_program_that_uses_click_is_not_inside_whorls_command(tmp_path: Path) -> None:
    code = "import click; print(click.get_current_context(silent=True))"
    assert ended(tmp_path, "-m", "whorl", "run", "-c", code) == End(0, "None\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_functions_of_the_program_run_in_child_processes(tmp_path: Path, method: str) -> None:
    (tmp_path / "app.py").write_text(
        "import multiprocessing\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context('{method}').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n"
    )
    assert assert_alike(tmp_path, "app.py").output == "[2, 4]\n"
