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
    """A listener for a signal (libuv: ``uv_signal_t``); many handles, on any loops, may share a signal.

    They get it in the order in which they were started. Handles that wait for one signal only come last.

    While a handle is started, the signal does nothing else: no Python handler runs and nothing is terminated.
    The former handler is installed again when the last handle has been stopped.
    """

    __slots__ = ("_callback", "_context", "_number", "_once", "_start")

    loop: Loop

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._number = 0  # the number of the awaited signal; 0 while the handle is stopped
        self._callback: Callable[[Any, int], object] | None = None
        self._context: Any = None
        self._once = False
        self._start = 0  # the number of starts; a signal that arrived before the last start is not reported

    @property
    def signum(self) -> int:
        """The number of the awaited signal; 0 while the handle is stopped."""
        return self._number

    def start(self, number: int, callback: Callable[[Self, int], object]) -> None:
        """Call `callback(handle, number)` whenever the signal has arrived.

        Signals that arrive faster than Python runs handlers may count as one, as in the kernel. Another start
        changes the signal and the callback. In another thread than the main one, the loop of the main thread
        installs the handler a moment later; RuntimeError if no loop runs there.

        Raises OSError (EINVAL) if the number is no signal, or the signal cannot be caught.
        """
        self._begin(number, callback, once=False)

    def start_oneshot(self, number: int, callback: Callable[[Self, int], object]) -> None:
        """Call back once: the handle is stopped when the signal is reported."""
        self._begin(number, callback, once=True)

    def stop(self) -> None:
        """Stop waiting; drop signals that were not yet reported."""
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
        """Post a signal's report; called inside Python's signal handler, in the main thread."""
        if not self.loop._is_in_creating_process():
            return False  # The loop belongs to the parent of this forked process.
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
