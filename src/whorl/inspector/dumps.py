"""Copies of the recording that the inspector writes by itself: at a stall, an error, the end, or a signal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from typing import Any

from whorl.inspector.asking import directory
from whorl.inspector.recorded import Recorded
from whorl.inspector.settings import Settings, signal_named
from whorl.inspector.watching.text import warn


class Dumps:
    """Writes `whorl-PID-N.recording` into the inspector's directory, and keeps the last ones."""

    def __init__(self, recorded: Recorded, settings: Settings) -> None:
        self._recorded = recorded
        self._settings = settings
        self._handled: dict[int, Any] = {}
        self.fork_ended()
        if "stall" in settings.dump_on:
            recorded.at_stall = self.write
        if "error" in settings.dump_on:
            recorded.at_look = self._look_for_errors
            recorded.look_often()

    def fork_ended(self) -> None:
        """Begin anew, in a forked child."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._number = 0
        self._names: list[str] = []
        self._errors: dict[int, int] = {}

    def start(self) -> None:
        """Take the signals that ask for a copy, if nobody uses them."""
        for name in sorted(self._settings.dump_on):
            number = signal_named(name)
            if number is None:
                continue
            if not is_unused(number):
                warn(f"{name} writes no recording: the signal is used already")
                continue
            try:
                signal.signal(number, self._signalled)
            except (OSError, ValueError) as error:
                warn(f"{name} writes no recording: {error}")
            else:
                self._handled[number] = self._signalled

    def stop(self) -> None:
        """Give back the signals, and write a copy if one is wanted at the end."""
        for number, handler in self._handled.items():
            with contextlib.suppress(OSError, ValueError):  # only the main thread may
                if signal.getsignal(number) == handler:
                    signal.signal(number, signal.SIG_DFL)
        self._handled.clear()
        if "exit" in self._settings.dump_on and self._pid == os.getpid():
            self.write()

    def _signalled(self, *_: object) -> None:
        # In a thread of its own: the signal may have come in the midst of a copy.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self.write, name="whorl-dump", daemon=True).start()

    def _look_for_errors(self) -> None:
        """Write a copy if a loop has called its exception handler since the last look."""
        errors = {id(loop): loop.metrics().errors_reported for loop in self._recorded.loops()}
        earlier, self._errors = self._errors, errors
        if any(count > earlier.get(number, 0) for number, count in errors.items()):
            self.write()

    def write(self) -> None:
        """Write a copy, and remove the oldest one beyond those that are kept. Errors are only logged."""
        try:
            with self._lock:
                place = directory.opened(directory.path_for(dict(os.environ), os.geteuid()))
                try:
                    self._write_into(place)
                finally:
                    os.close(place)
        except OSError as error:
            warn(f"No copy of the recording was written: {error}")

    def _write_into(self, place: int) -> None:
        name = f"whorl-{os.getpid()}-{self._number + 1}.recording"
        if not self._recorded.write_copy(name, place):
            return
        self._number += 1
        self._names.append(name)
        while len(self._names) > self._settings.keep:
            with contextlib.suppress(OSError):
                os.unlink(self._names.pop(0), dir_fd=place)


def is_unused(signal: int) -> bool:
    """Return whether a signal has its default disposition: nobody catches or ignores it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    masks = re.findall(r"^Sig(?:Ign|Cgt):\s*([0-9a-f]+)$", text, re.MULTILINE)
    return len(masks) == 2 and not any(int(mask, 16) >> (signal - 1) & 1 for mask in masks)
