"""Signals for many listeners: one Python handler for each signal, however many listeners it has.

Python runs signal handlers in the main thread, and lets only that thread install them. So for a listener of
another thread, the main thread's running loop installs the handler. The handler notifies every listener. The
last listener that leaves restores the handler that was there before.

If other code calls `signal.signal` meanwhile, it has taken the signal over, and keeps it.
"""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:

    class MainLoop(Protocol):
        """A loop, as the table uses it to act in the main thread."""

        _thread_id: int | None  # the thread that runs it

        def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object: ...

    class SignalHost(Protocol):
        """The process, as far as signals are concerned (`whorl.core.process.host`)."""

        def is_main_thread(self) -> bool: ...
        def main_thread(self) -> int | None: ...
        def get_signal(self, number: int) -> Any: ...
        def set_signal(self, number: int, handler: Any) -> Any: ...
        def restore_signal(self, number: int, handler: Any) -> None: ...
        def raise_signal(self, number: int) -> None: ...

    class Listener(Protocol):
        """An object that waits for a signal."""

        def _signal_raised(self, number: int) -> bool:
            """Take note of a signal, inside a signal handler; return whether that was possible."""


def _no_loop() -> None:
    """Return None, like a reference to a loop that is gone."""


class SignalTable:
    """The listeners of each signal, in one process."""

    def __init__(self, host: SignalHost) -> None:
        self._host = host
        # Guards changes of the listeners. A handler that interrupts one sees the tuple before or after.
        self._lock = threading.RLock()
        # For each listener, whether it waits for one signal only: such a listener comes after the others.
        self._listeners: dict[int, tuple[tuple[weakref.ref[Listener], bool], ...]] = {}
        self._former: dict[int, Any] = {}  # the handlers that ours has replaced
        self._raised: list[int] = []  # signals whose listeners were not notified yet
        self._is_notifying = False
        self.main_loop: Callable[[], MainLoop | None] = _no_loop  # the loop that ran last in the main thread

    # The main thread.

    def loop_began(self, loop: MainLoop) -> None:
        """Note the loop that begins to run in the main thread, where another one ran last."""
        self.main_loop = weakref.ref(loop)

    def _in_main_thread(self, action: Callable[[int], object], number: int) -> None:
        """Act in the main thread: now, or by the loop that runs there."""
        if self._host.is_main_thread():
            action(number)
            return
        main_loop = self.main_loop()
        if main_loop is None or main_loop._thread_id != self._host.main_thread():
            raise RuntimeError(
                "signals are handled in the main thread: start this there, or while a loop runs there"
            )
        main_loop.call_soon_threadsafe(action, number)

    # Listening.

    def listen(self, number: int, listener: Listener, once: bool) -> None:
        """Notify `listener` of each signal `number`; after all others if it waits for one only (`once`).

        Raises RuntimeError outside the main thread if no loop runs there, OSError for a signal that cannot
        be caught.
        """
        with self._lock:
            listeners = (*self._living(number), (weakref.ref(listener), once))
            self._listeners[number] = tuple(sorted(listeners, key=lambda each: each[1]))
        try:
            if not self.is_installed(number):
                self._in_main_thread(self._install, number)
        except BaseException:
            self._leave(number, listener)
            raise

    def unlisten(self, number: int, listener: Listener) -> None:
        """Stop notifying `listener` of a signal."""
        if self._leave(number, listener) or number not in self._former:
            return
        try:
            self._in_main_thread(self._give_back, number)
        except RuntimeError:
            pass  # The next signal finds no listener, and restores the former handler.

    def is_installed(self, number: int) -> bool:
        """Return whether the handler of a signal is ours."""
        return number in self._former and self._host.get_signal(number) == self._arrived

    def replace_former(self, number: int, handler: Any) -> bool:
        """Let `handler` have the signal after the last listener; return whether our handler has it now."""
        if not self.is_installed(number):
            return False
        self._former[number] = handler
        return True

    def _living(self, number: int) -> tuple[tuple[weakref.ref[Listener], bool], ...]:
        return tuple(each for each in self._listeners.get(number, ()) if each[0]() is not None)

    def _leave(self, number: int, listener: Listener) -> bool:
        """Forget a listener; return whether others are left."""
        with self._lock:
            left = tuple(each for each in self._living(number) if each[0]() is not listener)
            if left:
                self._listeners[number] = left
            else:
                self._listeners.pop(number, None)
            return bool(left)

    # In the main thread.

    def _install(self, number: int) -> None:
        with self._lock:
            if self._living(number) and not self.is_installed(number):
                self._former[number] = self._host.set_signal(number, self._arrived)

    def _give_back(self, number: int) -> None:
        with self._lock:
            if not self._living(number):
                self._restore(number)

    def _restore(self, number: int) -> None:
        """Install the former handler, unless other code has taken the signal over."""
        is_ours = self.is_installed(number)
        former = self._former.pop(number, signal.SIG_DFL)
        if is_ours:
            # Python cannot install a handler again that was not installed by Python.
            self._host.restore_signal(number, signal.SIG_DFL if former is None else former)

    def _arrived(self, number: int, frame: object) -> None:
        """Notify the listeners; Python calls this handler between any two instructions of the main thread.

        So it also interrupts itself. The inner call leaves its signal to the outer one. Signals may come
        faster than they are handled, and each inner call takes room on the stack.
        """
        self._raised.append(number)
        if not self._is_notifying:
            self._notify_raised()

    def _notify_raised(self) -> None:
        try:
            self._is_notifying = True
            while self._raised:
                self._notify(self._raised.pop(0))
        finally:
            self._is_notifying = False
            if (
                self._raised
            ):  # One arrived after the last look, or another handler's exception ended the loop.
                self._notify_raised()

    def _notify(self, number: int) -> None:
        handled = False
        for ref, _ in self._listeners.get(number, ()):
            listener = ref()
            if listener is not None and listener._signal_raised(number):
                handled = True
        if not handled and number in self._former:
            # All listeners were stopped in other threads, or belong to the parent of this forked child.
            self._restore(number)
            self._host.raise_signal(number)
