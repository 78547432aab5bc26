"""Tests that pytest-asyncio runs on Whorl.

$ pytest test_with_pytest_asyncio.py
"""

# /// script
# dependencies = ["pytest", "pytest-asyncio", "whorl-loop"]
# ///

import asyncio

import pytest

import whorl


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return whorl.EventLoopPolicy()


@pytest.mark.asyncio
async def test_the_loop_is_whorls() -> None:
    await asyncio.sleep(0)
    assert isinstance(asyncio.get_running_loop(), whorl.EventLoop)
