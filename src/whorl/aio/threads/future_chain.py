"""A future of the loop with the result of a thread's future, as `asyncio.wrap_future` makes it."""

from __future__ import annotations

import concurrent.futures
from asyncio import events, futures
from types import CodeType
from typing import TYPE_CHECKING, Any

from whorl.aio.interop import at_import
from whorl.aio.interop.stock import has_stock_future_chain
from whorl.core.loop.loop import Loop

if TYPE_CHECKING:
    import asyncio

    from whorl.aio.loop_type import AnyLoop

_FutureOfThread = at_import.FutureOfThread
_copy_state: Any = at_import.copy_future_state
in_terms_of_asyncio: Any = at_import.convert_future_exc

# From 3.14 on, a result that comes in the loop's thread while the loop runs is there at once, not a turn
# later.
ASKS_WHICH_LOOP_RUNS = any(
    isinstance(inner, CodeType) and "_get_running_loop" in inner.co_names
    for inner in at_import.chain_future.__code__.co_consts
)


class ChainedFuture:
    """The link of the two: a result goes from the thread's future to the loop's, a cancellation back.

    asyncio's function for this accepts any two futures, and checks their kinds at each step.
    """

    def __init__(
        self, loop: Loop, future: asyncio.Future[Any], source: concurrent.futures.Future[Any]
    ) -> None:
        self._loop = loop
        self._future = future
        self._source = source

    def cancel_source(self, future: asyncio.Future[Any]) -> None:
        """Cancel the thread's future if the loop's is cancelled."""
        if future.cancelled():
            self._source.cancel()

    def source_done(self, source: concurrent.futures.Future[Any]) -> None:
        """Copy the result of the thread's future, from whichever thread it was done in."""
        loop = self._loop
        if loop._closed:
            return
        running: Any = events._get_running_loop() if ASKS_WHICH_LOOP_RUNS else None
        if running is loop:
            self.copy_result()
        else:
            loop.call_soon_threadsafe(self.copy_result)

    def copy_result(self) -> None:
        """Give the loop's future the result of the thread's."""
        future, source = self._future, self._source
        if future.done():
            _copy_state(source, future)  # which knows whether that is wrong
            return
        try:
            exception = source.exception()
        except concurrent.futures.CancelledError:
            future.cancel()
        else:
            if exception is None:
                future.set_result(source.result())
            else:
                future.set_exception(in_terms_of_asyncio(exception))


def wrap_future(loop: AnyLoop, source: Any) -> Any:
    """Return a future of the loop that gets the result of `source`, and cancels it if it is cancelled.

    Source: ``asyncio.wrap_future``.
    """
    if type(source) is not _FutureOfThread or not has_stock_future_chain():
        return futures.wrap_future(source, loop=loop)
    return chain_future(loop, loop.create_future(), source)


def chain_future(loop: AnyLoop, future: asyncio.Future[Any], source: concurrent.futures.Future[Any]) -> Any:
    """Let a new future of the loop follow `source`; return the new future."""
    follower = ChainedFuture(loop, future, source)  # type: ignore[arg-type, unused-ignore]
    future.add_done_callback(follower.cancel_source)
    source.add_done_callback(follower.source_done)
    return future
