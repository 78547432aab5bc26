"""The build that is tested is the one that was asked for, and the tools that make builds keep their word."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

import whorl
from build_tools import extensions, profiles
from build_tools.sources import ROOT, SOURCES, Module, compiled_modules, content, inputs
from tests.children import bare_environment

EXTENSION_SUFFIXES = tuple(importlib.machinery.EXTENSION_SUFFIXES)


def loaded_from(name: str) -> str:
    return importlib.import_module(name).__file__ or ""


def test_every_module_is_what_the_build_says(expected_build: str) -> None:
    names = [
        item.name
        for item in pkgutil.walk_packages(whorl.__path__, "whorl.")
        if not item.name.endswith("__main__")
    ]
    found = {name for name in names if loaded_from(name).endswith(EXTENSION_SUFFIXES)}
    compiled = {extensions.NAME, *(module.name for module in compiled_modules())}
    assert found == (compiled if expected_build == "compiled" else set())


def test_whorl_says_which_build_it_is(expected_build: str) -> None:
    assert whorl.compiled == (expected_build == "compiled")


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python cannot do without its lock"
)
def test_whorl_leaves_the_gil_off_unless_it_was_built_to_need_it() -> None:
    program = "import sys, whorl; print(sys._is_gil_enabled(), whorl.compiled)"
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    turns_it_on = whorl.compiled and os.environ.get("WHORL_FREE_THREADED") == "0"
    assert answer.stdout == f"{turns_it_on} {whorl.compiled}\n"
    said = "RuntimeWarning: The global interpreter lock (GIL) has been enabled to load module 'whorl."
    assert (said in answer.stderr) == turns_it_on


def test_machines_that_share_a_folder_have_builds_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = set()
    for machine in ("x86_64", "aarch64", "riscv64"):
        monkeypatch.setattr(extensions.platform, "machine", lambda machine=machine: machine)
        tags.add(extensions.tag())
    assert len(tags) == 3


# The build's own tools, on a package in which `square` cimports `shapes` and has headers; `plain` is pure.

builds_anew = pytest.mark.skipif(
    os.environ.get("WHORL_BUILD") == "pure", reason="the same with the compiled build, and slow"
)

PACKAGE = {
    "whorl/__init__.py": '__version__ = "1.0"\n',
    "whorl/py.typed": "",
    "whorl/plain.py": "",
    "whorl/shapes.py": "class Shape:\n    def __init__(self, size):\n        self.size = size\n",
    "whorl/shapes.pxd": "cdef class Shape:\n    cdef public int size\n",
    "whorl/square.py": "def area(shape):\n    return shape.size * shape.size\n",
    "whorl/square.pxd": (
        "from whorl.shapes cimport Shape\n\n"
        'cdef extern from "whorl/limits.h":\n    int LARGEST\n\n'
        "cpdef int area(Shape shape) except -1\n"
    ),
    "whorl/limits.h": '#include "whorl/word.h"\n#define LARGEST (WORD / 2)\n',
    "whorl/word.h": "#define WORD 65536\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHORL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONMALLOC", raising=False)  # Cython and pip are not under test, and slow with it
    for name, text in PACKAGE.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src"


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_a_module_is_compiled_when_declarations_stand_beside_it(folder: Path) -> None:
    (folder / "whorl/only_declared.pxd").touch()
    assert [module.name for module in compiled_modules(folder)] == ["whorl.shapes", "whorl.square"]


@pytest.mark.parametrize(
    "line",
    [
        "from whorl.shapes cimport Shape",
        "from whorl cimport shapes as s",
        "cimport whorl.shapes as shapes",
        "from . cimport shapes",
        "from .shapes cimport Shape",
        "from whorl.shapes cimport (\n    Shape,  # why\n    Other,\n)",
    ],
)
def test_cimported_declarations_are_inputs_of_a_module(folder: Path, line: str) -> None:
    (folder / "whorl/square.pxd").write_text(line + "\n")
    assert names(inputs(Module("whorl.square", folder))) == ["shapes.pxd", "square.pxd", "square.py"]


def test_indirectly_cimported_declarations_are_inputs_of_a_module(folder: Path) -> None:
    (folder / "whorl/shapes.pxd").write_text("from whorl.points cimport Point\n")
    (folder / "whorl/points.pxd").touch()
    assert "points.pxd" in names(inputs(Module("whorl.square", folder)))


def test_whole_numbers_of_a_cimported_module_without_declarations_are_constants_of_c(folder: Path) -> None:
    square, plain = Module("whorl.square", folder), folder / "whorl/plain.py"
    square.declarations.write_text("from whorl cimport plain\n")
    plain.write_text("LEAST, NAME, IS, FAR, TOO_FAR = -1, 'x', True, 1 << 40, 1 << 64\n")
    assert names(inputs(square)) == ["plain.py", "square.pxd", "square.py"]
    declared = content(plain, square)
    assert b'    int LEAST "(-1)"\n    int64_t FAR "(1099511627776)"\n' in declared
    assert not [name for name in (b"NAME", b"IS", b"TOO_FAR") if name in declared]
    plain.write_text(plain.read_text() + "# No new number: nothing is compiled again.\n")
    assert content(plain, square) == declared


@pytest.mark.parametrize("including", ["shapes", "square"])
def test_a_header_that_is_included_decides_about_a_module(folder: Path, including: str) -> None:
    (folder / f"whorl/{including}.pxd").write_text(
        'from whorl.shapes cimport *\ncdef extern from "whorl/limits.h" nogil:\n    int LARGEST\n'
    )
    assert {"limits.h", "word.h"} < set(names(inputs(Module("whorl.square", folder))))


needs_cython = pytest.mark.skipif(
    importlib.util.find_spec("Cython") is None, reason="Cython is not installed"
)


def is_gcc() -> bool:
    """Return whether the compiler of this Python is GCC; without a compiler it is not."""
    try:
        return "Free Software Foundation" in extensions.compiler_text()
    except extensions.BuildError:
        return False


needs_gcc = pytest.mark.skipif(not is_gcc(), reason="GCC alone makes profiles of this form")


def built(folder: Path) -> dict[Module, Path]:
    """Build the small package; return the newest object file of each module."""
    modules = compiled_modules(folder)
    extensions.build(modules, "release")
    cache = folder.parent / "cache"
    return {
        module: max(cache.glob(f"objects-*/{module.name}.*.o"), key=lambda path: path.stat().st_mtime_ns)
        for module in modules
    }


@pytest.mark.slow
@builds_anew
@needs_cython
def test_build_compiles_only_changed_modules_again(folder: Path) -> None:
    shapes, square = compiled_modules(folder)
    first = built(folder)
    assert built(folder) == first
    square.source.write_text(square.source.read_text() + "\nMORE = 1\n")
    second = built(folder)
    assert (second[shapes] == first[shapes], second[square] == first[square]) == (True, False)
    shapes.declarations.write_text("cdef class Shape:\n    cdef public long size\n")
    third = built(folder)
    assert (third[shapes] == first[shapes], third[square] == second[square]) == (False, False)


@pytest.mark.slow
@builds_anew
@needs_cython
def test_a_changed_header_compiles_only_what_includes_it_and_translates_nothing(folder: Path) -> None:
    shapes, square = compiled_modules(folder)
    first = built(folder)
    translated = set((folder.parent / "cache").glob("c-release/*.c"))
    (folder / "whorl/word.h").write_text("#define WORD 256\n")
    second = built(folder)
    assert (second[shapes] == first[shapes], second[square] == first[square]) == (True, False)
    assert set((folder.parent / "cache").glob("c-release/*.c")) == translated


@pytest.fixture
def installed(folder: Path) -> Path:
    """Return the small package, with its shared object and what finds modules in it."""
    (folder / "whorl/__init__.py").write_text("import whorl.compiled_modules\n")
    shutil.copy(SOURCES / "whorl/compiled_modules.py", folder / "whorl")
    for package in ("one", "other"):
        (folder / f"whorl/{package}").mkdir()
        (folder / f"whorl/{package}/__init__.py").touch()
        (folder / f"whorl/{package}/same.py").write_text(f"package = {package!r}\nmodule = __name__\n")
        (folder / f"whorl/{package}/same.pxd").touch()
    shutil.copyfile(extensions.build(compiled_modules(folder), "release"), folder / extensions.file_name())
    return folder


def printed(folder: Path, program: str, **variables: str) -> str:
    """Return what a program prints that has the small package."""
    command = [sys.executable, "-W", "ignore", "-c", program]  # one without the GIL warns
    environment = {"PYTHONPATH": str(folder), "PATH": "", "WHORL_BUILD": "pure", **variables}
    return subprocess.check_output(command, env=environment, text=True, timeout=60).rstrip("\n")


@pytest.mark.slow
@builds_anew
@needs_cython
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(
            "from whorl.one import same; from whorl.other import same as s; print(same.package, s.package)",
            "one other",
            id="two with one last name",
        ),
        pytest.param(
            "from whorl.other import same as s; print(s.__name__, s.module, s.__spec__.name, s.__package__)",
            "whorl.other.same whorl.other.same whorl.other.same whorl.other",
            id="names",
        ),
        pytest.param(
            "from whorl import shapes, square; print(square.area(shapes.Shape(3)), shapes.Shape.__module__)",
            "9 whorl.shapes",
            id="a class that another cimports",
        ),
        pytest.param(
            "import pathlib; from whorl import plain, shapes, _compiled;"
            " print(pathlib.Path(plain.__file__).name, shapes.__file__ == _compiled.__file__)",
            "plain.py True",
            id="files",
        ),
    ],
)
def test_modules_of_one_shared_object_are_their_own(installed: Path, program: str, expected: str) -> None:
    assert printed(installed, program) == expected


@pytest.mark.slow
@builds_anew
@needs_cython
def test_a_module_that_the_shared_object_lacks_is_imported_uncompiled(installed: Path) -> None:
    (installed / "whorl/later.py").write_text("")
    (installed / "whorl/later.pxd").touch()
    program = "import pathlib; from whorl import later; print(pathlib.Path(later.__file__).name)"
    assert printed(installed, program) == "later.py"


@pytest.mark.slow
@builds_anew
@needs_cython
def test_a_package_without_its_shared_object_is_imported_uncompiled(installed: Path) -> None:
    (installed / extensions.file_name()).unlink()
    program = "import pathlib; from whorl import shapes; print(pathlib.Path(shapes.__file__).name)"
    assert printed(installed, program) == "shapes.py"


@pytest.mark.slow
@builds_anew
@needs_cython
def test_a_shared_object_that_cannot_be_loaded_is_an_error(installed: Path) -> None:
    (installed / extensions.file_name()).write_bytes(b"not what it was")
    program = "try: import whorl\nexcept ImportError as error: print(type(error).__name__)"
    assert printed(installed, program) == "ImportError"


@pytest.mark.slow
@builds_anew
@needs_cython
def test_a_changed_list_of_modules_links_again(folder: Path) -> None:
    modules = compiled_modules(folder)
    both = extensions.build(modules, "release")
    one = extensions.build(modules[:1], "release")
    assert both != one
    assert extensions.build(modules, "release") == both
    assert both.exists()


@needs_cython
def test_a_profiled_build_without_a_profile_is_an_error(folder: Path) -> None:
    with pytest.raises(extensions.BuildError, match=r"has no profile of these sources"):
        extensions.build(compiled_modules(folder), "profiled")


@pytest.mark.parametrize("has_gil", [True, False])
def test_the_loads_of_a_profile_run_simulated_worlds_with_the_gil(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_gil: bool
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command[1:])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(extensions, "counting", dict)
    monkeypatch.setattr(extensions, "recordings", lambda modules: {})
    monkeypatch.setattr(profiles, "keep", lambda modules: None)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: not has_gil)
    profiles.record(tmp_path)
    [simulated] = [words for words in ran if "simulated" in words]
    assert simulated[-3:] == ["-m", "build_tools.training", "simulated"]
    assert [words for words in ran if "gil=1" in words] == ([] if has_gil else [simulated])


def test_the_loads_of_a_profile_are_the_cases_of_the_bench() -> None:
    check = "from build_tools import training as t; print(len(t.of_the_bench()), len(t.watched()))"
    answer = subprocess.run(
        [sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loads, watched = map(int, answer.stdout.split())
    assert loads > 20
    assert watched == 5


@pytest.mark.slow
@builds_anew
@needs_cython
@needs_gcc
def test_a_profile_counts_for_the_sources_that_it_was_recorded_with(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = compiled_modules(installed)
    recording = extensions.build(modules, "recording")
    area = "from whorl import shapes, square; print(square.area(shapes.Shape(3)))"
    made = []
    for load in ("import whorl.square", f"{area}\nfor _ in range(100_000): square.area(shapes.Shape(3))"):
        shutil.copyfile(recording, installed / extensions.file_name())
        printed(installed, load)
        profiles.keep(modules)
        built = extensions.build(modules, "profiled")
        made.append(built.read_bytes())
        shutil.copyfile(built, installed / extensions.file_name())
        assert printed(installed, area) == "9"
    assert made[0] != made[1]
    monkeypatch.setenv("WHORL_PROFILE", str(extensions.profile_folder()))
    elsewhere = shutil.copytree(installed, installed.parent / "elsewhere")
    monkeypatch.setenv("WHORL_CACHE", str(elsewhere / "cache"))
    assert extensions.build(compiled_modules(elsewhere), "profiled").read_bytes() == made[1]
    shapes = modules[[module.name for module in modules].index("whorl.shapes")]
    shapes.source.write_text(shapes.source.read_text() + "\nMORE = 1\n")
    with pytest.raises(extensions.BuildError, match=r"has no profile of these sources"):
        extensions.build(compiled_modules(installed), "profiled")


@pytest.mark.slow
@builds_anew
@needs_cython
@needs_gcc
def test_modules_that_left_no_counts_have_no_profile(folder: Path) -> None:
    extensions.build(compiled_modules(folder), "recording")
    with pytest.raises(extensions.BuildError, match=r"the loads left no profile"):
        profiles.keep(compiled_modules(folder))


@needs_cython
def test_build_error_names_every_module_that_cannot_be_compiled(folder: Path) -> None:
    for module in compiled_modules(folder):
        module.source.write_text("x = \n")
    with pytest.raises(extensions.BuildError) as caught:
        extensions.build(compiled_modules(folder), "release")
    assert "whorl.shapes" in str(caught.value)
    assert "whorl.square" in str(caught.value)


@needs_cython
@pytest.mark.parametrize("line", ["cdef class Broken\n", "cdef nosuchtype thing\n"])
def test_error_in_a_pxd_ends_the_build_and_names_the_file(folder: Path, line: str) -> None:
    with (folder / "whorl/shapes.pxd").open("a") as declarations:
        declarations.write(line)
    with pytest.raises(extensions.BuildError, match=r"whorl/shapes\.pxd:"):
        extensions.build(compiled_modules(folder), "release")


def wheel(folder: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Build a wheel of the small package; what was said, and the suffixes of the package's files."""
    project = folder.parent
    shutil.copytree(ROOT / "build_tools", project / "build_tools")
    for name in ("setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, project / name)
    (project / "README.md").touch()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-v",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "wheels",
        ".",
    ]
    answer = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "PYTHONPATH": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    contents = [
        Path(name).suffix
        for path in project.glob("wheels/*.whl")
        for name in zipfile.ZipFile(path).namelist()
        if name.startswith("whorl/")
    ]
    return answer, sorted(contents)


SOURCE_SUFFIXES = [*[".py"] * 4, ".typed"]  # no declarations in C


@pytest.mark.slow
@builds_anew
@needs_cython
def test_a_compiled_wheel_holds_one_shared_object_and_the_sources(folder: Path) -> None:
    answer, contents = wheel(folder, WHORL_BUILD="compiled")
    assert answer.returncode == 0, answer.stdout
    assert contents == sorted([*SOURCE_SUFFIXES, ".so"])


@pytest.mark.slow
@builds_anew
def test_a_pure_wheel_needs_no_compiler(folder: Path) -> None:
    answer, contents = wheel(folder, WHORL_BUILD="pure", CC="no-such-compiler")
    assert answer.returncode == 0, answer.stdout
    assert contents == sorted([*SOURCE_SUFFIXES, ".py"])  # One says that it was asked for.


@pytest.mark.slow
@builds_anew
@pytest.mark.parametrize("variables", [{}, {"WHORL_BUILD": "compiled"}], ids=["by default", "asked for"])
def test_a_wheel_without_a_compiler_is_an_error_that_says_what_to_do(
    folder: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHORL_BUILD", raising=False)
    answer, contents = wheel(folder, CC="no-such-compiler", **variables)
    assert answer.returncode != 0
    assert "no C compiler" in answer.stdout
    assert "set WHORL_BUILD=pure" in answer.stdout
    assert contents == []


@pytest.mark.slow
@builds_anew
@needs_cython
@needs_gcc
def test_modules_count_into_a_cache_that_was_moved(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = compiled_modules(installed)
    shutil.copyfile(extensions.build(modules, "recording"), installed / extensions.file_name())
    monkeypatch.setenv("WHORL_CACHE", str(installed.parent / "moved"))
    printed(installed, "import whorl.square", **extensions.counting())
    profiles.keep(modules)
    assert extensions.is_profile_of(modules)
