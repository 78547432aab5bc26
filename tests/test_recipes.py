"""The recipes are listed, and `make recipes` installs what they need."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECIPES = sorted(path for path in (ROOT / "recipes").glob("*.py") if path.name != "__main__.py")

pytestmark = pytest.mark.text


def packages_of(recipe: Path) -> set[str]:
    """Return the packages in the metadata of a script (PEP 723)."""
    inside = recipe.read_text().partition("# /// script\n")[2].partition("# ///\n")[0]
    return set(tomllib.loads("\n".join(line[2:] for line in inside.splitlines()))["dependencies"])


def test_the_list_of_recipes_is_complete() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.py\) \|", (ROOT / "recipes" / "README.md").read_text(), re.M)
    assert listed == [recipe.stem for recipe in RECIPES]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_packages_of_a_recipe_are_installed_with_the_others(recipe: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = {requirement.partition(">=")[0] for requirement in extras["recipes"]}
    assert packages_of(recipe) <= installed | {"whorl-loop"}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_begins_with_its_command(recipe: Path) -> None:
    shown = re.findall(r"^\$ (.*)", ast.get_docstring(ast.parse(recipe.read_text())) or "", re.M)
    assert recipe.name in shown[0] or f"{recipe.stem}:app" in shown[0]
