"""The recording of an inspected process: its memory, and the loops that write into it.

It begins when the first loop runs, in a forked child too: a child writes nothing into the memory of its
parent. Loops of simulated worlds have a recording of their own, which is no file.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from whorl.core.loop.lifecycle import running_loops
from whorl.core.recording import layout
from whorl.core.recording.loop_recorder import open_loop
from whorl.core.recording.recorder import Recorder
from whorl.inspector.asking import directory
from whorl.inspector.recordings import file
from whorl.inspector.recordings.doing import plain
from whorl.inspector.settings import Settings
from whorl.inspector.tables.own_frames import Frame, folded
from whorl.inspector.tables.task_kinds import know_all_tasks
from whorl.inspector.watching import own_thread, runs
from whorl.inspector.watching.own_thread import has_real_clock
from whorl.inspector.watching.stalls import Stall
from whorl.inspector.watching.text import shown, warn
from whorl.inspector.watching.watchdog import Watchdog

MOST_STALL = layout.STALL_SIZE - 4
LONGEST_TEXT = 256  # bytes of a frame's texts, in a stall
MOST_FRAMES = (100, 50, 36, 26, 18, 12, 8, 4)  # of each stack: the first of these that leaves room
LEAST_COLLECTION_NS = layout.SHORTEST_RECORDED_NS


class Memory:
    """A recording in memory, and what writes it."""

    def __init__(self, memory: mmap.mmap, shortest_ns: int, path: str | None) -> None:
        self.memory = memory
        self.recorder: Recorder = Recorder(memory, shortest_ns=shortest_ns)
        self.path = path

    def close(self) -> None:
        """Let go of the memory. Nobody writes it from here on."""
        self.recorder.abandon()
        if own_thread.may_change():  # else others may be letting go of it, which `close` does not bear
            with contextlib.suppress(BufferError):  # It ends with the last that has it.
                self.memory.close()


class Attached(NamedTuple):
    """A loop that is recorded."""

    reference: weakref.ref[Any]
    recorder: Any  #: of the loop
    name: str  #: as stalls name it


class Recorded:
    """The recordings of a process. `only` is the one loop that is recorded, None: all loops."""

    def __init__(self, only: Any, settings: Settings, watchdog: Watchdog | None) -> None:
        self._only = None if only is None else weakref.ref(only)
        self._settings = settings
        self._watchdog = watchdog
        self._begin_anew()
        if watchdog is not None:
            watchdog.reports.at_change = self._stall_changed
            watchdog.collector.at_end = self._collected
            watchdog.at_look = self._note_look

    #: Called when the file is made, when a stall has ended, and at each look of the watchdog.
    at_file: Callable[[], object] | None = None
    at_stall: Callable[[], object] | None = None
    at_look: Callable[[], object] | None = None
    #: Why the directory was refused; empty if it was not.
    refused: str = ""

    def look_often(self) -> None:
        """Let the watchdog call `at_look` as often as it looked at a loop that stalls."""
        if self._watchdog is not None:
            self._watchdog.looks_often = True

    def _begin_anew(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._real: Memory | None = None
        self._simulated: Memory | None = None
        self._attached: dict[int, Attached] = {}

    @property
    def path(self) -> str | None:
        """The path of the file; None if there is none."""
        return None if self._real is None else self._real.path

    # Beginning and end.

    def start(self) -> None:
        """Record the loops that run now, and each that begins to."""
        self._is_on = True
        runs.add_listener(self._loop_runs)
        for loop in running_loops():
            own_thread.call(loop, self._loop_runs)

    def stop(self) -> None:
        """Record no more. The file of a process that ends in order is removed, unless it was named."""
        self._is_on = False
        runs.remove_listener(self._loop_runs)
        if self._pid != os.getpid():
            return
        self._detach_all()
        with self._lock:
            if self._watchdog is not None:
                self._watchdog.record_into(None)
            for memory in (self._real, self._simulated):
                if memory is not None:
                    memory.recorder.finish()
                    self._end_memory(memory)
            self._real = self._simulated = None

    def _end_memory(self, memory: Memory) -> None:
        """Close a recording, and remove its file unless that was named."""
        if memory.path is not None and self._settings.recording is True:
            with contextlib.suppress(OSError):
                os.unlink(memory.path)
        if own_thread.may_change() or not memory.recorder.is_written():
            memory.close()  # else it ends with the last loop that writes it

    def fork_ended(self) -> None:
        """Let go of the parent's recording, in a forked child. Its first loop that runs has a new one."""
        for attached in self._attached.values():
            loop = attached.reference()
            if loop is not None and loop._recorder is attached.recorder:
                loop._set_recorder(None)
        for memory in (self._real, self._simulated):
            if memory is not None:
                memory.close()
        self._begin_anew()

    def _look_for_loss(self) -> None:
        """Go on in memory that is no file, if the file has lost its content: others can write to it."""
        with self._lock:
            former = self._real
            if former is None or former.path is None or file.is_whole(former.memory):
                return
            self._real = self._own_memory()
            if self._watchdog is not None:
                self._watchdog.record_into(self._real.memory)
        self._detach_all()
        self._end_memory(former)
        for loop in running_loops():
            own_thread.call(loop, self._loop_runs)
        tell = warn if self._watchdog is None else self._watchdog.tell
        tell(f"Only this process can read its recording from now on: somebody has emptied {former.path}")

    def _detach_all(self) -> None:
        """End what records each loop. The lock is not held meanwhile: the loop's thread may wait for it."""
        with self._lock:
            former = list(self._attached.values())
            self._attached.clear()
        for attached in former:
            loop = attached.reference()
            if loop is None:
                attached.recorder.close()
            else:
                own_thread.call(loop, functools.partial(_end_recording, attached.recorder))

    # The loops.

    def _loop_runs(self, loop: Any) -> None:
        if self._only is not None and self._only() is not loop:
            return
        with self._lock:
            known = self._attached.get(id(loop))
            if not self._is_on or (known is not None and known.reference() is loop):
                return
            know_all_tasks()
            self._close_ended()
            if loop._recorder is not None:  # Its thread was asked to end this, and has not yet.
                _end_recording(loop._recorder, loop)
            opened = open_loop(self._memory_for(loop).recorder, loop)
            if opened is None:
                return  # There are many loops: this one is not recorded.
            number = id(loop)
            reference = weakref.ref(loop, lambda _: self._forget(number, opened))
            self._attached[number] = Attached(reference, opened, f"<{type(loop).__name__} at {number:#x}>")
            loop._set_recorder(opened)

    def _close_ended(self) -> None:
        """Close what records loops that are gone. Those that are closed have ended it by themselves."""
        for number, attached in list(self._attached.items()):
            loop = attached.reference()
            if loop is None:
                self._forget(number, attached.recorder)
            elif loop.is_closed():
                del self._attached[number]

    def _forget(self, number: int, recorder: Any) -> None:
        with self._lock:
            attached = self._attached.get(number)
            if attached is not None and attached.recorder is recorder:
                del self._attached[number]
                recorder.close()

    def _memory_for(self, loop: Any) -> Memory:
        if has_real_clock(loop):
            if self._real is None:
                self._real = self._new_memory()
                if self._watchdog is not None:
                    self._watchdog.record_into(self._real.memory)
            return self._real
        if self._simulated is None:
            memory = file.own(file.size_of(self._settings.ring))
            file.lay_out_simulated(memory, self._settings.ring)
            self._simulated = Memory(memory, self._shortest_ns(), None)
        return self._simulated

    def _shortest_ns(self) -> int:
        return 0 if self._settings.record_all else layout.SHORTEST_RECORDED_NS

    def _new_memory(self) -> Memory:
        memory = None
        try:
            memory, path = self._new_file(file.size_of(self._settings.ring))
            self._end_with_child()
            if self.at_file is not None:
                self.at_file()
        except OSError as error:
            path = None
            if isinstance(error, directory.Refused):
                self.refused = str(error)
                warn(f"No other process can look at this one: {error}")
            else:
                warn(f"Only this process can read its recording: {error}")
        if memory is None:
            return self._own_memory()
        return self._laid_out(memory, path)

    def _own_memory(self) -> Memory:
        return self._laid_out(file.own(file.size_of(self._settings.ring)), None)

    def _laid_out(self, memory: mmap.mmap, path: str | None) -> Memory:
        file.lay_out(memory, self._settings.ring, started=directory.start_time("self") or 0)
        return Memory(memory, self._shortest_ns(), path)

    def _new_file(self, size: int) -> tuple[mmap.mmap, str]:
        if isinstance(self._settings.recording, str):
            return self._new_named_file(os.path.abspath(self._settings.recording), size)
        folder = directory.path_for(dict(os.environ), os.geteuid())
        place = directory.opened(folder)
        try:
            directory.sweep_recordings(place)
            name = directory.name_of(os.getpid(), "recording")
            directory.remove_former(place, name)
            return file.mapped(place, name, size), os.path.join(folder, name)
        finally:
            os.close(place)

    def _new_named_file(self, path: str, size: int) -> tuple[mmap.mmap, str]:
        """Make the file that the program named.

        If that is the recording of another process, also of a dead one, the name has the number of this
        process added.
        """
        folder, name = os.path.split(path)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if directory.owner_of(place, name) not in (None, os.getpid()):
                name = f"{name}.{os.getpid()}"
            directory.remove_former(place, name)
            return file.mapped(place, name, size), os.path.join(folder, name)
        finally:
            os.close(place)

    def _end_with_child(self) -> None:
        """Let a child of `multiprocessing`, which ends without `atexit`, end its recording."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.stop, exitpriority=0)

    # What others tell.

    def _note_look(self) -> None:
        self._look_for_loss()
        with self._lock:
            if self._real is not None:
                starved = 0 if self._watchdog is None else self._watchdog.starved
                self._real.recorder.alive(time.monotonic_ns(), starved)
                struct.pack_into("<q", self._real.memory, layout.LEFT_OUT_AT, self._left_out())
        if self.at_look is not None:
            self.at_look()

    def _left_out(self) -> int:
        """Return how many loops run that have no slot."""
        if self._only is not None or len(self._attached) < layout.LOOPS:
            return 0
        running = [loop for loop in running_loops() if has_real_clock(loop)]
        return sum(id(loop) not in self._attached for loop in running)

    def _stall_changed(self, stall: Stall) -> None:
        with self._lock:
            if self._real is None:
                return
            recorder = self._real.recorder
            recorder.write_stall(stall.number, fitted(stall))
            if stall.ended:
                attached = list(self._attached.values())  # Other threads change it when a loop ends.
                number = next((one.recorder.number for one in attached if one.name == stall.loop), 0)
                recorder.note(
                    layout.STALLED,
                    at_ns=stall.began_ns,
                    took_ns=stall.length_ns,
                    subject=stall.number,
                    loop=number,
                )
        if stall.ended and self.at_stall is not None:
            self.at_stall()

    def _collected(self, began_ns: int, took_ns: int, generation: int) -> None:
        if took_ns < LEAST_COLLECTION_NS and not self._settings.record_all:
            return
        real = self._real  # without the lock: the collector runs anywhere, also where the lock is held
        if real is not None and self._pid == os.getpid():
            loop = self._number_of_loop_here()
            with contextlib.suppress(ValueError):  # Another thread has ended the recording by now.
                real.recorder.note(
                    layout.COLLECTED, at_ns=began_ns, took_ns=took_ns, subject=generation, loop=loop
                )

    def _number_of_loop_here(self) -> int:
        """Return the number of the loop that runs in this thread; 0 if none does."""
        thread = threading.get_ident()
        for attached in list(self._attached.values()):
            loop = attached.reference()
            if loop is not None and loop._thread_id == thread:
                return int(attached.recorder.number)
        return 0

    def mark(self, name: str) -> None:
        """Write a mark with a name."""
        with self._lock:
            for memory in (self._real, self._simulated):
                if memory is not None:
                    memory.recorder.note(layout.MARK, subject=memory.recorder.name_id(name) << 32)

    def loops(self) -> list[Any]:
        """Return the loops that are recorded."""
        found = [attached.reference() for attached in list(self._attached.values())]
        return [loop for loop in found if loop is not None]

    def write_copy(self, path: str, place: int | None = None) -> bool:
        """Write a copy of the recording to a file; return whether there is a recording. Raises OSError."""
        self._look_for_loss()
        memory = self._real or self._simulated
        if memory is None:
            return False
        file.write_copy(memory.memory, path, place)
        return True


def _end_recording(recorder: Any, loop: Any) -> None:
    """Record a loop no more."""
    if loop._recorder is recorder:
        loop._set_recorder(None)
    recorder.close()


def fitted(stall: Stall) -> bytes:
    """Return a stall as JSON, short enough for its place: frames of others are folded first."""
    fields = plain(stall)
    for name in ("loop", "call", "task", "place"):
        fields[name] = None if fields[name] is None else shown(fields[name])
    fields["callers"] = [(shown(call), took_ns) for call, took_ns in stall.callers]
    data = b""
    for most in MOST_FRAMES:
        fields["stacks"] = [
            stack._asdict() | {"frames": [_cut(frame) for frame in folded(stack.frames, most, stall.call)]}
            for stack in stall.stacks
        ]
        data = _line(fields)
        if len(data) <= MOST_STALL:
            return data
    while len(data) > MOST_STALL:
        if len(fields["stacks"]) > 1:
            fields["stacks"].pop()
        elif fields["text"] != stall.summary():
            fields["text"] = stall.summary()
        else:
            fields |= {"stacks": [], "text": "", "file": None}
            return _line(fields)
        data = _line(fields)
    return data


def _cut(frame: Frame) -> tuple[str, int, str, str]:
    file, function, source = (
        text.encode("utf-8", "backslashreplace") for text in (frame.file, frame.function, frame.source)
    )
    parts = file[-LONGEST_TEXT:], function[:LONGEST_TEXT], source[:LONGEST_TEXT]
    file_end, function_begin, source_begin = (part.decode("utf-8", "ignore") for part in parts)
    return file_end, frame.line, function_begin, source_begin


def _line(fields: dict[str, Any]) -> bytes:
    # A lone surrogate is escaped as JSON does it. All other characters take fewer bytes as they are.
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
