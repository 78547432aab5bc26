"""The end of a server by a signal that it caught itself: then its recording is not left behind.

Uvicorn and others catch SIGINT and SIGTERM, stop their server, restore the handlers that were there before,
and raise the signal again. Without a handler that ends the process at once, inside of the loop's run. So the
inspector has a handler where the program has none. Only Python knows of it. The system still ends the process
at once, also while the loop is stuck, and then the recording stays.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable

from whorl.inspector.watching import looks

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: The seconds that the inspector may take to stop.
STOP_TIME = 5.0

_stop: Callable[[], object] | None = None


def take_over(stop: Callable[[], object]) -> None:
    """Call `stop` before the process ends by a signal that a server has raised again.

    Only the main thread can do this; in another thread this does nothing.
    """
    global _stop
    if threading.current_thread() is not threading.main_thread():
        return
    _stop = stop
    for number in SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)
            looks.end_at_once(number)


def give_back() -> None:
    """Let the program have no handler again. Another thread than the main one leaves it, without effect."""
    global _stop
    _stop = None
    for number in SIGNALS:
        if signal.getsignal(number) == _end:
            with contextlib.suppress(ValueError):
                signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: object) -> None:
    """Stop the inspector, then end the process as without a handler."""
    if signal.getsignal(number) != _end:
        return  # A handler of the program calls the one before it, which would be none.
    if _stop is not None:
        # In a thread: this may have come in the midst of what needs the same locks.
        thread = threading.Thread(target=_stop, name="whorl-end", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
            thread.join(STOP_TIME)
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
