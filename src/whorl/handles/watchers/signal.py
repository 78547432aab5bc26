"""Signal: UNIX signals as events of a loop."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import call_in_context, current_context
from whorl.core.handle import Handle, LateCompletion
from whorl.core.kernel.errors import os_error

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop

_UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)


class Signal(Handle):
    """Tells of a signal (libuv: ``uv_signal_t``); any number of handles, on any loops, may share one.

    They are told in the order in which they were started, those that wait for one signal only last.

    While a handle is started, the signal does nothing else: no handler of Python's runs and nothing is
    terminated. What was there before is there again when the last handle has been stopped.
    """

    __slots__ = ("_callback", "_context", "_number", "_once", "_start")

    loop: Loop

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._number = 0  # the signal it waits for; 0 while it is stopped
        self._callback: Callable[[Any, int], object] | None = None
        self._context: Any = None
        self._once = False
        self._start = 0  # counts the starts: what arrived before the last one is not reported

    @property
    def signum(self) -> int:
        """The signal that it waits for; 0 while it is stopped."""
        return self._number

    def start(self, number: int, callback: Callable[[Self, int], object]) -> None:
        """Call `callback(handle, number)` whenever the signal has arrived.

        Signals that arrive faster than Python runs handlers may count as one, as in the kernel. Started
        again, the handle has the new signal and callback. Outside the main thread the handler is installed
        a moment later, by the loop that runs there; RuntimeError if there is none.

        Raises OSError (EINVAL) for what is no signal, or cannot be caught.
        """
        self._begin(number, callback, once=False)

    def start_oneshot(self, number: int, callback: Callable[[Self, int], object]) -> None:
        """The same for one signal: the handle is stopped once it has been reported."""
        self._begin(number, callback, once=True)

    def stop(self) -> None:
        """Wait no more; what has arrived and was not yet reported is forgotten."""
        if self._number:
            number, self._number = self._number, 0
            self.loop._host.signals.unlisten(number, self)
            self.loop._count_signal_handles(-1)
        self._callback = self._context = None
        self._deactivate()

    def _begin(self, number: int, callback: Callable[[Self, int], object], once: bool) -> None:
        if self.is_closing():
            raise OSError(errno.EINVAL, "Signal handle is closed")
        if not callable(callback):
            raise TypeError(f"a callable object was expected by start(), got {callback!r}")
        if not isinstance(number, int):
            raise TypeError(f"the number of a signal was expected by start(), got {number!r}")
        number = int(number)
        if number not in signal.valid_signals() or number in _UNCATCHABLE:
            raise os_error(errno.EINVAL)
        if number != self._number:
            self.stop()
            self._listen(number, once)
        self._callback = callback
        self._context = current_context()
        self._once = once
        self._activate()

    def _listen(self, number: int, once: bool) -> None:
        loop = self.loop
        try:
            loop._count_signal_handles(1)
            loop._host.signals.listen(number, self, once)
        except BaseException:
            loop._count_signal_handles(-1)
            raise
        self._start += 1
        self._number = number

    def _signal_raised(self, number: int) -> bool:
        """The signal has arrived; called inside Python's signal handler, in the main thread."""
        if not self.loop._is_in_creating_process():
            return False  # The loop is one of the process that this one was forked from.
        self.loop._post_from_any_thread(LateCompletion(self._report, (self._start, number)))
        return True

    def _report(self, start: int, number: int) -> None:
        callback, context, once = self._callback, self._context, self._once
        if callback is None or start != self._start or number != self._number:
            return
        if once:
            self.stop()
        call_in_context(context, callback, (self, number))

    def _release(self) -> None:
        self.stop()
