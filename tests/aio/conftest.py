"""The basis of every test of the asyncio face: a loop that reports errors, no hang, no leak.

A test that is a coroutine function runs on the loop.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import whorl
from tests.aio import fault_variants
from tests.aio.sockets_for_tests import Connection, socket_pair
from tests.core.conftest import no_leak  # noqa: F401 (a fixture)

#: After this many seconds a test is taken to hang, and fails where it stands.
PATIENCE = 30

Connect = Callable[..., Awaitable[Connection]]


class TestHangs(SystemExit):
    """An error that leaves a running loop, as no ordinary exception does."""


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Fail a test that hangs, where it stands."""

    def give_up(number: int, frame: object) -> None:
        raise TestHangs(f"the test hangs: {PATIENCE} seconds have passed")

    former = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Any:
    """Return the kernel under the loop, or None for the real one."""
    return fault_variants.kernel_for(request.node)


@pytest.fixture
def reported() -> list[dict[str, Any]]:
    """Return the reports to the loop's exception handler; a test takes out those that it expects."""
    return []


@pytest.fixture
def loop(no_leak: None, kernel: Any, reported: list[dict[str, Any]]) -> Iterator[whorl.EventLoop]:  # noqa: F811
    """Yield a loop on which no error goes unnoticed."""
    loop = whorl.EventLoop(kernel=kernel)
    loop.set_exception_handler(lambda loop, context: reported.append(context))
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert not reported


@pytest.fixture(params=["tcp", "unix"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of connection a test is run over."""
    return str(request.param)


@pytest.fixture
def connect(loop: whorl.EventLoop) -> Iterator[Connect]:
    """Yield a function that connects a transport to a plain socket, and end these after the test."""
    made: list[Connection] = []

    async def connect(kind: str, protocol: asyncio.BaseProtocol, **options: Any) -> Connection:
        ours, peer = socket_pair(kind, **options)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
        made.append(Connection(transport, peer))
        return made[-1]

    yield connect
    for transport, peer in made:
        transport.abort()
        peer.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine functions on the loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    loop = pyfuncitem.funcargs["loop"]
    assert isinstance(loop, whorl.EventLoop)
    loop.run_until_complete(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test over faults once for each seed."""
    if fault_variants.seeds_of not in item.stash:
        return None
    return fault_variants.run_for_every_seed(item, nextitem)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each coroutine function a loop, whether it names one or not, and run some tests over faults."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            if "loop" not in item.fixturenames:
                item.fixturenames.append("loop")
    items += list(fault_variants.twins(items))


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ignore warnings and errors of the collector: asyncio leaves some objects to it."""
    gc.collect()
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
        gc.collect()
