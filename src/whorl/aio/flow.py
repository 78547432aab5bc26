"""Watermarks: how much unsent data a transport takes before it asks its protocol to pause."""

from __future__ import annotations

from typing import Final

#: Above this many unsent bytes the protocol is asked to pause (asyncio: 64 KiB).
HIGH_WATER: Final = 64 * 1024


def limits(high: int | None, low: int | None) -> tuple[int, int]:
    """The high and the low watermark, in bytes, from what the user gave.

    Raises ValueError unless high >= low >= 0 (``WriteTransport.set_write_buffer_limits``).
    """
    if high is None:
        high = HIGH_WATER if low is None else 4 * low
    if low is None:
        low = high // 4
    if not high >= low >= 0:
        raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
    return high, low
