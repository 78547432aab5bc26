"""The loop's `time`, which programs may replace: the scheduler then goes by the other clock.

`call_at` may be replaced too: `call_later` then schedules by the other one, as asyncio's does. On an instance
both are noticed at once, in a class when the next run begins.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.instance_overrides import NoObserver, ObservedDescriptor, OverrideObserver
from whorl.core.kernel.kernel import Kernel, patched_clock
from whorl.core.loop.loop import COMPILED, Loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.aio.loop_type import AnyLoop


CALL_AT: Any = Loop.call_at

if TYPE_CHECKING:
    Watched = NoObserver
else:
    Watched = OverrideObserver if COMPILED else NoObserver


def kernel_clock(loop: AnyLoop) -> Callable[[], float]:
    """Return the loop's clock, which is the kernel's."""
    return loop._kernel.seconds  # No method of the loop: a reference to itself would keep it alive.


def read_class_clock(loop: AnyLoop) -> float:
    """Return the time of the class's clock, whatever replaces it in a subclass or on the loop."""
    follows_patch = loop._follows_patch and type(loop._kernel).now is Kernel.now
    return patched_clock() if follows_patch else kernel_clock(loop)()


def use_kernel_clock(loop: AnyLoop) -> None:
    """Let a loop go by the kernel's clock, or by the clock of its class if that was replaced."""
    loop._clock_function = kernel_clock(loop)
    loop._follows_patch = False  # until the next check
    loop._time_replaced = type(loop).time is not TIME or type(loop).call_at is not CALL_AT


def follow_patched_monotonic(loop: AnyLoop) -> None:
    """Begin to go by a replaced `time.monotonic`, as asyncio does, or stop that.

    A loop with a replaced `time`, or with a kernel that has its own time, stays with that.
    """
    loop._follows_patch = not loop._follows_patch
    if type(loop._kernel).now is not Kernel.now:
        return  # This kernel does not ask the system.
    if loop._follows_patch and loop._clock_function == kernel_clock(loop):
        loop._clock_function = patched_clock
        loop._time_replaced = True
    elif not loop._follows_patch and loop._clock_function is patched_clock:
        use_kernel_clock(loop)


def _use_replaced_clock(loop: AnyLoop, function: Any) -> None:
    use_kernel_clock(loop)
    if function != loop._clock_function:
        loop._clock_function = function
        loop._time_replaced = True


def refresh_overrides(loop: AnyLoop) -> None:
    """Notice a clock that was put into the class, or taken out of it."""
    has_own_time = type(loop).time is TIME and loop._clock_function == kernel_clock(loop)
    has_own_call_at = type(loop).call_at is CALL_AT and loop.call_at == CALL_AT.__get__(loop)
    loop._time_replaced = not (has_own_time and has_own_call_at)


TIME = ObservedDescriptor(
    asyncio.SelectorEventLoop.time, read_class_clock, _use_replaced_clock, use_kernel_clock
)
