"""Frameworks run on the same loop, with the same watch over leaks, as the tests of the asyncio face."""

from __future__ import annotations

from tests.aio.conftest import (  # noqa: F401 (fixtures and hooks)
    kernel,
    loop,
    no_hang,
    no_leak,
    pytest_collection_modifyitems,
    pytest_pyfunc_call,
    reported,
)
