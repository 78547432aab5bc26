"""CPython's test.test_asyncio, as this Python has it."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "test.test_asyncio"


def is_installed() -> bool:
    """Tell whether this Python came with CPython's own tests; distributions often leave them out."""
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        return False


@cache
def modules() -> tuple[str, ...]:
    """Return all modules with tests; later Pythons have more of them."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    return tuple(sorted(path.stem for folder in folders or () for path in Path(folder).glob("test_*.py")))


def short_id(test_id: str) -> str:
    """Shorten a unittest id to ``test_tasks.CTaskTests.test_gather``."""
    return test_id.removeprefix(f"{PACKAGE}.")
