"""Installing Whorl: the wheel holds the sources, and a shared object of them as `WHORL_BUILD` says.

`compiled` (the default) fails if Whorl cannot be compiled, `pure` compiles nothing. `WHORL_PROFILE` names the
folder of a profile (`build_tools.profiles`), for which the compiler optimizes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))

from build_tools import extensions
from build_tools.sources import ROOT, compiled_modules

BUILD = os.environ.get("WHORL_BUILD", "compiled")
if BUILD not in ("compiled", "pure"):
    sys.exit(f"WHORL_BUILD is compiled or pure, not {BUILD!r}")

CONFIG = "profiled" if os.environ.get("WHORL_PROFILE") else "release"
NOT_COMPILED = """
{error}

Whorl could not be compiled. It needs a C compiler and Python's headers: on Debian and Ubuntu
`apt-get install gcc python3-dev`, in Docker's slim images of Python `apt-get install gcc libc6-dev`.
To install it uncompiled, and several times slower than compiled, set WHORL_BUILD=pure.
"""
ASKED_FOR = (
    '"""Whorl was installed uncompiled because WHORL_BUILD=pure asked for it, so it does not warn."""\n'
)


class BuildModules(build_py):
    """Begins with an empty folder, so that no wheel holds what was deleted from the sources.

    A wheel that was asked to be uncompiled has a module that says so (`whorl.compiled_modules` looks for it).
    """

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if BUILD == "pure" and not self.editable_mode:
            (Path(self.build_lib) / "whorl" / "uncompiled.py").write_text(ASKED_FOR, encoding="utf-8")


class BuildExtensions(build_ext):
    """Compiles as the rest of the project does, with its cache, instead of setuptools' way."""

    def run(self) -> None:
        target = Path(self.get_ext_fullpath(extensions.NAME))
        try:
            built = extensions.build(compiled_modules(), CONFIG)
        except extensions.BuildError as error:
            sys.exit(NOT_COMPILED.format(error=error))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(built, target)
        _make_smaller(target)


def _make_smaller(target: Path) -> None:
    """Remove symbols and the build machine's folders from a shared object, where there are tools."""
    for command in (["patchelf", "--remove-rpath"], ["strip", "--strip-unneeded"]):
        if shutil.which(command[0]):
            subprocess.run([*command, str(target)], check=True)


def extension_modules() -> list[Extension]:
    if BUILD == "pure":
        return []
    sources = [str(module.source.relative_to(ROOT)) for module in compiled_modules()]
    return [Extension(extensions.NAME, sources)]


setup(ext_modules=extension_modules(), cmdclass={"build_py": BuildModules, "build_ext": BuildExtensions})
