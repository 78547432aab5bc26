"""Frameworks run on the same loop, with the same watch over leaks, as the tests of the asyncio face."""

from __future__ import annotations

import pytest

import whorl

pytest.register_assert_rewrite("tests.frameworks.http_traffic", "tests.frameworks.serving")

from tests.aio.conftest import (  # noqa: E402, F401 (fixtures and hooks)
    kernel,
    loop,
    no_hang,
    no_leak,
    pytest_collection_modifyitems,
    pytest_pyfunc_call,
    reported,
)


@pytest.fixture(params=["plain", "collecting"])
def either(loop: whorl.EventLoop, request: pytest.FixtureRequest) -> None:  # noqa: F811
    """Run the test on a loop that sends each write at once, and on one that collects."""
    loop.configure(collect_writes=request.param == "collecting")
