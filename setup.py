"""Installing Whorl: the wheel holds the sources, and a shared object of them as `WHORL_BUILD` says.

`compiled` fails when Whorl cannot be compiled, `pure` compiles nothing, `auto` (the default) compiles
everything, or nothing and says so in the build's log. `WHORL_PROFILE` names the folder of a profile
(`build_tools.profiles`), for which the compiler optimizes.
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

BUILD = os.environ.get("WHORL_BUILD", "auto")
if BUILD not in ("auto", "compiled", "pure"):
    sys.exit(f"WHORL_BUILD is auto, compiled or pure, not {BUILD!r}")

CONFIG = "profiled" if os.environ.get("WHORL_PROFILE") else "release"
STARS = "*" * 79
FALLEN_BACK = f"""
{STARS}
{{error}}

WHORL IS INSTALLED WITHOUT COMPILED MODULES: it works, and is much slower.
WHORL_BUILD=compiled makes this an error, WHORL_BUILD=pure asks for it.
{STARS}
"""


class BuildModules(build_py):
    """Begins with an empty folder, so that no wheel holds what was deleted from the sources."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildExtensions(build_ext):
    """Compiles as the rest of the project does, with its cache, instead of setuptools' way."""

    def run(self) -> None:
        target = Path(self.get_ext_fullpath(extensions.NAME))
        try:
            built = extensions.build(compiled_modules(), CONFIG)
        except extensions.BuildError as error:
            if BUILD == "compiled":
                raise
            print(FALLEN_BACK.format(error=error), file=sys.stderr)
            self.extensions = []
            target.unlink(missing_ok=True)  # of an earlier build
            return
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
