"""Asynchronous generators that the program does not exhaust, and the representation of a loop."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

    Finalized = AsyncGenerator[Any, Any]
    Table = weakref.WeakKeyDictionary[Finalized, None]
else:
    Table = weakref.WeakKeyDictionary


class GeneratorTable(Table):
    """The generators of a loop in the order of their first steps, without keeping them alive.

    It has the methods by which programs use asyncio's set. A set of addresses would close them in another
    order in each process.
    """

    def add(self, generator: Finalized) -> None:
        """Note a generator."""
        self[generator] = None

    def discard(self, generator: Finalized) -> None:
        """Forget a generator."""
        self.pop(generator, None)


def asyncgen_firstiter(loop: AnyLoop, generator: Finalized) -> None:
    """Note a generator that is iterated for the first time: the loop has to close it."""
    if loop._asyncgens_shutdown_called:
        warnings.warn(
            f"asynchronous generator {generator!r} was scheduled after loop.shutdown_asyncgens() call",
            ResourceWarning,
            source=loop,
            stacklevel=2,
        )
    loop._asyncgens.add(generator)


def asyncgen_finalizer(loop: AnyLoop, generator: Finalized) -> None:
    """Close a generator that lost its last reference unfinished; this may run in any thread."""
    loop._asyncgens.discard(generator)
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.create_task, generator.aclose())


async def shutdown_asyncgens(loop: AnyLoop) -> None:
    """Close all asynchronous generators that the loop has seen and that are not finished.

    Source: ``asyncio.loop.shutdown_asyncgens``.
    """
    loop._asyncgens_shutdown_called = True
    if loop._known_asyncgens is None or not len(loop._asyncgens):
        return
    generators: list[Finalized] = list(loop._asyncgens)
    loop._asyncgens.clear()
    results = await asyncio.tasks.gather(*[item.aclose() for item in generators], return_exceptions=True)
    for result, generator in zip(results, generators, strict=True):
        if isinstance(result, Exception):
            loop.call_exception_handler(
                {
                    "message": f"an error occurred during closing of asynchronous generator {generator!r}",
                    "exception": result,
                    "asyncgen": generator,
                }
            )


def loop_repr(loop: AnyLoop) -> str:
    """Return the representation of a loop."""
    return (
        f"<{type(loop).__name__} running={loop.is_running()} closed={loop.is_closed()} "
        f"debug={loop.get_debug()}>"
    )
