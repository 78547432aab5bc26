"""Random scripts: the same for the same seed, with any Python."""

from __future__ import annotations

import random
from collections.abc import Sequence


def script(seed: int) -> str:
    """Return the script of a seed."""
    return Generator(seed).script()


class Generator:
    """Makes one script: some handles, what their callbacks do, and a few runs of the loop."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lines: list[str] = []
        self._handles: dict[str, list[str]] = {kind: [] for kind in OPERATIONS}

    def script(self) -> str:
        self._make_things()
        self._start_things()
        self._bring_to_an_end()
        for _ in range(self._below(4)):
            self._lines.append(self._operation())
        for label, kind, comes_often in self._labels():
            for _ in range(self._below(5 if comes_often else 3)):
                call = f"{1 + self._below(3)} " if comes_often and self._below(4) else ""
                self._lines.append(f"on {label} {call}{self._operation(kind)}")
        for _ in range(self._below(4) + 1):
            self._lines.append(f"run {self._one_of(('default', 'once', 'once', 'nowait'))}")
            for _ in range(self._below(3)):
                self._lines.append(self._operation())
        self._lines.append("run default")
        return "\n".join(self._lines) + "\n"

    def _below(self, limit: int) -> int:
        return int(self._random.random() * limit)

    def _one_of(self, choices: Sequence[str]) -> str:
        return choices[self._below(len(choices))]

    def _make_things(self) -> None:
        """Make a few handles, of a few kinds, and a timer that ends every sleep."""
        self._lines += ["new timer alarm", "start alarm 1000 1000", "unref alarm", "on alarm stoploop"]
        for kind, most in (("timer", 4), ("idle", 2), ("prepare", 2), ("check", 2), ("async", 3)):
            for number in range(self._below(most + 1)):
                self._handles[kind].append(f"{kind[0]}{number}")
                self._lines.append(f"new {kind} {kind[0]}{number}")
        for number in range(self._below(3)):
            self._make_descriptors(number)
        for number in range(self._below(2)):
            self._handles["work"].append(f"k{number}")

    def _make_descriptors(self, number: int) -> None:
        raw, other = f"x{number}", f"y{number}"
        choice = self._below(3)
        kind = self._one_of(("pipe", "tcp"))
        if choice == 0:
            self._lines += [f"fds {raw} {other}", f"new poll w{number} {raw}"]
            self._handles["poll"].append(f"w{number}")
            self._handles["watched"].append(raw)
            self._handles["raw"].append(other)
        elif choice == 1:
            self._lines.append(f"half {kind} s{number} {other}")
            self._handles["stream"].append(f"s{number}")
            self._handles["raw"].append(other)
        else:
            self._lines.append(f"pair {kind} s{number} z{number}")
            self._handles["stream"] += [f"s{number}", f"z{number}"]

    def _start_things(self) -> None:
        """Start most of the handles."""
        for kind, names in self._handles.items():
            for name in names:
                if kind not in ("raw", "watched", "work") and self._below(3):
                    self._lines.append(self._fill(OPERATIONS[kind][0], name))

    def _bring_to_an_end(self) -> None:
        """Stop what would go on for ever, after a while."""
        for kind, calls in (("idle", 4), ("timer", 6), ("poll", 5)):
            self._lines += [f"on {name} {calls} stop {name}" for name in self._handles[kind]]

    def _labels(self) -> list[tuple[str, str, bool]]:
        """Return the possible callbacks, their kinds, and whether they may come more than once."""
        labels = []
        for kind, names in self._handles.items():
            if kind in ("raw", "watched"):
                continue
            labels += [(name, kind, True) for name in names]
            if kind == "stream":
                labels += [(f"{name}.written", kind, True) for name in names]
                labels += [(f"{name}.shut", kind, False) for name in names]
            if kind != "work":
                labels += [(f"{name}.closed", "closing", False) for name in names]
        if self._handles["work"]:
            labels.append(("holder", "work", True))
        return labels

    def _operation(self, caller: str = "") -> str:
        """Return any operation on any object, for a callback of a kind, or for none."""
        kinds = [kind for kind, names in self._handles.items() if names]
        kind = self._one_of((*kinds, "loop"))
        if kind == "loop":
            return self._fill(self._one_of(LOOP[:-1] if caller in UNTIMED else LOOP))
        name = self._one_of(self._handles[kind])
        if kind == "work":
            return self._work(name, caller in POLLED)
        if kind not in ("raw", "watched") and self._below(4) == 0:
            return self._fill(self._one_of(ANY), name)
        return self._fill(self._one_of(OPERATIONS[kind]), name)

    def _work(self, name: str, in_poll: bool) -> str:
        """Return an operation with work; callbacks of a poll do not wait for it: its end is an event."""
        choice = self._below(2 if in_poll else 4)
        return ("release", f"work {name}", "hold", f"cancel {name}")[choice]

    def _fill(self, operation: str, name: str = "") -> str:
        """Put a name and numbers where the operation wants them."""
        return operation.format(
            name=name,
            time=self._below(4) * 5,
            repeat=(0, 0, 5, 10)[self._below(4)],
            events=self._one_of(("r", "w", "rw", "rwd", "0")),
            size=1 + self._below(20),
        )


POLLED = ("async", "poll", "stream", "work")
# While these are called, libuv has lost sight of those that are left: its timeout then is of no use.
UNTIMED = ("idle", *POLLED)
ANY = (
    "close {name}",
    "close {name}",
    "ref {name}",
    "unref {name}",
    "active {name}",
    "hasref {name}",
    "closing {name}",
)
LOOP = ("stoploop", "update", "busy {time}", "alive", "now", "walk", "timeout")
START_STOP = ("start {name}", "start {name}", "stop {name}")
OPERATIONS = {
    "timer": (
        "start {name} {time} {repeat}",
        "start {name} {time} {repeat}",
        "stop {name}",
        "again {name}",
        "repeat {name} {time}",
        "due {name}",
    ),
    "idle": START_STOP,
    "prepare": START_STOP,
    "check": START_STOP,
    "async": ("send {name}",),
    "poll": ("start {name} {events}", "start {name} {events}", "stop {name}"),
    "stream": (
        "read {name}",
        "read {name}",
        "noread {name}",
        "write {name} {size}",
        "write {name} {size}",
        "try {name} {size}",
        "shutdown {name}",
        "readable {name}",
        "writable {name}",
    ),
    "raw": ("put {name} {size}", "put {name} {size}", "take {name} {size}", "end {name}", "cut {name}"),
    "watched": ("put {name} {size}", "take {name} {size}", "end {name}"),
    "work": (),
}
