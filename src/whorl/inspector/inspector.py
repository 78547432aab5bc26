"""`Inspector`: what is known of the loops that are watched; `start` makes it.

There is at most one in a process. It watches by one thread for all loops, the watchdog, which looks at the
loops from outside: they are not changed and call nothing.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from whorl.core.loop.loop import Loop
from whorl.inspector import ending
from whorl.inspector import settings as settings_
from whorl.inspector.asking.answers import Answers
from whorl.inspector.asking.client import Failed, NotOurs
from whorl.inspector.asking.finding import recording_of
from whorl.inspector.dumps import Dumps
from whorl.inspector.recorded import Recorded
from whorl.inspector.recordings.recording import Recording, read_file
from whorl.inspector.settings import (
    DEFAULT_KEEP,
    DEFAULT_RING,
    DEFAULT_THRESHOLD,
    Settings,
)
from whorl.inspector.tables import handles as handles_
from whorl.inspector.tables import tasks as tasks_
from whorl.inspector.watching.own_thread import has_real_clock
from whorl.inspector.watching.own_thread import read as read_table
from whorl.inspector.watching.stalls import Stall
from whorl.inspector.watching.text import warn
from whorl.inspector.watching.watchdog import Watchdog

_current: Inspector | None = None
#: The settings that the environment or the command line names; None: neither asked for the inspector.
_outside: dict[str, Any] | None = None


class Inspector:
    """Watches one loop, or every loop of the process. `start` makes it."""

    def __init__(self, loop: Loop | None, settings: Settings) -> None:
        self.loop = loop
        self.settings: Settings = settings
        #: Whether the program itself has called `start`.
        self.is_asked_for = False
        self._at_stop: list[Callable[[], object]] = []
        #: The thread that looks for stalls; None if the loop lives in a simulated world.
        self.watchdog: Watchdog | None = None
        if loop is None or has_real_clock(loop):
            self.watchdog = Watchdog(loop, settings.threshold)
        #: What answers other processes, from the first run of a loop on.
        self.answers: Answers | None = None
        if self.watchdog is not None and settings.socket:
            self.answers = Answers(self)
            self.watchdog.at_start = self.answers.start
            self.call_at_stop(self.answers.stop)
        #: What records the loops; None if they are not recorded.
        self.recorded: Recorded | None = None
        self._dumps: Dumps | None = None
        if settings.recording is not False:
            self.recorded = recorded = Recorded(loop, settings, self.watchdog)
            if self.answers is not None:
                self.answers.refusal = lambda: recorded.refused
            self.recorded.at_file = lambda: ending.take_over(self.stop)
            self.call_at_stop(ending.give_back)
            self._dumps = Dumps(self.recorded, settings)

    def start(self) -> None:
        """Begin to watch and to record. The function `start` does this."""
        # A loop is recorded first: the watchdog sees what it does from then on.
        if self.recorded is not None and self._dumps is not None:
            self.recorded.start()
            self._dumps.start()
        if self.watchdog is not None:
            self.watchdog.start()

    def change_threshold(self, settings: Settings) -> bool:
        """Take over settings if only their threshold is another one; return whether that was so."""
        if replace(self.settings, threshold=settings.threshold) != settings or self.watchdog is None:
            return False
        self.settings = settings
        self.watchdog.set_threshold(settings.threshold)
        return True

    @property
    def recording(self) -> Path | None:
        """The file into which the loops are recorded; None if there is none."""
        path = None if self.recorded is None else self.recorded.path
        return None if path is None else Path(path)

    def mark(self, name: str) -> None:
        """Write a mark with this name into the recording; any thread may call this."""
        if self.recorded is not None:
            self.recorded.mark(name)

    def dump(self, path: str | os.PathLike[str]) -> Path:
        """Write a copy of the recording to a file, which is replaced; any thread may call this.

        Raises RuntimeError if no loop was recorded yet, and OSError.
        """
        target = os.fspath(path)
        if self.recorded is None or not self.recorded.write_copy(target):
            raise RuntimeError("no loop was recorded")
        return Path(target)

    def is_running(self) -> bool:
        """Return whether this is the inspector of the process: `stop` was not called."""
        return _current is self

    def loops(self) -> list[Loop]:
        """Return the loops that are watched and open, the first watched first."""
        if self.watchdog is not None:
            return self.watchdog.loops()
        return [] if self.loop is None or self.loop.is_closed() else [self.loop]

    def stalls(self) -> list[Stall]:
        """Return the last stalls, oldest first; those that go on are among them."""
        return [] if self.watchdog is None else self.watchdog.reports.stalls()

    def tasks(self) -> list[tasks_.TaskFigures]:
        """Return the tasks of all loops that are watched; any thread may call this.

        Without the GIL, the thread of each loop makes its table. Raises RuntimeError if one is busy.
        """
        return [figures for loop in self.loops() for figures in read_table(loop, tasks_.tasks)]

    def tree(self) -> str:
        """Return the tasks as a tree, each under the task that waits for it; any thread may call this.

        Without the GIL, the thread of each loop makes its part. Raises RuntimeError if one is busy.
        """
        return "\n\n".join(read_table(loop, tasks_.tree) for loop in self.loops())

    def handles(self) -> list[handles_.HandleFigures]:
        """Return the handles of all loops that are watched; any thread may call this.

        Without the GIL, the thread of each loop makes its table. Raises RuntimeError if one is busy.
        """
        return [figures for loop in self.loops() for figures in read_table(loop, handles_.handles)]

    def starved(self) -> int:
        """Return how often a callback took longer than the threshold only because it had no processor."""
        return 0 if self.watchdog is None else self.watchdog.starved

    def subscribe(self, callback: Callable[[Stall], object]) -> Callable[[], None]:
        """Call `callback` with each stall: when it is seen, and again when it has ended (`Stall.ended`).

        A thread of the inspector's makes the calls, one after the other. A callback that raises is reported
        in the log, and is called no more. Return a function that ends the subscription.
        """
        if self.watchdog is None:
            return lambda: None
        return self.watchdog.reports.subscribe(callback)

    def call_at_stop(self, function: Callable[[], object]) -> None:
        """Call `function` when the inspector stops; the last one added comes first."""
        self._at_stop.append(function)

    def stop(self) -> None:
        """Stop watching. No thread, descriptor or file is left. Stopping again does nothing."""
        global _current
        if _current is not self:
            return
        _current = None
        atexit.unregister(self.stop)
        try:
            while self._at_stop:
                self._at_stop.pop()()
        finally:
            if self.watchdog is not None:
                self.watchdog.stop()
            if self.recorded is not None and self._dumps is not None:
                self._dumps.stop()
                self.recorded.stop()

    def fork_ended(self) -> None:
        """Begin anew in a forked child: its threads are gone, and the stalls were the parent's."""
        if self.watchdog is not None:
            self.watchdog.fork_ended()
        if self.recorded is not None and self._dumps is not None:
            self.recorded.fork_ended()
            self._dumps.fork_ended()
        if self.answers is not None:
            self.answers.fork_ended()

    def __enter__(self) -> Inspector:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    loop: Loop | None = None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
    socket: bool = True,
    recording: bool | str | os.PathLike[str] = True,
    ring: int = DEFAULT_RING,
    record_all: bool = False,
    dump_on: Iterable[str] = (),
    keep: int = DEFAULT_KEEP,
) -> Inspector:
    """Watch `loop`, or with None every loop of the process, also those that are made later.

    `threshold` is how many seconds a callback may take before it is a stall. With `socket`, the commands
    `whorl tasks` and `whorl handles` of the same user are answered.

    Loops are recorded into a file that other processes can read, also after a crash; a text as `recording`
    names it, and then it stays. `ring` is how many bytes of events it has. Callbacks and steps shorter than
    100 µs are left out without `record_all`. `dump_on` has "stall", "error", "exit" and names of signals: a
    copy is written then, and the last `keep` copies stay.

    A second call with equal arguments returns the same inspector, one with others raises ValueError.
    The call takes over an inspector that `WHORL_INSPECT`, `whorl run --inspect` or `whorl attach` started.
    Settings that these name stay, and every loop is watched. The arguments decide the rest.

    Raises TypeError and ValueError for wrong arguments, and RuntimeError for a closed loop.
    """
    arguments: dict[str, Any] = {
        "threshold": threshold,
        "socket": socket,
        "recording": recording,
        "ring": ring,
        "record_all": record_all,
        "dump_on": dump_on,
        "keep": keep,
    }
    settings = settings_.checked(**arguments)
    if loop is not None and not isinstance(loop, Loop):
        raise TypeError(f"loop must be a loop of Whorl's or None, not {loop!r}")
    if _outside is not None:
        loop, settings = None, settings_.checked(**arguments | _outside)
    if loop is not None and loop.is_closed():
        raise RuntimeError("Event loop is closed")
    running = _current
    if running is not None and (running.is_asked_for or (running.loop, running.settings) == (loop, settings)):
        if running.loop is not loop or running.settings != settings:
            raise ValueError(f"the inspector runs already, with {running.settings!r}; stop it first")
    else:
        running = _started(loop, settings)
    running.is_asked_for = True
    return running


def start_from_outside(**named: Any) -> None:
    """Start with these arguments of `start`, which the program's own call does not change.

    Without any, an inspector that runs goes on as it is.
    """
    global _outside
    before = _outside
    try:
        _outside = (before or {}) | named
        settings = settings_.checked(**_outside)
        if _current is None or named:
            _started(None, settings)
    except BaseException:
        _outside = before
        raise


def _started(loop: Loop | None, settings: Settings) -> Inspector:
    """Return an inspector with these settings, in the place of one that runs."""
    global _current
    running = _current
    if running is not None and running.loop is loop and running.change_threshold(settings):
        return running
    if running is not None:
        running.stop()
    inspector = Inspector(loop, settings)
    _current = inspector
    atexit.register(inspector.stop)
    inspector.start()
    return inspector


def current() -> Inspector | None:
    """Return the inspector of this process; None if nothing is watched."""
    return _current


def start_from_environment() -> None:
    """Start as `WHORL_INSPECT` says. A wrong text is one warning, and nothing is watched."""
    try:
        arguments: dict[str, Any] | None = settings_.from_environment(os.environ.get("WHORL_INSPECT", ""))
        if arguments is not None:
            start_from_outside(**arguments)
    except Exception as error:  # A variable must not keep a server from starting.
        warn(f"Nothing is inspected: {error}")


def read(source: int | str | os.PathLike[str]) -> Recording:
    """Return the recording of a process, by its number, or that in a file.

    It is a snapshot. The process may run, be stuck or be dead. Raises OSError, `NotARecording`, and
    LookupError if there is no recording of the process.
    """
    if not isinstance(source, int):
        return read_file(source)
    try:
        return recording_of(source).recording
    except NotOurs as error:
        raise PermissionError(str(error)) from None
    except Failed as error:
        raise LookupError(str(error)) from None


def _fork_ended() -> None:
    if _current is not None:
        _current.fork_ended()


os.register_at_fork(after_in_child=_fork_ended)
