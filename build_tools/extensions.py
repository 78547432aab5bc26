"""From `.py` and `.pxd` to one shared object, by Cython, compiler and linker; each result is kept by content.

A digest of all inputs names each result, so no result is made twice. A `git checkout` that only moves
timestamps makes none anew. Other clones share the results when `WHORL_CACHE` names a shared folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from build_tools.sources import ROOT, Module, alone_in, content, inputs

JOBS = os.cpu_count() or 1
NAME = "whorl._compiled"
"""The module that is the shared object, and that names the modules in it."""
NAMES_SOURCE = Path(__file__).with_name("compiled.c")
TRANSLATION = Path(__file__).with_name("translation.py")
KEPT_VERSIONS = 6  # of each file in the cache: enough to go back and forth between two branches

_DIRECTIVES = {
    "language_level": "3",
    "annotation_typing": "False",  # annotations are for readers and mypy; C types stand in the .pxd
    "boundscheck": "True",
    "wraparound": "False",
    "initializedcheck": "False",
    "nonecheck": "True",
    "overflowcheck": "False",
    "cdivision": "False",
    "binding": "False",  # methods check the type of `self`; functions that become methods say so themselves
    "embedsignature": "True",
    "embedsignature.format": "clinic",
    "auto_pickle": "False",  # nothing here can sensibly be copied into another process
}
_CHECKS = {"boundscheck": "True", "wraparound": "True", "nonecheck": "True", "overflowcheck": "True"}

IMPORTS = "-DPyImport_ImportModule=whorl_import_module"  # which NAMES_SOURCE has
# What Python looks for in the shared object, and a test.
EXPORTS = "{ global: PyInit__compiled; whorl_import_module; local: *; };\n"
LINK_TIME = "-flto=auto"  # the linker sees all modules, and drops what it finds twice
# What GCC would do to make hot code quicker. Here it makes the code longer, and no quicker.
NOT_LONGER = [
    "-fno-tree-loop-vectorize",
    "-fno-tree-slp-vectorize",  # its pairs of pointers have to be relocated
    "-fno-ipa-cp-clone",
    "-fno-unroll-loops",
    "-fno-peel-loops",
    "-fno-split-loops",
    "-fno-unswitch-loops",
    "-fno-version-loops-for-strides",
    "-fno-tracer",
    "-fno-schedule-insns2",
]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
THREADS = "-fsanitize=thread"
SUPPRESSIONS = ROOT / "tests" / "stress" / "suppressions.txt"
OPTIONS = {
    "release": ["-O2", "-g0"],
    "checked": ["-Og", "-g0"],
    "sanitized": ["-O1", "-g1", "-fno-omit-frame-pointer", *SANITIZERS],
    "tsan": ["-O1", "-g1", "-fno-omit-frame-pointer", THREADS, "--param=tsan-distinguish-volatile=1"],
    "recording": ["-O2", "-g0", "-fprofile-generate", "-fprofile-update=prefer-atomic"],
    "profiled": [
        *("-O2", "-g0", "-fprofile-use", "-fprofile-correction", "-Wno-missing-profile", *NOT_LONGER),
        LINK_TIME,
    ],
}
LINK_OPTIONS = {
    "sanitized": SANITIZERS,
    "tsan": [THREADS],
    "recording": ["-fprofile-generate"],
    "profiled": ["-O2", "-g0", LINK_TIME],  # the linker compiles, and must not name folders
}
DIRECTIVES = dict.fromkeys(OPTIONS, _DIRECTIVES) | {"checked": _DIRECTIVES | _CHECKS}
C_OF = {"recording": "release", "profiled": "release", "tsan": "release"}  # whose C code these have
WITH_PROFILE = ("recording", "profiled")
MADE_FOR = "made-for"  # the file of a profile that names what it was recorded with
CONFIGS = tuple(DIRECTIVES)


Item = TypeVar("Item")


class BuildError(Exception):
    """A module could not be compiled; the message is the tool's own."""


def tag() -> str:
    """Return the interpreter, C library and processor that compiled modules and environments belong to.

    So machines that share a folder keep theirs apart. The usual processor is not named.
    """
    soabi = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    kind, version, *_ = soabi.split("-")
    name = {"cpython": "cp"}.get(kind, kind) + version
    libc, libc_version = platform.libc_ver()
    machine = platform.machine()
    processor = "" if machine == "x86_64" else f"-{machine}"
    return f"{name}-{libc or sys.platform}{libc_version}{processor}{'-tsan' if _watches_threads() else ''}"


def _watches_threads() -> bool:
    """Return whether the interpreter was built with ThreadSanitizer."""
    return THREADS in (sysconfig.get_config_var("CFLAGS") or "")


def build(modules: Sequence[Module], config: str) -> Path:
    """Compile `modules` into one shared object; returns it, in the cache."""
    compiler_version()  # without a compiler there is no need to begin
    if config == "tsan" and not _watches_threads():
        raise BuildError("the configuration tsan needs a Python that was built --with-thread-sanitizer")
    if config == "profiled" and not is_profile_of(modules):
        raise BuildError(f"{profile_folder()} has no profile of these sources, or one of another compiler")
    c_config = C_OF.get(config, config)
    with alone_in(c_folder := _cache() / f"c-{c_config}"):
        c_files = _translated(modules, c_config, c_folder)
        _forget_old_versions(c_folder, keep=c_files)
    with alone_in(folder := _cache() / f"objects-{tag()}-{config}"):
        objects = _in_parallel(
            lambda pair: _compiled(*pair, config, folder),
            list(zip(modules, c_files, strict=True)),
        )
        shared = _linked(modules, objects, config, folder)
        _forget_old_versions(folder, keep=[*objects, shared])
    return shared


def file_name() -> Path:
    """Return the path at which this interpreter looks for the shared object, relative to `sys.path`."""
    return Path(NAME.replace(".", "/") + (sysconfig.get_config_var("EXT_SUFFIX") or ".so"))


def _cache() -> Path:
    return Path(os.environ.get("WHORL_CACHE") or ROOT / "build").resolve()


def _translated(modules: Sequence[Module], config: str, folder: Path) -> list[Path]:
    """Return the C code of each module. It is the same for every interpreter."""
    targets = {module: folder / f"{module.name}.{_c_digest(module, config)}.c" for module in modules}
    unfinished = {
        module: target.with_name(f"unfinished-{target.name}")
        for module, target in targets.items()
        if not target.exists()
    }
    if unfinished:
        folder.mkdir(exist_ok=True)
        _say("\n".join(f"cython {config:8} {module.name}" for module in unfinished))
        try:
            with tempfile.TemporaryDirectory(prefix="whorl-") as scratch:
                _declare_constants(modules, Path(scratch))
                asked = {
                    "directives": DIRECTIVES[config],
                    "folders": [".", scratch],
                    "modules": [module.name for module in modules],
                    "wanted": {
                        module.name: [_relative(module), str(new)] for module, new in unfinished.items()
                    },
                }
                _run("Cython", [sys.executable, str(TRANSLATION)], modules[0].folder, json.dumps(asked))
            for module, new in unfinished.items():
                _check_unchanged(module, _c_digest(module, config) in targets[module].name)
                new.replace(targets[module])
        finally:
            for new in unfinished.values():
                new.unlink(missing_ok=True)
    return list(targets.values())


def _declare_constants(modules: Sequence[Module], folder: Path) -> None:
    """Write a `.pxd` for each module that has none and is cimported."""
    plain = {
        path: module
        for module in modules
        for path in inputs(module)
        if path.suffix == ".py" and path != module.source
    }
    for path, module in plain.items():
        declared = folder / path.relative_to(module.folder).with_suffix(".pxd")
        declared.parent.mkdir(parents=True, exist_ok=True)
        declared.write_bytes(content(path, module))


def _relative(module: Module) -> str:
    """Return the path of a module from its folder: tracebacks name files relative to `sys.path`."""
    return str(module.source.relative_to(module.folder))


def _c_digest(module: Module, config: str) -> str:
    directives = sorted(DIRECTIVES[config].items())
    contents = [content(path, module) for path in inputs(module) if path.suffix != ".h"]
    contents.append(TRANSLATION.read_bytes())
    return _digest(f"{cython_version()} {directives} {module.name}".encode(), *contents)


def _compiled(module: Module, c_file: Path, config: str, folder: Path) -> Path:
    """Return the object file of `module` for this interpreter, made from `c_file`."""
    name = module.name
    key = _object_digest(module, c_file, config)
    target = folder / f"{name}.{key}.o"
    if not target.exists():
        _say(f"cc     {config:8} {name} ({tag()})")
        # Modules in different packages may have the same last name, after which Cython names this function.
        unique = f"-DPyInit_{name.rpartition('.')[2]}={_init_function(module)}"
        command = [*_commands(config)[0], unique, IMPORTS, "-c"]
        with _new_file(target) as path:
            if config in WITH_PROFILE:
                _compile_for_profile(module, command, c_file, path, config)
            else:
                _run(name, [*command, f"-I{module.folder}", str(c_file), "-o", str(path)])
            _check_unchanged(module, key == _object_digest(module, c_file, config))
    return target


def _init_function(module: Module) -> str:
    """Return the name of the C function that gives the definition of a module."""
    return f"PyInit_{module.name.replace('.', '__')}"


def profile_folder() -> Path:
    """Return the folder of the profile: `WHORL_PROFILE`, or one in the cache for this interpreter."""
    return Path(os.environ.get("WHORL_PROFILE") or _cache() / f"profile-{tag()}").resolve()


def _profile_of(module: Module) -> Path:
    return profile_folder() / f"{module.name}.gcda"


def is_profile_of(modules: Sequence[Module]) -> bool:
    """Return whether the profile was recorded with these modules and this compiler."""
    stamp = profile_folder() / MADE_FOR
    return stamp.exists() and stamp.read_text(encoding="utf-8") == made_for(modules)


def made_for(modules: Sequence[Module]) -> str:
    """Return what a profile of these modules is good for."""
    c_files = [Path(f"{module.name}.{_c_digest(module, 'release')}.c") for module in modules]
    pairs = zip(modules, c_files, strict=True)
    return _digest(*(_object_digest(module, c_file, "recording").encode() for module, c_file in pairs))


def recordings(modules: Sequence[Module]) -> dict[str, Path]:
    """Return the file into which each module of the configuration `recording` counts, by its name."""
    return {module.name: _counts() / f"{module.name}.gcda" for module in modules}


def counting() -> dict[str, str]:
    """Return the environment in which modules of the configuration `recording` count into this cache.

    Each object file names the cache that it was compiled in, and a cache may be moved or copied.
    """
    return {"GCOV_PREFIX": str(_counts()), "GCOV_PREFIX_STRIP": "99"}  # all folders of that name


def _counts() -> Path:
    return _cache() / f"counts-{tag()}"


def _compile_for_profile(
    module: Module, command: Sequence[str], c_file: Path, target: Path, config: str
) -> None:
    """Compile a module that counts, or one for which counts exist.

    GCC knows a function by the names of its files, so both see the same names, of headers too. The counts are
    in a file of that name in the folder where the compiler runs.
    """
    name = module.name
    with tempfile.TemporaryDirectory(prefix="whorl-") as scratch:
        folder = _counts() if config == "recording" else Path(scratch)
        folder.mkdir(exist_ok=True)
        shutil.copyfile(c_file, folder / f"{name}.c")
        link = folder / f"{name}.sources"
        link.unlink(missing_ok=True)  # of a build that was killed
        link.symlink_to(module.folder)
        link.replace(folder / "sources")  # at once: other modules are being compiled there
        if config == "profiled":
            shutil.copyfile(_profile_of(module), folder / f"{name}.gcda")
        _run(name, [*command, "-Isources", f"{name}.c", "-o", f"{name}.o"], folder)
        shutil.copyfile(folder / f"{name}.o", target)


def _linked(modules: Sequence[Module], objects: Sequence[Path], config: str, folder: Path) -> Path:
    """Return the shared object of `modules`, made from their object files."""
    link_command = _commands(config)[1]
    table = "".join(f'MODULE("{module.name}", {_init_function(module)})\n' for module in modules)
    tools = f"{table} {_commands(config)} {compiler_version()} {EXPORTS}"
    keys = " ".join(path.name for path in objects)
    target = folder / f"{NAME}.{_digest(f'{tools} {keys}'.encode(), NAMES_SOURCE.read_bytes())}.so"
    if not target.exists():
        _say(f"link   {config:8} {NAME} ({tag()})")
        with _new_file(target) as path, tempfile.TemporaryDirectory(prefix="whorl-") as scratch:
            own = f"{scratch}/compiled.o"
            Path(scratch, "table.h").write_text(table, encoding="utf-8")
            Path(scratch, "exports").write_text(EXPORTS, encoding="utf-8")
            # Without a profile: it is one table, and its counts would go to the scratch folder.
            compile_command = [
                *_commands(C_OF.get(config, config))[0],
                f"-I{scratch}",
                '-DWHORL_TABLE="table.h"',
            ]
            _run(NAME, [*compile_command, "-c", str(NAMES_SOURCE), "-o", own])
            exports = f"-Wl,--version-script={scratch}/exports"
            _run(NAME, [*link_command, exports, own, *map(str, objects), "-o", str(path)])
    return target


def _object_digest(module: Module, c_file: Path, config: str) -> str:
    tools = f"{_commands(config)} {IMPORTS} {compiler_version()} {sys.version} {tag()}"
    headers = [path.read_bytes() for path in inputs(module) if path.suffix == ".h"]
    profile = [_profile_of(module).read_bytes()] if config == "profiled" else []
    return _digest(f"{c_file.name} {tools}".encode(), *headers, *profile)


def _check_unchanged(module: Module, is_unchanged: bool) -> None:
    if not is_unchanged:
        raise BuildError(f"--- {module.name}: changed while it was being read; build again")


@cache
def _commands(config: str) -> tuple[list[str], list[str]]:
    """Return the compiler and the linker of the interpreter's build, at Whorl's optimization level."""
    variables = {
        name: sysconfig.get_config_var(name) or "" for name in ("CC", "CFLAGS", "CCSHARED", "LDSHARED")
    }
    compiler = shlex.split(os.environ.get("CC") or variables["CC"])
    flags = shlex.split(f"{variables['CFLAGS']} {variables['CCSHARED']} {os.environ.get('CFLAGS', '')}")
    include = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    own = [*OPTIONS[config], "-Wno-unused-function", *(f"-I{path}" for path in sorted(include))]
    own.append("-DCYTHON_COMPRESS_STRINGS=0")  # wheels are packed anyway, and better than string by string
    if sysconfig.get_config_var("Py_GIL_DISABLED") and os.environ.get("WHORL_FREE_THREADED") != "0":
        own.append("-DCYTHON_FREETHREADING_COMPATIBLE=1")  # what the directive of that name would say
    link = shlex.split(f"{variables['LDSHARED']} {os.environ.get('LDFLAGS', '')}")
    if "CC" in os.environ:
        link[: len(shlex.split(variables["CC"]))] = compiler
    link.append("-Wl,-O1")
    return [*compiler, *flags, *own], [*link, *LINK_OPTIONS.get(config, [])]


def run_time(config: str) -> dict[str, str]:
    """Return the environment in which a program with this build runs: the sanitizers' libraries come first.

    ThreadSanitizer's is in the interpreter itself. Races of CPython's own are named in a file. Python's
    allocator is replaced by the sanitizer's, which sees each object. Python itself keeps some objects to the
    end, so leaks are not looked for.
    """
    if config == "tsan":
        return {"TSAN_OPTIONS": f"suppressions={SUPPRESSIONS}:history_size=4:second_deadlock_stack=1"}
    if config != "sanitized":
        return {}
    compiler = _commands(config)[0]  # all its words: a compiler cache may be the first of them
    libraries = [
        subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


@cache
def cython_version() -> str:
    try:
        return importlib.metadata.version("Cython")
    except importlib.metadata.PackageNotFoundError:
        raise BuildError("Cython is not installed for " + sys.executable) from None


def compiler_version() -> str:
    return compiler_text().splitlines()[0]


@cache
def compiler_text() -> str:
    """Return all that the compiler says of itself. Raises BuildError if there is none."""
    compiler = _commands(CONFIGS[0])[0][0]
    try:
        answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"no C compiler: {error}\nInstall one, or set WHORL_BUILD=pure.") from None
    return answer.stdout


def _run(name: str, command: list[str], cwd: Path = ROOT, told: str | None = None) -> None:
    """Run a command, which reads `told`."""
    answer = subprocess.run(
        command, cwd=cwd, input=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if answer.returncode:
        raise BuildError(f"--- {name}: {shlex.join(command)}\n{answer.stdout.strip()}")
    if answer.stdout.strip():
        _say(f"--- {name}\n{answer.stdout.strip()}")


def _in_parallel(function: Callable[[Item], Path], items: Sequence[Item]) -> list[Path]:
    """Return the results for `items`. All are tried before the failures are reported, together."""
    with ThreadPoolExecutor(JOBS) as pool:
        waiting = [pool.submit(function, item) for item in items]
        try:
            errors = [error for future in waiting if (error := future.exception())]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if errors and all(isinstance(error, BuildError) for error in errors):
        raise BuildError("\n\n".join(map(str, errors)))
    return [future.result() for future in waiting]


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes `target` only after success."""
    target.parent.mkdir(exist_ok=True)
    unfinished = target.with_name("unfinished-" + target.name)
    try:
        yield unfinished
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _forget_old_versions(folder: Path, keep: Sequence[Path]) -> None:
    versions: dict[str, list[Path]] = {}
    for path in set(folder.glob("whorl.*")) - set(keep):
        versions.setdefault(path.name.rsplit(".", 2)[0], []).append(path)
    for paths in versions.values():
        paths.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in paths[KEPT_VERSIONS:]:
            path.unlink()


def _digest(*parts: bytes) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.hexdigest()[:20]


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")  # in one piece: two modules may be under way
