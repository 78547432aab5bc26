"""Random programs on the machine's loop, and a model of libuv's rules that says what must come of them.

`python -m tests.fuzz.machine SEED STEPS` takes that many in all; with `shrink`, what fails is made short.
Every public kind of handle takes part; wrong arguments are refused and change nothing.
"""

from __future__ import annotations

import errno
import faulthandler
import gc
import os
import signal
import socket
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import whorl
from tests.fuzz.surface import HANDLES
from whorl.core import Kernel

STEPS = 40  # of one program
DEADLINE = 140  # seconds for all of them
MOST = 8  # handles that are open at the same time
KINDS = sorted(kind.__name__ for kind in HANDLES)
STARTED = ("Check", "Idle", "Poll", "Prepare", "Signal", "Timer")
STREAMS = ("Pipe", "TCP", "TTY")
REFUSED = (TypeError, ValueError, OSError, OverflowError, RuntimeError, AttributeError)

numbers = st.integers(0, MOST - 1)
times = st.sampled_from([0, 0, 1, 10, 1000])
odd = st.sampled_from([None, "text", -1, 1.5, 2**70, b"bytes", object(), ()])
data = st.sampled_from([b"", b"x", b"some bytes", bytearray(b"mutable"), memoryview(b"every other")[::2]])


class Clock(Kernel):
    """The real kernel, whose time stands still until it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 10**12

    def now(self) -> int:
        return self.time


@dataclass
class Model:
    """The known state of a handle, without asking it."""

    kind: str
    handle: Any
    peer: socket.socket | None = None
    active: bool = False
    referenced: bool = True
    closing: bool = False
    closed: int = 0  # how often its close callback was called
    due: int = 0  # of a timer
    order: int = 0
    repeat: int = 0
    started: bool = False
    written: bytearray = field(default_factory=bytearray)
    arrived: bytearray = field(default_factory=bytearray)
    read: bytearray = field(default_factory=bytearray)
    sent: bytearray = field(default_factory=bytearray)
    requests: list[Any] = field(default_factory=list)  # how each of them ended


operations = st.one_of(
    *[st.tuples(st.just("make"), st.sampled_from(KINDS))] * 3,
    st.tuples(st.just("make_of_nonsense"), st.sampled_from(KINDS), st.lists(odd, min_size=1, max_size=3)),
    st.tuples(st.just("close"), numbers, st.integers(1, 2)),
    st.tuples(st.just("refer"), numbers, st.booleans()),
    *[st.tuples(st.just("start"), numbers, times, times)] * 3,
    st.tuples(st.just("stop"), numbers),
    st.tuples(st.just("again"), numbers, times),
    st.tuples(st.just("send"), numbers),
    st.tuples(
        st.just("nonsense"),
        numbers,
        st.sampled_from(["start", "open", "bind", "write", "send", "repeat_ns"]),
        odd,
    ),
    *[st.tuples(st.just("write"), numbers, data)] * 3,
    st.tuples(st.just("reading"), numbers, st.booleans()),
    st.tuples(st.just("peer_sends"), numbers, data),
    st.tuples(st.just("advance"), st.integers(0, 3)),
    st.tuples(st.just("advance"), st.integers(0, 1)),
    st.tuples(st.just("stop_the_loop")),
    st.tuples(st.just("raise_a_signal")),
)


class Machine(RuleBasedStateMachine):
    """A loop of the machine's with handles of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.before = descriptors()
        self.kernel = Clock()
        self.loop = whorl.Loop(kernel=self.kernel)
        self.models: list[Model] = []
        self.gone: list[Model] = []
        self.calls: list[tuple[str, Model]] = []
        self.orders = 0
        self.stopped = False

    @initialize(kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=6))
    def begin(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.make(kind)
        for number in range(len(kinds)):
            self.start(number, 1, 10)

    @rule(operation=operations, turn=st.booleans())
    def step(self, operation: tuple[Any, ...], turn: bool) -> None:
        name, *arguments = operation
        getattr(self, name)(*arguments)
        if turn:
            self.agrees()
            self.run()

    # Making and ending.

    def make(self, kind: str) -> None:
        if len(self.models) >= MOST:
            return
        factory = getattr(whorl.handles, kind)
        model = Model(kind, None)
        if kind == "Async":
            model.handle, model.active = factory(self.loop, lambda handle: self.called("async", model)), True
        elif kind == "Poll":
            ours, model.peer = pair()
            model.handle = factory(self.loop, ours)
            model.handle.data = ours  # whoever made it closes it
        else:
            model.handle = factory(self.loop)
        if kind in ("Pipe", "TCP"):
            ours, model.peer = pair()
            model.handle.open(ours.detach())
        self.models.append(model)

    def make_of_nonsense(self, kind: str, arguments: list[Any]) -> None:
        refused(getattr(whorl.handles, kind), *arguments)

    def close(self, number: int, times: int) -> None:
        model = self.model(number)
        if model is None:
            return
        for _ in range(times):
            model.handle.close(lambda handle: self.called("closed", model))
        model.active, model.closing, model.started = False, True, model.started and model.kind != "Async"

    def refer(self, number: int, on: bool) -> None:
        model = self.model(number)
        if model is not None:
            (model.handle.ref if on else model.handle.unref)()
            model.referenced = on

    # Starting and stopping.

    def start(self, number: int, timeout: int, repeat: int) -> None:
        model = self.model(number, STARTED)
        if model is None:
            return
        handle, name = model.handle, model.kind.lower()

        def callback(*details: Any) -> None:
            self.called(name, model)

        if model.closing:
            refused(handle.start, callback)
            return
        if model.kind == "Timer":
            handle.start(callback, timeout, repeat)
            self.arm(model, timeout)
            model.repeat = repeat
        elif model.kind == "Poll":
            handle.start(1, callback)
        elif model.kind == "Signal":
            handle.start(signal.SIGUSR1, callback)
        elif not model.active:  # these do not take another callback while they run
            handle.start(callback)
        model.active = model.started = True

    def arm(self, model: Model, timeout: int) -> None:
        self.orders += 1
        model.due, model.order = self.loop.now() + timeout, self.orders

    def stop(self, number: int) -> None:
        model = self.model(number, STARTED)
        if model is None or model.closing:
            return
        model.handle.stop()
        model.active = False

    def again(self, number: int, repeat: int) -> None:
        model = self.model(number, ("Timer",))
        if model is None or model.closing:
            return
        if not model.started:
            assert refused(model.handle.again).errno == errno.EINVAL
            return
        model.handle.repeat_ns = model.repeat = repeat
        model.handle.again()
        if repeat:
            self.arm(model, repeat)
            model.active = True

    def send(self, number: int) -> None:
        model = self.model(number, ("Async",))
        if model is not None and not model.closing:
            model.handle.send()
            model.handle.send()
            model.started = True

    def nonsense(self, number: int, name: str, value: Any) -> None:
        """Call a method with a wrong argument, or one that the handle does not have."""
        model = self.model(number)
        if model is None or value == -1 or (name == "send" and model.kind == "Async"):
            return
        if name == "repeat_ns" and model.kind == "Timer":
            if not isinstance(value, int):
                refused(setattr, model.handle, name, value)
        elif hasattr(model.handle, name) and not (name == "write" and isinstance(value, bytes)):
            refused(getattr(model.handle, name), value)

    # Streams.

    def write(self, number: int, what: Any) -> None:
        model = self.model(number, STREAMS)
        if model is None or model.peer is None:
            return
        place = len(model.requests)

        def ended(request: Any, error: Exception | None) -> None:
            assert model.requests[place] is None, "a request ended twice"
            model.requests[place] = "done" if error is None else errno.errorcode[error.errno or 0]

        if model.closing:
            refused(model.handle.write, what, ended)
            return
        model.requests.append(None)
        model.handle.write(what, ended)
        model.written += bytes(what)

    def reading(self, number: int, on: bool) -> None:
        model = self.model(number, STREAMS)
        if model is None or model.peer is None or model.closing:
            return

        def arrived(handle: Any, data: Any, error: Exception | None) -> None:
            assert model.active, "data came to one who does not read"
            model.read += data or b""

        if not on:
            model.handle.read_stop()
        elif model.active:
            assert refused(model.handle.read_start, arrived).errno == errno.EALREADY
        else:
            model.handle.read_start(arrived)
        model.active = on

    def peer_sends(self, number: int, what: Any) -> None:
        model = self.model(number, ("Pipe", "TCP", "Poll"))
        if model is not None and model.peer is not None and not model.closing:
            model.sent += bytes(what)
            model.peer.send(bytes(what))

    # Running.

    def advance(self, number: int) -> None:
        self.kernel.time += (1, 10, 500, 10**6)[number]

    def stop_the_loop(self) -> None:
        self.loop.stop()
        self.stopped = True

    def raise_a_signal(self) -> None:
        if any(model.kind == "Signal" and model.active for model in self.models):
            signal.raise_signal(signal.SIGUSR1)
            for model in self.models:
                model.arrived += b"!" * (model.kind == "Signal" and model.active)

    def run(self) -> None:
        """Make one turn that does not wait."""
        expected = self.expected_calls()
        runs = self.loop.alive() and not self.stopped
        self.calls.clear()
        self.loop.run(whorl.RunMode.NOWAIT)
        self.stopped = False
        counted = Counter((name, id(model)) for name, model in self.calls)
        for (name, number), count in expected.items():
            assert counted.pop((name, number), 0) == count, f"{name} was not called {count} times"
        assert not {name for name, _ in counted} - {"signal", "poll"}, f"too many calls: {counted}"
        phases = [name for name, _ in self.calls if name in ("idle", "prepare", "check", "closed", "timer")]
        order = ["idle", "prepare", "check", "closed", "timer"]
        assert phases == sorted(phases, key=order.index), f"not libuv's order: {phases}"
        if not runs:
            return
        for model in [model for model in self.models if model.closing]:
            self.models.remove(model)
            self.gone.append(model)
            self.finished(model)
        for model in self.models:
            if model.kind in ("Pipe", "TCP"):
                self.flowed(model)

    def expected_calls(self) -> dict[tuple[str, int], int]:
        """Return the calls that a turn makes, with their numbers."""
        if self.stopped or not self.loop.alive():
            return {}
        expected: dict[tuple[str, int], int] = {}
        now = self.kernel.time
        timers = [
            model for model in self.models if model.kind == "Timer" and model.active and model.due <= now
        ]
        for model in sorted(timers, key=lambda model: (model.due, model.order)):
            expected["timer", id(model)] = 1
            model.active = bool(model.repeat)
            if model.repeat:
                self.orders += 1
                model.due, model.order = now + model.repeat, self.orders
        for model in self.models:
            if model.kind in ("Idle", "Prepare", "Check") and model.active:
                expected[model.kind.lower(), id(model)] = 1
            if model.kind == "Async" and model.started and not model.closing:
                expected["async", id(model)] = 1
                model.started = False
            if model.closing:
                expected["closed", id(model)] = 1
        return expected

    def called(self, name: str, model: Model) -> None:
        self.calls.append((name, model))
        assert name == "closed" or not model.closing, f"{model.kind} was called after close()"
        model.closed += name == "closed"

    def finished(self, model: Model) -> None:
        """Check that a closed handle leaves nothing behind."""
        assert model.closed == 1
        assert None not in model.requests, "a request never ended"
        if model.peer is not None:
            model.peer.close()
        if model.kind == "Poll":
            model.handle.data.close()

    def flowed(self, model: Model) -> None:
        """Check that written data is at the peer, and that the peer's data was read if the stream reads."""
        assert model.peer is not None
        try:
            model.arrived += model.peer.recv(1 << 20)
        except BlockingIOError:
            pass
        assert model.arrived == model.written
        assert model.requests == ["done"] * len(model.requests)
        assert model.read == model.sent[: len(model.read)]
        if model.active:
            assert model.read == model.sent

    # Invariants.

    @invariant()
    def agrees(self) -> None:
        assert self.loop.walk() == [model.handle for model in self.models]
        for model in self.models:
            handle = model.handle
            assert handle.is_active() == model.active, f"{model.kind} active: {handle.is_active()}"
            assert handle.is_closing() == model.closing
            assert bool(handle.has_ref()) == model.referenced or model.closing
            assert handle.loop is self.loop
        alive = any(model.closing or (model.active and model.referenced) for model in self.models)
        requests = any(None in model.requests for model in self.models)
        # A post for a handle without references, or a raised signal, may count as work.
        posted = any(model.kind == "Async" and model.started for model in self.models)
        signalled = any(model.kind == "Signal" for model in [*self.models, *self.gone])
        assert self.loop.alive() == (alive or requests) or ((posted or signalled) and not (alive or requests))
        if self.models:
            assert refused(self.loop.close).errno == errno.EBUSY

    def model(self, number: int, kinds: tuple[str, ...] = ()) -> Model | None:
        """Return one of the handles, of these kinds."""
        models = [model for model in self.models if model.kind in kinds or not kinds]
        return models[number % len(models)] if models else None

    def teardown(self) -> None:
        for model in self.models:
            if not model.closing:
                model.handle.close(lambda handle, model=model: self.called("closed", model))
                model.closing = True
        self.loop.update_time()
        self.calls.clear()
        self.stopped = False
        self.loop.run(whorl.RunMode.NOWAIT)
        self.loop.run(whorl.RunMode.NOWAIT)
        for model in self.models:
            self.finished(model)
        self.loop.close()
        assert descriptors() <= self.before, "descriptors were left open"


def pair() -> tuple[socket.socket, socket.socket]:
    made = socket.socketpair()
    for sock in made:
        sock.setblocking(False)
    return made


def refused(function: Any, *arguments: Any) -> Any:
    """Return the error of a call that must be refused."""
    try:
        function(*arguments)
    except REFUSED as error:
        return error
    raise AssertionError(f"{function!r} took {arguments!r}")


def descriptors() -> int:
    """Return the number of open descriptors."""
    return len(os.listdir("/proc/self/fd"))


def main(seed: int, steps: int, shrink: bool) -> None:
    """Run programs; what fails is shown as it was, or in its shortest form."""
    examples = max(1, steps // STEPS // 2)
    faulthandler.enable()
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    gc.collect()
    options = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
    )
    run_state_machine_as_test(seeded(seed)(Machine), settings=options)
    print(examples * STEPS)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), shrink="shrink" in sys.argv[3:])
