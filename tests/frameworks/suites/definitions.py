"""The definition of each suite: its needs, its commands, and the tests that cannot work on this machine."""

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

LIST = Path(__file__).with_name("suites.toml")


@dataclass(frozen=True)
class Suite:
    """One project's tests. `suites.toml` explains the fields."""

    name: str
    package: str
    archive: str = ""
    installed: bool = True
    extras: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    tests: tuple[str, ...] = ("tests",)
    options: tuple[str, ...] = ()
    leave_out: dict[str, str] = field(default_factory=dict)
    ignore: dict[str, str] = field(default_factory=dict)
    as_uvloop: bool = False
    differences: dict[str, list[str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    services: tuple[str, ...] = ()
    test_seconds: float = 60.0
    run_seconds: float = 900.0
    quick: bool = False
    no_tests: str = ""

    @property
    def not_to_pass(self) -> frozenset[str]:
        return frozenset(test for tests in self.differences.values() for test in tests)


def read(path: Path = LIST) -> dict[str, Suite]:
    return {name: make(name, entry) for name, entry in tomllib.loads(path.read_text()).items()}


def make(name: str, entry: dict) -> Suite:
    """Return a suite of one table of the list; raise ValueError for an unknown key."""
    known = {one.name for one in dataclasses.fields(Suite)} - {"name"}
    if unknown := set(entry) - known:
        raise ValueError(f"{name}: unknown {', '.join(sorted(unknown))}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Suite(name=name, **{"package": name} | values)
