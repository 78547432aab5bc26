"""Running a loop and closing it: what surrounds the turns, as asyncio has it."""

from __future__ import annotations

import asyncio
import sys
import warnings
from asyncio import constants, events
from asyncio.base_events import _run_until_complete_cb  # type: ignore[attr-defined]
from asyncio.log import logger
from collections.abc import AsyncGenerator, Awaitable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from whorl.aio import clock
from whorl.core.host import call_before_forks
from whorl.core.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Generator

    from whorl.aio.loop import EventLoop

    Result = TypeVar("Result")
    Finalized = AsyncGenerator[Any, Any]


def _send_held() -> None:
    """What callbacks have written is not to be sent by two processes."""
    loop = events._get_running_loop()
    if isinstance(loop, Loop):
        loop._send_held()


call_before_forks(_send_held)


def begin_run(loop: EventLoop) -> None:
    """What precedes the first turn of every run.

    Raises RuntimeError if the loop is closed or runs already, or if another one runs in this thread.
    """
    if events._get_running_loop() is not None:
        loop._check_closed()
        if loop.is_running():
            raise RuntimeError("This event loop is already running")
        raise RuntimeError("Cannot run the event loop while another loop is running")
    clock.look_again(loop)
    Loop._begin_run(loop)
    enter(loop)


def end_run(loop: EventLoop) -> None:
    """What follows the last turn of every run."""
    loop._stopping = False
    Loop._end_run(loop)
    leave(loop)


def enter(loop: EventLoop) -> None:
    """Make this the running loop of the thread."""
    if loop._debug:
        track_origins(loop, True)
    loop._old_agen_hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=loop._asyncgen_firstiter_hook, finalizer=loop._asyncgen_finalizer_hook)
    events._set_running_loop(loop)


def leave(loop: EventLoop) -> None:
    """Take `enter` back."""
    events._set_running_loop(None)
    if loop._saved_origin_depth is not None:
        track_origins(loop, False)
    if loop._old_agen_hooks is not None:
        sys.set_asyncgen_hooks(*loop._old_agen_hooks)
        loop._old_agen_hooks = None


def run_forever(loop: EventLoop) -> None:
    """Turn until `stop` is called.

    Source: ``asyncio.loop.run_forever``.
    """
    loop._run_forever_setup()
    try:
        if getattr(loop._run_once, "__func__", None) is run_once:
            loop._run_turns()
        else:
            _run_turns_of_others(loop)
    finally:
        loop._run_forever_cleanup()


def _run_turns_of_others(loop: EventLoop) -> None:
    """Turn by a method that a subclass or a test has put in the place of ours."""
    while True:
        loop._run_once()
        if loop._stopping:
            break


def run_once(loop: EventLoop) -> None:
    """One turn, for those who drive a loop by asyncio's private names; it sleeps if there is nothing to do.

    Raises RuntimeError inside a turn: turns do not nest.
    """
    loop._step(True)


def run_until_complete(loop: EventLoop, future: Generator[Any, None, Result] | Awaitable[Result]) -> Result:
    """Run until the future, or the task made of a coroutine, is done; its result.

    Raises RuntimeError if the loop was stopped before. Source: ``asyncio.loop.run_until_complete``.
    """
    loop._check_closed()
    if loop.is_running():
        raise RuntimeError("This event loop is already running")
    if events._get_running_loop() is not None:
        raise RuntimeError("Cannot run the event loop while another loop is running")
    is_ours = not asyncio.isfuture(future)
    awaited: Any = asyncio.ensure_future(cast("Awaitable[Result]", future), loop=loop)
    if is_ours:
        # Whoever waits for it gets an exception, so nothing need be said when it is destroyed.
        awaited._log_destroy_pending = False
    awaited.add_done_callback(_run_until_complete_cb)
    try:
        loop.run_forever()
    except BaseException:
        if is_ours and awaited.done() and not awaited.cancelled():
            awaited.exception()  # The caller gets it from the loop; the task need not complain.
        raise
    finally:
        awaited.remove_done_callback(_run_until_complete_cb)
    if not awaited.done():
        raise RuntimeError("Event loop stopped before Future completed.")
    return cast("Result", awaited.result())


def track_origins(loop: EventLoop, enabled: bool) -> None:
    """Let coroutines remember where they were made, or no longer, in this thread."""
    if enabled and loop._saved_origin_depth is None:
        loop._saved_origin_depth = sys.get_coroutine_origin_tracking_depth()
        sys.set_coroutine_origin_tracking_depth(constants.DEBUG_STACK_DEPTH)
    elif not enabled and loop._saved_origin_depth is not None:
        sys.set_coroutine_origin_tracking_depth(loop._saved_origin_depth)
        loop._saved_origin_depth = None


def set_debug(loop: EventLoop, enabled: bool) -> None:
    """Turn debug mode on or off.

    Source: ``asyncio.loop.set_debug``.
    """
    loop._debug = bool(enabled)
    if loop.is_running():
        loop.call_soon_threadsafe(track_origins, loop, loop._debug)


# Asynchronous generators.


def asyncgen_began(loop: EventLoop, generator: Finalized) -> None:
    """A generator is iterated for the first time: it is the loop's to close."""
    if loop._asyncgens_shutdown_called:
        warnings.warn(
            f"asynchronous generator {generator!r} was scheduled after loop.shutdown_asyncgens() call",
            ResourceWarning,
            source=loop,
            stacklevel=2,
        )
    loop._asyncgens.add(generator)


def asyncgen_dropped(loop: EventLoop, generator: Finalized) -> None:
    """Nobody refers to an unfinished generator any more; this may happen in any thread."""
    loop._asyncgens.discard(generator)
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.create_task, generator.aclose())


async def shutdown_asyncgens(loop: EventLoop) -> None:
    """Close all asynchronous generators that the loop has seen and that are not finished.

    Source: ``asyncio.loop.shutdown_asyncgens``.
    """
    loop._asyncgens_shutdown_called = True
    if not len(loop._asyncgens):
        return
    generators: list[Finalized] = list(loop._asyncgens)
    loop._asyncgens.clear()
    results = await asyncio.gather(*[item.aclose() for item in generators], return_exceptions=True)
    for result, generator in zip(results, generators, strict=True):
        if isinstance(result, Exception):
            loop.call_exception_handler(
                {
                    "message": f"an error occurred during closing of asynchronous generator {generator!r}",
                    "exception": result,
                    "asyncgen": generator,
                }
            )


# The end.


def close(loop: EventLoop) -> None:
    """Give everything back; what is scheduled is forgotten.

    Raises RuntimeError if the loop runs. Closing again does nothing. Handles of the machine's that
    are open are closed, with a ResourceWarning. Source: ``asyncio.loop.close``.
    """
    if loop.is_running():
        raise RuntimeError("Cannot close a running event loop")
    if loop.is_closed():
        return
    if loop._debug:
        logger.debug("Close %r", loop)
    left_open = loop.walk()
    loop._close_machine()
    loop._executor_shutdown_called = True
    executor, loop._default_executor = loop._default_executor, None
    if executor is not None:
        executor.shutdown(wait=False)
    loop._remove_all_signal_handlers()
    loop._close_children()
    # The poller is closed by now, so this only gives descriptors back: nothing that a forked child
    # shares with its parent is touched.
    for handle in left_open:
        handle.close()
    for handle in left_open:
        warnings.warn(f"unclosed handle {handle!r}", ResourceWarning, source=handle, stacklevel=2)


def finalize(loop: EventLoop, _warn: Any = warnings.warn) -> None:
    """A loop that nobody refers to any more is closed, with a ResourceWarning if it was open."""
    # Not by vars(): a dictionary made here would keep the loop alive until the next collection.
    if not hasattr(loop, "_signal_handlers") or loop.is_closed():
        return  # It was never made, or it is done.
    _warn(f"unclosed event loop {loop!r}", ResourceWarning, source=loop)
    if not loop.is_running():
        loop.close()


def describe(loop: EventLoop) -> str:
    """The representation of a loop."""
    return (
        f"<{type(loop).__name__} running={loop.is_running()} closed={loop.is_closed()} "
        f"debug={loop.get_debug()}>"
    )
