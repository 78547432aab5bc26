"""Flow control of all transports: watermarks, which decide when a protocol must pause, and error reports."""

from __future__ import annotations

import sys
from typing import Any, Final

from whorl.aio.interop.at_import import logger

#: Above this many unsent bytes the transport calls `pause_writing` (asyncio: 64 KiB).
HIGH_WATER: Final = 64 * 1024


def watermarks(high: int | None, low: int | None, default: int = HIGH_WATER) -> tuple[int, int]:
    """Return the high and the low watermark, in bytes, from the user's arguments.

    `default` is the high watermark if the user gave none. Raises ValueError unless high >= low >= 0
    (``WriteTransport.set_write_buffer_limits``).
    """
    if high is None:
        high = default if low is None else 4 * low
    if low is None:
        low = high // 4
    if not high >= low >= 0:
        raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
    return ceil_size(high), ceil_size(low)


def ceil_size(size: float) -> int:
    """Return a size in bytes; a size beyond memory, such as infinity, becomes the largest possible one."""
    return sys.maxsize if size >= sys.maxsize else int(size)


def call_pause_or_resume(transport: Any, call: str) -> None:
    """Call `pause_writing` or `resume_writing`; an exception of the protocol is reported and ends nothing."""
    try:
        getattr(transport._protocol, call)()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        _report(transport, error, f"protocol.{call}() failed")


def report_fatal_error(transport: Any, error: BaseException, message: str) -> None:
    """Report the error that ends a transport; errors of the system are shown in debug mode only."""
    if not isinstance(error, OSError):
        _report(transport, error, message)
    elif transport._loop.get_debug():
        logger.debug("%r: %s", transport, message, exc_info=True)


def _report(transport: Any, error: BaseException, message: str) -> None:
    context = {"message": message, "exception": error, "transport": transport}
    transport._loop.call_exception_handler({**context, "protocol": transport._protocol})
