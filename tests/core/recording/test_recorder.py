"""Recording a loop: names, events, slots, figures, callbacks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import whorl
from tests.core.loop_fakes import SECOND, ObedientClock
from whorl.core import Kernel, Loop, Probe, figures
from whorl.core.loop import execution
from whorl.core.loop.loop import COMPILED
from whorl.core.recording import layout
from whorl.core.recording.loop_recorder import LoopRecorder, open_loop
from whorl.core.recording.recorder import Recorder
from whorl.core.recording.steps import TaskKind, know_tasks
from whorl.handles import Poll, Timer
from whorl.inspector.recordings.recording import Event, Recording

MS = 1_000_000


class Recorded:
    """A recording in memory, with its recorder."""

    def __init__(self, events: int = 1024, shortest_ns: int = 0) -> None:
        self.memory = bytearray(layout.offsets(events)[-1])
        layout.lay_out(memoryview(self.memory), events)
        self.recorder = Recorder(self.memory, shortest_ns=shortest_ns)

    def read(self) -> Recording:
        """Return a snapshot."""
        return Recording(bytes(self.memory))

    def events(self, *kinds: int) -> list[Event]:
        """Return the events of these kinds."""
        return [event for event in self.read().events() if event.kind in kinds]

    def names(self, *kinds: int) -> list[str]:
        """Return the names in the events of these kinds."""
        recording = self.read()
        return [recording.name(event.name_id) for event in self.events(*kinds)]

    def fields(self) -> dict[str, int]:
        """Return the fields of the last loop."""
        return self.read().loops()[-1].fields

    def watch(self, loop: Any) -> LoopRecorder:
        """Record a loop from now on."""
        opened = open_loop(self.recorder, loop)
        assert opened is not None
        loop._set_recorder(opened)
        return opened


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def clock() -> ObedientClock:
    return ObedientClock()


@pytest.fixture
def loop(clock: ObedientClock) -> Iterator[Loop]:
    loop = Loop(kernel=clock)
    yield loop
    loop.close()


def spin(clock: ObedientClock, ms: float) -> None:
    clock.clock += int(ms * MS)


# Memory.


def test_memory_that_was_not_laid_out_is_refused() -> None:
    for memory in (bytearray(10), bytearray(layout.offsets(8)[-1]), bytes(layout.offsets(8)[-1])):
        with pytest.raises(ValueError, match="laid out"):
            Recorder(memory)


def test_memory_is_kept_while_it_is_recorded(recorded: Recorded) -> None:
    with pytest.raises(BufferError):
        recorded.memory.append(0)


def test_name_has_one_id_and_is_cut_at_a_character(recorded: Recorded) -> None:
    recorder = recorded.recorder
    assert recorder.name_id("one") == recorder.name_id("one") != recorder.name_id("two")
    ids = [recorder.name_id("é" * 200), recorder.name_id("x" + "é" * 200)]
    assert [recorded.read().name(number) for number in ids] == ["é" * 128, "x" + "é" * 127]


def test_full_region_of_names_gives_the_rest_one_name(recorded: Recorded) -> None:
    recorder = recorded.recorder
    ids = [recorder.name_id(f"{number:0250}") for number in range(5000)]
    recording = recorded.read()
    assert recording.name(ids[0]) == f"{0:0250}"
    assert recording.name(ids[-1]) == "…"
    assert recorder.name_id(f"{0:0250}") == ids[0]


def test_note_writes_an_event(recorded: Recorded) -> None:
    recorded.recorder.note(layout.MARK, at_ns=5, took_ns=33, subject=7 << 32, flags=3, loop=2)
    assert list(recorded.read().events()) == [Event(5, 32, layout.MARK, 3, 2, 7 << 32)]
    for wrong in ({"subject": -1}, {"subject": 1 << 63}, {"flags": 256}):
        with pytest.raises(ValueError, match="do not fit"):
            recorded.recorder.note(layout.MARK, **wrong)
    with pytest.raises(ValueError, match="do not fit"):
        recorded.recorder.note(0)


def test_long_event_took_at_least_the_longest(recorded: Recorded) -> None:
    recorded.recorder.note(layout.MARK, at_ns=0, took_ns=1 << 50)
    assert recorded.events(layout.MARK)[0].took_ns == layout.LONGEST_TOOK * layout.TOOK_UNIT_NS


def test_ring_overwrites_its_oldest_events() -> None:
    recorded = Recorded(events=8)
    for number in range(19):
        recorded.recorder.note(layout.MARK, at_ns=number)
    assert [event.at_ns for event in recorded.read().events()] == list(range(11, 19))
    assert recorded.read().events_written == 19


def test_stall_is_written_in_its_place_and_refused_if_too_long(recorded: Recorded) -> None:
    for number in range(20):
        recorded.recorder.write_stall(number, json.dumps({"number": number}).encode())
    assert [stall["number"] for stall in recorded.read().stalls()] == list(range(4, 20))
    with pytest.raises(ValueError, match="at most 8188 bytes"):
        recorded.recorder.write_stall(1, bytes(8189))


def test_recorder_says_that_it_is_alive_and_that_it_ends(recorded: Recorded) -> None:
    recorded.recorder.alive(77)
    assert (recorded.read().alive_ns, recorded.read().state) == (77, layout.RECORDING)
    recorded.recorder.finish()
    assert recorded.read().state == layout.FINISHED


# Slots and figures.


def test_slot_of_a_closed_loop_is_used_again(recorded: Recorded) -> None:
    loops = [Loop() for _ in range(layout.LOOPS + 1)]
    opened = [open_loop(recorded.recorder, loop) for loop in loops]
    assert opened[-1] is None
    assert opened[3] is not None
    opened[3].close()
    again = open_loop(recorded.recorder, loops[-1])
    assert again is not None
    assert again.number == 17
    assert [loop.number for loop in recorded.read().loops()] == [1, 2, 3, *range(5, 18)]
    for recorder in [*opened, again]:
        if recorder is not None:
            recorder.close()
    for loop in loops:
        loop.close()


def test_loop_is_not_recorded_twice(recorded: Recorded, loop: Loop) -> None:
    first = open_loop(recorded.recorder, loop)
    with pytest.raises(RuntimeError, match="recorded already"):
        open_loop(recorded.recorder, loop)
    assert first is not None
    first.close()
    assert open_loop(recorded.recorder, loop) is not None


def test_slot_of_a_lost_recorder_is_free(recorded: Recorded) -> None:
    loop = Loop()
    recorded.watch(loop)
    loop.close()
    del loop
    gc.collect()
    assert recorded.fields()["state"] == 2


def test_figures_stay_right_when_they_move(recorded: Recorded, loop: Loop, clock: ObedientClock) -> None:
    def turn(count: int) -> None:
        for _ in range(count):
            loop.call_soon(spin, clock, 1)
            loop.run()

    turn(70)
    before = loop.histograms()
    opened = recorded.watch(loop)
    assert loop.histograms() == before
    assert loop.metrics().callbacks == 70
    turn(5)
    assert loop.metrics().callbacks == 75
    assert loop.histograms().batch.count == before.batch.count + 5
    assert loop.histograms().callback.count == before.callback.count + 5
    loop._set_recorder(None)
    between = loop.histograms()
    opened.close()
    assert loop.histograms() == between
    recorded_then = recorded.read().loops()[0]
    assert recorded_then.histograms == between
    turn(70)
    assert loop.metrics().callbacks == 145
    assert loop.histograms().batch.count == between.batch.count + 70
    assert recorded.read().loops()[0].histograms == recorded_then.histograms


@pytest.mark.skipif(whorl.compiled, reason="compiled, the figures lie in the memory")
def test_figures_may_move_back_while_they_are_copied(recorded: Recorded, loop: Loop) -> None:
    class Place(list[int]):
        """Memory of which another thread takes the figures at the first write."""

        def __setitem__(self, index: Any, number: Any) -> None:
            figures.move_back(loop._figures)  # type: ignore[attr-defined]
            super().__setitem__(index, number)

    recorded.watch(loop)
    place = Place([-1] * layout.LOOP_SIZE)
    loop._figures._home = place  # type: ignore[attr-defined]
    figures.copy_figures(loop._figures)  # type: ignore[attr-defined]
    assert place[0] >= 0
    figures.copy_figures(loop._figures)  # type: ignore[attr-defined]


def test_abandoned_memory_is_not_written(recorded: Recorded, loop: Loop, clock: ObedientClock) -> None:
    opened = recorded.watch(loop)
    loop.call_soon(spin, clock, 1)
    loop.run()
    loop._set_recorder(None)
    before = bytes(recorded.memory)
    figures = loop.histograms()
    recorded.recorder.abandon()
    loop.call_soon(spin, clock, 1)
    loop.run()
    opened.close()
    assert bytes(recorded.memory) == before
    assert loop.metrics().callbacks == 2
    assert loop.histograms() != figures
    with pytest.raises(ValueError, match="abandoned"):
        recorded.recorder.note(layout.MARK)


@pytest.mark.skipif(COMPILED, reason="compiled, no other thread runs between these steps")
def test_recording_may_be_abandoned_between_any_two_steps_of_an_event(recorded: Recorded) -> None:
    steps = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        if "/core/recording/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        if steps == wanted:
            recorded.recorder._view = None
        return trace

    former, view = sys.gettrace(), recorded.recorder._view
    for wanted in range(1, 1_000):
        steps, recorded.recorder._view = 0, view
        sys.settrace(trace)
        try:
            recorded.recorder._put(0, 1, layout.MARK, 0, 0, 0)
        finally:
            sys.settrace(former)
        if steps < wanted:
            break
    assert wanted > 10


@pytest.mark.skipif(COMPILED, reason="compiled, nothing of a recording fails here")
def test_batch_stays_in_the_queue_if_its_recording_fails(
    recorded: Recorded, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        monkeypatch.undo()
        raise LookupError("the recording's")

    called: list[int] = []
    recorded.watch(loop)
    monkeypatch.setattr(execution, "begin_batch_of", fail)
    loop.call_soon(called.append, 1)
    loop.call_soon(called.append, 2)
    with pytest.raises(LookupError, match="the recording's"):
        loop.run()
    loop.run()
    assert called == [1, 2]


# Callbacks.


def test_each_callback_is_in_the_histogram(recorded: Recorded, loop: Loop, clock: ObedientClock) -> None:
    recorded.watch(loop)
    for ms in (1, 2, 4):
        loop.call_soon(spin, clock, ms)
    loop.run()
    histogram = loop.histograms().callback
    assert (histogram.count, histogram.total, histogram.max) == (3, 7 * MS, 4 * MS)


@pytest.mark.skipif(whorl.compiled, reason="compiled, a look-up of a name takes no time to speak of")
def test_look_up_of_a_name_is_no_part_of_its_callback(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ObedientClock()

    def take_long(names: LoopRecorder, entry: object) -> int:
        spin(clock, 10)
        return 0

    monkeypatch.setattr(Kernel, "now", lambda kernel: clock.clock)
    monkeypatch.setattr(LoopRecorder, "_name_of", take_long)
    with closing(Loop()) as loop:
        recorded.watch(loop)
        loop.call_soon(spin, clock, 1)
        loop.call_soon(spin, clock, 2)
        loop.run()
        histogram = loop.histograms().callback
    assert (histogram.count, histogram.total) == (2, 3 * MS)


def test_clock_of_a_simulation_is_read_once_for_a_recorded_callback(recorded: Recorded) -> None:
    class Counting(ObedientClock):
        reads = 0

        def now(self) -> int:
            self.reads += 1
            return super().now()

    def reads_of(count: int) -> int:
        clock = Counting()
        with closing(Loop(kernel=clock)) as loop:
            recorded.watch(loop)
            for _ in range(count):
                loop.call_soon(int)
            loop.run()
        return clock.reads

    assert reads_of(10) - reads_of(1) == 9


def test_long_callbacks_have_events(loop: Loop, clock: ObedientClock) -> None:
    recorded = Recorded(shortest_ns=100_000)
    opened = recorded.watch(loop)
    began = clock.clock
    for ms in (0.01, 3, 0.02, 5):
        loop.call_soon(spin, clock, ms)
    loop.run()
    events = recorded.events(layout.CALLBACK)
    assert [(event.at_ns - began, event.took_ns) for event in events] == [
        (10_000, 3 * MS),
        (3_030_000, 5 * MS),
    ]
    assert {event.loop for event in events} == {opened.number}
    assert set(recorded.names(layout.CALLBACK)) == {"spin"}
    (turn,) = recorded.events(layout.TURN)
    assert (turn.at_ns, turn.took_ns, turn.subject) == (began, 8_030_000 // 16 * 16, 4)


def test_running_callback_is_in_the_slot(recorded: Recorded, loop: Loop, clock: ObedientClock) -> None:
    seen: list[tuple[str, int]] = []

    class Thing:
        def method(self) -> None:
            look()

        def __call__(self) -> None:
            look()

    def look() -> None:
        fields = recorded.fields()
        seen.append((recorded.read().name(fields["call_name"]), fields["call_began_ns"] - began))

    recorded.watch(loop)
    began = clock.clock
    loop.call_soon(spin, clock, 1)
    loop.call_soon(look)
    loop.call_soon(Thing().method)
    loop.call_soon(Thing())
    loop.run()
    prefix = "test_running_callback_is_in_the_slot.<locals>."
    assert seen == [(f"{prefix}look", MS), (f"{prefix}Thing.method", MS), (f"{prefix}Thing", MS)]
    fields = recorded.fields()
    assert (fields["call_began_ns"], fields["run_began_ns"]) == (0, 0)
    assert (fields["turns"], fields["callbacks"]) == (loop.metrics().turns, 4)


def test_callbacks_of_one_function_and_of_others_keep_their_names(
    recorded: Recorded, loop: Loop, clock: ObedientClock
) -> None:
    class Thing:
        def method(self) -> None:
            spin(clock, 1)

    def other() -> None:
        spin(clock, 2)

    recorded.watch(loop)
    calls = [other, other, Thing().method, Thing().method, other, loop.update_time, other]
    for call in calls:
        loop.call_soon(call)
    loop.run()
    loop.call_soon(other)  # alone in its turn
    loop.run()
    names = [name.rpartition(".")[2] for name in recorded.names(layout.CALLBACK)]
    assert names == [*("other", "other", "method", "method", "other", "update_time", "other"), "other"]
    took = [event.took_ns // MS for event in recorded.events(layout.CALLBACK)]
    assert took == [2, 2, 1, 1, 2, 0, 2, 2]


def test_method_in_c_has_a_name_of_its_own(recorded: Recorded, loop: Loop, clock: ObedientClock) -> None:
    """Some know their class, as methods of asyncio's futures do. Python has a type of its own for these."""
    recorded.watch(loop)
    for call in (re.compile("a").match, re.compile("b").search, "text".startswith):
        loop.call_soon(call, "a")
    loop.run()
    assert recorded.names(layout.CALLBACK) == ["Pattern.match", "Pattern.search", "str.startswith"]


def test_entries_that_run_alone_are_in_the_histogram_of_a_reader(
    recorded: Recorded, loop: Loop, clock: ObedientClock
) -> None:
    left = 5

    def go_on() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(go_on)

    opened = recorded.watch(loop)
    loop.call_soon(go_on)
    loop.run()
    assert (loop.histograms().batch.count, loop.histograms().batch.total) == (5, 5)
    loop._set_recorder(None)
    opened.close()
    read = recorded.read().loops()[-1]
    assert (read.histograms.batch.count, read.histograms.batch.total) == (5, 5)
    assert read.fields["callbacks"] == 5


def test_posted_callback_of_a_recorded_loop_comes_before_a_later_one(recorded: Recorded, loop: Loop) -> None:
    order: list[str] = []

    def post_and_call() -> None:
        for number in ("1", "2"):
            thread = threading.Thread(
                target=loop.call_soon_threadsafe, args=(order.append, f"posted {number}")
            )
            thread.start()
            thread.join()
            loop.call_soon(lambda: order.append("called"))
            loop.call_soon(order.append, "called too")

    recorded.watch(loop)
    loop.call_soon(post_and_call)
    loop.run()
    assert order == ["posted 1", "called", "called too", "posted 2", "called", "called too"]


def test_sleep_is_recorded(recorded: Recorded, loop: Loop, clock: ObedientClock) -> None:
    recorded.watch(loop)
    began = clock.clock
    timer = Timer(loop)
    timer.start(lambda handle: handle.close(), 3 * SECOND)
    loop.run()
    (poll,) = recorded.events(layout.POLL)
    assert (poll.at_ns, poll.took_ns) == (began, 3 * SECOND)
    assert recorded.fields()["sleep_began_ns"] == 0
    names = recorded.names(layout.HANDLE_OPENED, layout.HANDLE_CLOSED)
    assert [name for name in names if name != "SignalPipe"] == ["Timer", "Timer"]


def test_late_timer_has_an_event(recorded: Recorded, loop: Loop, clock: ObedientClock) -> None:
    recorded.watch(loop)
    deadline = clock.clock + 5 * MS
    loop.call_at(deadline / 1e9, spin, clock, 0)
    loop.call_soon(spin, clock, 25)
    loop.run()
    (late,) = recorded.events(layout.TIMER_LATE)
    assert late.at_ns + late.took_ns == pytest.approx(deadline + 20 * MS, abs=16)
    assert recorded.names(layout.TIMER_LATE) == ["spin"]


def test_counters_are_written_every_10_ms(recorded: Recorded, loop: Loop, clock: ObedientClock) -> None:
    recorded.watch(loop)
    for _ in range(40):
        loop.call_soon(spin, clock, 1)
        loop.run()
    assert 3 <= len(recorded.events(layout.UTILIZATION)) <= 4
    assert {event.subject for event in recorded.events(layout.UTILIZATION)} == {1000}


# What callbacks may do meanwhile.


def test_error_of_a_callback_leaves_the_rest_recorded(
    recorded: Recorded, loop: Loop, clock: ObedientClock
) -> None:
    def fail() -> None:
        spin(clock, 2)
        raise KeyboardInterrupt

    recorded.watch(loop)
    for callback in (fail, fail):
        loop.call_soon(spin, clock, 1)
        loop.call_soon(callback)
    loop.call_soon(spin, clock, 4)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            loop.run()
    loop.run()
    assert loop.histograms().callback.total == 10 * MS
    assert len(recorded.events(layout.CALLBACK)) == loop.metrics().callbacks == 5
    assert recorded.fields()["call_began_ns"] == 0


@pytest.mark.parametrize("stop", ["close", "leave", "both", "abandon"])
def test_recording_that_a_callback_ends_ends(
    recorded: Recorded, loop: Loop, clock: ObedientClock, stop: str
) -> None:
    def end() -> None:
        if stop != "close":
            loop._set_recorder(None)
        if stop == "abandon":
            recorded.recorder.abandon()
        elif stop != "leave":
            opened.close()

    opened = recorded.watch(loop)
    order: list[int] = []
    for number in range(6):
        loop.call_soon(order.append, number)
        if number == 2:
            loop.call_soon(end)
    loop.run()
    loop.call_soon(order.append, 6)
    loop.run()
    assert order == list(range(7))
    assert loop.metrics().callbacks == 8
    loop._set_recorder(None)
    opened.close()


def test_recording_that_a_callback_begins_begins_with_the_next_turn(
    recorded: Recorded, loop: Loop, clock: ObedientClock
) -> None:
    order: list[int] = []
    loop.call_soon(recorded.watch, loop)
    loop.call_soon(order.append, 1)
    loop.call_soon(loop.call_soon, order.append, 2)
    loop.run()
    assert order == [1, 2]
    assert recorded.names(layout.CALLBACK) == ["list.append"]


@pytest.mark.parametrize("when", ["opened", "closed", "step"])
def test_recorder_lives_as_long_as_its_call(recorded: Recorded, loop: Loop, when: str) -> None:
    """The batch in which the recording begins does not hold the recorder, as it is not recorded itself."""

    def end_recording() -> None:
        recorder = weakref.ref(loop._recorder)
        loop._set_recorder(None)
        lives.append(recorder() is not None)

    class Asked(Poll):
        def fileno(self) -> int:
            end_recording()
            return reader

    class Stepped:
        def step(self) -> None:
            pass

    def act() -> None:
        if when == "opened":
            Asked(loop, reader).close()
        elif when == "closed":
            poll.close()
        else:
            loop.call_soon(Stepped().step)

    lives: list[bool] = []
    kind = TaskKind(lambda task: "Task-1", lambda task: end_recording(), lambda task: "PENDING", None)
    if when == "step":
        know_tasks(Stepped, kind, methods=(Stepped.step,))
    reader, writer = os.pipe()
    poll = Asked(loop, reader) if when == "closed" else None
    loop.call_soon(recorded.watch, loop)
    loop.call_soon(act)
    loop.run()
    assert lives == [True]
    os.close(reader)
    os.close(writer)


def test_loops_call_no_recorder_that_is_held_by_the_loop_alone() -> None:
    folder = Path(__file__).parents[3] / "src/whorl/core/loop"
    sources = [path.read_text() for path in folder.glob("*.py")]
    assert not re.findall(r"self\._recorder\.\w+\(", "".join(sources)), "compiled, it is not held"


def test_inner_loop_is_recorded_beside_the_outer_one(recorded: Recorded, clock: ObedientClock) -> None:
    outer, inner = Loop(kernel=clock), Loop(kernel=clock)

    def run_inner() -> None:
        inner.call_soon(spin, clock, 3)
        inner.run()

    for one in (outer, inner):
        recorded.watch(one)
    outer.call_soon(run_inner)
    outer.call_soon(spin, clock, 1)
    outer.run()
    assert (outer.histograms().callback.total, inner.histograms().callback.total) == (4 * MS, 3 * MS)
    assert outer.histograms().callback.max == 3 * MS
    for one in (outer, inner):
        one.close()
    assert [one.fields["state"] for one in recorded.read().loops()] == [2, 2]


def test_turns_inside_of_a_callback_are_a_part_of_it(recorded: Recorded, clock: ObedientClock) -> None:
    loop = whorl.EventLoop(kernel=clock)
    whorl.allow_nested_runs(loop)
    recorded.watch(loop)

    def outer() -> None:
        spin(clock, 2)
        loop.call_soon(spin, clock, 3)
        loop.run_until_complete(asyncio.sleep(0.001))
        spin(clock, 4)
        loop.stop()

    loop.call_soon(outer)
    loop.call_soon(spin, clock, 5)
    loop.run_forever()
    loop.close()
    events = [event for event in recorded.events(layout.CALLBACK) if event.took_ns]
    assert [recorded.read().name(event.name_id).rpartition(".")[2] for event in events] == ["outer"]
    assert events[0].took_ns == 15 * MS  # with the callback behind it, and the sleep
    assert recorded.fields()["state"] == 2


class Failing(Probe):
    """A probe that raises."""

    def callback_ran(self, entry: Any, took_ns: int) -> None:
        """Raise."""
        raise ValueError


@pytest.mark.parametrize("is_probed", [False, True])
@pytest.mark.parametrize("is_debugged", [False, True])
@pytest.mark.parametrize("is_hooked", [False, True])
def test_recorder_works_beside_a_probe_debug_mode_and_a_hook(
    recorded: Recorded,
    loop: Loop,
    clock: ObedientClock,
    is_probed: bool,
    is_debugged: bool,
    is_hooked: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooked: list[Any] = []

    def hook(of: Any, entry: Any) -> None:
        hooked.append(entry)
        of._run_entry(entry)

    recorded.watch(loop)
    loop.set_debug(is_debugged)
    if is_probed:
        loop.set_probe(Failing())
    if is_hooked:
        loop._run_hook = hook
    calls: list[Callable[[], object]] = []
    for number in range(3):
        loop.call_soon(calls.append, number)
        loop.call_soon(spin, clock, 1)
    loop.run()
    assert calls == [0, 1, 2]
    assert loop.histograms().callback.count == 6
    assert len(recorded.events(layout.CALLBACK)) == 6
    assert bool(hooked) == is_hooked
    assert len(caplog.records) == is_probed


def test_program_runs_alike_on_each_run_of_its_seed() -> None:
    def recording() -> bytes:
        recorded, clock = Recorded(), ObedientClock()
        loop = Loop(kernel=clock)
        recorded.watch(loop)
        for number in range(50):
            loop.call_later(number / 7, spin, clock, number)
        loop.run()
        loop.close()
        return bytes(recorded.memory)

    def without_thread(memory: bytes) -> bytes:
        at = layout.HEADER_SIZE + 8 * layout.LOOP_FIELDS.index("thread")
        return memory[:at] + memory[at + 8 :]

    assert without_thread(recording()) == without_thread(recording())
