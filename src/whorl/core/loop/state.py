"""The ground of a loop: whose it is, who listens to it, and what its faces replace."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from whorl.core.callback import AbstractLoop, Callback, Runnable, current_thread
from whorl.core.kernel.kernel import Kernel
from whorl.core.process.host import Host

if TYPE_CHECKING:
    from whorl.core.probe import Probe


class LoopState(AbstractLoop):
    """What all parts of a loop stand on."""

    __slots__ = ("__weakref__", "_closed", "_host", "_kernel", "_probe", "_stopping", "_thread_id")

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        AbstractLoop._set_up_abstract(self)
        self._closed = True  # until everything has been made
        self._kernel = Kernel() if kernel is None else kernel
        self._host: Host = Host() if host is None else host
        self._probe: Probe | None = None
        self._stopping = False
        self._thread_id: int | None = None  # the thread that runs the loop

    def is_closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed

    def is_running(self) -> bool:
        """Return whether the loop is being run."""
        return self._thread_id is not None

    def set_probe(self, probe: Probe | None) -> None:
        """Let `probe` listen from now on; None ends that."""
        self._probe = probe

    def get_debug(self) -> bool:
        """Return whether debug mode is on."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Turn debug mode on or off."""
        self._debug = bool(enabled)

    def _check_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    def _check_thread(self) -> None:
        if self._thread_id is not None and self._thread_id != current_thread():
            raise RuntimeError(
                "Non-thread-safe operation invoked on an event loop other than the current one"
            )

    def _notify_probe(self, what: str, *details: Any) -> None:
        """Tell the probe; one that raises is removed."""
        probe = self._probe
        try:
            getattr(probe, what)(*details)
        except Exception:
            self._probe = None
            _log_failed_probe(probe)

    # What faces replace.

    def _clock_was_patched(self) -> None:
        """Somebody has put another function in the place of `time.monotonic`, or the former one back."""

    def _callback_failed(self, entry: Runnable, error: BaseException) -> None:
        """What to do about an error of the user's code. The machine lets it end the run."""
        raise error

    def _callback_ran(self, entry: Runnable, took_ns: int) -> None:
        """Debug mode: an entry took this long."""

    def _signal_arrived(self, number: int) -> None:
        """A signal was written to the signal pipe."""

    def _check_callback(self, callback: object, method: str) -> None:
        """Debug mode: refuse what cannot be called."""
        if not callable(callback):
            raise TypeError(f"a callable object was expected by {method}(), got {callback!r}")

    def _note_origin(self, callback: Callback) -> None:
        """Debug mode: note where a callback was scheduled."""


def _log_failed_probe(probe: object) -> None:
    logging.getLogger("whorl").exception("Probe %r failed and was removed", probe)
