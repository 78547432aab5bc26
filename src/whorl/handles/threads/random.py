"""Random: unpredictable bytes, by the system's generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from whorl.handles.threads.thread_pool import Work

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop

#: The most that may be asked for at a time, in bytes (libuv: the same).
MOST_RANDOM_BYTES = 0x7FFFFFFF


class Random(Work):
    """A request for `size` random bytes, fit for keys (libuv: ``uv_random_t``).

    The thread pool makes the bytes, because that may take a while soon after the start of the system.
    `on_done(request, data, error)` is called when they are there. Raises ValueError for a size below 0,
    OverflowError for one above 2**31 - 1.
    """

    __slots__ = ()

    def __init__(
        self, loop: Loop, size: int, on_done: Callable[[Self, bytes, BaseException | None], object]
    ) -> None:
        if size < 0:
            raise ValueError(f"a size is not negative, as {size!r} is")
        if size > MOST_RANDOM_BYTES:
            raise OverflowError(f"{size} random bytes are too many, {MOST_RANDOM_BYTES} is the most")
        if not callable(on_done):
            raise TypeError(f"a callable object was expected by Random(), got {on_done!r}")
        kernel = loop._kernel
        super().__init__(loop, lambda: kernel.random_bytes(size), on_done)
