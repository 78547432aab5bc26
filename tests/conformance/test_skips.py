"""The list of skips: which ones it takes, and how it finds those that no longer hold."""

import importlib.util
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import skips
from tests.conformance.skips import Skip

SUITE = """
import unittest
from unittest import mock

def replace_ready(loop):
    loop._ready = []

class LoopTests(unittest.TestCase):
    def setUp(self):
        self.loop = mock.Mock()
        self.loop._selector.select.return_value = ()
        self._own = 1

    def test_sets(self):
        self.loop._scheduled[0] = None

    def test_patches(self):
        with mock.patch.object(self.loop, "_run_once"), mock.patch("asyncio.events._lock"):
            pass

    @mock.patch("asyncio.base_events._set_nodelay")
    def test_is_decorated(self, m):
        self.help()

    def help(self):
        replace_ready(self.loop)

    def test_overrides(self):
        class Loop:
            def _process_events(self, events):
                pass

    def test_calls(self):
        self.loop._write_to_self()

    def test_reads(self):
        return self.loop._ready, "_ready"
"""


@pytest.fixture
def tests(tmp_path: Path) -> Iterator[dict[str, unittest.TestCase]]:
    """Yield the tests of a small suite, which pretends to be CPython's."""
    path = tmp_path / "test_loop.py"
    path.write_text(SUITE)
    spec = importlib.util.spec_from_file_location("test.test_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["test.test_loop"] = module
    spec.loader.exec_module(module)
    methods = unittest.defaultTestLoader.getTestCaseNames(module.LoopTests)
    yield {f"test_loop.LoopTests.{method}": module.LoopTests(method) for method in methods}
    del sys.modules["test.test_loop"]
    skips._definitions.cache_clear()


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("test_sets", "_scheduled"),
        ("test_patches", "_run_once"),
        ("test_patches", "_lock"),
        ("test_is_decorated", "_set_nodelay"),
        ("test_is_decorated", "_ready"),
        ("test_overrides", "_process_events"),
        ("test_calls", "_write_to_self"),
        ("test_reads", "_selector"),
    ],
)
def test_a_skip_holds_while_its_test_sets_mocks_or_calls_the_name(
    tests: dict[str, unittest.TestCase], method: str, name: str
) -> None:
    assert skips.complaints([Skip(f"test_loop.LoopTests.{method}", name)], tests) == []


@pytest.mark.parametrize(
    ("method", "name"), [("test_reads", "_ready"), ("test_sets", "_own"), ("test_sets", "_run_once")]
)
def test_a_skip_whose_test_only_reads_the_name_is_complained_of(
    tests: dict[str, unittest.TestCase], method: str, name: str
) -> None:
    [complaint] = skips.complaints([Skip(f"test_loop.*.{method}", name)], tests)
    assert complaint.endswith(f"neither sets nor mocks {name}")


def test_a_skip_of_a_test_that_is_gone_is_complained_of(tests: dict[str, unittest.TestCase]) -> None:
    [complaint] = skips.complaints([Skip("test_loop.LoopTests.test_gone", "_ready")], tests)
    assert complaint.endswith("there is no such test")


@pytest.mark.parametrize(
    "entry",
    ['"LoopTests.test_*" = "_x"', '"LoopTests" = "_x"', '"LoopTests.test" = "x"', '"A.test" = "__x__"'],
)
def test_a_skip_names_one_method_and_one_private_name(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "skips.toml"
    path.write_text(f"[test_loop]\n{entry}\n")
    with pytest.raises(ValueError, match="test_loop"):
        skips.read(path)


def test_the_list_can_be_read_and_knows_its_versions() -> None:
    listed = skips.read()
    assert listed
    [since] = [skip for skip in listed if skip.pattern.endswith("test_custom_run_forever_integration")]
    assert since.applies_to((3, 13))
    assert not since.applies_to((3, 12))


def test_a_skip_may_begin_or_end_with_a_release() -> None:
    skip = Skip("test_loop.LoopTests.test_sets", "_scheduled", since=(3, 13, 2), until=(3, 14))
    assert [skip.applies_to((3, 13, micro)) for micro in (1, 2, 3)] == [False, True, True]
    assert skip.applies_to((3, 14, 7))
    assert not skip.applies_to((3, 15, 0))
    assert not Skip("test_loop.LoopTests.test_sets", "_scheduled", until=(3, 14, 1)).applies_to((3, 14, 2))
