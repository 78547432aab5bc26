"""Tests that AnyIO's pytest plugin runs on Whorl.

$ pytest test_with_anyio.py
"""

# /// script
# dependencies = ["anyio", "pytest", "whorl-loop"]
# ///

import asyncio
from typing import Any

import anyio
import pytest

import whorl


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": whorl.new_event_loop}


@pytest.mark.anyio
async def test_the_loop_is_whorls() -> None:
    with anyio.fail_after(10):
        await anyio.sleep(0)
    assert isinstance(asyncio.get_running_loop(), whorl.EventLoop)
